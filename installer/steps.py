"""The steps from a checkout to an environment in which the program, or its tests, can start."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

from installer import libraries, pytorch
from installer.environment import Environment
from installer.pip import Pip
from installer.report import Report, SetupError

TOTAL = 5
# Free bytes to begin with: what the environment takes in the end, and the packed wheels beside it on the way.
ROOM = {"run": 2_300_000_000, "test": 2_600_000_000}
# Parts of Python that some systems split off, and what they are for.
PARTS = {"ssl": "to fetch packages", "zlib": "to unpack them", "ctypes": "to call the native kernels"}


def check_python() -> None:
    """Raise where this Python was cut down to less than the program needs."""
    version = "{}.{}".format(*sys.version_info)
    if any(importlib.util.find_spec(name) is None for name in ("venv", "ensurepip")):
        raise SetupError(
            f"This Python ({sys.executable}) has no venv module: install it (Debian, Ubuntu: sudo apt-get install "
            f"python{version}-venv; Fedora: sudo dnf install python3-libs) and start again."
        )
    for name, purpose in PARTS.items():
        try:
            __import__(name)
        except ImportError:
            raise SetupError(
                f"This Python ({sys.executable}) was built without {name}, which is needed {purpose}: use another "
                f"one, such as the system's own python3."
            ) from None


def check_qt(report: Report, required: bool) -> None:
    """Look for the system libraries that Qt needs: where it is `required`, raise; else only tell."""
    if gap := libraries.missing_here():
        problem = libraries.remedy(gap)
        if required:
            raise problem
        report.say(f"The window could not open here. {problem}")


def set_up(environment: Environment, kind: str, qt: bool, report: Report | None = None) -> None:
    """Make the environment fit for `kind`, "run" or "test"; at once where it already is.

    `qt` says whether what follows cannot do without the system libraries that Qt needs.
    """
    report = report or Report(TOTAL)
    if environment.satisfies(kind):
        if qt:
            check_qt(report, required=True)
        return
    check_python()
    check_qt(report, required=qt)
    with environment.locked(report) as lock:
        if not environment.satisfies(kind):
            environment.forget()
            digest = environment.digest()
            with environment.scratch():
                _install(environment, kind, report, Pip(environment, report, lock))
            report.step("trying whether Qt loads")
            try_qt(environment, report, required=qt)
            environment.remember(kind, digest)


def _install(environment: Environment, kind: str, report: Report, pip: Pip) -> None:
    requirements = environment.root / "installer" / f"{kind}.lock"
    if environment.sound():
        report.step(f"the environment {environment.folder} is there")
    else:
        report.step(f"making the environment {environment.folder}")
        environment.check_room(ROOM[kind], "The environment")
        environment.make()
    pip.install("--require-hashes", "--no-deps", "-r", str(requirements.with_name("pip.lock")), bar="off")

    count = len(re.findall(r"^\S+==", requirements.read_text(encoding="utf-8"), re.MULTILINE))
    report.step(f"installing the packages that {requirements.name} pins (up to {count})")
    pip.install("--require-hashes", "--no-deps", "--only-binary=:all:", "-r", str(requirements))

    report.step(f"installing torch {pytorch.VERSION}")
    if environment.has_package("torch", pytorch.VERSION):
        report.note("it is there")
    else:
        pytorch.install(pip, report)

    report.step("compiling the native kernels and installing Millstream itself")
    pip.install("--no-deps", "--no-build-isolation", "--editable", str(environment.root))


def try_qt(environment: Environment, report: Report, required: bool) -> None:
    """Load the installed Qt, which may need more than the libraries known to `check_qt`; where `required`, raise."""
    tried = subprocess.run(
        [str(environment.python), "-I", "-c", "import PySide6.QtWidgets"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if tried.returncode != 0:
        reason = (tried.stderr.strip().splitlines() or [f"it ended with code {tried.returncode}"])[-1]
        problem = f"Qt does not load ({reason}): install the package of your system that carries what is missing."
        if required:
            raise SetupError(problem)
        report.say(f"The window could not open here. {problem}")
