"""An agent for editors: the Agent Client Protocol over standard input and output (docs/editors.md)."""

from tui_agent.acp.serving import run

__all__ = ["run"]
