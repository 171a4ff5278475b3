"""`python3 -m installer`. Written so that even Python 2.7 can parse it, because it is what turns old Pythons away."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.stderr.write(
        "Millstream needs Python 3.11 or newer, and this is Python {}.{}: install a newer one (Debian, Ubuntu: "
        "sudo apt-get install python3 python3-venv; Fedora: sudo dnf install python3; macOS, Windows: from Python's "
        "home page) and start this command again with it, for instance as python3.11.\n".format(*sys.version_info)
    )
    sys.exit(2)

from installer.cli import main

sys.exit(main(sys.argv[1:]))
