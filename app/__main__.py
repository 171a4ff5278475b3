"""`python -m app`."""

import sys

try:
    from app.cli import main

    code = main()
except KeyboardInterrupt:  # before the program answers it by itself
    code = 130
sys.exit(code)
