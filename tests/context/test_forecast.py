"""What the next layer would do: the same figures as when it is done, and a reason that agrees with what is done."""

import pytest

from tests.context.talks import PROMPTS
from tui_agent.context.forecast import Forecast, Forecaster
from tui_agent.context.manager import ContextManager, ModelFacts
from tui_agent.context.situation import Rates
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import Message, ModelSwitched, Usage, tool_result, user_message
from tui_agent.conversation.view import View
from tui_agent.settings import Clearing, Compaction, Settings

NAME = "anthropic:claude-opus-5-5"
RATES = Rates(read=0.05, write=1.25, output=5.0, input_usd=4.0)
NOW = 1_000.0


class Talk:
    """A loop of reads whose requests are measured."""

    def __init__(self, reads: int, settings: Settings, *, rates: Rates | None = RATES, window: int = 200_000) -> None:
        self.view = View()
        self.manager = ContextManager(settings, PROMPTS)
        self.model = ModelFacts(name=NAME, window=window, tier="frontier", rates=rates)
        self.view.apply(self.view.log.stamp(ModelSwitched(model=NAME), NOW))
        self.view.apply(self.view.log.stamp(user_message("read them all"), NOW))
        for number in range(reads):
            used = Usage(input_tokens=self.manager.tokens(self.view), output_tokens=30)
            call = ToolCall(f"c{number}", "read_file", f'{{"path": "{number}.py"}}')
            answer = Message(role="assistant", blocks=(call,), model=NAME, usage=used)
            self.view.apply(self.view.log.stamp(answer, NOW))
            self.manager.meter.measure(self.view, used)
            result = tool_result(ToolResult(call.id, "a line of the file\n" * 300))
            self.view.apply(self.view.log.stamp(result, NOW))

    def forecast(self, layer: str, now: float = NOW) -> Forecast:
        return Forecaster(self.manager, self.view, self.model, now)(layer)


def settings(*, thrift: float = 1.0) -> Settings:
    return Settings(
        clearing=Clearing(keep=3, protect_tokens=5_000),
        compaction=Compaction(thrift=thrift),
    )


def test_a_clearing_frees_and_costs_what_was_foreseen() -> None:
    talk = Talk(40, settings(thrift=0))
    seen, cold = talk.forecast("clear"), talk.forecast("clear", NOW + 10_000)
    due = talk.manager.due(talk.view, talk.model, NOW + 10_000, between_turns=False).cleared
    assert due is not None
    assert due.before - due.after == seen.frees == cold.frees
    assert (cold.cost_usd, cold.calls) == (0.0, 0)
    assert "now: the cache is cold" in cold.why
    assert seen.cost_usd is not None
    assert seen.saving_usd is not None
    assert seen.saving_usd == pytest.approx(seen.frees * 0.05 * 4 / 1_000_000)
    assert seen.calls is not None
    assert seen.saving_usd * (seen.calls - 1) <= seen.cost_usd <= seen.saving_usd * seen.calls


@pytest.mark.parametrize("reads", [12, 20, 30, 40, 60])
@pytest.mark.parametrize("layer", ["clear", "compact"])
def test_it_says_now_where_the_price_makes_it_come(reads: int, layer: str) -> None:
    talk = Talk(reads, settings())
    limits = talk.manager.thresholds(talk.view, talk.model)
    assert talk.manager.tokens(talk.view) < limits.clear.tokens
    due = talk.manager.due(talk.view, talk.model, NOW, between_turns=False)
    says = talk.forecast(layer).why.startswith("now")
    if layer == "compact":
        assert says == (due.summary is not None)
    elif due.summary is None:
        assert says or due.cleared is None


def test_it_says_why_nothing_comes() -> None:
    assert talk_of(2).forecast("clear").why.startswith("nothing to clear yet: the newest 3 results")
    assert talk_of(7).forecast("clear").why.startswith("not before 10,000 tokens")
    assert "stay word for word" in talk_of(2).forecast("compact").why
    assert talk_of(2).forecast("limit") == Forecast()


def test_without_prices_there_is_no_cost() -> None:
    seen = Talk(40, settings(), rates=None).forecast("clear")
    assert seen.frees > 0
    assert (seen.cost_usd, seen.saving_usd, seen.calls, seen.why) == (None, None, None, "")


def talk_of(reads: int) -> Talk:
    return Talk(reads, settings())
