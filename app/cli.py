"""The program's entry. It imports nothing that the interpreter has not got, `__future__` included, before an interrupt
can be answered: what remains is the fraction of a millisecond in which this file is read."""

import sys

INTERRUPTED = 130
BROKEN_PIPE = 141
"""What a shell reports for a program that SIGINT or SIGPIPE ended: 128 and the signal's number."""


def main(argv: list[str] | tuple[str, ...] | None = None) -> int:
    """Run one command: → the exit code. 0 done, 2 refused with a sentence, 130 interrupted.

    Without `argv` the process is this command's alone: `app.signals` answers what ends it from outside.
    """
    try:
        if argv is None:
            from app import signals

            signals.answer()
        from app.command_line import run

        return run(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
