"""The card of a plan that the model submitted: its steps once it is approved."""

from typing import Final

from typing_extensions import override

from tui_agent.conversation.tasks import PLAN
from tui_agent.text import counted
from tui_agent.tui.cards.tool import ToolBlock

PREVIEW_STEPS: Final = 6
"""Steps shown under a collapsed card."""


class PlanBlock(ToolBlock, eq=False, kw_only=True):
    """A submitted plan. Its summary is the first line of the plan."""

    TOOLS = frozenset((PLAN,))

    def __post_init__(self) -> None:
        self.summary = self.summary.lstrip("# ").partition("␊")[0]

    @override
    def preview_lines(self) -> list[str]:
        steps = self.facts.steps
        if not steps:
            return ToolBlock.preview_lines(self)
        left = len(steps) - PREVIEW_STEPS
        more = [f"… {counted(left, 'more step')}"] if left > 0 else []
        return [*(f"{place}. {step}" for place, step in enumerate(steps[:PREVIEW_STEPS], 1)), *more]
