"""Defaults that are settings: each, changed, changes what is done."""

from typing import Literal

from tests.context.sessions import MODEL, Session
from tests.context.talks import PROMPTS
from tui_agent.context.asked import Asked
from tui_agent.context.compaction import CompactionPlan
from tui_agent.context.handover import FIVE, OUTLINE
from tui_agent.context.layers.limits import Cut
from tui_agent.context.manager import ContextManager, ModelFacts
from tui_agent.context.refusal import Refusal
from tui_agent.conversation.blocks import Image
from tui_agent.conversation.entries import Cleared, Pinned, user_message
from tui_agent.settings import Clearing, Compaction, Context, Digests, Output, Settings

FACTS = ModelFacts(name=MODEL, window=200_000, told_by_provider=True, max_output=128_000, tier="frontier")
NOW = 100.0


STRATEGIES: list[tuple[Literal["llm", "heuristic", "off"], bool]] = [("llm", True), ("heuristic", True), ("off", False)]
ENDS: list[tuple[Literal["head_tail", "head"], bool]] = [("head_tail", True), ("head", False)]


def reading(results: int = 12) -> Session:
    made = Session()
    made.add(user_message("read on"))
    for _ in range(results):
        made.step("word " * 1_500)
    return made


def engine(settings: Settings) -> ContextManager:
    return ContextManager(settings, PROMPTS)


def test_the_form_of_a_handover() -> None:
    for form, handover in ((FIVE, Compaction()), (OUTLINE, Compaction(handover="outline"))):
        plan = Asked(engine(Settings(compaction=handover))).compaction(reading().view, FACTS, NOW)
        assert isinstance(plan, CompactionPlan)
        assert plan.form is form
        assert form.sections[0] in plan.questions.same_prefix


def test_no_digests() -> None:
    for strategy, due in STRATEGIES:
        settings = Settings(context=Context(preset="digest"), digests=Digests(strategy=strategy))
        found = engine(settings).due(reading().view, FACTS, NOW, between_turns=False).digest
        assert (found is not None) is due, strategy


def test_which_end_of_a_cut_result_is_kept() -> None:
    text = "".join(f"line {number}\n" for number in range(3_000))
    for mode, tail in ENDS:
        found = engine(Settings(output=Output(truncate_mode=mode))).shorten(
            reading(1).view, text, history_budget=180_000, paged=False
        )
        assert isinstance(found, Cut)
        assert bool(found.tail) is tail


def test_what_is_never_cleared() -> None:
    made = reading()
    for never, expected in ((("mark_task_done",), 9), (("mark_task_done", "read_file"), None)):
        found = Asked(engine(Settings(clearing=Clearing(never_clear=never)))).clear_results(made.view, FACTS, NOW)
        assert (len(found.results) if isinstance(found, Cleared) else None) == expected


def test_how_much_pins_may_take() -> None:
    made = reading()
    first = made.view.items()[1].seq
    for share, allowed in ((0.25, True), (0.005, False)):
        plan = Asked(engine(Settings(context=Context(pins_share=share)))).pin(made.view, [first], True)
        assert isinstance(plan(FACTS, NOW), Pinned if allowed else Refusal)


def test_what_an_image_counts_as() -> None:
    made = reading(1)
    plain = engine(Settings()).tokens(made.view)
    made.add(user_message("look", Image("image/png", "AAAA")))
    for tokens in (1_200, 300):
        counted = engine(Settings(context=Context(image_tokens=tokens))).tokens(made.view)
        assert tokens <= counted - plain <= tokens + 8
