"""The size of the next request, and what is learned from each call."""

import math
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.context.sessions import MODEL, Session
from tests.conversation.logs import logs
from tests.examples import examples
from tui_agent.context.counting import Counter, Ratios, estimate
from tui_agent.context.meter import SURE_OF, TokenMeter
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall
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
    Shortened,
    Summarized,
    Undone,
    Usage,
    user_message,
)
from tui_agent.conversation.sizes import CATEGORIES, size_of_text
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
    Shortened(items=(3,), blocks=((Text("x"),),)),
    HeadMoved(to=2),
    ModelSwitched(model="gemini:gemini-3.8-flash"),
    Prefix(system="other"),
]


def whole_before(view: View) -> int:
    """The estimate of the request that the last call answered."""
    return sum(estimate(size) for size in view.sizes_asked().values())


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: type(edit).__name__)
def test_after_an_edit_it_is_the_estimate_by_what_the_last_request_measured(edit: AnyEntry) -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 100))
    session.answer(Usage(2_046, 0, 0, 70), call="grep")
    session.result("r" * 1_000)
    assert meter.tokens(session.view) == 2_446
    assert whole_before(session.view) == 1_023
    session.add(edit)
    factor = 1.0 if isinstance(edit, ModelSwitched | HeadMoved) else (2_046 + SURE_OF) / (1_023 + SURE_OF)
    for one, view in ((meter, session.view), (TokenMeter(), session.view), (TokenMeter(), View(session.view.log))):
        assert one.tokens(view) == round(factor * whole(view))
        assert not one.measured
    session.add(user_message("go on"))
    assert meter.tokens(session.view) == round(factor * whole(session.view))
    session.answer(Usage(1_900, 0, 0, 10), text="done")
    assert meter.tokens(session.view) == 1_910
    assert meter.measured


def test_a_measured_system_prompt_is_not_what_was_estimated_wrongly() -> None:
    session, meter = Session("s" * 60_000), TokenMeter()
    session.add(user_message("hello"))
    measured_call(session, meter, Usage(19_900, 0, 0, 10))
    fixed = meter.fixed(session.view)
    assert fixed == pytest.approx(19_900, abs=10)
    session.result("r" * 3_000)
    session.add(user_message("x" * 30_000))
    measured_call(session, meter, Usage(fixed + 20_000, 0, 0, 10))
    said = sum(meter.categories(session.view).values()) - fixed
    session.add(Restored(items=(2,), texts=("",)))
    assert meter.tokens(session.view) == pytest.approx(fixed + said * (20_000 + SURE_OF) / (said + SURE_OF), rel=0.01)


@pytest.mark.parametrize("each", [0, 300, 1_200])
def test_pictures_that_count_less_than_thought_make_no_text_smaller(each: int) -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 20_000))
    measured_call(session, meter, Usage(7_590, 0, 0, 10))
    ratios = meter.ratios.export()
    session.result("done")
    seen = session.add(user_message("look", *(Image("image/png", f"{number}") for number in range(4))))
    measured_call(session, meter, Usage(7_606 + 4 * each, 0, 0, 10))
    assert meter.ratios.export() == ratios
    session.add(user_message("y" * 3_000))
    without = session.view.copy()
    without.apply(without.log.stamp(Shortened(items=(seen,), blocks=((Text("look"),),)), 9.0))
    whole_tokens = meter.whole_tokens_of(session.view)
    assert whole_tokens(without) == pytest.approx(whole(without), abs=10)
    assert whole_tokens(session.view) - whole_tokens(without) == pytest.approx(4 * each, abs=10)
    assert meter.mixed_tokens_of(session.view)(size_of_text("z" * 1_000)) == pytest.approx(330, abs=2)


def test_after_a_step_it_is_smaller_by_what_the_step_freed() -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 100))
    session.answer(Usage(2_046, 0, 0, 70), call="grep")
    session.result("r" * 1_000)
    session.add(Cleared(results=(5,), texts=("[cleared]",), before=2_446, after=1_800))
    session.add(user_message("go on" * 20))
    session.add(Undone(target=6, before=1_833, after=2_479))
    session.add(user_message("go on" * 20))
    for one in (meter, TokenMeter()):
        assert one.tokens(session.view) == 2_446 + 33 + 33
        assert not one.measured


@given(logs(steps=30))
@settings(deadline=None, max_examples=examples(30))
def test_asking_often_or_once_gives_the_same(view: View) -> None:
    often, grown = TokenMeter(), View()
    for entry in view.log:
        grown.apply(entry)
        often.tokens(grown)
        assert View(grown.log).sizes_asked() == grown.sizes_asked()
    once = TokenMeter()
    assert once.tokens(grown) == often.tokens(grown)
    assert once.measured is often.measured


@given(logs(steps=30), st.integers(0, 40_000), st.sampled_from([0.5, 1.0, 1.7]))
@settings(deadline=None, max_examples=examples(30))
def test_the_rows_add_up_to_the_headline_measured_or_not(view: View, used: int, ratio: float) -> None:
    session, ratios = Session("rules"), Ratios()
    session.view = view
    session.answer(Usage(used, 0, 0, 30), text="The answer.")
    session.add(user_message("And now?"))
    ratios.learn(view.model, "rule", "prose", measured=ratio * 1_000, estimated=1_000)
    meter = TokenMeter(ratios=ratios)
    rows = meter.breakdown(view)
    assert sum(rows.values()) == meter.tokens(view)
    assert all(tokens >= 0 for tokens in rows.values())
    assert set(rows) == set(CATEGORIES)


def test_once_measured_system_prompt_and_tools_keep_their_size() -> None:
    session, meter = Session("s" * 30_000), TokenMeter()
    session.add(user_message("hi"))
    meter.tokens(session.view)
    session.answer(Usage(9_900, 0, 0, 1), text="ok")
    meter.measure(session.view, Usage(9_900, 0, 0, 1))
    first = meter.breakdown(session.view)
    session.add(user_message("x" * 30_000))
    session.answer(Usage(24_800, 0, 0, 1), text="ok")
    rows = meter.breakdown(session.view)
    assert sum(rows.values()) == meter.tokens(session.view) == 24_801
    assert rows["system"] == pytest.approx(first["system"], rel=0.01)
    assert rows["user"] == pytest.approx(14_900, rel=0.01)
    session.add(user_message("y"))
    session.answer(Usage(60_000, 0, 0, 1), text="ok")
    # What nothing that was said can explain is not put down to it.
    assert meter.breakdown(session.view)["user"] < 2.1 * meter.categories(session.view)["user"]


def test_what_a_provider_counts_where_nothing_is_said_stands_in_a_row_too() -> None:
    session, meter = Session(""), TokenMeter()
    session.answer(Usage(50, 0, 0, 0))
    assert meter.tokens(session.view) == sum(meter.breakdown(session.view).values()) == 50


@pytest.mark.parametrize(
    ("reported", "believed"),
    [(1_000_000, False), (8_100, False), (7_900, True), (2_000, True), (1_000, True), (400, True)],
)
def test_a_size_that_no_tokenizer_would_count_is_not_believed(reported: int, believed: bool) -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("hi"))
    session.answer(Usage(reported, 0, 0, 0), text="hello")
    estimated = sum(meter.categories(session.view).values())
    assert estimated == 993
    assert meter.tokens(session.view) == (reported if believed else estimated)
    assert meter.measured is believed
    session.add(user_message("x" * 100))
    assert meter.tokens(session.view) == (reported if believed else estimated) + 33
    session.answer(Usage(1_100, 0, 0, 10), text="hello")
    assert meter.tokens(session.view) == 1_110
    assert meter.measured


def test_a_size_far_below_what_any_tokenizer_would_count_is_not_believed() -> None:
    session, meter = Session("s" * 60_000), TokenMeter()
    session.answer(Usage(100, 0, 0, 0), text="hello")
    assert meter.tokens(session.view) == 19_802
    assert not meter.measured
    assert sum(meter.breakdown(session.view).values()) == 19_802


class Forked(NamedTuple):
    """A conversation that was taken back to its first answer, `at`, and went another way; `tip` is its first end."""

    session: Session
    meter: TokenMeter
    at: int
    tip: int


def forked() -> Forked:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 100))
    measured_call(session, meter, Usage(5_000, 0, 0, 70))
    at = len(session.view.log)
    session.result("r" * 1_000)
    session.add(user_message("u" * 1_000))
    measured_call(session, meter, Usage(7_000, 0, 0, 80))
    session.result("q" * 1_000)
    tip = len(session.view.log)
    assert meter.tokens(session.view) == 7_080 + 330
    session.add(HeadMoved(to=at, reason="rewind"))
    return Forked(session, meter, at, tip)


@pytest.mark.parametrize("asked_on_the_other_branch", [True, False])
def test_after_a_rewind_the_size_is_the_one_measured_on_that_branch(asked_on_the_other_branch: bool) -> None:
    session, meter, at, tip = forked()
    if not asked_on_the_other_branch:
        meter = TokenMeter()
    assert meter.tokens(session.view) == 5_070
    assert meter.measured
    session.result("a" * 2_000)
    assert meter.tokens(session.view) == 5_070 + 660
    session.add(HeadMoved(to=tip, reason="switch"))
    assert meter.tokens(session.view) == 7_080 + 330
    session.add(HeadMoved(to=at, reason="switch"))
    session.add(Prefix(system="other"))
    assert meter.tokens(session.view) < 1_000
    assert not meter.measured


def test_growth_and_ratios_are_learned_on_the_branch_they_are_of() -> None:
    session, meter, _, _ = forked()
    session.result("a" * 10_000)
    measured_call(session, meter, Usage(5_070 + 4_950, 0, 0, 10))
    assert meter.ratios.ratio(MODEL, "rule", "results") == pytest.approx(1.5)


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
    assert meter.growth(session.view).clearable == pytest.approx(3_300)
    assert TokenMeter().growth(session.view) == meter.growth(session.view)
    factor = (6_960 + SURE_OF) / (1.5 * whole_before(session.view) + SURE_OF)
    assert meter.result_tokens_of(session.view)(size_of_text("r" * 1_000)) == math.ceil(495 * factor)


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


def test_the_usage_of_an_answer_with_searches_teaches_nothing() -> None:
    session, meter = Session("s" * 30_000), TokenMeter()
    session.add(user_message("hello"))
    measured_call(session, meter, Usage(12_000, 0, 0, 10, searches=2))
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


def test_right_after_a_switch_nothing_counts_less_than_it_did_for_the_last_model() -> None:
    session, meter = Session(), TokenMeter()
    session.add(user_message("x" * 100))
    meter.tokens(session.view)
    session.answer(Usage(1_300, 0, 0, 10), call="grep")
    meter.measure(session.view, Usage(1_300, 0, 0, 10))
    session.result("r" * 3_000)
    fixed = meter.fixed(session.view)
    meter.ratios.learn("gemini:small", "rule", "results", measured=990, estimated=990)
    session.add(ModelSwitched(model="gemini:small"))
    assert meter.fixed(session.view) == fixed == pytest.approx(990 * 1_300 / 1_023, abs=2)
    session.answer(Usage(1_900, 0, 0, 10), call="grep")
    assert meter.fixed(session.view) < fixed


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
