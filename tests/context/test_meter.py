"""The size of the next request, and what is learned from each call."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.context.sessions import MODEL, Session
from tests.conversation.logs import logs
from tui_agent.context.counting import HIGHEST_RATIO, LOWEST_RATIO, RATIO_SAMPLES, Counter, Ratios, estimate
from tui_agent.context.meter import TokenMeter
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall
from tui_agent.conversation.entries import (
    AnyEntry,
    Cleared,
    Delivered,
    HeadMoved,
    Message,
    ModelSwitched,
    Pinned,
    Prefix,
    Queued,
    Restored,
    Summarized,
    Undone,
    Usage,
    user_message,
)
from tui_agent.conversation.sizes import size_of_text
from tui_agent.conversation.view import View


def whole(view: View) -> int:
    return sum(estimate(size) for size in view.sizes().values())


def test_before_the_first_call_the_whole_is_estimated() -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 100))
    assert meter.tokens(session.view) == whole(session.view) == 990 + 33
    assert not meter.measured


def test_after_a_call_it_is_what_was_read_and_written_and_the_estimate_of_what_came_since() -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 100))
    meter.tokens(session.view)
    session.answer(Usage(input_tokens=5_000, cache_read_tokens=4_000, output_tokens=70), call="grep", pattern="x")
    assert meter.tokens(session.view) == 5_070
    assert meter.measured
    session.result("r" * 1_000)
    assert meter.tokens(session.view) == 5_070 + 330
    session.add(Queued(blocks=(Text("q" * 200),)))
    assert meter.tokens(session.view) == 5_070 + 330
    session.add(Delivered(queued=len(session.view.log)))
    assert meter.tokens(session.view) == 5_070 + 330 + 66


def test_right_after_a_resume_the_logs_own_measurement_holds() -> None:
    session = Session()
    session.add(user_message("x" * 100))
    session.answer(Usage(5_000, 0, 0, 70), call="grep")
    session.result("r" * 1_000)
    meter = TokenMeter()
    assert meter.tokens(View(session.view.log)) == 5_400
    assert meter.measured


EDITS: list[AnyEntry] = [
    Cleared(results=(5,), texts=("[cleared]",)),
    Summarized(first=3, last=5, text="summary"),
    Restored(items=(5,), texts=("",)),
    Pinned(items=(5,)),
    Undone(target=6),
    HeadMoved(to=4),
    HeadMoved(to=2),
    ModelSwitched(model="gemini:gemini-3.8-flash"),
    Prefix(system="other"),
]


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: type(edit).__name__)
def test_a_measurement_from_before_an_edit_is_never_used_after_it(edit: AnyEntry) -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 100))
    session.answer(Usage(50_000, 0, 0, 70), call="grep")
    session.result("r" * 1_000)
    assert meter.tokens(session.view) == 50_400
    session.add(edit)
    for one in (meter, TokenMeter()):
        assert one.tokens(session.view) < 3_000
        assert not one.measured
    session.add(user_message("go on"))
    assert meter.tokens(session.view) < 3_000
    session.answer(Usage(1_900, 0, 0, 10), text="done")
    assert meter.tokens(session.view) == 1_910
    assert meter.measured


def test_forgetting_lasts_until_the_next_call() -> None:
    session, meter = Session(), TokenMeter()
    session.answer(Usage(50_000, 0, 0, 70), text="hello")
    assert meter.tokens(session.view) == 50_070
    meter.forget()
    assert meter.tokens(session.view) < 3_000
    assert not meter.measured
    session.answer(Usage(60_000, 0, 0, 70), text="hello")
    assert meter.tokens(session.view) == 60_070


@given(logs(steps=30))
@settings(deadline=None, max_examples=40)
def test_asking_often_or_once_gives_the_same(view: View) -> None:
    often, grown = TokenMeter(), View()
    for entry in view.log:
        grown.apply(entry)
        often.tokens(grown)
    once = TokenMeter()
    if once.tokens(grown) != often.tokens(grown):
        moved = max((entry.seq for entry in view.log if isinstance(entry, HeadMoved)), default=0)
        assert moved, "only a moved head may make a difference: then the careful answer is the estimate"
        assert not often.measured


def measured_call(session: Session, meter: TokenMeter, usage: Usage, call: str = "grep") -> None:
    meter.tokens(session.view)
    session.answer(usage, call=call)
    meter.measure(session.view, usage)


def test_a_ratio_is_learned_from_growth_by_results_alone() -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 900))
    measured_call(session, meter, Usage(2_000, 0, 0, 10))
    session.result("r" * 10_000)
    assert meter.tokens(session.view) == 2_010 + 3_300
    measured_call(session, meter, Usage(2_010 + 4_950, 0, 0, 10))
    assert meter.ratios.ratio(MODEL, "rule", "results") == pytest.approx(1.5)
    session.result("r" * 10_000)
    assert meter.tokens(session.view) == 2_020 + 4_950 + 4_950
    assert meter.growth.clearable == pytest.approx(3_300)
    assert meter.tokens_of(session.view, size_of_text("r" * 1_000)) == 495


def test_mixed_growth_and_growth_after_an_edit_teach_nothing() -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 9_000))
    measured_call(session, meter, Usage(6_000, 0, 0, 10))
    session.result("r" * 10_000)
    session.add(user_message("u" * 10_000))
    measured_call(session, meter, Usage(20_000, 0, 0, 10))
    session.result("r" * 10_000)
    meter.tokens(session.view)
    session.add(Cleared(results=(5,), texts=("[cleared]",)))
    measured_call(session, meter, Usage(24_000, 0, 0, 10))
    assert meter.ratios.export() == {}


def test_growth_after_reasoning_that_may_be_left_out_teaches_nothing() -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 9_000))
    meter.tokens(session.view)
    usage = Usage(6_000, 0, 0, 3_000)
    blocks = (Reasoning("", "signature"), ToolCall("c1", "grep", "{}"))
    session.add(Message(role="assistant", blocks=blocks, model=MODEL, usage=usage))
    meter.measure(session.view, usage)
    session.result("r" * 10_000)
    measured_call(session, meter, Usage(10_500, 0, 0, 10))
    assert meter.ratios.export() == {}


def test_the_fixed_part_is_learned_from_the_first_call() -> None:
    session, meter = Session("s" * 30_000), TokenMeter()
    session.add(user_message("hello"))
    measured_call(session, meter, Usage(12_000, 0, 0, 10))
    assert meter.ratios.ratio(MODEL, "rule", "fixed") == pytest.approx(12_000 / 9_902, rel=0.001)


def test_learning_makes_the_full_estimate_true() -> None:
    session, meter = Session("s" * 30_000), TokenMeter()
    session.add(user_message("hello"))
    for _ in range(6):
        count = round(1.3 * whole(session.view))
        meter.tokens(session.view)
        session.answer(usage := Usage(count, 0, 0, round(1.3 * 9)), call="grep")
        meter.measure(session.view, usage)
        session.result("r" * 12_000)
    session.add(Cleared(results=(5,), texts=("[cleared]",)))
    assert meter.tokens(session.view) == pytest.approx(1.3 * whole(session.view), rel=0.02)


def test_ratios_are_the_middle_of_the_newest_samples_and_odd_ones_are_left_out() -> None:
    ratios = Ratios()
    for measured in (1_300, 1_300, 1_300, 2_900, 1_310):
        assert ratios.learn(MODEL, "rule", "results", measured=measured, estimated=1_000)
    assert ratios.ratio(MODEL, "rule", "results") == 1.3
    for odd in (0, -500, 100, 3_100, 1e9):
        assert not ratios.learn(MODEL, "rule", "results", measured=odd, estimated=1_000)
    assert not ratios.learn(MODEL, "rule", "results", measured=150, estimated=199)
    assert ratios.ratio(MODEL, "rule", "prose") == 1.3
    assert ratios.ratio("gemini:other", "rule", "prose") == 1.0
    assert ratios.ratio(MODEL, "o200k_base", "prose") == 1.25
    for _ in range(RATIO_SAMPLES):
        ratios.learn(MODEL, "rule", "results", measured=800, estimated=1_000)
    assert ratios.ratio(MODEL, "rule", "results") == 0.8


@given(st.dictionaries(st.text(max_size=5), st.lists(st.floats(), max_size=20), max_size=4))
def test_kept_ratios_come_back_and_damaged_ones_do_not(kept: dict[str, list[float]]) -> None:
    ratios = Ratios({**kept, f"{MODEL}|rule|results": [1.2, 1.4, 1.3]})
    assert ratios.ratio(MODEL, "rule", "results") == 1.3
    assert Ratios(ratios.export()).export() == ratios.export()
    assert all(LOWEST_RATIO <= each <= HIGHEST_RATIO for samples in ratios.export().values() for each in samples)


def test_asking_costs_what_is_new() -> None:
    class Asked:
        name = "asked"
        characters = 0

        def count(self, text: str) -> int:
            self.characters += len(text)
            return len(text)

    asked = Asked()
    meter, session = TokenMeter(Counter(asked)), Session()
    for number in range(50):
        session.add(user_message(f"{number:04}" * 250))
        meter.tokens(session.view)
        session.answer(Usage(5_000, 0, 0, 5), text="ok")
        before = asked.characters
        meter.tokens(session.view)
        assert asked.characters == before
    assert asked.characters == 50 * 1_000
