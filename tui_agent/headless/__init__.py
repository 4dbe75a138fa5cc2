"""One-shot mode: a prompt and standard input in; text, JSON or JSON lines out."""

from tui_agent.headless.running import run

__all__ = ["run"]
