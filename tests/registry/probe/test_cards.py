"""AMD's and Intel's cards in trees as the kernel shows them; Apple's and Windows' by what those systems answer."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from registry.probe.apple import apple
from registry.probe.gpus import NOT_YET, linux_gpus
from registry.probe.intel import family
from registry.probe.pci import cards
from registry.probe.tree import Memory
from registry.probe.windows import windows
from tests.registry.probe.trees import kfd_node, pci_card, write

GIB = 1 << 30
MEMORY = Memory(32 * GIB, 24 * GIB, 32 * GIB)


def metrics(revision: int) -> bytes:
    """The beginning of gpu_metrics."""
    return struct.pack("<HBB", 136, revision, 3) + bytes(132)


def radeon(root: Path) -> None:
    pci_card(
        root,
        "0000:03:00.0",
        "1002:747e",
        "amdgpu",
        {"mem_info_vram_total": "17163091968\n", "mem_info_vram_used": "1224736768\n", "gpu_metrics": metrics(1)},
        revision=0xC8,
    )
    kfd_node(root, 0, cpu_cores_count=16, gfx_target_version=0, vendor_id=0)
    kfd_node(root, 1, cpu_cores_count=0, gfx_target_version=110001, vendor_id=0x1002, location_id=768, domain=0)


def test_a_radeon_is_told_of_by_the_kernels_own_figures(tmp_path: Path) -> None:
    radeon(tmp_path)
    write(
        tmp_path,
        {"usr/share/libdrm/amdgpu.ids": "# table\n1.0.0\n747E,\tC8,\tAMD Radeon RX 7800 XT\n747E,\tFF,\tAMD other\n"},
    )
    (gpu,), problems = linux_gpus(tmp_path, MEMORY, None)
    assert (gpu.vendor, gpu.name, gpu.architecture) == ("amd", "AMD Radeon RX 7800 XT", "gfx1101")
    assert (gpu.total, gpu.free, gpu.shared) == (17163091968, 17163091968 - 1224736768, False)
    assert (gpu.driver, gpu.usable, gpu.why_not, problems) == ("amdgpu, Linux 6.12.33", False, NOT_YET, ())


def test_graphics_in_an_amd_processor_count_the_memory_they_are_lent(tmp_path: Path) -> None:
    files = {
        "mem_info_vram_total": "536870912",
        "mem_info_vram_used": "225443840",
        "mem_info_gtt_total": str(15 * GIB),
        "mem_info_gtt_used": str(GIB),
        "gpu_metrics": metrics(3),
    }
    pci_card(tmp_path, "0000:c1:00.0", "1002:15bf", "amdgpu", files)
    kfd_node(tmp_path, 1, gfx_target_version=110003, location_id=0xC100)
    (gpu,), _ = linux_gpus(tmp_path, Memory(32 * GIB, 6 * GIB, 32 * GIB), None)
    assert (gpu.architecture, gpu.shared) == ("gfx1103", True)
    assert (gpu.total, gpu.free) == (536870912 + 15 * GIB, 536870912 - 225443840 + 6 * GIB)


@pytest.mark.parametrize(
    ("version", "name"), [(90010, "gfx90a"), (90402, "gfx942"), (100300, "gfx1030"), (120001, "gfx1201")]
)
def test_architectures_are_named_as_the_compiler_names_them(tmp_path: Path, version: int, name: str) -> None:
    pci_card(tmp_path, "0001:05:00.1", "1002:1234", "amdgpu", kind=0x120000)
    kfd_node(tmp_path, 1, gfx_target_version=version, location_id=0x0501, domain=1)
    (gpu,), _ = linux_gpus(tmp_path, MEMORY, None)
    assert (gpu.architecture, gpu.name, gpu.total) == (name, "AMD graphics (1002:1234)", None)


def test_amdsmi_names_what_the_system_does_not(tmp_path: Path) -> None:
    class SmiError(Exception):
        pass

    calls: list[str] = []
    smi = SimpleNamespace(
        AmdSmiException=SmiError,
        amdsmi_init=lambda: calls.append("init"),
        amdsmi_shut_down=lambda: calls.append("down"),
        amdsmi_get_processor_handles=lambda: ["a"],
        amdsmi_get_gpu_device_bdf=lambda handle: "0000:03:00.0",
        amdsmi_get_gpu_asic_info=lambda handle: {
            "market_name": "Radeon RX 7800 XT",
            "target_graphics_version": "gfx1101",
        },
    )
    pci_card(tmp_path, "0000:03:00.0", "1002:747e", "amdgpu")
    (gpu,), _ = linux_gpus(tmp_path, MEMORY, None, lambda: smi)
    assert (gpu.name, gpu.architecture, calls) == ("AMD Radeon RX 7800 XT", "gfx1101", ["init", "down"])

    def broken() -> None:
        raise SmiError

    smi.amdsmi_init = broken
    (gpu,), _ = linux_gpus(tmp_path, MEMORY, None, lambda: smi)
    assert gpu.name == "AMD graphics (1002:747e)"


@pytest.mark.parametrize(
    "files",
    [
        {"drm/card1/lmem_total_bytes": "16225243136\n"},
        {"tile0/physical_vram_size_bytes": "0x3c71c0000\n"},
        {"tile0/physical_vram_size_bytes": "8112621568", "tile1/physical_vram_size_bytes": "8112621568"},
        {"resource": "0xa0000000 0xa0ffffff 0x140204\n0x4000000000 0x43c719ffff 0x14220c\n0 0 0\n"},
    ],
)
def test_an_intel_card_has_the_memory_that_its_driver_or_its_window_shows(
    tmp_path: Path, files: dict[str, str]
) -> None:
    pci_card(tmp_path, "0000:00:02.0", "8086:4680", "i915")
    pci_card(tmp_path, "0000:03:00.0", "8086:56a0", "i915", files)
    table = (
        "1002  AMD\n\t56a0  Wrong\n8086  Intel\n\t4680  AlderLake-S GT1 [UHD Graphics 770]\n\t56a0  DG2 [Arc A770]\n"
    )
    write(tmp_path, {"usr/share/misc/pci.ids": table})
    (own, integrated), _ = linux_gpus(tmp_path, MEMORY, None)
    assert (own.name, own.architecture, own.shared) == ("Intel Arc A770", "xe-hpg", False)
    assert own.total == pytest.approx(16225243136, rel=1e-3)
    assert (integrated.name, integrated.architecture, integrated.shared) == ("Intel UHD Graphics 770", "xe-lp", True)
    assert integrated.total is None


def test_a_small_window_says_nothing_of_the_memory_behind_it(tmp_path: Path) -> None:
    window = "0x4000000000 0x400fffffff 0x14220c\n"
    pci_card(tmp_path, "0000:03:00.0", "8086:56a0", "xe", {"resource": window})
    (gpu,), _ = linux_gpus(tmp_path, MEMORY, None)
    assert (gpu.total, gpu.free, gpu.shared) == (None, None, False)


def test_intels_families_are_told_by_number() -> None:
    assert family(0xE20B) == ("xe2-hpg", True)
    assert family(0x7D55) == ("xe-lpg", False)
    assert family(0x5917) == ("", False)


def test_a_card_that_no_driver_took_is_told_of_and_a_plain_display_is_not(tmp_path: Path) -> None:
    pci_card(tmp_path, "0000:03:00.0", "1002:747e")
    pci_card(tmp_path, "0000:02:00.0", "1a03:2000", "ast")
    pci_card(tmp_path, "0000:00:1f.0", "8086:7a04", "", kind=0x060100)
    write(tmp_path, {"sys/bus/pci/devices/0000:09:00.0/vendor": "nonsense"})
    (gpu,), _ = linux_gpus(tmp_path, MEMORY, None)
    assert (gpu.driver, gpu.why_not) == ("", f"No driver has taken it. {NOT_YET}")
    assert [card.address for card in cards(tmp_path)] == ["0000:03:00.0"]


def test_an_empty_tree_has_no_cards(tmp_path: Path) -> None:
    assert linux_gpus(tmp_path, MEMORY, None) == ((), ())


def test_apples_graphics_have_the_share_that_metal_grants() -> None:
    def ask(chip: str, wired: int = 0):  # type: ignore[no-untyped-def]
        return {"machdep.cpu.brand_string": chip, "iogpu.wired_limit_mb": wired}.get

    (small,) = apple(ask("Apple M2"), Memory(16 * GIB, 7 * GIB, 16 * GIB), "15.5")
    # What Metal reports on a 16 GiB machine: 10922 MiB.
    assert small.total is not None and small.total >> 20 == 10922
    assert (small.architecture, small.free, small.shared, small.driver) == (
        "apple-m2",
        7 * GIB,
        True,
        "Metal, macOS 15.5",
    )
    (large,) = apple(ask("Apple M2 Max"), Memory(96 * GIB, 90 * GIB, 96 * GIB), "15.5")
    # And on one of 96 GiB: 73728 MiB.
    assert (large.total, large.free) == (73728 << 20, 73728 << 20)
    (set_by_hand,) = apple(ask("Apple M2 Max", 86016), Memory(96 * GIB, 90 * GIB, 96 * GIB), "15.5")
    assert set_by_hand.total == 86016 << 20
    assert apple(ask("Intel(R) Core(TM) i5-5350U CPU @ 1.80GHz"), MEMORY, "12.7") == []


def test_windows_adapters_are_told_of_by_its_registry() -> None:
    found = windows(
        [
            {
                "DriverDesc": "AMD Radeon RX 7800 XT",
                "DriverVersion": "32.0.13031",
                "MatchingDeviceId": r"PCI\VEN_1002&DEV_747E&REV_C8",
                "HardwareInformation.qwMemorySize": 17163091968,
            },
            {
                "DriverDesc": "AMD Radeon(TM) Graphics",
                "MatchingDeviceId": r"pci\ven_1002&dev_164e",
                "HardwareInformation.qwMemorySize": 536870912,
            },
            {
                "DriverDesc": "Intel(R) Arc(TM) A770 Graphics",
                "MatchingDeviceId": r"PCI\VEN_8086&DEV_56A0",
                "HardwareInformation.qwMemorySize": struct.pack("<Q", 16225243136),
            },
            {"DriverDesc": "Microsoft Basic Display Adapter", "MatchingDeviceId": r"ROOT\BasicDisplay"},
            {},
        ]
    )
    assert [(gpu.name, gpu.architecture, gpu.total, gpu.shared) for gpu in found] == [
        ("AMD Radeon RX 7800 XT", "", 17163091968, False),
        ("AMD Radeon Graphics", "", None, True),
        ("Intel Arc A770 Graphics", "xe-hpg", 16225243136, False),
    ]
    assert found[0].driver == "32.0.13031"
