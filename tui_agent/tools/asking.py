"""Asking the user: `ask_user` asks a question of the model's, `submit_plan` submits a plan for approval."""

from typing import Final, Literal

from typing_extensions import override

from tui_agent.conversation.entries import Outcome
from tui_agent.conversation.tasks import ASK, PLAN, TaskPlan, approval
from tui_agent.tools.base import PermissionQuestion, Preview, ToolContext, ToolFailure, ToolOutput
from tui_agent.tools.built_in import BuiltIn
from tui_agent.tools.gate.permissions import Mode, PermissionGate

MAX_CHOICES: Final = 8
"""The most answers offered to one question: each has a digit key, and one digit is for the user's own words."""
MAX_CHOICE: Final = 200
"""Characters of one answer."""
MAX_STEPS: Final = 50
"""The most steps of a plan: as many as a task list may have items."""


class AskUser(BuiltIn):
    """Asks the user a question of the model's."""

    name = ASK

    @override
    async def _do(self, context: ToolContext, /, question: str, choices: list[str]) -> ToolOutput:
        """Ask the user one question, and wait for the answer. Use it where a wrong guess would cost work and nothing
        you can read tells the answer; not for leave to do what was asked already.

        Args:
            question: The question, whole and short, with what is needed to answer it.
            choices: Two to eight answers of a few words, the best one first; none where only their own words can
                answer, which they always may.
        """
        if not question.strip():
            raise ToolFailure("ask_user: the question is empty.", "Say in `question` what you need to know.")
        offered = tuple(" ".join(choice.split()) for choice in choices if choice.strip())
        if len(offered) > MAX_CHOICES or any(len(choice) > MAX_CHOICE for choice in offered):
            raise ToolFailure(
                f"ask_user: at most {MAX_CHOICES} choices of {MAX_CHOICE} characters can be offered.",
                "Offer fewer and shorter ones, and put what there is to say of them into the question.",
            )
        answer = await context.ask(_asked(context, ASK, "question", Preview("Asks you", text=question), offered))
        if not answer.allowed or not answer.choice.strip():
            said = f" They said: {answer.feedback}" if answer.feedback else ""
            return ToolOutput(f"[the user gave no answer; go on as you think best, or say what you need]{said}")
        return ToolOutput(f"The user answered: {answer.choice}", summary=" ".join(answer.choice.split())[:60])


class SubmitPlan(BuiltIn):
    """Asks the user to approve a plan, which then becomes the task list, and switches to the mode that they chose."""

    name = PLAN

    def __init__(self, gate: PermissionGate) -> None:
        super().__init__()
        self._gate = gate

    @override
    async def _do(self, context: ToolContext, /, plan: str, steps: list[str]) -> ToolOutput:
        """Submit a plan for the user's approval, at the end of plan mode or before large work. They approve it, change
        it or send it back with words. Once approved it is the task list, and you may begin.

        Args:
            plan: What you would do and why, in short Markdown, with the files it touches.
            steps: The steps in order, each a few words.
        """
        given = TaskPlan(plan.strip(), tuple(" ".join(step.split()) for step in steps if step.strip()))
        if not given.steps or len(given.steps) > MAX_STEPS:
            raise ToolFailure(f"submit_plan: a plan has 1 to {MAX_STEPS} steps.", "Say in `steps` what is to be done.")
        modes = modes_after_plan(self._gate)
        answer = await context.ask(_asked(context, PLAN, "plan", Preview("The plan", text=given.whole()), modes))
        if not answer.allowed:
            said = f"They said: {answer.feedback}" if answer.feedback else "Ask what they want changed."
            return ToolOutput(f"[the user sent the plan back] {said}", summary="sent back")
        mode = next((mode for mode in modes if mode == answer.choice), modes[0])
        edited = bool(answer.edited.strip())
        agreed = TaskPlan.read(answer.edited) if edited else given
        self._gate.mode = mode
        summary = f"approved{' as you changed it' * edited}, mode {mode}"
        text, outcome = approval(agreed, mode, edited=edited), Outcome(steps=agreed.steps)
        return ToolOutput(text, summary=summary, outcome=outcome)


def modes_after_plan(gate: PermissionGate) -> tuple[Mode, ...]:
    """The modes in which a plan may be carried out; first the one in force before plan mode."""
    modes: tuple[Mode, ...] = ("auto", "ask")
    before = gate.before_plan
    return (before, *(mode for mode in modes if mode != before))


def _asked(
    context: ToolContext, tool: str, kind: Literal["question", "plan"], preview: Preview, choices: tuple[str, ...]
) -> PermissionQuestion:
    return PermissionQuestion(context.call_id, tool, "{}", (), preview, "", kind=kind, choices=choices)
