"""The shipped engine in a replay: the prompt is the view, nothing is lost from reach, and the settings count."""

from pathlib import Path

import msgspec
import pytest
from typing_extensions import override

from tests.replay.sessions import write_session
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.conversation.sizes import size_of_block
from tui_agent.replay.billing import Billing
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
    path = write_session(tmp_path_factory.mktemp("session") / "s.jsonl", seed=7, calls=120, size=2.0)
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
@pytest.mark.parametrize("preset", PRESETS)
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
    assert cheap.compactions == cheap.bill.summaries >= same.compactions > 0
    assert 0 < cheap.bill.summary_cost_usd < same.bill.summary_cost_usd / 3


def test_thrift_decides_how_often_is_compacted(script: Script) -> None:
    often, seldom, never = (
        replay(script, settings_of("summary-only", thrift=thrift), 200_000) for thrift in (0.5, 4.0, 0.0)
    )
    assert often.compactions > seldom.compactions >= never.compactions
    assert often.bill.peak_tokens < never.bill.peak_tokens


def test_more_facts_keep_more_evidence(script: Script) -> None:
    few = replay(script, settings_of("summary-only", facts_tokens=0, thrift=0.5), 200_000)
    many = replay(script, settings_of("summary-only", facts_tokens=8_000, thrift=0.5), 200_000)
    assert many.evidence.share > few.evidence.share


def test_every_policy_can_be_replayed(tmp_path: Path) -> None:
    script = make_script(read_file(write_session(tmp_path / "s.jsonl", seed=7, calls=30, size=2.0)))
    for name, make in policies([], Settings()).items():
        outcome = simulate(script, name, make, OPUS, small=HAIKU)
        assert outcome.bill.total > 0
        assert 0.5 < outcome.evidence.share <= 1
        assert outcome.evidence.in_view + outcome.evidence.pointed_to <= outcome.evidence.needed
