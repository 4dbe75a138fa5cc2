"""The answers offered to a question: whether a call may run, what the model asks, and whether a plan is approved."""

from typing import Final, Literal

import msgspec

from tui_agent.text import one_line
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion

NO_RULE: Final = " (not possible here)"

MAX_CHOICE: Final = 200
"""The most characters shown of an answer."""

IN_MODE: Final[dict[str, str]] = {
    "auto": "Yes, and change files unasked (mode auto)",
    "ask": "Yes, and ask before each change (mode ask)",
    "allow": "Yes, and ask about nothing (mode allow)",
}
"""The labels for approving a plan, by the mode in which it is then carried out."""

NO: Final = PermissionAnswer(allowed=False)
ONCE: Final = PermissionAnswer(allowed=True)
FOR_SESSION: Final = PermissionAnswer(allowed=True, for_session=True)
ALWAYS: Final = PermissionAnswer(allowed=True, always=True)


class AnswerChoice(msgspec.Struct, frozen=True):
    """One answer: its label, a short one for a low screen, and what it answers.

    `opens` a field or an editor instead of answering; if it does neither, it is not possible here. `names_rules`: the
    rules it adds stand behind its label.
    """

    label: str
    answer: PermissionAnswer | None = None
    short: str = ""
    opens: Literal["words", "edit", ""] = ""
    names_rules: bool = False

    @property
    def is_possible(self) -> bool:
        return self.answer is not None or bool(self.opens)

    @property
    def adds_rules(self) -> bool:
        """Whether it allows more than what is asked about."""
        return self.answer is not None and (self.answer.always or self.answer.for_session)


class Answers(msgspec.Struct, frozen=True):
    """The answers to one question of a kind, and what to ask for in the field for words."""

    kind: Literal["call", "question", "plan"]
    title: str
    choices: tuple[AnswerChoice, ...]
    placeholder: str

    @property
    def need_all_seen(self) -> bool:
        """Whether all of what is asked about must be seen before "yes" is possible."""
        return self.kind != "question"

    def said(self, words: str) -> PermissionAnswer:
        if self.kind == "question":
            return PermissionAnswer(allowed=bool(words), choice=words)
        return PermissionAnswer(allowed=False, feedback=words)


def answers_to(question: PermissionQuestion) -> Answers:
    match question.kind:
        case "question":
            offered = [
                AnswerChoice(one_line(choice, MAX_CHOICE), PermissionAnswer(allowed=True, choice=choice))
                for choice in question.choices
            ]
            own_words = AnswerChoice("In my own words", opens="words")
            return Answers("question", "The agent asks", (*offered, own_words), "Your answer")
        case "plan":
            modes = [
                AnswerChoice(IN_MODE.get(mode, mode), PermissionAnswer(allowed=True, choice=mode))
                for mode in question.choices
            ]
            edit, back = "Edit it first", "No, and say what to change"
            others = (AnswerChoice(edit, opens="edit"), AnswerChoice(back, opens="words"))
            return Answers("plan", "Carry out this plan?", (*modes, *others), "What should be changed?")
        case "call":
            title = "Run this outside the sandbox?" if question.outside else "Allow this?"
            return Answers("call", title, _of_call(question), "What should be done instead?")


def _of_call(question: PermissionQuestion) -> tuple[AnswerChoice, ...]:
    no, why = AnswerChoice("No", NO, "no"), AnswerChoice("No, and say why", short="why", opens="words")
    if question.lasts:
        return (AnswerChoice("Yes, for this session", ONCE, "yes"), no, why)
    it = " outside the sandbox," if question.outside else ""
    kept = (
        (
            AnswerChoice(f"Yes,{it} for this session:", FOR_SESSION, "session", names_rules=True),
            AnswerChoice(f"Yes,{it} always for the same", ALWAYS, "always"),
        )
        if question.rules
        else (
            AnswerChoice(f"Yes, for this session{NO_RULE}", short="session"),
            AnswerChoice(f"Yes, always{NO_RULE}", short="always"),
        )
    )
    return (AnswerChoice(f"Yes,{it} this once", ONCE, "yes"), *kept, no, why)
