"""Entry point of `rskip` and `python -m rskip`."""

import sys


def run() -> int:
    """Runs the command. Ctrl-C ends it with one line, even during the first import."""
    try:
        from rskip.cli.main import main

        return main()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("rskip: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
