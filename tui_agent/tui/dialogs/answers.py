"""The answers offered to a question that the model asks, and to a plan that it submits."""

from typing import Final, NamedTuple

from tui_agent.text import one_line
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion

QUESTION: Final = "The agent asks"
PLAN: Final = "Carry out this plan?"
OWN_WORDS: Final = "In my own words"
EDIT: Final = "Edit it first"
SEND_BACK: Final = "No, and say what to change"


MAX_CHOICE: Final = 200
"""The most characters shown of an answer."""

IN_MODE: Final[dict[str, str]] = {
    "auto": "Yes, and change files unasked (mode auto)",
    "ask": "Yes, and ask before each change (mode ask)",
    "allow": "Yes, and ask about nothing (mode allow)",
}
"""The labels for approving a plan, by the mode in which it is then carried out."""


class Answers(NamedTuple):
    """The answers to one question. `words`, `edit`: index of the choice that opens a field, an editor; -1: none."""

    title: str
    labels: tuple[str, ...]
    choices: tuple[str, ...]
    placeholder: str
    words: int
    edit: int = -1

    @property
    def is_plan(self) -> bool:
        """Whether the question is about a plan; all of a plan must be seen before it can be approved."""
        return self.edit >= 0

    def chosen(self, place: int, edited: str) -> PermissionAnswer:
        """The answer for the choice at index `place`."""
        return PermissionAnswer(allowed=True, choice=self.choices[place], edited=edited)

    def said(self, words: str) -> PermissionAnswer:
        """The answer in the user's own words."""
        if self.is_plan:
            return PermissionAnswer(allowed=False, feedback=words)
        return PermissionAnswer(allowed=bool(words), choice=words)


def answers_to(question: PermissionQuestion) -> Answers | None:
    """The answers to offer; None if the question is about a tool call."""
    if question.kind == "question":
        offered = tuple(one_line(choice, MAX_CHOICE) for choice in question.choices)
        return Answers(QUESTION, (*offered, OWN_WORDS), question.choices, "Your answer", words=len(offered))
    if question.kind == "plan":
        modes, count = question.choices, len(question.choices)
        labels = tuple(IN_MODE.get(mode, mode) for mode in modes)
        return Answers(PLAN, (*labels, EDIT, SEND_BACK), modes, "What should be changed?", count + 1, edit=count)
    return None
