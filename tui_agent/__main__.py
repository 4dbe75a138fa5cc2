"""`python -m tui_agent` and the command `tui-agent`."""

import atexit
import gc
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Native Windows lacks what the modules below import."""
    if sys.platform == "win32":
        sys.stderr.write(
            "tui-agent: native Windows is not supported; it runs in WSL (Windows Subsystem for Linux): install it with "
            "`wsl --install`, then install and start tui-agent in there\n"
        )
        return 2
    atexit.register(
        gc.freeze
    )  # the process ends: searching what it loaded for garbage would take a fifth of a short run
    from tui_agent.cli import main as run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
