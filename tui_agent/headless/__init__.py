"""One-shot mode: takes a prompt and standard input; prints text, JSON or JSON lines."""

from tui_agent.headless.running import run

__all__ = ["run"]
