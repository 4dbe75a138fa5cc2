"""`python -m tui_agent` and the command `tui-agent`."""

import sys

from tui_agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
