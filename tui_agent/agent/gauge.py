"""How large the next request is: measured where the provider has counted, estimated for what came after."""

from tui_agent.context.counting import categories
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.view import View


class Gauge:
    """Owns the last measurement of one conversation."""

    def __init__(self) -> None:
        self._measured = 0
        self._estimated_then = 0

    def measure(self, view: View, usage: Usage) -> None:
        """Take in what a call just recorded in the view has used."""
        self._measured = usage.input_tokens + usage.output_tokens
        self._estimated_then = sum(categories(view).values())

    def forget(self) -> None:
        """The view was edited or another model answers: the measurement no longer holds."""
        self._measured = 0

    @property
    def measured(self) -> bool:
        return self._measured > 0

    def tokens(self, view: View) -> int:
        """The size of the next request, in tokens."""
        estimated = sum(categories(view).values())
        if not self._measured:
            return estimated
        return max(0, self._measured + estimated - self._estimated_then)
