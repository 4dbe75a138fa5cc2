"""Probes of what is decided about the context. How the parts are put together is said once, in the functions above."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from tests.context.sessions import MODEL, Session
from tests.context.talks import ARCHIVE, PROMPTS
from tests.settings.effects.probe import Observe, Probe
from tui_agent.agent.task_class import compaction_threshold
from tui_agent.context.asked import Asked
from tui_agent.context.summary.plan import Accepted, SummaryPlan, accept
from tui_agent.context.layers.digests import DigestPlan, accept_digest
from tui_agent.context.engine import ContextEngine
from tui_agent.context.economics import ModelFacts
from tui_agent.context.manager import Pass
from tui_agent.context.layers.limits import Cut, Evicted
from tui_agent.context.economics import Rates
from tui_agent.context.budget import Thresholds
from tui_agent.conversation.blocks import Image
from tui_agent.conversation.entries import Cleared, Pinned, Usage, user_message
from tui_agent.conversation.view import View
from tui_agent.settings import Settings

FACTS = ModelFacts(name=MODEL, window=200_000, told_by_provider=True, max_output=128_000, tier="frontier")
NOW = 100.0
RATES = Rates(input_usd=4.0, output=5.0, read=0.05, write=1.25)


def engine(settings: Settings) -> ContextEngine:
    return ContextEngine(settings, PROMPTS, task_threshold=compaction_threshold(settings))


def thresholds(settings: Settings, model: ModelFacts = FACTS) -> Thresholds:
    return engine(settings).thresholds(View(), model)


def due(settings: Settings, session: Session, model: ModelFacts = FACTS) -> Pass:
    """What is to be done before the next call."""
    return engine(settings).due(session.view, model, NOW, between_turns=False)


def compaction(settings: Settings, session: Session, model: ModelFacts = FACTS) -> SummaryPlan:
    """The compaction that is due."""
    plan = due(settings, session, model).summary
    assert plan is not None
    return plan


def accepted(settings: Settings, session: Session) -> Accepted:
    """The compaction that is due, done with a summary that says nothing of what was read."""
    summary = "# Current state\nThe files were read one by one, and nothing else was done."
    plan = compaction(settings, session)
    tokens_of = engine(settings).tokens_of(session.view)
    done = accept(plan, summary, settings.compaction, path=ARCHIVE, tokens_of=tokens_of)
    assert isinstance(done, Accepted)
    return done


def digest(settings: Settings) -> DigestPlan:
    """The digest that is due."""
    plan = due(settings, reading(200_000 // 40)).digest
    assert plan is not None
    return plan


def cleared(settings: Settings, session: Session, model: ModelFacts = FACTS) -> tuple[int, ...]:
    """The results that are to be cleared now."""
    step = due(settings, session, model).cleared
    return step.results if step is not None else ()


def shown(text: str, history_budget: int = 180_000) -> Observe:
    """What of a tool's result enters the conversation."""

    def observe(settings: Settings, folder: Path) -> object:
        found = engine(settings).shorten(Session().view, text, history_budget=history_budget, paged=False)
        return found.text("path") if isinstance(found, Cut | Evicted) else found.text

    return observe


def course(calls: int, *, pause_s: float = 1.0, between_turns: bool = False, share: float = 0.01) -> Observe:
    """The calls of a growing, measured and priced session before which something was done, and what.

    Each result takes `share` of the window, and `pause_s` seconds pass between two calls.
    """
    model = structs.replace(FACTS, rates=RATES)

    def observe(settings: Settings, folder: Path) -> object:
        made, manager, steps = Session(), engine(settings), []
        made.add(user_message("read on"))
        for call in range(calls):
            now = call * pause_s
            usage = Usage(input_tokens=manager.tokens(made.view), output_tokens=60)
            made.answer(usage, call="read_file", path=f"f{call}.py")
            manager.meter.measure(made.view, usage)
            made.result("word " * int(model.window * share * 0.6))
            made.view.apply(made.view.log.stamp(user_message("go on"), now))
            found = manager.due(made.view, model, now, between_turns=between_turns)
            if found.cleared is not None:
                made.add(found.cleared, now)
                steps.append((call, "cleared"))
            if found.summary is not None:
                tokens_of = manager.tokens_of(made.view)
                done = accept(found.summary, found.summary.extract, settings.compaction, path="", tokens_of=tokens_of)
                assert isinstance(done, Accepted)
                for entry in done.entries:
                    made.add(entry, now)
                steps.append((call, "summarised"))
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


def compacts_at(model: ModelFacts) -> Observe:
    return lambda settings, _: thresholds(settings, model).compact


def tier(name: str) -> ModelFacts:
    return structs.replace(FACTS, tier=name)


def kinds(settings: Settings, folder: Path) -> object:
    """What is done about a view that has passed both thresholds."""
    found = due(settings, reading(190_000))
    return found.cleared is not None, found.summary is not None, found.digest is not None


def pinned(settings: Settings, folder: Path) -> object:
    """Whether a result may be pinned."""
    session = reading(10_000)
    plan = Asked(engine(settings)).pin(session.view, [session.view.items()[1].seq], True)
    return isinstance(plan(FACTS, NOW), Pinned)


def picture(settings: Settings, folder: Path) -> object:
    session = Session()
    session.add(user_message("look", Image("image/png", "AAAA")))
    return engine(settings).tokens(session.view)


def cleared_by_hand(settings: Settings, folder: Path) -> object:
    found = Asked(engine(settings)).clear_results(reading(50_000).view, FACTS, NOW)
    return found.results if isinstance(found, Cleared) else ()


def pause_after_failures(settings: Settings, folder: Path) -> object:
    backoff = engine(settings).backoff
    for _ in range(10):
        backoff = backoff.failed()
    return backoff.turns


def model_digest(settings: Settings, folder: Path) -> object:
    """The digest, where a model wrote a long one."""
    return accept_digest(digest(settings), "Parts were read. " * 500).text


UNPRICED = {"clearing.by_price": False, "compaction.thrift": 0}
UNKNOWN = {"context.context_window": -1}
DIGESTS = {"context.preset": "digest"}
SUMMARIES = {"context.preset": "summary-only"}
SMALL = structs.replace(FACTS, window=40_000)

PROBES: Mapping[str, Probe] = {
    "context.context_window": Probe(50_000, limit()),
    "context.default_window": Probe(50_000, limit(0)),
    "context.max_tokens": Probe(4_000, limit()),
    "context.max_tokens_share": Probe(0.1, limit(20_000)),
    "context.max_context_tokens": Probe(2_000, compacts_at(FACTS), UNKNOWN),
    "context.max_messages": Probe(7, compacts_at(FACTS), {**UNKNOWN, "context.max_context_tokens": 0}),
    "context.preset": Probe("off", kinds),
    "context.image_tokens": Probe(300, picture),
    "context.pins_share": Probe(0.001, pinned),
    "output.max_lines": Probe(100, shown("line\n" * 3_000)),
    "output.max_chars": Probe(9_000, shown("x" * 40_000)),
    "output.max_bytes": Probe(9_000, shown("x" * 40_000)),
    "output.truncate_mode": Probe("head", shown("line\n" * 3_000)),
    "output.large_output_threshold": Probe(5_000, shown("x" * 10_000)),
    "output.evict_tokens": Probe(1_000, shown("x" * 10_000)),
    "output.evict_share": Probe(0.01, shown("x" * 10_000, history_budget=20_000)),
    "output.preview_chars": Probe(100, shown("x" * 300_000)),
    "clearing.threshold": Probe(0.3, lambda settings, _: thresholds(settings).clear),
    "clearing.compaction_share": Probe(0.5, lambda settings, _: thresholds(settings).clear),
    "clearing.by_price": Probe(False, course(90), {"compaction.thrift": 0}),
    "clearing.keep": Probe(5, cleared_by_hand),
    "clearing.protect_tokens": Probe(10_000, lambda settings, _: cleared(settings, reading(150_000))),
    "clearing.protect_share": Probe(0.1, lambda settings, _: cleared(settings, reading(28_000), SMALL), UNPRICED),
    "clearing.min_batch_share": Probe(1.0, lambda settings, _: bool(cleared(settings, reading(150_000)))),
    "clearing.never_clear": Probe(["read_file"], cleared_by_hand),
    "digests.cutoff": Probe(5, lambda settings, _: len(digest(settings).results), DIGESTS),
    "digests.strategy": Probe("off", lambda settings, _: due(settings, reading(5_000)).digest is None, DIGESTS),
    "digests.input_chars": Probe(3_000, lambda settings, _: len(digest(settings).material), DIGESTS),
    "digests.output_chars": Probe(200, model_digest, DIGESTS),
    "digests.heuristic_chars": Probe(400, lambda settings, _: accept_digest(digest(settings)).text, DIGESTS),
    "compaction.auto": Probe(False, kinds, SUMMARIES),
    "compaction.threshold": Probe(0.5, compacts_at(tier("unknown"))),
    "compaction.threshold_by_tier.frontier": Probe(0.5, compacts_at(tier("frontier"))),
    "compaction.threshold_by_tier.mid": Probe(0.5, compacts_at(tier("mid"))),
    "compaction.threshold_by_tier.small": Probe(0.5, compacts_at(tier("small"))),
    "compaction.keep_recent_tokens": Probe(
        60_000, lambda settings, _: compaction(settings, talking(180_000)).kept_from
    ),
    "compaction.keep_recent_share": Probe(
        0.1, lambda settings, _: compaction(settings, talking(35_000), SMALL).kept_from
    ),
    "compaction.keep_recent": Probe(
        11,
        lambda settings, _: compaction(settings, talking(30_000)).kept_from,
        {**UNKNOWN, "context.max_context_tokens": 0, "context.max_messages": 10},
    ),
    "compaction.thrift": Probe(1.0, course(60), SUMMARIES),
    "compaction.thrift_between_turns": Probe(2.0, course(60, between_turns=True), SUMMARIES),
    "compaction.thrift_in_loop": Probe(0.5, course(60), SUMMARIES),
    "compaction.thrift_cold": Probe(3.0, course(60, pause_s=1_000.0), SUMMARIES),
    "compaction.handover": Probe(
        "outline", lambda settings, _: compaction(settings, talking(180_000)).questions.same_prefix
    ),
    "compaction.facts_tokens": Probe(0, lambda settings, _: accepted(settings, reading(190_000)).text, SUMMARIES),
    "compaction.summary_result_chars": Probe(
        200, lambda settings, _: compaction(settings, reading(190_000)).parts, SUMMARIES
    ),
    "compaction.max_backoff_turns": Probe(3, pause_after_failures),
}
"""Every setting that decides what the model is shown, except those that take a whole session."""
