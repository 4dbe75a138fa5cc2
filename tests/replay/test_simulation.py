"""Replays against figures worked out by hand, and the shape that clearing in batches must have."""

import math
from pathlib import Path

import msgspec
import pytest
from typing_extensions import override

from tests.replay.recordings import answer, call, result, script_of, user
from tui_agent.conversation.blocks import Text, ToolCall
from tui_agent.conversation.entries import Message, Prefix
from tui_agent.conversation.profile import Cache, ModelProfile, Prices
from tui_agent.replay.billing import FETCH_OUTPUT
from tui_agent.replay.policies import COMPARED, KeepingPolicy, MakePolicy, PolicySetup
from tui_agent.replay.script import RecordedCall, RecordedMessage, Script
from tui_agent.replay.simulation import preset_policy, simulate
from tui_agent.settings import Settings

OPUS_47 = Prices(5, 25, 0.5, 6.25)
OPUS_55 = Prices(4, 20, 0.2, 5)
FLASH = Prices(0.75, 3.75, 0.075)


def profile(prices: Prices, provider: str = "anthropic") -> ModelProfile:
    cache: Cache = "marked" if provider == "anthropic" else "implicit"
    return ModelProfile(provider=provider, id="model", window=10_000_000, prices=prices, cache=cache, cache_minimum=0)


class EverySix(KeepingPolicy):
    """Compacts at every sixth call and keeps what the model has not seen."""

    @override
    def shrink(self, call: RecordedCall) -> None:
        if call.number % 6 == 0:
            self.compact(call, 0)


def named(calls: int, uses: dict[int, str]) -> list[dict[str, object]]:
    """Calls of which the first is told a path; `uses` are the paths that an answer says, by its number."""
    lines: list[dict[str, object]] = [user("go")]
    for number in range(1, calls + 1):
        told = "src/alpha_beta.py " if number == 1 else ""
        lines += [answer(uses.get(number, ""), call(str(number))), result(str(number), told + "word " * 2_000)]
    return [*lines, answer("done")]


def test_an_empty_result_costs_no_policy_more_than_another(tmp_path: Path) -> None:
    empty = [
        user("go"),
        answer("", call("1")),
        result("1", ""),
        answer("", call("2")),
        result("2", " \n"),
        answer("done"),
    ]
    script = script_of(tmp_path / "a.jsonl", *empty)
    ours = simulate(script, "off", preset_policy("off", Settings()), profile(OPUS_55))
    theirs = simulate(script, "none", KeepingPolicy, profile(OPUS_55))
    assert [each.input_tokens for each in ours.used] == [each.input_tokens for each in theirs.used]


def test_each_summary_of_a_summary_lies_one_deeper(tmp_path: Path) -> None:
    name = "src/alpha_beta.py"
    uses = {4: name}
    before = simulate(script_of(tmp_path / "a.jsonl", *named(20, uses)), "six", EverySix, profile(OPUS_55))
    assert dict(before.evidence.depths) == {0: 1}
    once = simulate(script_of(tmp_path / "b.jsonl", *named(20, {8: name})), "six", EverySix, profile(OPUS_55))
    assert dict(once.evidence.depths) == {1: 1}
    assert (once.evidence.verbatim_share, once.evidence.depth, once.evidence.share) == (0, 1, 1)
    # Said again by no one in between, it has passed through a summary of the summary.
    twice = simulate(script_of(tmp_path / "c.jsonl", *named(20, {14: name})), "six", EverySix, profile(OPUS_55))
    assert (dict(twice.evidence.depths), twice.evidence.depth) == ({2: 1}, 2)
    # What an answer has said stands there verbatim until that is summarised as well.
    again = simulate(script_of(tmp_path / "d.jsonl", *named(20, {8: name, 9: name})), "six", EverySix, profile(OPUS_55))
    assert dict(again.evidence.depths) == {1: 1, 0: 1}


def test_each_call_that_waits_for_summaries_is_one_wait(tmp_path: Path) -> None:
    class Twice(EverySix):
        @override
        def shrink(self, call: RecordedCall) -> None:
            if call.number % 6 == 0:
                self.compact(call, 0, passes=2)

    script = script_of(tmp_path / "a.jsonl", *named(13, {}))
    one, two = (simulate(script, "six", make, profile(OPUS_55)).bill for make in (EverySix, Twice))
    assert (one.waits, one.summaries) == (2, 2)
    assert (two.waits, two.summaries) == (2, 4)
    assert two.waited == 2 * one.waited
    assert one.waited == one.summary_tokens > one.longest_wait > one.waited / 2 - 1
    assert simulate(script, "none", KeepingPolicy, profile(OPUS_55)).bill.waits == 0


def warm(calls: int, *, fixed: int, result: int, answer: int, output: int) -> Script:
    """Calls 20 s apart; each answer is followed by one result."""
    message = Message(role="assistant", blocks=(Text("x"),))
    found: list[RecordedCall] = []
    arrived: tuple[RecordedMessage, ...] = ()
    for number in range(calls):
        spoken = RecordedMessage(2 * number, message, answer, "", frozenset())
        found.append(RecordedCall(number + 1, arrived, spoken, output, 20.0 * number, frozenset(), False))
        arrived = (RecordedMessage(2 * number + 1, message, result, "", frozenset(), ToolCall("1", "read_file", "{}")),)
    return Script(tuple(found), Prefix(system=""), fixed, ())


def test_keeping_everything_costs_what_the_sum_says() -> None:
    script = warm(3, fixed=1000, result=300, answer=100, output=50)
    bill = simulate(script, "none", KeepingPolicy, profile(OPUS_47)).bill
    assert bill.usage.input_tokens == 1000 + 1400 + 1800
    assert bill.usage.cache_read_tokens == 1000 + 1400
    assert bill.usage.cache_write_tokens == 1800
    assert bill.total == pytest.approx((2400 * 0.5 + 1800 * 6.25 + 150 * 25) / 1e6)
    assert (bill.calls, bill.peak_tokens) == (3, 1800)


def test_a_price_cliff_holds_for_the_whole_request() -> None:
    prices = Prices(1, 1, 0.1, 1, above=((1500, Prices(10, 10, 1, 10)),))
    script = warm(3, fixed=1000, result=300, answer=100, output=50)
    bill = simulate(script, "none", KeepingPolicy, profile(prices)).bill
    below = (1000 + 50) + (1000 * 0.1 + 400 + 50)
    assert bill.total == pytest.approx((below + 1400 * 1 + 400 * 10 + 50 * 10) / 1e6)


class Slide(KeepingPolicy):
    @override
    def shrink(self, call: RecordedCall) -> None:
        self.clear(self.results()[:-3])


def batches(free: int, protect: int) -> MakePolicy:
    class Batches(KeepingPolicy):
        @override
        def shrink(self, call: RecordedCall) -> None:
            passed, places, freed = 0, list[int](), 0
            for place in reversed(self.results()):
                tokens = self.prompt.parts[place].tokens
                passed += tokens
                if passed > protect:
                    places.append(place)
                    freed += tokens
            if freed >= free:
                self.clear(places)
                self.edge = max(places) + 1

    return Batches


def by_root(growth: int) -> MakePolicy:
    class ByRoot(KeepingPolicy):
        def __init__(self, setup: PolicySetup) -> None:
            super().__init__(setup)
            prices = setup.ledger.profile.prices
            assert prices is not None
            assert prices.cache_read is not None
            self.gain = 2 * ((prices.cache_write or prices.input) / prices.cache_read - 1) * growth

        @override
        def shrink(self, call: RecordedCall) -> None:
            places = self.results()[:-3]
            if places:
                freed = sum(self.prompt.parts[place].tokens for place in places)
                tail = self.prompt.tokens - self.prompt.size(places[0]) - freed
                if freed >= math.sqrt(self.gain * tail):
                    self.clear(places)

    return ByRoot


KNOWN = {
    "opus-4-7": (profile(OPUS_47), (30.31, 24.32, 23.77, 24.53, 21.20)),
    "opus-5-5": (profile(OPUS_55), (14.91, 16.46, 15.28, 15.50, 12.25)),
    "flash": (profile(FLASH, "gemini"), (4.40, 3.21, 3.19, 3.32, 2.90)),
}


@pytest.mark.parametrize("model", KNOWN)
def test_known_costs_of_120_warm_calls(model: str) -> None:
    """Costs worked out independently: nothing, sliding, batches of 20k/40k and 30k/50k, and batches sized by price."""
    of_model, known = KNOWN[model]
    script = warm(120, fixed=9_000, result=4_400, answer=2_000, output=700)
    makes = [KeepingPolicy, Slide, batches(20_000, 40_000), batches(30_000, 50_000), by_root(4_400)]
    costs = [simulate(script, "", make, of_model).bill.total for make in makes]
    assert costs[0] == pytest.approx(known[0], rel=0.02)
    assert costs[1:4] == pytest.approx(list(known[1:4]), rel=0.07)
    assert costs[4] == pytest.approx(known[4], rel=0.15)
    assert min(costs) == costs[4]


def evidence_script(path: Path) -> Script:
    """Two results tell a name each; much later answers use both."""
    filler = [
        line for number in range(8) for line in (answer("", call(f"f{number}")), result(f"f{number}", "x " * 40_000))
    ]
    return script_of(
        path,
        user("go"),
        answer("", call("1", path="a.py")),
        result("1", "parse_header here"),
        answer("", call("2", path="b.py")),
        result("2", "flush_cursor here"),
        *filler,
        answer("parse_header and flush_cursor"),
        answer("parse_header again"),
    )


def test_evidence_in_view_costs_nothing(tmp_path: Path) -> None:
    outcome = simulate(evidence_script(tmp_path / "a"), "none", KeepingPolicy, profile(OPUS_55))
    assert (outcome.evidence.needed, outcome.evidence.in_view, outcome.evidence.pointed_to) == (3, 3, 0)
    assert outcome.bill.fetches == 0


def test_what_a_placeholder_leads_to_is_fetched_once_and_billed(tmp_path: Path) -> None:
    script = evidence_script(tmp_path / "a")
    outcome = simulate(script, "langchain", COMPARED["claude-api"], profile(OPUS_55), window=1_000_000)
    # The second use stands beside an answer that says the name, so it is in view again.
    assert (outcome.evidence.needed, outcome.evidence.in_view, outcome.evidence.pointed_to) == (3, 1, 2)
    assert (outcome.bill.fetches, outcome.clearings > 0) == (2, True)
    assert outcome.bill.fetch_cost_usd > 2 * FETCH_OUTPUT * 20 / 1e6
    assert outcome.bill.total == pytest.approx(
        outcome.bill.call_cost_usd + outcome.bill.summary_cost_usd + outcome.bill.fetch_cost_usd
    )


def test_what_a_summary_dropped_is_found_again_at_the_same_price_where_nothing_leads_to_it(tmp_path: Path) -> None:
    lines = [
        line
        for each in range(400)
        for line in (answer("", call(f"n{each}")), result(f"n{each}", f"name_{each}_x " * 60))
    ]
    script = script_of(tmp_path / "a", user("go"), *lines, answer("name_3_x", call("z")), answer("name_399_x"))
    outcome = simulate(script, "codex", COMPARED["codex"], profile(OPUS_55), window=60_000)
    assert outcome.compactions > 0
    assert outcome.bill.summary_cost_usd > 0
    assert outcome.bill.peak_tokens <= 60_000
    assert outcome.evidence.in_view < outcome.evidence.needed
    assert outcome.evidence.pointed_to == 0
    assert 0 < outcome.bill.fetches <= outcome.evidence.needed - outcome.evidence.in_view


def test_a_summary_that_the_provider_signs_is_asked_for_once(tmp_path: Path) -> None:
    script = script_of(tmp_path / "session.jsonl", *named(80, {}))
    signing = msgspec.structs.replace(profile(OPUS_55), signs_summaries=True, bound_reasoning=True)
    for model in (profile(OPUS_55), signing):
        outcome = simulate(script, "ours", preset_policy("summary-only", Settings()), model, window=64_000)
        # Ours are put together without being asked for again; a signed one stands for all before it.
        merged = outcome.compactions - outcome.bill.summaries
        assert outcome.bill.summaries > 1
        assert (merged > 0) is (model is not signing)
