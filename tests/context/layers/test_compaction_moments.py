"""Compaction between turns and inside them: when it rests, and who is asked to write."""

from msgspec import structs

from tests.profiles import model_named
from tui_agent.context.effects import Answer, Append, AskModel, Effect, Outcome, WriteInBackground, carry_out
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, ModelSwitched, Prefix, Summarized, Usage, tool_result, user_message
from tui_agent.conversation.profile import ModelProfile, Rates
from tui_agent.settings import Settings

SMALL = model_named("anthropic:small", window=200_000, rates=Rates(0.1, 1.25, 5.0, 0.1))
FRONTIER = model_named(
    "anthropic:frontier",
    window=200_000,
    tier="frontier",
    rates=Rates(0.1, 1.25, 5.0, 5.0),
    small=SMALL,
)
SUMMARY = "# Current state\n" + " ".join(f"Part {part} was read and holds what it should." for part in range(230))


class Talk:
    """A conversation about many files, with summaries as long as they may be."""

    def __init__(self, model: ModelProfile = FRONTIER) -> None:
        self.now = 0.0
        self.engine = ContextEngine(Settings(), model=model, clock=lambda: self.now)
        self.engine.extend([ModelSwitched(model=model.name), Prefix(system="Read.")])
        self.calls = 0
        self.asked: list[AskModel] = []

    def turn(self, steps: int, *, pause: float = 1_000.0) -> None:
        """A turn as the agent does it: what is due between turns, the user's words, then step after step.

        It begins after a pause, in which the provider's cache runs out where that is not shorter.
        """
        self.now += pause
        self.engine.turn_ended()
        carry_out(self.engine.prepare(between_turns=True), self.perform)
        self.engine.extend([user_message("Read on.")])
        for step in range(steps):
            carry_out(self.engine.prepare(), self.perform)
            self.calls += 1
            last = step == steps - 1
            call = ToolCall(f"c{self.calls}", "read_file", f'{{"path":"src/part_{self.calls}.py"}}')
            said = Text("That is all.") if last else call
            used = Usage(input_tokens=self.engine.tokens, output_tokens=20)
            self.engine.extend([Message(role="assistant", blocks=(said,), model=self.engine.model.name, usage=used)])
            if not last:
                lines = "\n".join(f"value_{self.calls}_{line} = load_part({line})" for line in range(200))
                self.engine.extend([tool_result(ToolResult(call.id, lines))])

    def perform(self, effect: Effect) -> Outcome:
        match effect:
            case Append():
                self.engine.extend(effect.entries)
                return len(self.engine.view.log)
            case AskModel():
                self.asked.append(effect)
                return Answer(SUMMARY, SMALL.name, Usage(), 0.0)
            case WriteInBackground():
                return carry_out(effect.steps, self.perform)
            case _:
                return None

    @property
    def summaries(self) -> int:
        """Those of turns; a merge of them is none."""
        return sum(isinstance(entry, Summarized) and "become one" not in entry.reason for entry in self.engine.view.log)


def test_a_summary_too_small_to_pay_is_no_failed_one() -> None:
    talk = Talk()
    talk.turn(30)
    assert talk.summaries == 0
    # The cache is cold, so a summary pays; right after it the next call, still cold, has next to nothing to summarise.
    talk.turn(1)
    assert talk.summaries == 1
    assert not talk.engine.backoff.resting
    talk.turn(12)
    talk.turn(1)
    assert talk.summaries == 2


def test_a_small_model_reads_on_its_own_what_no_cache_holds() -> None:
    talk = Talk(structs.replace(SMALL, small=SMALL))
    talk.turn(40)
    talk.turn(1)
    (asked,) = talk.asked
    assert (asked.who, asked.cached, asked.request.tools) == ("session", False, ())
    assert asked.tokens < talk.engine.view.context_entries()[0][0].before / 2


def test_a_small_model_reads_its_cached_prefix_while_there_is_one() -> None:
    talk = Talk(structs.replace(SMALL, small=SMALL))
    talk.turn(30)
    talk.now += 10
    carry_out(talk.engine.compact(), talk.perform)
    (asked,) = talk.asked
    assert (asked.who, asked.cached) == ("session", True)


def test_a_large_system_prompt_leaves_room_between_summaries_and_one_that_waits_comes_in_the_same_turn() -> None:
    talk = Talk(structs.replace(FRONTIER, window=64_000))
    talk.engine.extend([Prefix(system="Heed this. " * 10_000)])
    assert talk.engine.budget.fixed > 36_000
    talk.turn(30)
    room = talk.engine.thresholds.limit.tokens - talk.engine.budget.fixed
    assert room > 0.7 * (64_000 - talk.engine.budget.fixed)
    assert 0 < talk.summaries < 10
    assert not talk.engine.backoff.resting
