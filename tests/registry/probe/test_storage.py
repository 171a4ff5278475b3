"""The drive of the models folder."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path, PurePosixPath

import pytest

from engine.cancel import Cancel, Cancelled
from engine.errors import StorageError
from engine.memory.machine import kept_drive
from registry.probe import reading
from registry.probe.mounts import NETWORK, Disk, Mount, disk_of, mount_of
from registry.probe.reading import measure
from registry.probe.storage import drive_is_missing, existing, storage
from tests.registry.probe.trees import write

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="as Linux tells it")
HOME = Path("/home/山田")


def test_a_folder_that_is_there_has_its_drives_room(folder: Path) -> None:
    told, problems = storage(folder, None, HOME, Path("/"))
    usage = shutil.disk_usage(folder)
    assert (told.state, told.total, problems) == ("ready", usage.total, ())
    assert told.free == pytest.approx(usage.free, abs=1 << 30)
    assert told.read_rate is None


def test_a_folder_that_can_be_made_is_new_and_a_file_in_its_place_is_unreadable(folder: Path) -> None:
    told, problems = storage(folder / "a" / "b", None, HOME, Path("/"))
    assert (told.state, problems) == ("new", ()) and told.free
    (folder / "a").write_text("a file")
    told, (problem,) = storage(folder / "a" / "b", None, HOME, Path("/"))
    assert told.state == "unreadable" and problem.part == "storage" and "cannot be read" in problem.sentence


@LINUX
def test_a_folder_below_the_home_is_told_without_it(folder: Path) -> None:
    assert storage(folder / "models", None, folder, Path("/"))[0].folder == "~/models"


@LINUX
@pytest.mark.parametrize(
    ("folder", "there", "mounted", "missing"),
    [
        ("/run/media/me/Disk/models", "/run/media/me", (), True),
        ("/run/media/me/Disk/models", "/run/media/me/Disk", ("/run/media/me/Disk",), False),
        ("/media/usb/models", "/media/usb", ("/media/usb",), False),
        ("/Volumes/Models/llm", "/Volumes", (), True),
        ("/srv/models", "/srv", (), False),
        ("/srv/models", "/", ("/",), False),
    ],
)
def test_a_drive_that_is_not_mounted_is_missing(
    folder: str, there: str, mounted: tuple[str, ...], missing: bool
) -> None:
    assert drive_is_missing(Path(folder), Path(there), lambda path: str(path) in mounted) is missing


def test_the_nearest_folder_that_exists_is_found(folder: Path) -> None:
    assert existing(folder) == folder
    assert existing(folder / "a" / "b") == folder


@LINUX
def test_a_missing_drive_is_a_state_and_a_sentence() -> None:
    told, (problem,) = storage(Path("/run/media/nobody-here/Disk/models"), None, HOME, Path("/"))
    assert (told.state, told.free, told.read_rate) == ("drive missing", None, None)
    assert "Connect it" in problem.sentence


MOUNTS = r"""22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
30 22 0:25 / /home rw shared:2 - btrfs /dev/mapper/home rw,subvol=/home
41 22 8:17 / /run/media/me/My\040Disk rw - exfat /dev/sdb1 rw
42 22 0:60 / /srv/models rw - nfs4 server:/export rw
43 22 0:61 / /tmp rw - tmpfs tmpfs rw
broken line
"""


def drives(root: Path) -> None:
    """An NVMe drive, an encrypted volume on a hard disk, and a stick, as /sys links them."""
    devices = {
        "nvme/nvme0n1": ("0", "0", "nvme0n1p2", "259:2"),
        "ata1/sda": ("1", "0", "sda1", "8:1"),
        "usb3/3-1/sdb": ("0", "0", "sdb1", "8:17"),
    }
    for name, (rotating, removable, partition, number) in devices.items():
        drive = f"sys/devices/{name}"
        write(root, {f"{drive}/queue/rotational": f"{rotating}\n", f"{drive}/removable": f"{removable}\n"})
        write(root, {f"{drive}/{partition}/partition": "1\n"})
        link(root, f"sys/dev/block/{number}", f"{drive}/{partition}")
        link(root, f"sys/class/block/{partition}", f"{drive}/{partition}")
    (root / "sys/devices/virtual/dm-0/slaves").mkdir(parents=True)
    link(root, "sys/devices/virtual/dm-0/slaves/sda1", "sys/devices/ata1/sda/sda1")
    link(root, "sys/class/block/dm-0", "sys/devices/virtual/dm-0")
    write(root, {"dev/dm-0": ""})
    link(root, "dev/mapper/home", "dev/dm-0")


def link(root: Path, name: str, target: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    os.symlink(root / target, root / name)


@LINUX
@pytest.mark.parametrize(
    ("folder", "file_system", "disk"),
    [
        ("/opt/models", "ext4", Disk(removable=False, rotating=False)),
        ("/home/me/models", "btrfs", Disk(removable=False, rotating=True)),
        ("/run/media/me/My Disk/models", "exfat", Disk(removable=True, rotating=False)),
        ("/tmp/models", "tmpfs", Disk(None, None)),
        ("/homely", "ext4", Disk(removable=False, rotating=False)),
    ],
)
def test_a_folders_drive_is_followed_to_what_it_is_made_of(
    tmp_path: Path, folder: str, file_system: str, disk: Disk
) -> None:
    write(tmp_path, {"proc/self/mountinfo": MOUNTS})
    drives(tmp_path)
    mount = mount_of(tmp_path, PurePosixPath(folder))
    assert mount is not None and mount.file_system == file_system
    assert disk_of(tmp_path, mount) == disk


@LINUX
def test_a_virtual_machines_drive_does_not_say_whether_it_turns(tmp_path: Path) -> None:
    write(tmp_path, {"sys/devices/virtio0/vda/queue/rotational": "1", "sys/devices/virtio0/vda/removable": "0"})
    link(tmp_path, "sys/dev/block/254:0", "sys/devices/virtio0/vda")
    assert disk_of(tmp_path, Mount(PurePosixPath("/"), "ext4", "254:0", "/dev/vda")) == Disk(False, None)


def test_what_other_machines_keep_is_on_the_network() -> None:
    assert all(NETWORK.fullmatch(kind) for kind in ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"))
    assert not any(NETWORK.fullmatch(kind) for kind in ("ext4", "btrfs", "fuseblk", "exfat", "nfsd4"))


def test_the_drive_is_measured_with_a_file_that_is_removed_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "ENOUGH", 8 << 20)
    monkeypatch.setattr("engine.memory.machine.measure_drive.__defaults__", (0.01, None))
    figures = folder / "figures.json"
    models = folder / "models"
    drive = measure(models, figures, Cancel())
    assert list(models.iterdir()) == []
    assert kept_drive(models, figures) == drive
    told, _ = storage(models, figures, HOME, Path("/"))
    assert told.read_rate == drive.bandwidth > 0
    figures.write_text(json.dumps({"version": 1, "drives": {"0": 1}}))
    assert storage(models, figures, HOME, Path("/"))[0].read_rate is None


def test_measuring_reads_a_model_that_is_there_and_writes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "ENOUGH", 1 << 20)
    monkeypatch.setattr("engine.memory.machine.measure_drive.__defaults__", (0.01, None))
    monkeypatch.setattr(reading.tempfile, "mkstemp", lambda **_: pytest.fail("a file was written"))
    (folder / "model.gguf").write_bytes(os.urandom(2 << 20))
    assert measure(folder, None, Cancel()).bandwidth > 0


def test_a_full_drive_and_a_cancel_leave_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Cancel()
    stop.set()
    with pytest.raises(Cancelled):
        measure(folder, None, stop)
    monkeypatch.setattr(reading, "LEFT", 1 << 62)
    with pytest.raises(StorageError, match="too full"):
        measure(folder, None, Cancel())
    assert list(folder.iterdir()) == []
    (folder / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be measured"):
        measure(folder / "file" / "models", None, Cancel())
