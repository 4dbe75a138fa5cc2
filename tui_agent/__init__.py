"""tui-agent: a terminal agent that never loses the thread."""

__version__ = "0.1.0"
