"""What can be answered to a question of the model, and to a plan of it: the choices beside those about a call."""

from typing import Final, NamedTuple

from tui_agent.text import one_line
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion

QUESTION: Final = "The agent asks"
PLAN: Final = "Carry out this plan?"
OWN_WORDS: Final = "In my own words"
EDIT: Final = "Edit it first"
SEND_BACK: Final = "No, and say what to change"


MAX_CHOICE: Final = 200
"""Characters shown of an answer."""

IN_MODE: Final[dict[str, str]] = {
    "auto": "Yes, and change files unasked (mode auto)",
    "ask": "Yes, and ask before each change (mode ask)",
    "allow": "Yes, and ask about nothing (mode allow)",
}
"""What approving a plan may mean, by the mode it is then carried out in."""


class Answers(NamedTuple):
    """The answers to one question; `words` and `edit` are the places of the choices that open a field and an editor."""

    title: str
    labels: tuple[str, ...]
    choices: tuple[str, ...]
    placeholder: str
    words: int
    edit: int = -1

    @property
    def is_plan(self) -> bool:
        """Whether it is about a plan, all of which has to be seen before it is approved."""
        return self.edit >= 0

    def chosen(self, place: int, edited: str) -> PermissionAnswer:
        """The answer with one of `choices`."""
        return PermissionAnswer(allowed=True, choice=self.choices[place], edited=edited)

    def said(self, words: str) -> PermissionAnswer:
        """The answer in the user's own words."""
        if self.is_plan:
            return PermissionAnswer(allowed=False, feedback=words)
        return PermissionAnswer(allowed=bool(words), choice=words)


def answers_to(question: PermissionQuestion) -> Answers | None:
    """What can be answered; None: the question is about a call."""
    if question.kind == "question":
        offered = tuple(one_line(choice, MAX_CHOICE) for choice in question.choices)
        return Answers(QUESTION, (*offered, OWN_WORDS), question.choices, "Your answer", words=len(offered))
    if question.kind == "plan":
        modes, count = question.choices, len(question.choices)
        labels = tuple(IN_MODE.get(mode, mode) for mode in modes)
        return Answers(PLAN, (*labels, EDIT, SEND_BACK), modes, "What should be changed?", count + 1, edit=count)
    return None
