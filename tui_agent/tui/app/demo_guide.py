"""The line at the foot of the demonstration: what to press next, five steps, then the screen is the user's."""

from typing import Final

import msgspec
from textual.content import Content
from textual.widgets import Static


class DemoStep(msgspec.Struct, frozen=True):
    """A thing to try: the names of the commands that do it, what to press, and what it shows."""

    names: tuple[str, ...]
    press: str
    shows: str


STEPS: Final = (
    DemoStep(("context",), "F2", "what the model sees, what happens next, and what it costs"),
    DemoStep(("compact",), "/compact", "what a summary would take away and save; Enter does it"),
    DemoStep(("undo-step",), "/undo-step", "takes that step back: nothing was lost"),
    DemoStep(("rewind",), "/rewind", "go back to any message; the rest stays on its own branch"),
    DemoStep(("cost",), "/cost", "what the session has cost, and what the next call will"),
)
DONE: Final = (
    "it is yours now: ask, run, break things. /policy compares ways to save; Ctrl+D ends it and removes the folder"
)


class DemoGuide(Static):
    """Shows the first step that was not taken yet."""

    def __init__(self) -> None:
        super().__init__(id="demo-guide")
        self._left = list(STEPS)
        self._show()

    def did(self, name: str) -> None:
        """The user carried out this command."""
        self._left = [step for step in self._left if name not in step.names]
        self._show()

    def _show(self) -> None:
        if not self._left:
            parts = [("Demo  ", "bold"), (DONE, "")]
        else:
            step = self._left[0]
            number = STEPS.index(step) + 1
            parts = [(f"Demo {number}/{len(STEPS)}  ", "bold"), (step.press, "bold"), (f"  {step.shows}", "")]
        self.update(Content.assemble(*parts))
