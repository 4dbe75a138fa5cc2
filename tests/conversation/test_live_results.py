"""The results a request still shows, kept up to date while folding."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conversation.logs import MODELS, logs
from tests.examples import examples
from tui_agent.conversation.blocks import ToolResult
from tui_agent.conversation.request import ReasoningPolicy
from tui_agent.conversation.sizes import NOTHING, TextSize, size_of_block
from tui_agent.conversation.view import View

SHOWN = ("verbatim", "preview", "restored", "shortened")


@given(logs(steps=40), st.sampled_from(MODELS))
@settings(deadline=None, max_examples=examples(20))
def test_live_results_are_the_items_that_are_shown_and_what_follows_them(view: View, model: str) -> None:
    messages = view.messages(ReasoningPolicy(model))
    live = view.live_results()
    results = (item for item in view.items() if item.category == "results" and item.size != NOTHING)
    shown = {item.seq: item for item in results if item.state in SHOWN}
    assert {each.seq for each in live} == set(shown)
    assert all((each.state, each.pinned) == (shown[each.seq].state, shown[each.seq].pinned) for each in live)

    answers: dict[str, list[tuple[TextSize, TextSize]]] = {}
    following = NOTHING
    for message in reversed(messages):
        for block in reversed(message.blocks):
            if isinstance(block, ToolResult):
                answers.setdefault(block.call_id, []).append((size_of_block(block), following))
            following = following.plus(size_of_block(block))
    assert all((each.size, each.after) in answers[each.call.id] for each in live)
    assert [each.after.characters for each in live] == sorted(each.after.characters for each in live)


@given(logs(steps=40), st.sampled_from(MODELS))
@settings(deadline=None, max_examples=examples(20))
def test_they_are_the_same_folded_at_once(view: View, model: str) -> None:
    again = View(view.log)
    for each in (view, again):
        each.messages(ReasoningPolicy(model))
    assert view.live_results() == again.live_results()
