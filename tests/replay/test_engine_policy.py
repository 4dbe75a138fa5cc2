"""The shipped engine in a replay: the prompt is the view, nothing is lost from reach, and the settings count."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from typing_extensions import override

from tests.replay.sessions import write_session
from tui_agent.conversation.entries import Summarized, Usage
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.conversation.sizes import size_of_block
from tui_agent.replay.billing import Billing, RequestParts
from tui_agent.replay.engine_policy import EnginePolicy
from tui_agent.replay.policies import PolicySetup
from tui_agent.replay.script import RecordedCall, Script, make_script, tokens_of
from tui_agent.replay.simulation import PRESETS, ReplayOutcome, policies, simulate
from tui_agent.settings import Settings
from tui_agent.settings.schema import Preset
from tui_agent.storage.recordings.reading import read_file

OPUS = ModelProfile(
    provider="anthropic",
    cache="marked",
    id="opus",
    window=200_000,
    tier="frontier",
    prices=Prices(4, 20, 0.2, 5),
    cache_minimum=512,
)
HAIKU = ModelProfile(
    provider="anthropic", cache="marked", id="haiku", window=200_000, prices=Prices(0.1, 0.5, 0.01, 0.125)
)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    path = write_session(tmp_path_factory.mktemp("session") / "s.jsonl", seed=7, calls=80, size=2.0)
    return make_script(read_file(path))


def settings_of(preset: Preset, **compaction: object) -> Settings:
    settings = Settings()
    return msgspec.structs.replace(
        settings,
        context=msgspec.structs.replace(settings.context, preset=preset),
        compaction=msgspec.structs.replace(settings.compaction, **compaction),
    )


class Checked(EnginePolicy):
    """Compares the prompt with what the engine would send, before each call."""

    @override
    def before(self, call: RecordedCall) -> None:
        super().before(call)
        blocks = [block for message in self.engine.view.messages() for block in message.blocks]
        assert [part.tokens for part in self.prompt.parts[1:]] == [tokens_of(size_of_block(each)) for each in blocks]
        assert self.prompt.tokens <= self.engine.window.tokens


def replay(script: Script, settings: Settings, window: int) -> ReplayOutcome:
    def make(setup: PolicySetup) -> EnginePolicy:
        return Checked(setup, settings)

    return simulate(script, "ours", make, OPUS, small=HAIKU, window=window)


@pytest.mark.parametrize("window", [40_000, pytest.param(200_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "preset",
    [each if each == "layered" else pytest.param(each, marks=pytest.mark.soak) for each in PRESETS],
)
def test_the_prompt_is_the_view_and_fits(script: Script, preset: Preset, window: int) -> None:
    outcome = replay(script, settings_of(preset), window)
    bill, evidence = outcome.bill, outcome.evidence
    assert bill.calls == len(script.calls)
    assert bill.calls_over_window == 0
    assert evidence.in_view + evidence.pointed_to == evidence.needed
    assert evidence.share > 0.6


def test_a_compaction_that_failed_rests_as_many_turns_as_in_a_session(script: Script) -> None:
    policy = EnginePolicy(PolicySetup(script, Billing(OPUS), 200_000), Settings())
    policy.engine.backoff = policy.engine.backoff.failed()
    resting = []
    for call in script.calls:
        policy.before(call)
        policy.after(call, Usage())
        if call.starts_turn:
            resting.append(policy.engine.backoff.resting)
    assert resting[:3] == [True, False, False]


def test_what_a_summary_leads_to_was_kept(script: Script) -> None:
    """All that the simulation fetches again lies in a text that the engine had kept, or is in the history."""
    made: list[EnginePolicy] = []

    def make(setup: PolicySetup) -> EnginePolicy:
        made.append(EnginePolicy(setup, settings_of("layered")))
        return made[0]

    simulate(script, "ours", make, OPUS, small=HAIKU, window=100_000)
    prompt, kept = made[0].prompt, "\n".join(made[0].texts.values())
    summaries = [part for part in prompt.parts if part.kind == "summary"]
    assert summaries
    fetchable = [result for summary in summaries for result in summary.fetchable]
    assert len(fetchable) > 50
    for result in fetchable:
        assert result.text.strip() in kept


def test_a_summary_is_written_by_the_cheaper_model_and_billed(script: Script) -> None:
    settings = settings_of("summary-only")
    cheap = replay(script, settings, 100_000)
    same = simulate(script, "ours", lambda setup: Checked(setup, settings), OPUS, window=100_000)
    assert cheap.compactions >= cheap.bill.summaries >= same.bill.summaries > 0
    assert 0 < cheap.bill.summary_cost_usd < same.bill.summary_cost_usd / 3


def test_a_summary_is_asked_for_when_it_is_begun_with_the_cache_of_that_moment(tmp_path: Path) -> None:
    """The user comes back an hour later, so it is ready by then; its writer read the prefix while it was cached."""
    path, now = write_session(tmp_path / "s.jsonl", seed=7, calls=90), 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        now += 3_600 if line["role"] == "user" else 1
        line["time"] = now
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = settings_of("summary-only", before_expiry=False, thrift=0.0, summaries_tokens=100_000)
    asked: list[Usage] = []

    class Noted(Billing):
        @override
        def summary(self, prompt: RequestParts, output: int, now: float) -> Usage:
            asked.append(super().summary(prompt, output, now))
            return asked[-1]

    policy = EnginePolicy(
        PolicySetup(make_script(read_file(path)), ledger := Noted(OPUS, None, 60_000), 60_000), settings
    )
    for call in make_script(read_file(path)).calls:
        policy.before(call)
        policy.after(call, ledger.call(policy.prompt, call.output, call.time))
    assert len(asked) > 2
    assert ledger.bill.cold_calls > 2
    assert all(used.cache_read_tokens > used.input_tokens / 2 for used in asked)


def test_a_part_of_a_result_takes_no_more_tokens_than_the_whole(tmp_path: Path) -> None:
    """What its provider counted is less than the estimate, and the cut leaves out next to nothing."""
    call = {"id": "c1", "name": "bash", "args": {"command": "ls"}}
    lines = [
        {"role": "user", "text": "go"},
        {"role": "assistant", "text": "", "tool_calls": [call]},
        {"role": "tool", "text": "a line of it\n" * 1_990 + "x" * 26_000, "tool_call_id": "c1"},
        {"role": "assistant", "text": "done"},
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = make_script(read_file(path))
    first, second = made.calls
    (result,) = second.arrived
    counted = replace(result, tokens=result.tokens // 2)
    policy = EnginePolicy(PolicySetup(made, Billing(OPUS, None, 200_000), 200_000), Settings())
    policy.before(first)
    policy.after(first, Usage(input_tokens=policy.prompt.tokens))
    policy.before(replace(second, arrived=(counted,)))
    assert policy.prompt.parts[-1].shown != result.text
    assert policy.prompt.parts[-1].tokens == counted.tokens


def test_a_generated_summary_has_its_sections_and_nothing_is_filled_in(script: Script) -> None:
    policies: list[EnginePolicy] = []

    def make(setup: PolicySetup) -> EnginePolicy:
        policies.append(EnginePolicy(setup, settings_of("summary-only", facts_tokens=0)))
        return policies[0]

    simulate(script, "ours", make, OPUS, small=HAIKU, window=60_000)
    texts = [entry.text for entry in policies[0].engine.view.log if isinstance(entry, Summarized) and entry.model]
    assert texts
    assert sum(map(len, policies[0].summaries)) + 300 * len(texts) > sum(map(len, texts))


def test_thrift_decides_how_often_is_compacted_and_more_facts_keep_more_evidence(script: Script) -> None:
    often, seldom, never = (
        replay(script, settings_of("summary-only", thrift=thrift, facts_tokens=0), 200_000)
        for thrift in (0.5, 4.0, 0.0)
    )
    assert often.compactions > seldom.compactions >= never.compactions
    assert often.bill.peak_tokens < never.bill.peak_tokens
    many = replay(script, settings_of("summary-only", facts_tokens=8_000, thrift=0.5), 200_000)
    assert many.evidence.share > often.evidence.share


def test_every_policy_can_be_replayed(tmp_path: Path) -> None:
    script = make_script(read_file(write_session(tmp_path / "s.jsonl", seed=7, calls=30, size=2.0)))
    for name, make in policies([], Settings()).items():
        outcome = simulate(script, name, make, OPUS, small=HAIKU)
        assert outcome.bill.total > 0
        assert 0.5 < outcome.evidence.share <= 1
        assert outcome.evidence.in_view + outcome.evidence.pointed_to <= outcome.evidence.needed
