"""Without the screen: one prompt, answered as text, JSON or JSON lines; and a conversation in plain lines."""

from tui_agent.headless.running import run

__all__ = ["run"]
