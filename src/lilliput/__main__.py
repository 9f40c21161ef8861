"""`python -m lilliput`, and the program `lilliput`."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from lilliput.cli.signals import Terminated, catch_signals


def main() -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 usage or input, 3 does not fit, 4 bad content, 130 / 143 / 129 on signals."""
    try:
        catch_signals()
        from lilliput.cli.main import open_streams, run

        open_streams()
        code = run()
    except KeyboardInterrupt:
        code = 130
    except Terminated as end:
        code = end.exit_code
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to interrupt but Python's own end
    sys.exit(code)


if __name__ == "__main__":
    main()
