"""The engine as a whole, driven as an agent, a replay or a library's user drives it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Literal, NamedTuple, TypeVar

import pytest
from msgspec import structs

from tests.context.performer import (
    COST_USD,
    LINE,
    NAME,
    SMALL,
    SUMMARIES,
    SUMMARY,
    UNPRICED,
    USED,
    Chat,
    Performer,
    Writing,
    failing,
    written,
)  # fmt: skip
from tests.conversation.logs import broken_rules
from tests.profiles import model_named
from tui_agent.agent.commands.context_text import text as stats_text
from tui_agent.context.compaction.draft import Draft
from tui_agent.context.compaction.plan import CHANGED
from tui_agent.context.counting import Ratios
from tui_agent.context.economics import Situation
from tui_agent.context.effects import (
    Answer,
    Append,
    ArchiveTurns,
    AskModel,
    AskWriter,
    BeforeSummary,
    Effect,
    MemoryHost,
    Outcome,
    Refusal,
    SaveText,
    StepDone,
    Steps,
    StepStarted,
    carry_out,
)
from tui_agent.context.engine import ContextEngine
from tui_agent.context.layers.compaction import Backoff
from tui_agent.context.layers.digests import PLACEHOLDER
from tui_agent.conversation.blocks import Image, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyContextEntry,
    AnyEntry,
    Checkpointed,
    Cleared,
    Digested,
    HeadMoved,
    Message,
    Prefix,
    Summarized,
    UnattributedCall,
    Usage,
    encode,
    tool_result,
    user_message,
)
from tui_agent.conversation.profile import ModelProfile, Rates
from tui_agent.conversation.view import View
from tui_agent.settings import ClearingSettings, CompactionSettings, ContextSettings, Settings
from tui_agent.settings.schema import DigestSettings

T = TypeVar("T")
# Before a call


def test_a_compaction_that_is_due_is_written_archived_entered_and_told_in_this_order() -> None:
    chat = Chat(20_000, SUMMARIES, writing=written(SUMMARY)).grow(16)
    before, request = chat.tokens, chat.engine.view.messages()
    chat.run(chat.engine.prepare())
    kinds = [type(effect) for effect in chat.caller.effects]
    assert kinds[:6] == [BeforeSummary, StepStarted, AskModel, ArchiveTurns, Append, StepDone]
    started, asked = chat.caller.effects[1:3]
    assert isinstance(started, StepStarted)
    assert (started.step, started.tokens) == ("summary", before)
    assert isinstance(asked, AskModel)
    assert (asked.who, asked.purpose, asked.cached) == ("session", "summary", True)
    assert [*asked.request.messages[:-1]] == request[: len(asked.request.messages) - 1]
    done = chat.caller.done[0]
    assert (done.step, done.before) == ("summary", before)
    assert done.after < before
    assert done.cost_usd == COST_USD
    assert isinstance(done.entry, Summarized)
    assert done.entry.seq
    assert chat.engine.view.boundaries() == [done.entry]
    assert "value_1 = 1" in chat.caller.history
    assert f"{LINE}value_1 = 1" not in chat.shown
    assert chat.tokens == done.after
    assert broken_rules(chat.engine.view.messages()) == []
    chat.caller.effects.clear()
    chat.run(chat.engine.prepare())
    assert chat.caller.effects == []


@pytest.mark.parametrize("turns", [17, 18, 20, 24, 32])
def test_no_request_for_a_summary_is_larger_than_the_window_even_if_it_is_estimated_too_small(turns: int) -> None:
    chat = Chat(20_000, SUMMARIES, writing=written(SUMMARY)).grow(turns)
    chat.run(chat.engine.prepare())
    asked = [effect for effect in chat.caller.effects if isinstance(effect, AskModel)]
    assert asked
    assert [each for each in asked if each.tokens * 1.015 + each.request.max_tokens > 20_000] == []
    assert chat.caller.done[0].after < 20_000


def test_old_results_are_cleared_at_once_where_a_summary_has_made_the_cache_worthless() -> None:
    clearing = ClearingSettings(protect_tokens=200, min_batch_share=0.01, keep=1)
    keeping = CompactionSettings(thrift=0, keep_recent_share=0.08)
    chat = Chat(20_000, Settings(clearing=clearing, compaction=keeping), writing=written(SUMMARY), priced=True)
    chat.talk(15).grow(12, lines=24)
    chat.run(chat.engine.prepare())
    assert [done.step for done in chat.caller.done] == ["summary", "cleared"]
    assert chat.caller.done[1].reason == "cache is cold: clearing is free"
    assert chat.caller.done[1].after < chat.caller.done[1].before <= chat.caller.done[0].after + 60


def test_a_cold_cache_is_used_also_right_after_a_look_at_which_clearing_did_not_pay() -> None:
    settings = Settings(clearing=ClearingSettings(protect_tokens=10_000), compaction=CompactionSettings(thrift=0))
    chat = Chat(200_000, settings, priced=True).grow(24)
    chat.run(chat.engine.prepare())
    assert chat.caller.effects == []
    chat.now += 10_000
    chat.run(chat.engine.prepare(between_turns=True))
    (done,) = chat.caller.done
    assert (done.step, done.reason) == ("cleared", "cache is cold: clearing is free")


def test_a_renewed_prefix_is_sent_from_the_next_summary_on() -> None:
    chat = Chat(20_000, SUMMARIES, writing=written(SUMMARY)).grow(17)
    chat.engine.renewed_prefix = Prefix(system="new rules")
    assert chat.engine.request().request.system == "rules " * 100
    chat.run(chat.engine.prepare())
    assert chat.engine.request().request.system == "new rules"
    assert isinstance(chat.caller.done[0].entry, Summarized)
    chat.grow(17)
    chat.run(chat.engine.prepare())
    assert sum(isinstance(entry, Prefix) for entry in chat.engine.view.log) == 2


def test_what_a_summary_could_not_do_clearing_does_in_the_same_pass() -> None:
    def ceiling(asked: AskModel | AskWriter) -> Refusal:
        return Refusal("The ceiling is reached.", final=True)

    chat = Chat(20_000, writing=ceiling).grow(6).talk(16)
    before = chat.tokens
    chat.run(chat.engine.prepare())
    assert [(done.step, bool(done.error)) for done in chat.caller.done] == [("summary", True), ("cleared", False)]
    assert not chat.engine.backoff.resting
    assert chat.tokens < before


class Trimming:
    """A layer of one's own: clears the oldest result as soon as there are more than `most`."""

    name = "trimming"

    def __init__(self, most: int) -> None:
        self.most = most
        self.seen: list[int] = []

    def plan(self, view: View, situation: Situation, /) -> AnyContextEntry | None:
        self.seen.append(situation.tokens)
        live = view.live_results()
        if len(live) <= self.most:
            return None
        freed = situation.tokens_of(live[-1].size)
        return Cleared(
            results=(live[-1].seq,),
            texts=("[trimmed]",),
            reason="there were too many",
            before=situation.tokens,
            after=situation.tokens - freed,
        )


def test_a_layer_of_ones_own_is_asked_last_and_its_step_is_told() -> None:
    layer = Trimming(5)
    chat = Chat(engine=ContextEngine(UNPRICED, more=[layer], clock=lambda: 1_000.0))
    chat.grow(5)
    chat.run(chat.engine.prepare())
    assert chat.caller.effects == []
    chat.read()
    before = chat.tokens
    chat.run(chat.engine.prepare())
    (done,) = chat.caller.done
    assert (done.step, done.reason, done.before, done.text) == ("cleared", "there were too many", before, "[trimmed]")
    assert done.after < done.before
    assert isinstance(done.entry, Cleared)
    assert done.entry == chat.engine.view.log[len(chat.engine.view.log)]
    assert "[trimmed]" in chat.shown


@pytest.mark.parametrize("writing", [written(SUMMARY), failing])
def test_a_layer_of_ones_own_sees_what_the_built_in_ones_have_left(writing: Writing) -> None:
    layer = Trimming(1_000)
    chat = Chat(20_000, engine=ContextEngine(UNPRICED, more=[layer], clock=lambda: 1_000.0))
    chat.caller.writing = writing
    chat.grow(17)
    before = chat.tokens
    chat.run(chat.engine.prepare())
    assert layer.seen == [chat.tokens]
    assert chat.tokens < before


@pytest.mark.parametrize(
    ("writing", "text"), [(written("Eleven files were read."), "Eleven files"), (failing, "- read_file")]
)
@pytest.mark.parametrize("small", [None, model_named(SMALL, window=100_000)])
def test_a_digest_frees_what_it_says(writing: Writing, text: str, small: ModelProfile | None) -> None:
    settings = structs.replace(UNPRICED, context=ContextSettings(preset="digest"))
    chat = Chat(60_000, settings, writing=writing, small=small).grow(20)
    before = chat.tokens
    chat.run(chat.engine.prepare())
    (done,) = chat.caller.done
    (asked,) = chat.caller.asked
    assert isinstance(asked, AskModel)
    assert (asked.who, asked.purpose) == ("small" if small is not None else "session", "digest")
    assert (done.step, done.items, done.before) == ("digest", 10, before)
    assert done.after < done.before - 3_000
    assert done.after == chat.tokens
    assert isinstance(done.entry, Digested)
    assert (done.entry.before, done.entry.after) == (done.before, done.after)
    assert done.text.startswith("[Tool digest]\n")
    assert text in done.text
    assert chat.shown.count(PLACEHOLDER) == 10


@pytest.mark.parametrize("priced", [False, True])
def test_digests_wait_until_they_pay_or_for_a_batch(priced: bool) -> None:
    settings = Settings(context=ContextSettings(preset="digest"), digests=DigestSettings(strategy="heuristic"))
    chat = Chat(200_000, settings, priced=priced)
    for _ in range(60):
        chat.grow(1)
        chat.run(chat.engine.prepare())
    assert chat.caller.asked == []
    digests = [done for done in chat.caller.done if done.step == "digest"]
    # The cache is cold before the first answer, so the first may be small.
    assert 1 <= len(digests) <= 8
    assert all(done.items >= 5 for done in digests[1:])


def test_a_task_that_was_declared_done_is_recorded_at_the_next_turn() -> None:
    chat = Chat(200_000, writing=written("# Task\nThe parser was repaired by hand."))
    chat.grow(4)
    chat.read(1, "mark_task_done", detail="parser repaired")
    chat.run(chat.engine.prepare())
    assert chat.caller.effects == []
    chat.run(chat.engine.prepare(between_turns=True))
    (done,) = chat.caller.done
    assert done.step == "checkpoint"
    assert isinstance(done.entry, Checkpointed)
    assert done.entry.note == "parser repaired"
    chat.run(chat.engine.prepare(between_turns=True))
    assert len(chat.caller.done) == 1


def test_a_request_that_was_too_large_stays_short_when_a_summary_brings_it_back() -> None:
    chat = Chat(20_000, SUMMARIES, writing=written(SUMMARY))
    chat.ask("Do as it says here. " + "paste " * 9_000)
    chat.run(chat.engine.recover())
    for _ in range(16):
        chat.read()
    chat.run(chat.engine.prepare())
    (*_, done) = chat.caller.done
    assert done.step == "summary"
    assert "Do as it says here." in chat.shown
    assert chat.engine.fits
    assert chat.tokens == done.after


# What is sent


def test_a_request_only_grows_and_marks_where_the_cache_may_end() -> None:
    chat = Chat(200_000, structs.replace(UNPRICED, clearing=ClearingSettings(by_price=False, protect_tokens=3_000)))
    chat.grow(6)
    chat.ask("And this?")
    first = chat.engine.request()
    assert first.tokens == chat.tokens
    assert first.prefix_hash == chat.engine.view.prefix_hash()
    assert first.request.max_tokens == chat.engine.budget.reserve
    (edge,) = first.request.cache_edges
    assert 0 < edge < len(first.request.messages) - 1
    chat.read()
    second = chat.engine.request()
    assert second.request.messages[: len(first.request.messages)] == first.request.messages
    assert second.request.cache_edges == (edge, len(first.request.messages) - 1)
    assert chat.engine.request().request.cache_edges == (edge,)
    chat.run(chat.engine.clear_results())
    third = chat.engine.request()
    assert third.request.cache_edges
    assert third.request.cache_edges[0] > edge


def test_of_a_text_too_large_for_the_window_both_ends_are_heard_and_the_whole_is_kept() -> None:
    chat = Chat(40_000)
    text = "word " * 20_000 + "the end"
    picture = Image("image/png", "AAAA")
    heard = chat.run(chat.engine.fitted(user_message(text, picture)))
    (saved,) = (effect for effect in chat.caller.effects if isinstance(effect, SaveText))
    assert saved.text == text
    assert heard.artifact is not None
    short, kept = heard.blocks
    assert isinstance(short, Text)
    assert kept == picture
    assert heard.artifact.path in short.text
    assert "the end\n[Cut at" in short.text
    assert len(short.text) < 6_000
    asked = user_message("a short question")
    assert chat.run(chat.engine.fitted(asked)) is asked
    unknown = Chat(0, structs.replace(UNPRICED, context=ContextSettings(context_window=-1)))
    whole = user_message(text)
    assert unknown.run(unknown.engine.fitted(whole)) is whole


def test_an_entry_that_is_not_the_next_one_is_refused_and_changes_nothing() -> None:
    chat = Chat().grow(2)
    before, length = chat.tokens, len(chat.engine.view.log)
    with pytest.raises(ValueError, match="cannot follow"):
        chat.engine.apply(structs.replace(user_message("late"), seq=3, parent=2))
    assert (chat.tokens, len(chat.engine.view.log)) == (before, length)


# Looking ahead


def test_a_preview_of_a_clearing_is_what_the_clearing_does() -> None:
    chat = Chat(priced=True).grow()
    seen = chat.engine.preview("clear")
    assert not isinstance(seen, Refusal)
    assert seen.exact
    before = chat.engine.view.copy()
    done = chat.run(chat.engine.clear_results())
    assert isinstance(done, StepDone)
    assert (seen.preview.before, seen.preview.after) == (done.before, done.after)
    assert seen.reason == done.reason
    assert chat.tokens == seen.preview.after
    assert {item.seq for item in seen.preview.leaving} == chat.changed_since(before)
    assert seen.preview.returning == ()
    assert seen.price is not None
    assert seen.price.saving == pytest.approx(seen.preview.freed * 0.05 * 4e-6)
    assert isinstance(chat.engine.preview("clear"), Refusal)
    assert isinstance(chat.run(chat.engine.clear_results()), Refusal)


@pytest.mark.parametrize("step", ["compact", "checkpoint"])
def test_a_preview_of_a_summary_names_what_leaves_and_its_size(step: Literal["compact", "checkpoint"]) -> None:
    chat = Chat(priced=True, writing=written(SUMMARY)).grow()
    before, length = chat.engine.view.copy(), len(chat.engine.view.log)
    seen = chat.engine.preview(step, "the parser")
    assert not isinstance(seen, Refusal)
    assert not seen.exact
    assert len(chat.engine.view.log) == length
    assert seen.preview.before == chat.tokens
    result = chat.run(chat.engine.compact(step, "the parser"))
    assert result.error == ""
    assert result.before == seen.preview.before
    assert result.after <= seen.preview.after < seen.preview.before
    assert {item.seq for item in seen.preview.leaving} == chat.changed_since(before)
    assert seen.price is not None
    assert seen.price.writing > 0


def test_a_draft_changes_nothing_until_it_is_entered_as_written_or_edited_and_then_does_what_was_said() -> None:
    chat = Chat(priced=True, writing=written(SUMMARY)).grow()
    before, request = chat.tokens, chat.engine.view.messages()
    draft = chat.run(chat.engine.draft("compact", "the parser"))
    assert isinstance(draft, Draft)
    assert (chat.tokens, chat.engine.view.messages()) == (before, request)
    assert [type(entry) for entry in list(chat.engine.view.log)[-1:]] == [UnattributedCall]
    assert (draft.step, draft.before, draft.model, draft.spent_usd) == ("summary", before, SMALL, COST_USD)
    seen, then = chat.engine.preview_draft(draft), chat.engine.view.copy()
    assert seen.exact
    assert (seen.preview.before, seen.preview.after) == (draft.before, draft.after)
    result = chat.run(chat.engine.enter(draft))
    assert (result.before, result.after, result.error) == (draft.before, draft.after, "")
    assert chat.tokens == draft.after
    assert {item.seq for item in seen.preview.leaving} == chat.changed_since(then)
    boundary = chat.engine.view.context_entry(result.seq)
    assert isinstance(boundary, Summarized)
    assert (boundary.focus, boundary.text) == ("the parser", result.text)

    chat = Chat(writing=written(SUMMARY)).grow()
    draft = chat.run(chat.engine.draft("compact"))
    assert isinstance(draft, Draft)
    edited = chat.engine.current(draft, "Only this is to be kept in mind.")
    assert isinstance(edited, Draft)
    assert edited.after < draft.after
    result = chat.run(chat.engine.enter(draft, "Only this is to be kept in mind."))
    assert result.after == edited.after
    assert "Only this is to be kept in mind." in chat.shown
    assert isinstance(chat.engine.current(draft, " "), Refusal)


def test_a_draft_waits_while_the_conversation_goes_on_but_not_while_it_is_changed() -> None:
    chat = Chat(writing=written(SUMMARY)).grow()
    draft = chat.run(chat.engine.draft("compact"))
    assert isinstance(draft, Draft)
    chat.ask("One thing more.")
    chat.say("Of course.")
    now = chat.engine.current(draft)
    assert isinstance(now, Draft)
    assert now.before == chat.tokens > draft.before
    again = chat.engine.view.copy()
    chat.run(chat.engine.clear_items(chat.results()[:1]))
    refused = chat.run(chat.engine.enter(draft))
    assert refused.error == CHANGED
    assert refused.seq == 0
    other = Chat(engine=ContextEngine(UNPRICED, view=again, clock=lambda: 1_000.0))
    assert "One thing more." in other.shown
    result = other.run(other.engine.enter(draft))
    assert result.error == ""
    assert other.shown.index("[Previous conversation summary]") < other.shown.index("One thing more.")


# What the user asks for


class Asked(NamedTuple):
    """Something the user may ask for, on a chat that has been compacted once."""

    name: str
    steps: Callable[[Chat], Steps[StepDone | Refusal]]


REQUESTS = [
    Asked("pinned", lambda chat: chat.engine.pin([chat.results()[0]])),
    Asked("restored", lambda chat: chat.engine.restore([chat.results()[1]])),
    Asked("restored", lambda chat: chat.engine.restore([chat.results()[-1]], ["the text in its file"])),
    Asked("undone", lambda chat: chat.engine.undo()),
    Asked("cleared", lambda chat: chat.engine.clear_items([chat.results()[-1]])),
    Asked("cleared", lambda chat: chat.engine.clear_results()),
]


@pytest.mark.parametrize("asked", REQUESTS, ids=lambda asked: asked.name)
def test_what_the_user_asks_for_is_done_and_told_with_its_sizes(asked: Asked) -> None:
    chat = Chat(writing=written(SUMMARY)).grow(24)
    chat.run(chat.engine.compact())
    chat.grow(3)
    chat.caller.effects.clear()
    before = chat.tokens
    done = chat.run(asked.steps(chat))
    assert isinstance(done, StepDone)
    assert chat.caller.done == [done]
    assert (done.step, done.before) == (asked.name, before)
    assert done.after == chat.tokens
    assert done.entry == chat.engine.view.log[len(chat.engine.view.log)]
    assert done.reason
    assert broken_rules(chat.engine.view.messages()) == []


def test_what_cannot_be_done_is_refused_with_a_sentence_and_leaves_no_trace() -> None:
    chat = Chat().grow(2)
    length = len(chat.engine.view.log)
    for steps in (
        chat.engine.pin([999]),
        chat.engine.pin([999], pinned=False),
        chat.engine.restore([999]),
        chat.engine.undo(),
        chat.engine.undo(999),
        chat.engine.clear_results(),
        chat.engine.clear_items([1]),
    ):
        refused = chat.run(steps)
        assert isinstance(refused, Refusal)
        assert refused.reason.endswith(".")
    assert chat.caller.effects == []
    assert len(chat.engine.view.log) == length


def test_however_often_a_step_is_taken_back_the_size_is_what_it_was() -> None:
    """Results take fewer tokens than is estimated, prose more: what is said of a mixture holds for neither."""
    chat = Chat(writing=written(SUMMARY))
    for content, measured in (("results", 700), ("prose", 1_300)) * 9:
        chat.engine.meter.ratios.learn(NAME, "rule", content, measured=measured, estimated=1_000)  # type: ignore[arg-type]
    chat.grow()
    before = chat.tokens
    for _ in range(3):
        chat.run(chat.engine.compact())
        chat.run(chat.engine.undo())
        assert chat.tokens == before
    cleared = chat.run(chat.engine.clear_results())
    chat.ask("Go on.")
    chat.say("So I do.")
    before, whole = chat.tokens, chat.engine.meter.whole_tokens_of(chat.engine.view)
    chat.run(chat.engine.undo())
    assert isinstance(cleared, StepDone)
    assert chat.tokens - before == pytest.approx(cleared.before - cleared.after, rel=0.01)
    assert chat.tokens == pytest.approx(whole(chat.engine.view), abs=60)


def test_the_newest_step_undone_leaves_the_view_as_it_was() -> None:
    chat = Chat(writing=written(SUMMARY)).grow()
    before, tokens = chat.engine.view.messages(), chat.tokens
    chat.run(chat.engine.compact())
    done = chat.run(chat.engine.undo())
    assert isinstance(done, StepDone)
    assert chat.engine.view.messages() == before
    assert chat.tokens == done.after == pytest.approx(tokens, abs=50)
    chat.run(chat.engine.prepare())
    assert chat.caller.done[-1] == done


# Failures


def hard_to_summarise(settings: Settings, window: int) -> Chat:
    """A talk that is so short and dense that its extract is longer than it."""
    chat = Chat(window, settings)
    chat.engine.extend([Prefix(system="rules"), user_message("请修复解析器")])
    said = "1. 因为解析器坏了 " + "它坏了" * 52 + "\n2. next " + "再看看" * 52
    chat.engine.extend([Message(role="assistant", blocks=(Text(said),), model=NAME), user_message("go on")])
    return chat


def test_a_compaction_that_the_user_asked_for_and_that_failed_rests_nothing() -> None:
    chat = hard_to_summarise(UNPRICED, 200_000)
    result = chat.run(chat.engine.compact())
    assert "replaces only" in result.error
    assert (result.seq, result.before, result.after) == (0, chat.tokens, chat.tokens)
    (done,) = chat.caller.done
    assert done.error == result.error
    assert done.before == done.after
    refused = Chat().run(Chat().engine.compact())
    assert "nothing to summarise" in refused.error
    assert chat.engine.backoff == Backoff()


def test_a_compaction_that_came_by_itself_and_failed_rests_the_next_ones_but_none_that_is_asked_for() -> None:
    settings = structs.replace(UNPRICED, compaction=CompactionSettings(thrift=0, keep_recent_tokens=0))
    chat = hard_to_summarise(settings, 500)
    rested = []
    for _ in range(3):
        chat.caller.effects.clear()
        chat.run(chat.engine.prepare())
        assert [bool(done.error) for done in chat.caller.done] == [True]
        turns = 0
        while chat.engine.backoff.resting:
            chat.caller.effects.clear()
            chat.run(chat.engine.prepare())
            assert chat.caller.effects == []
            chat.run(chat.engine.compact())
            assert any(isinstance(effect, StepStarted) for effect in chat.caller.effects)
            chat.engine.turn_ended()
            turns += 1
        rested.append(turns)
    assert rested == [2, 4, 8]


def test_a_success_ends_the_pause() -> None:
    chat = Chat(writing=written(SUMMARY)).grow()
    chat.engine.backoff = chat.engine.backoff.failed()
    chat.run(chat.engine.compact())
    assert chat.engine.backoff == Backoff()


def test_a_writer_of_ones_own_is_asked_in_place_of_a_model() -> None:
    chat = Chat(writing=written("# Current state\nWritten by hand, and better so.")).grow()
    chat.engine.writers = structs.replace(chat.engine.writers, own={"summary"})
    result = chat.run(chat.engine.compact())
    (asked,) = chat.caller.asked
    assert isinstance(asked, AskWriter)
    assert asked.step == "summary"
    assert "value_1 = 1" in "".join(asked.parts)
    assert "Written by hand, and better so." in result.text
    assert "# Exact next steps" in result.text
    assert isinstance(result.entry, Summarized)
    assert "writer of its own" in result.reason
    chat.caller.effects.clear()
    chat.grow(4)
    chat.run(chat.engine.compact("checkpoint"))
    assert [type(each) for each in chat.caller.asked] == [AskModel]


@pytest.mark.parametrize(("ratio", "parts"), [(1.0, 1), (2.5, 3)])
def test_another_model_that_writes_a_summary_counts_by_its_own_ratio(ratio: float, parts: int) -> None:
    """What fits it as the session's model counts may be too large as it counts itself."""
    ratios = Ratios()
    for name, learned in ((NAME, 1.0), (SMALL, ratio)):
        assert ratios.learn(name, "rule", "prose", measured=1_000 * learned, estimated=1_000)
    small = model_named(SMALL, window=12_000, rates=Rates(0.1, 1.25, 5.0, 0.01))
    engine = ContextEngine(UNPRICED, ratios=ratios, clock=lambda: 1_000.0)
    chat = Chat(40_000, engine=engine, priced=True, small=small, writing=written(SUMMARY)).grow(13)
    chat.now += 10_000
    result = chat.run(chat.engine.compact())
    assert result.error == ""
    asked = [each for each in chat.caller.asked if isinstance(each, AskModel)]
    assert {each.who for each in asked} == {"small"}
    assert len(asked) == parts + (parts > 1), "the parts, and one request that puts them together"
    assert all(ratio * each.tokens <= 12_000 - 3_000 for each in asked)


# Turn after turn, with pauses in which the cache runs out


READER = model_named("anthropic:small", window=200_000, rates=Rates(0.1, 1.25, 5.0, 0.1))
FRONTIER = model_named(
    "anthropic:frontier", window=200_000, tier="frontier", rates=Rates(0.1, 1.25, 5.0, 5.0), small=READER
)
LONG_SUMMARY = "# Current state\n" + " ".join(f"Part {part} was read and holds what it should." for part in range(230))


def talking(model: ModelProfile) -> Chat:
    """A conversation about many files, with summaries as long as they may be."""
    return Chat(settings=Settings(), model=model, writing=written(LONG_SUMMARY))


def summaries(chat: Chat) -> int:
    """Those of turns; a merge of them is none."""
    return sum(isinstance(entry, Summarized) and "become one" not in entry.reason for entry in chat.engine.view.log)


def test_a_summary_too_small_to_pay_is_no_failed_one() -> None:
    chat = talking(FRONTIER)
    chat.turn(30)
    assert summaries(chat) == 0
    # The cache is cold, so a summary pays; right after it the next call, still cold, has next to nothing to summarise.
    chat.turn(1)
    assert summaries(chat) == 1
    assert not chat.engine.backoff.resting
    chat.turn(12)
    chat.turn(1)
    assert summaries(chat) == 2


def test_a_small_model_reads_its_cached_prefix_while_there_is_one_and_else_on_its_own() -> None:
    for cold in (True, False):
        chat = talking(structs.replace(READER, small=READER))
        chat.turn(40)
        if cold:
            chat.turn(1)
        else:
            chat.run(chat.engine.compact())
        (asked,) = chat.caller.asked
        assert isinstance(asked, AskModel)
        assert (asked.who, asked.cached) == ("session", not cold)
        if cold:
            assert asked.request.tools == ()
            assert asked.tokens < chat.engine.view.context_entries()[0][0].before / 2


def test_a_large_system_prompt_leaves_room_between_summaries_and_one_that_waits_comes_in_the_same_turn() -> None:
    chat = talking(structs.replace(FRONTIER, window=64_000))
    chat.engine.extend([Prefix(system="Heed this. " * 10_000)])
    assert chat.engine.budget.fixed > 36_000
    chat.turn(30)
    room = chat.engine.thresholds.limit.tokens - chat.engine.budget.fixed
    assert room > 0.7 * (64_000 - chat.engine.budget.fixed)
    assert 0 < summaries(chat) < 10
    assert not chat.engine.backoff.resting


# Limits


def test_a_limit_is_learned_from_what_a_provider_told_and_from_nothing_else() -> None:
    chat = Chat(16_000).grow(14)
    limit = chat.engine.budget.limit
    assert not chat.engine.fits
    for _ in range(6):
        chat.run(chat.engine.recover())
        assert chat.engine.budget.limit == limit
    for told in (0, 30_000):
        chat.engine.learn_limit(told)
        assert chat.engine.window.tokens == 16_000
    chat.engine.learn_limit(12_000)
    assert (chat.engine.window.tokens, chat.engine.window.source) == (12_000, "provider")
    chat.engine.learn_limit(14_000)
    assert chat.engine.window.tokens == 12_000
    chat.engine.use(structs.replace(chat.model, provider="gemini", id="other"))
    assert chat.engine.window.tokens == 16_000
    chat.engine.use(chat.model)
    assert chat.engine.window.tokens == 12_000


def test_a_setting_makes_no_window_larger_than_what_is_loaded_or_was_told() -> None:
    settings = structs.replace(UNPRICED, context=ContextSettings(context_window=50_000))
    chat = Chat(16_000, settings)
    assert chat.engine.window.tokens == 50_000
    chat.engine.use(structs.replace(chat.model, fixed_window=True))
    assert chat.engine.window.tokens == 16_000
    chat.engine.use(chat.model)
    chat.engine.learn_limit(20_000)
    assert chat.engine.window.tokens == 20_000


def test_a_warning_is_said_once() -> None:
    chat = Chat(20_000)
    chat.engine.extend([Prefix(system="rules " * 10_000)])
    said = chat.engine.warnings()
    assert any("Nothing fits" in each for each in said)
    assert chat.engine.warnings() == ()
    chat.engine.use(structs.replace(chat.model, window=19_000))
    assert chat.engine.warnings()
    assert chat.engine.warnings() == ()


def test_another_models_window_and_thresholds_are_told_before_it_answers() -> None:
    chat = Chat(40_000).grow(3)
    other = model_named("gemini:other", window=100_000, tier="small")
    window, _, limits = chat.engine.limits(other)
    assert (window.tokens, limits.compact.tokens) == (100_000, 64_000 + chat.engine.limits(other).budget.fixed)
    assert chat.engine.window.tokens == 40_000
    chat.engine.use(other)
    assert chat.engine.thresholds == limits


# Figures


def test_the_snapshot_adds_up_and_names_what_comes_next() -> None:
    chat = Chat(priced=True, writing=written(SUMMARY)).grow(8)
    seen = chat.engine.stats()
    assert seen.measured
    assert sum(seen.categories.values()) == seen.tokens == chat.tokens
    rows = [line for line in stats_text(seen, 1_000.0).splitlines() if line.endswith("%") and "~" not in line]
    counted = [int(line[20:30].replace(",", "")) for line in rows if line.startswith("  ") and line[20:30].strip()]
    assert sum(counted[: len([tokens for tokens in seen.categories.values() if tokens])]) == seen.tokens
    assert seen.forecast is not None
    assert seen.forecast.ahead is not None
    assert seen.forecast.ahead.step == "clear"
    assert seen.forecast.ahead.distance == chat.engine.thresholds.clear.tokens - chat.tokens
    chat.run(chat.engine.compact())
    seen = chat.engine.stats()
    assert not seen.measured
    assert sum(seen.categories.values()) == seen.tokens
    assert (seen.compactions, seen.checkpoints) == (1, 0)


@pytest.mark.parametrize("change", ["nothing", "time", "model", "prefix"])
def test_the_cache_is_cold_after_its_time_a_switch_or_a_new_prefix(change: str) -> None:
    chat = Chat().grow(2)
    match change:
        case "time":
            chat.now += 300
        case "model":
            chat.engine.use(structs.replace(chat.model, id="other"))
        case "prefix":
            chat.engine.extend([Prefix(system="others")])
        case _:
            chat.now += 299
    assert chat.engine.cache.state.cold is (change != "nothing")
    assert chat.engine.cache.state.reason


# Where it runs


def in_threads(steps: Steps[T], perform: Callable[[Effect], Outcome]) -> T:
    """Carry out steps as `carry_out` does, the engine thinking in a thread of its own each time."""

    outcome: Outcome = None
    results: list[T] = []

    def advance() -> Effect | None:
        try:
            return steps.send(outcome)
        except StopIteration as done:
            results.append(done.value)
            return None

    with ThreadPoolExecutor(4) as pool:
        while (effect := pool.submit(advance).result()) is not None:
            outcome = perform(effect)
    return results[0]


def story(run: Callable[[Steps[object], Performer], object]) -> list[bytes]:
    """All that an engine does in a long session, as the bytes of its log."""
    settings = structs.replace(UNPRICED, context=ContextSettings(preset="digest"))
    chat = Chat(30_000, settings, writing=written(SUMMARY))
    assert not chat.engine.is_long
    for number in range(3):
        chat.grow(24, lines=40)
        run(chat.engine.prepare(between_turns=True), chat.caller)
        run(chat.engine.pin(chat.results()[-2:-1]), chat.caller)
        run(chat.engine.clear_results(), chat.caller)
        if number == 1:
            run(chat.engine.undo(), chat.caller)
            run(chat.engine.compact("checkpoint", "done"), chat.caller)
        chat.ask("paste " * 30_000)
        run(chat.engine.recover(), chat.caller)
    assert {done.step for done in chat.caller.done} >= {
        "summary",
        "cleared",
        "digest",
        "pinned",
        "undone",
        "checkpoint",
    }
    return [encode(entry) for entry in chat.engine.view.log]


def test_in_a_thread_the_engine_does_the_same_as_inline() -> None:
    assert story(in_threads) == story(lambda steps, caller: caller.run(steps))


def test_a_view_that_was_worked_out_aside_counts_as_one_that_was_applied() -> None:
    here, aside = Chat(priced=True).grow(4), Chat(priced=True).grow(4)
    used = Usage(input_tokens=here.tokens, output_tokens=60)
    said: list[AnyEntry] = [
        Message(role="assistant", blocks=(ToolCall("last", "read_file", "{}"),), model=NAME, usage=used),
        tool_result(ToolResult("last", LINE * 50)),
        Cleared(results=(here.results()[0],), texts=("[cleared]",)),
    ]
    for entries in (said, [HeadMoved(to=len(here.engine.view.log) + 2, reason="rewind")]):
        here.engine.extend(entries)
        stamped = list(here.engine.view.log)[len(aside.engine.view.log) :]
        aside.engine.become(aside.engine.view.after(stamped), stamped)
    assert list(aside.engine.view.log) == list(here.engine.view.log)
    for chat in (here, aside):
        chat.read()
    assert aside.tokens == here.tokens
    assert aside.engine.meter.growth(aside.engine.view) == here.engine.meter.growth(here.engine.view)
    assert aside.engine.meter.ratios.export() == here.engine.meter.ratios.export()
    assert aside.engine.request() == here.engine.request()


def test_a_conversation_in_memory_is_managed_without_a_model() -> None:
    chat = Chat(20_000).grow(6).talk(16)
    before = chat.tokens
    host = MemoryHost(chat.engine)
    host.run(chat.engine.prepare())
    assert [done.step for done in host.done] == ["summary"]
    assert "Question 1." in host.texts["conversation_history/main.md"]
    assert chat.tokens < before
    chat.ask("paste " * 30_000)
    chat.engine.extend([user_message("look", *(Image("image/png", f"{number:04}") for number in range(20)))])
    assert host.run(chat.engine.recover())
    assert chat.engine.budget.fits(chat.tokens)
    assert any(text == "paste " * 30_000 for text in host.texts.values())
    chat.engine.extend([user_message("half a sign: \ud83d")])
    assert chat.engine.request().request.messages[-1].blocks[-1] == Text("half a sign: \ufffd")
    chat = Chat(20_000, SUMMARIES).grow(17)
    host = MemoryHost(chat.engine, written(SUMMARY))
    host.run(chat.engine.prepare())
    (done,) = host.done
    assert "The files are read one after the other." in done.text


def test_pictures_take_no_room_of_a_model_that_does_not_get_them() -> None:
    chat = Chat(20_000)
    chat.engine.extend([user_message("look", *(Image("image/png", f"{number:04}") for number in range(20)))])
    seen = chat.tokens
    chat.engine.use(structs.replace(chat.engine.model, images=False))
    assert seen - chat.tokens == pytest.approx(20 * 1_185)


@pytest.mark.parametrize(("characters", "is_long"), [(50_000, False), (70_000, True)])
def test_a_long_view_says_so(characters: int, is_long: bool) -> None:
    chat = Chat(200_000)
    chat.ask("x" * characters)
    chat.engine.view.messages()
    assert chat.engine.is_long is is_long


def test_steps_that_are_given_up_leave_the_view_as_it_was() -> None:
    chat = Chat(20_000, SUMMARIES, writing=written(SUMMARY)).grow(17)
    before, length = chat.engine.view.messages(), len(chat.engine.view.log)

    class Stopped(Exception):
        pass

    def stopping(effect: Effect) -> Outcome:
        if isinstance(effect, AskModel):
            raise Stopped
        return None

    with pytest.raises(Stopped):
        carry_out(chat.engine.prepare(), stopping)
    assert (chat.engine.view.messages(), len(chat.engine.view.log)) == (before, length)
    chat.run(chat.engine.prepare())
    assert chat.caller.done[0].step == "summary"


def merging(summaries_tokens: int = 50, window: int = 200_000, writing: Writing | None = None) -> Chat:
    """A conversation with room for so many tokens of summaries, each of which is asked for."""
    compaction = CompactionSettings(thrift=0, auto=False, summaries_tokens=summaries_tokens)
    return Chat(window, structs.replace(UNPRICED, compaction=compaction), writing=writing or written(SUMMARY))


def compacted(chat: Chat, times: int) -> list[str]:
    """Eight turns and a summary, so many times; what models were asked for all of them."""
    for _ in range(times):
        chat.grow(8)
        chat.run(chat.engine.compact())
    asked = [each.request.messages[-1].blocks[-1] for each in chat.caller.asked if isinstance(each, AskModel)]
    return [block.text for block in asked if isinstance(block, Text)]


def test_a_merge_is_one_question_about_what_was_written_already_and_outlasted_by_where_things_are() -> None:
    chat = merging()
    chat.engine.running = lambda: {7: "make watch"}
    first, second, _ = compacted(chat, 2)
    assert ["Earlier summaries stay" in text for text in (first, second)] == [False, True]
    assert [done.step for done in chat.caller.done] == ["summary"] * 3
    (one,) = chat.engine.view.boundaries()
    assert "make watch" in one.state
    assert chat.shown.count("make watch") == 1
    told = [text for text in compacted(chat, 2) if "[part 1 of" in text]
    # From the second compaction on each is followed by a merge, of one summary more each time.
    assert [text.count("[part ") for text in told] == [2, 3, 4]
    assert all("Question" not in text for text in told)
    assert max(boundary.depth for boundary in chat.engine.view.boundaries()) == 2
    assert chat.engine.stats().depth == 2


def test_summaries_that_are_short_enough_together_become_one_without_a_model() -> None:
    """Word for word, less the next steps that later ones overtook; a model is asked once they are too long for that."""
    numbers = count()

    def writing(asked: AskModel | AskWriter) -> Answer:
        number = next(numbers)
        text = SUMMARY.replace("The files", f"{number}: the files").replace("Go on", f"Go on after {number}")
        return Answer(text, "small", USED, COST_USD)

    chat = merging(800, writing=writing)
    assert len(compacted(chat, 4)) == 4
    merged = [done for done in chat.caller.done if "become one" in done.reason]
    assert merged
    assert all("without a model" in done.reason for done in merged)
    one = chat.engine.view.boundaries()[0]
    assert one.depth == 1
    assert [f"{number}: the files" in one.text for number in range(3)] == [True] * 3
    assert "Go on after 0" not in one.text
    assert one.text.count("# Exact next steps") == 1
    compacted(chat, 8)
    assert any("put together from what was written" in done.reason for done in chat.caller.done)


def test_a_merge_reads_no_more_than_half_of_the_history_budget() -> None:
    chat = merging(window=12_000, writing=written(f"{SUMMARY}\n" + " ".join(f"Part {part}." for part in range(300))))
    read = [text.count("[part ") for text in compacted(chat, 9) if "[part 1 of" in text]
    assert max(read) == 3 < len(read)
    assert max(boundary.depth for boundary in chat.engine.view.boundaries()) > 2
