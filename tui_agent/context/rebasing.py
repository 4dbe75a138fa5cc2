"""A plan that was made a while ago, against the view as it is now.

While a summary waits to be accepted the conversation may go on. Its plan still holds as long as what it replaces is
shown as it was when it was summarised; the figures then are those of the view as it is now.
"""

from collections.abc import Callable
from typing import Final

from msgspec import structs

from tui_agent.context.compaction import CompactionPlan, told
from tui_agent.context.refusal import Refusal
from tui_agent.context.spans import Scale
from tui_agent.conversation.sizes import Size
from tui_agent.conversation.view import View
from tui_agent.settings import Compaction

CHANGED: Final = (
    "What this summary was to replace has changed since it was written: it was summarised, cleared, pinned, restored"
    " or left behind. Have a new one written."
)


def rebased(
    plan: CompactionPlan, view: View, settings: Compaction, *, tokens: int, tokens_of: Callable[[Size], int]
) -> CompactionPlan | Refusal:
    """`plan` with the figures of `view`, whose next request takes `tokens`; refused where it no longer holds.

    The test is what the summary was written from: the same turns, rendered again, must give the same text.
    """
    groups = view.groups()
    covered = [group for group in groups if plan.first <= group.first <= plan.last]
    leaving = [group for group in covered if not group.pinned and group.first not in plan.brought_back]
    boundaries = [each for each in view.boundaries() if plan.first <= each.first <= plan.last]
    parts, _ = told(boundaries, leaving, settings.summary_result_chars)
    if parts != plan.parts:
        return Refusal(CHANGED)
    weigh = Scale(tokens_of)
    replaced = sum(map(weigh.group, leaving)) + sum(weigh.text(boundary.text) for boundary in boundaries)
    expected = plan.after - (plan.before - plan.replaced)
    return structs.replace(
        plan,
        kept_from=next((group.first for group in groups if group.first > plan.last), 0),
        replaced=replaced,
        before=tokens,
        after=tokens - replaced + expected,
    )
