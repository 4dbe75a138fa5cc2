"""Clearing of old tool results."""

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from typing_extensions import override

from tests.context.sessions import Session, situation, tokens, tokens_of
from tests.examples import examples
from tui_agent.context.budget import Budget, Threshold, budget, thresholds
from tui_agent.context.economics import Situation, clearing_size
from tui_agent.context.effects import NotYet
from tui_agent.context.layers.clearing import Candidate, ClearingLayer, NeverCleared, never_cleared, smallest_batch
from tui_agent.conversation.blocks import ToolResult
from tui_agent.conversation.entries import Artifact, Cleared, HeadMoved, Pinned, Restored, Undone, user_message
from tui_agent.conversation.profile import Prices, Rates
from tui_agent.conversation.sizes import size_of_text
from tui_agent.conversation.view import LiveResult, View
from tui_agent.settings import ClearingSettings, CompactionSettings, Settings

OPUS = Prices(4, 20, 0.20, 5).rates
SETTINGS = ClearingSettings()
ROOM = budget(200_000, 0, 16_384)
RESULT = "r" * 9_000
FEW = ClearingSettings(protect_tokens=0, min_batch_share=0.0)


def trigger(room: Budget = ROOM, settings: ClearingSettings = SETTINGS) -> Threshold:
    return thresholds(room, settings, CompactionSettings(), tier="frontier").clear


def session(results: int, text: str = RESULT) -> Session:
    made = Session("rules")
    made.add(user_message("do it"))
    for _ in range(results):
        made.step(text)
    return made


def at(here: Situation, settings: ClearingSettings, threshold: Threshold, least: float = 0.0) -> Situation:
    """The moment under these settings, with clearing from this threshold on."""
    limits = structs.replace(here.limits, clear=threshold)
    return structs.replace(here, settings=Settings(clearing=settings), limits=limits, least_results=least)


def plan_clearing(
    view: View, here: Situation, settings: ClearingSettings, threshold: Threshold, *, force: bool = False
) -> Cleared | None:
    layer, here = ClearingLayer(), at(here, settings, threshold)
    found = layer.asked_for(view, here) if force else layer.plan(view, here)
    return found if isinstance(found, Cleared) else None


def candidates(
    view: View, here: Situation, settings: ClearingSettings, *, never: NeverCleared | None = None, force: bool = False
) -> list[Candidate]:
    return ClearingLayer(never).candidates(
        view, structs.replace(here, settings=Settings(clearing=settings)), force=force
    )


def shown(view: View) -> dict[str, str]:
    return {
        block.call_id: block.text
        for message in view.messages()
        for block in message.blocks
        if isinstance(block, ToolResult)
    }


def by_price(entry: Cleared | None) -> tuple[int, int, int]:
    """What a clearing that pays frees, the tail it writes anew, and from what size on it pays, as it says itself."""
    assert entry is not None
    said = re.fullmatch(r"it pays: (\S+) freed tokens outweigh writing (\S+) anew \(from (\S+) on\)", entry.reason)
    assert said is not None, entry.reason
    freed, tail, needed = (int(figure.replace(",", "")) for figure in said.groups())
    assert freed == entry.before - entry.after
    return freed, tail, needed


def test_nothing_is_cleared_twice_and_a_threshold_that_stays_exceeded_does_not_clear_call_by_call() -> None:
    made, cleared_at = session(0), []
    threshold = Threshold("clear", 5_000, "always exceeded")
    for call in range(120):
        made.step(RESULT)
        found = plan_clearing(made.view, situation(made.view, ROOM), SETTINGS, threshold)
        if found is not None:
            assert found.before - found.after >= 8_500
            made.add(found)
            cleared_at.append(call)
    assert len(cleared_at) >= 20
    assert min(later - sooner for sooner, later in pairwise(cleared_at)) >= 3
    results = [seq for entry, _ in made.view.context_entries() if isinstance(entry, Cleared) for seq in entry.results]
    assert len(results) == len(set(results))


def test_pins_named_tools_memory_and_skills_stay() -> None:
    made = session(0)
    done = made.step(RESULT, "mark_task_done", detail="x")
    skill = made.step(RESULT, path="/home/someone/.agents/skills/a/SKILL.md")
    memory = made.step(RESULT, path="/home/someone/memory/notes.md")
    mine = made.step(RESULT, "my_log")
    pinned = made.step(RESULT)
    made.add(Pinned(items=(pinned,)))
    plain = made.step(RESULT)
    newest = [made.step(RESULT) for _ in range(3)]
    settings_ = ClearingSettings(never_clear=("mark_task_done", "my_log"), protect_tokens=0)
    never = never_cleared(settings_, ("/home/someone/memory",))
    for force in (False, True):
        found = candidates(made.view, situation(made.view, ROOM), settings_, never=never, force=force)
        assert [each.seq for each in found] == [plain]
    everything = candidates(
        made.view, situation(made.view, ROOM), ClearingSettings(never_clear=(), protect_tokens=0, keep=0)
    )
    assert {each.seq for each in everything} == {done, memory, mine, plain, *newest}
    assert skill not in {each.seq for each in everything}


def test_what_the_user_took_back_is_not_cleared_again_unasked() -> None:
    made = session(6)
    moment = situation(made.view, ROOM)
    found = plan_clearing(made.view, moment, FEW, Threshold("clear", 10, "test"))
    assert found is not None
    cleared = made.add(found)
    made.add(Restored(items=(found.results[0],), texts=("",)))
    assert candidates(made.view, moment, FEW) == []
    assert [each.seq for each in candidates(made.view, moment, FEW, force=True)] == [found.results[0]]
    made.add(Undone(target=cleared))
    assert candidates(made.view, moment, FEW) == []
    assert [each.seq for each in candidates(made.view, moment, FEW, force=True)] == list(found.results)


def test_asked_for_it_clears_all_but_the_newest() -> None:
    made = session(6, "r" * 900)
    moment = situation(made.view, ROOM)
    assert plan_clearing(made.view, moment, SETTINGS, trigger()) is None
    found = plan_clearing(made.view, moment, SETTINGS, trigger(), force=True)
    assert found is not None
    assert len(found.results) == 3
    assert found.reason == "asked for"


def test_a_cold_cache_is_used_at_once_but_only_for_a_batch_and_only_where_prices_are_known() -> None:
    made = session(20)
    cold = situation(made.view, ROOM, cold=True, rates=OPUS)
    found = plan_clearing(made.view, cold, SETTINGS, trigger())
    assert found is not None
    assert found.reason == "cache is cold: clearing is free"
    assert plan_clearing(made.view, situation(made.view, ROOM, rates=OPUS, growth=3_000), SETTINGS, trigger()) is None
    assert plan_clearing(made.view, situation(made.view, ROOM, cold=True), SETTINGS, trigger()) is None
    assert plan_clearing(made.view, cold, ClearingSettings(by_price=False), trigger()) is None
    # A share of a short request is enough, but no less.
    small = session(15)
    found = plan_clearing(small.view, situation(small.view, ROOM, cold=True, rates=OPUS), SETTINGS, trigger())
    assert found is not None
    assert 10_000 > found.before - found.after >= 0.05 * found.before
    small = session(14)
    assert plan_clearing(small.view, situation(small.view, ROOM, cold=True, rates=OPUS), SETTINGS, trigger()) is None


def test_by_price_it_clears_once_the_freed_tokens_reach_their_size_and_never_after_the_threshold() -> None:
    wide, least, made = budget(1_000_000, 0, 16_384), 0.0, session(0)
    room_threshold = trigger(wide)

    def remembering(moment: Situation) -> Cleared | None:
        nonlocal least
        found = ClearingLayer().plan(made.view, at(moment, SETTINGS, room_threshold, least))
        least = found.results if isinstance(found, NotYet) else least
        return found if isinstance(found, Cleared) else None

    while True:
        made.step(RESULT)
        moment = situation(made.view, wide, rates=OPUS, growth=3_000)
        exact = plan_clearing(made.view, moment, SETTINGS, room_threshold)
        if exact is not None:
            break
        assert remembering(moment) is None
    assert tokens(made.view) < room_threshold.tokens
    freed, tail, needed = by_price(exact)
    assert needed == pytest.approx(clearing_size(OPUS, tail, 3_000), abs=1)
    assert needed <= freed < needed + 3_500
    for _ in range(3):
        found = remembering(situation(made.view, wide, rates=OPUS, growth=3_000))
        if found is not None:
            break
        made.step(RESULT)
    assert found is not None


@pytest.mark.parametrize("rates", [Rates(0.05, 1.0, 5.0, 4.0), Rates(0.05, 1.0, 16.0, 0.0, 2_500.0)])
def test_above_its_threshold_it_waits_for_a_summary_where_its_cache_costs_more_than_it_saves(rates: Rates) -> None:
    made, threshold = session(20), Threshold("clear", 5_000, "exceeded")
    found = plan_clearing(made.view, situation(made.view, ROOM), SETTINGS, threshold)
    assert found is not None
    freed = found.before - found.after
    # 95% of the tail, which is no more than the rest, are paid once; 5% of the freed are saved by each later call.
    tail = tokens(made.view) - freed
    for growth, clears in ((0.9 * freed**2 / (38 * tail), True), (4.0 * freed**2 / (38 * tail), False)):
        moment = structs.replace(situation(made.view, ROOM, rates=rates, growth=growth), growth_of_all=growth)
        assert (plan_clearing(made.view, moment, SETTINGS, threshold) is not None) is clears
        # By the threshold alone, or where no summary comes, it clears.
        assert plan_clearing(made.view, moment, structs.replace(SETTINGS, by_price=False), threshold) is not None
        alone = structs.replace(moment, resting=True)
        assert plan_clearing(made.view, alone, SETTINGS, threshold) is not None


def test_the_tail_is_what_follows_the_first_cleared_result_and_stays() -> None:
    made = session(10)
    found = plan_clearing(made.view, situation(made.view, ROOM, rates=OPUS, growth=1), FEW, trigger())
    assert found is not None
    assert len(found.results) == 7
    _, tail, _ = by_price(found)
    calls = tokens_of(made.view.sizes()["calls"])
    stubs = sum(tokens_of(size_of_text(stub)) for stub in found.texts[1:])
    assert abs(tail - (3 * tokens_of(size_of_text(RESULT)) + 0.9 * calls + stubs)) <= 5


def test_looks_that_miss_are_rare() -> None:
    wide, least, looks, made = budget(1_000_000, 0, 16_384), 0.0, 0, session(0)
    for _ in range(60):
        made.step(RESULT)
        moment = situation(made.view, wide, rates=OPUS, growth=3_000)
        found = ClearingLayer().plan(made.view, at(moment, SETTINGS, trigger(wide), least))
        if isinstance(found, NotYet):
            looks, least = looks + 1, found.results
    assert 2 < looks <= 12


def test_a_placeholder_says_how_to_get_the_result_back() -> None:
    made = session(0)
    made.step(RESULT, path="a.py")
    made.step(RESULT, "run_command", command="make\ntest " + "x" * 500)
    made.step(RESULT, artifact=Artifact("large_tool_results/c3", 90_000, "0", evicted=True))
    found = candidates(made.view, situation(made.view, ROOM), ClearingSettings(keep=0, protect_tokens=0))
    read, command, kept = (each.text for each in found)
    assert read.startswith('[cleared] read_file {"path":') or read.startswith("[cleared] read_file {")
    assert "9,000 characters" in read
    assert "Call it again" in read
    assert "recall" in command
    assert "\n" not in command
    assert len(command) < 400
    assert 'read_file(path="large_tool_results/c3")' in kept


def test_it_costs_nothing_to_look_while_nothing_can_be_due() -> None:
    made = session(10)

    class Unread(View):
        @override
        def live_results(self) -> list[LiveResult]:
            raise AssertionError("looked")

    unread = Unread(made.view.log)
    assert plan_clearing(unread, situation(unread, ROOM), SETTINGS, trigger()) is None


@st.composite
def grown(draw: st.DrawFn) -> Session:
    made = session(0)
    for _ in range(draw(st.integers(0, 25))):
        match draw(st.integers(0, 9)):
            case 0:
                made.add(user_message("u" * draw(st.integers(1, 3_000))))
            case 1:
                made.add(Pinned(items=(draw(st.integers(1, len(made.view.log))),)))
            case 2:
                made.add(HeadMoved(to=draw(st.integers(2, len(made.view.log)))))
                for _call in made.view.unanswered():
                    made.result("r" * 2_000)
            case 3:
                made.step("d" * 4_000, "mark_task_done", detail="x")
            case _:
                made.step(draw(st.sampled_from("ré漢")) * draw(st.integers(1, 6_000)))
    return made


@given(grown(), st.integers(0, 4), st.integers(0, 8_000), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=examples(30))
def test_clearing_never_touches_what_stays_and_frees_what_it_says(
    made: Session, keep: int, protect: int, force: bool, cold: bool
) -> None:
    settings_ = ClearingSettings(keep=keep, protect_tokens=protect, min_batch_share=0.01)
    room = budget(60_000, 0, 4_000)
    moment = situation(made.view, room, cold=cold, rates=OPUS if cold else None)
    live = made.view.live_results()
    texts = shown(made.view)
    found = plan_clearing(made.view, moment, settings_, Threshold("clear", 2_000, "test"), force=force)
    if found is None:
        return
    before = tokens(made.view)
    chosen = [each for each in live if each.seq in found.results]
    assert len(chosen) == len(found.results) == len(found.texts)
    assert not {each.seq for each in live[:keep]} & set(found.results)
    assert not any(each.pinned or each.call.name == "mark_task_done" for each in chosen)
    if not force:
        assert all(tokens_of(each.after) >= min(protect, 15_000) for each in chosen)
        assert found.before - found.after >= smallest_batch(settings_, moment)
    made.add(found)
    assert abs(tokens(made.view) - found.after) <= 2
    assert tokens(made.view) < before
    after = shown(made.view)
    untouched = set(texts) - {each.call.id for each in chosen}
    assert all(after[call] == texts[call] for call in untouched)
    assert candidates(made.view, moment, settings_, force=force) == []
