"""`python -m app`."""

import sys

try:
    from app.cli import INTERRUPTED, main
except KeyboardInterrupt:
    sys.exit(130)

try:
    code = main()
except KeyboardInterrupt:
    code = INTERRUPTED
sys.exit(code)
