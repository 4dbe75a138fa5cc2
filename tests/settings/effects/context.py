"""Probes of what is decided about the context: the shipped engine under two values of a setting."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from tests.context.performer import Performer, written
from tests.context.sessions import MODEL, Session, comes
from tests.profiles import model_named
from tests.settings.effects.probe import Observe, Probe
from tui_agent.context.budget import Thresholds
from tui_agent.context.compaction.plan import Plan
from tui_agent.context.effects import AskModel, BeforeSummary, Refusal, StepDone, WriteInBackground
from tui_agent.context.engine import ContextEngine
from tui_agent.context.layers.limits import Cut, Evicted
from tui_agent.conversation.blocks import Image, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Cleared, Message, Usage, tool_result, user_message
from tui_agent.conversation.profile import ModelProfile, Prices, Rates
from tui_agent.models.choice import compaction_threshold
from tui_agent.settings import Settings

FACTS = model_named(MODEL, window=200_000, source="provider", max_output=128_000, tier="frontier")
SIGNING = structs.replace(FACTS, bound_reasoning=True, signs_summaries=True)
COMPACTING = structs.replace(FACTS, compacts=True)
LASTING = structs.replace(FACTS, prices=Prices(4.0, 20.0, 0.2, 5.0), cache="marked", keeps_hours=True)
ALL_CACHED = Usage(input_tokens=110_000, cache_read_tokens=100_000, cache_write_tokens=10_000)
NOW = 100.0
PRICES = Prices(4.0, 20.0, 0.2, 5.0)
SUMMARY = "# Current state\nThe files were read one by one, and nothing else was done."


def engine(settings: Settings, session: Session | None = None, model: ModelProfile = FACTS) -> ContextEngine:
    return ContextEngine(
        settings,
        view=session.view if session is not None else None,
        model=model,
        task_threshold=compaction_threshold(settings),
        clock=lambda: NOW,
    )


def thresholds(settings: Settings, model: ModelProfile = FACTS) -> Thresholds:
    return engine(settings, model=model).thresholds


def prepared(settings: Settings, session: Session, model: ModelProfile = FACTS, text: str = SUMMARY) -> Performer:
    """What was done before the next call, every question being answered by `text`."""
    ready = engine(settings, session, model)
    caller = Performer(ready, written(text))
    caller.run(ready.prepare())
    return caller


def compaction(settings: Settings, session: Session, model: ModelProfile = FACTS) -> Plan:
    """The compaction that is due."""
    ready = engine(settings, session, model)
    plan = ready.layers.compaction.plan(ready.view, ready.situation(between_turns=False))
    assert isinstance(plan, Plan)
    return plan


def asked(settings: Settings, session: Session, model: ModelProfile = FACTS) -> str:
    """What the model was asked last, in its newest message."""
    question = prepared(settings, session, model).asked[-1]
    assert isinstance(question, AskModel)
    newest = question.request.messages[-1]
    return "\n".join(block.text for block in newest.blocks if isinstance(block, Text))


def digest(settings: Settings, text: str = "Parts were read.") -> StepDone:
    """The digest that is due, of what the model answered."""
    (done,) = prepared(settings, reading(200_000 // 40), text=text).done
    assert done.step == "digest"
    return done


def cleared(settings: Settings, session: Session, model: ModelProfile = FACTS) -> tuple[int, ...]:
    """The results that are to be cleared now."""
    return tuple(
        seq
        for done in prepared(settings, session, model).done
        if isinstance(done.entry, Cleared)
        for seq in done.entry.results
    )


def shown(text: str, window: int = 200_000) -> Observe:
    """What of a tool's result enters the conversation."""

    def observe(settings: Settings, folder: Path) -> object:
        found = engine(settings, model=structs.replace(FACTS, window=window)).shorten(text, paged=False)
        return found.text("path") if isinstance(found, Cut | Evicted) else found.text

    return observe


def course(calls: int, *, pause_s: float = 1.0, between_turns: bool = False, share: float = 0.01) -> Observe:
    """The calls of a growing, measured and priced session before which something was done, and what.

    Each result takes `share` of the window, and `pause_s` seconds pass between two calls.
    """

    def observe(settings: Settings, folder: Path) -> object:
        now, steps = 0.0, []
        model = structs.replace(FACTS, prices=PRICES)
        ready = ContextEngine(settings, view=Session().view, model=model, clock=lambda: now)
        caller = Performer(ready)
        ready.extend([user_message("read on")])
        for call in range(calls):
            now = call * pause_s
            usage = Usage(input_tokens=ready.tokens, output_tokens=60)
            read = ToolCall(f"c{call}", "read_file", f'{{"path":"f{call}.py"}}')
            ready.extend([Message(role="assistant", blocks=(read,), model=MODEL, usage=usage)])
            ready.extend([tool_result(ToolResult(read.id, "word " * int(model.window * share * 0.6)))])
            ready.extend([user_message("go on")])
            now += pause_s
            caller.run(ready.prepare(between_turns=between_turns))
            steps += [(call, done.step) for done in caller.done]
            caller.effects.clear()
        return steps

    return observe


def reading(tokens: int, results: int = 40) -> Session:
    """Forty results of together about so many tokens, each with a few names of its own."""
    made = Session()
    made.add(user_message("read on"))
    for number in range(results):
        made.step(f"src/part_{number}.py names retry_{number}\n" + "x" * (tokens * 3 // results))
    return made


def talking(tokens: int) -> Session:
    """Twelve exchanges of together about so many tokens."""
    made = Session()
    for _ in range(12):
        made.add(user_message("please " * (tokens * 3 // 24 // 7)))
        made.answer(text="answer " * (tokens * 3 // 24 // 7))
    return made


def limit(window: int = 200_000) -> Observe:
    """The largest request to a model with this window."""
    model = structs.replace(FACTS, window=window)
    return lambda settings, _: thresholds(settings, model).limit.tokens


def compacts_at(model: ModelProfile) -> Observe:
    return lambda settings, _: thresholds(settings, model).compact


def tier(name: str) -> ModelProfile:
    return structs.replace(FACTS, tier=name)


def kinds(settings: Settings, folder: Path) -> object:
    """What is done first about a view that has passed both thresholds."""
    return comes(engine(settings, reading(190_000)))


def pinned(settings: Settings, folder: Path) -> object:
    """Whether a result may be pinned."""
    ready = engine(settings, reading(10_000))
    return isinstance(Performer(ready).run(ready.pin([ready.view.items()[1].seq])), Refusal)


def picture(settings: Settings, folder: Path) -> object:
    session = Session()
    session.add(user_message("look", Image("image/png", "AAAA")))
    return engine(settings, session).tokens


def cleared_by_hand(settings: Settings, folder: Path) -> object:
    ready = engine(settings, reading(50_000))
    done = Performer(ready).run(ready.clear_results())
    return done.items if isinstance(done, StepDone) else done


def pause_after_failures(settings: Settings, folder: Path) -> object:
    backoff = engine(settings).backoff
    for _ in range(10):
        backoff = backoff.failed()
    return backoff.turns


def summary(settings: Settings, folder: Path) -> object:
    """What is shown in place of turns that were summarised without a word of what was read."""
    return prepared(settings, reading(190_000)).done[0].text


def words(settings: Settings, folder: Path) -> object:
    """What is kept of the user's own words."""
    made = Session()
    for number in range(40):
        made.add(user_message(f"read part {number}"))
        made.step("x" * (190_000 * 3 // 40))
    ready = engine(settings, made)
    Performer(ready, written(SUMMARY)).run(ready.prepare())
    return ready.view.shown_words().words


def merged(settings: Settings, folder: Path) -> object:
    """How many summaries stand there after three compactions."""
    ready = engine(settings, reading(190_000))
    caller = Performer(ready, written(SUMMARY))
    caller.run(ready.prepare())
    for number in range(80):
        call = ToolCall(f"more{number}", "read_file", f'{{"path":"more_{number}.py"}}')
        ready.extend([Message(role="assistant", blocks=(call,), model=MODEL)])
        ready.extend([tool_result(ToolResult(call.id, f"more_{number} " * 1_500))])
        if number in (39, 79):
            caller.run(ready.prepare())
    return len(ready.view.boundaries())


def written_meanwhile(settings: Settings, folder: Path) -> object:
    """Whether a summary that is due is written while the conversation goes on."""
    ready = engine(settings, reading(175_000))
    steps = ready.prepare()
    while isinstance(first := next(steps), BeforeSummary):
        pass
    steps.close()
    return isinstance(first, WriteInBackground)


def separately_asked(settings: Settings, folder: Path) -> object:
    """What a cheaper model is shown of the turns it summarises."""
    free = model_named("anthropic:claude-haiku-5-5", window=500_000, rates=Rates(0.1, 1.25, 5.0, 0.01))
    return asked(settings, reading(190_000), structs.replace(FACTS, prices=PRICES, small=free))


def cold_notice(settings: Settings, folder: Path) -> object:
    """Whether a call of about 100,000 tokens, half a dollar, is announced long after the one before it."""
    ready = engine(settings, model=structs.replace(FACTS, prices=PRICES, cache_ttl_s=50.0))
    ready.extend([user_message("word " * 60_000)])
    ready.clock = lambda: 0.0
    ready.extend([Message(role="assistant", blocks=(Text("Yes."),), model=MODEL, usage=Usage(input_tokens=100_000))])
    ready.clock = lambda: NOW
    return ready.cold_send() is not None


def before_expiry(settings: Settings, folder: Path) -> object:
    """Whether a summary is written before the cache of a large request expires, for a user who comes back late."""
    ready = engine(settings, reading(110_000), LASTING)
    ready.extend([Message(role="assistant", blocks=(Text("Yes."),), model=MODEL, usage=ALL_CACHED)])
    for _ in range(10):
        ready.pauses.learn(900, 100_000, 1_000)
    return ready.summary_before_expiry() is not None


def model_digest(settings: Settings, folder: Path) -> object:
    """The digest, where a model wrote a long one."""
    return digest(settings, "Parts were read. " * 500).text


UNPRICED = {"clearing.by_price": False, "compaction.thrift": 0}
UNKNOWN = {"context.context_window": -1}
DIGESTS = {"context.preset": "digest"}
SUMMARIES = {"context.preset": "summary-only"}
EARLY = {"context.preset": "summary-only", "compaction.thrift": "2"}
SMALL = structs.replace(FACTS, window=40_000)

PROBES: Mapping[str, Probe] = {
    "context.context_window": Probe(50_000, limit()),
    "context.default_window": Probe(50_000, limit(0)),
    "context.max_tokens": Probe(4_000, limit()),
    "context.max_tokens_share": Probe(0.1, limit(20_000)),
    "context.max_context_tokens": Probe(2_000, compacts_at(FACTS), UNKNOWN),
    "context.max_messages": Probe(7, compacts_at(FACTS), {**UNKNOWN, "context.max_context_tokens": 0}),
    "context.preset": Probe("off", kinds),
    "context.policy": Probe("careful", lambda settings, _: compaction(settings, talking(180_000)).kept_from),
    "context.image_tokens": Probe(300, picture),
    "context.cold_notice_usd": Probe(0.75, cold_notice),
    "context.cache_life": Probe("1h", lambda settings, _: engine(settings, model=LASTING).next_hours),
    "context.pins_share": Probe(0.001, pinned),
    "output.max_lines": Probe(100, shown("line\n" * 3_000)),
    "output.max_chars": Probe(9_000, shown("x" * 40_000)),
    "output.max_bytes": Probe(9_000, shown("x" * 40_000)),
    "output.truncate_mode": Probe("head", shown("line\n" * 3_000)),
    "output.large_output_threshold": Probe(5_000, shown("x" * 10_000)),
    "output.evict_tokens": Probe(1_000, shown("x" * 10_000)),
    "output.evict_share": Probe(0.01, shown("x" * 10_000, 30_000)),
    "output.preview_chars": Probe(100, shown("x" * 300_000)),
    "clearing.threshold": Probe(0.3, lambda settings, _: thresholds(settings).clear),
    "clearing.compaction_share": Probe(0.5, lambda settings, _: thresholds(settings).clear),
    "clearing.by_price": Probe(False, course(90), {"compaction.thrift": 0}),
    "clearing.keep": Probe(5, cleared_by_hand),
    "clearing.protect_tokens": Probe(10_000, lambda settings, _: cleared(settings, reading(150_000))),
    "clearing.protect_share": Probe(0.1, lambda settings, _: cleared(settings, reading(28_000), SMALL), UNPRICED),
    "clearing.min_batch_share": Probe(1.0, lambda settings, _: bool(cleared(settings, reading(150_000)))),
    "clearing.never_clear": Probe(["read_file"], cleared_by_hand),
    "digests.cutoff": Probe(5, lambda settings, _: digest(settings).items, DIGESTS),
    "digests.strategy": Probe("off", lambda settings, _: comes(engine(settings, reading(5_000))), DIGESTS),
    "digests.input_chars": Probe(3_000, lambda settings, _: len(asked(settings, reading(5_000))), DIGESTS),
    "digests.output_chars": Probe(200, model_digest, DIGESTS),
    "digests.heuristic_chars": Probe(400, lambda settings, _: digest(settings, "").text, DIGESTS),
    "compaction.auto": Probe(False, kinds, SUMMARIES),
    "compaction.before_expiry": Probe(False, before_expiry, {"compaction.thrift": 0, "clearing.by_price": False}),
    "compaction.background": Probe(False, written_meanwhile, SUMMARIES),
    "compaction.by_provider": Probe(
        False, lambda settings, _: bool(compaction(settings, reading(190_000), SIGNING).through), SUMMARIES
    ),
    "compaction.opaque_items": Probe(
        True, lambda settings, _: bool(compaction(settings, reading(190_000), COMPACTING).through), SUMMARIES
    ),
    "compaction.threshold": Probe(0.5, compacts_at(tier("unknown"))),
    "compaction.threshold_by_tier.frontier": Probe(0.5, compacts_at(tier("frontier"))),
    "compaction.threshold_by_tier.mid": Probe(0.5, compacts_at(tier("mid"))),
    "compaction.threshold_by_tier.small": Probe(0.5, compacts_at(tier("small"))),
    "compaction.keep_recent_tokens": Probe(5_000, lambda settings, _: compaction(settings, talking(180_000)).kept_from),
    "compaction.keep_recent_share": Probe(
        0.5, lambda settings, _: compaction(settings, talking(35_000), SMALL).kept_from
    ),
    "compaction.keep_recent": Probe(
        11,
        lambda settings, _: compaction(settings, talking(30_000)).kept_from,
        {**UNKNOWN, "context.max_context_tokens": 0, "context.max_messages": 10},
    ),
    "compaction.thrift": Probe(1.0, course(60), SUMMARIES),
    "compaction.thrift_between_turns": Probe(2.0, course(60, between_turns=True), EARLY),
    "compaction.thrift_in_loop": Probe(0.5, course(60), EARLY),
    "compaction.thrift_cold": Probe(3.0, course(60, between_turns=True, pause_s=1_000.0), EARLY),
    "compaction.handover": Probe("outline", lambda settings, _: asked(settings, talking(180_000))),
    "compaction.facts_tokens": Probe(0, summary, SUMMARIES),
    "compaction.user_words_tokens": Probe(50, words, SUMMARIES),
    "compaction.summaries_tokens": Probe(100, merged, SUMMARIES),
    "compaction.summary_result_chars": Probe(200, separately_asked, SUMMARIES),
    "compaction.max_backoff_turns": Probe(3, pause_after_failures),
}
