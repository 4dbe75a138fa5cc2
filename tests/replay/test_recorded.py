"""A recording with its usage: the sizes it tells, what is predicted of its calls, and how far off that is."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.replay.metered import MODEL, SYSTEM_TOKENS, Provider, claude_code_lines, neutral_lines, write
from tests.replay.recordings import answer, call, result, user, write_lines
from tests.replay.sessions import Session
from tui_agent.conversation.blocks import Text, ToolResult
from tui_agent.conversation.entries import Cleared, Summarized
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.prices import look_up
from tui_agent.replay.forecast import Accuracy, compare, error_of
from tui_agent.replay.recorded import as_recorded, measure
from tui_agent.replay.replaying import OWN, Replay, small_profile
from tui_agent.replay.script import MeasuredSizes, make_script
from tui_agent.replay.simulation import ReplayOutcome, simulate
from tui_agent.replay.tables import table
from tui_agent.settings import Settings
from tui_agent.storage.recordings.reading import read_file
from tui_agent.storage.recordings.recording import Recording, UnreadableRecording


def check(recording: Recording, **profile: Any) -> tuple[Accuracy, ReplayOutcome, MeasuredSizes]:
    """The recording's own requests, predicted and compared."""
    model = msgspec.structs.replace(look_up(CATALOGUE.quick_profile(MODEL)), **profile)
    measured = measure(recording)
    assert measured is not None
    script = make_script(recording, measured)
    outcome = simulate(script, "as recorded", as_recorded(recording, Settings()), model)
    accuracy = compare(recording, measured, script, outcome.used, model)
    assert accuracy is not None
    return accuracy, outcome, measured


def claude(path: Path, seed: int, calls: int, provider: Provider) -> Recording:
    return read_file(write(path / "s.jsonl", claude_code_lines(Session(seed, calls), provider)))


def test_a_session_of_claude_code_is_predicted_call_by_call(tmp_path: Path) -> None:
    provider = Provider(compact_at=80_000, warm=True)
    recording = claude(tmp_path, 3, 200, provider)
    accuracy, outcome, measured = check(recording)
    assert provider.compactions == outcome.compactions == 3
    assert len(accuracy.calls) == len([message for message in recording.messages if message.role == "assistant"])
    assert abs(error_of(accuracy.predicted.input_tokens, accuracy.recorded.input_tokens)) < 0.003
    assert abs(error_of(accuracy.predicted.cache_read_tokens, accuracy.recorded.cache_read_tokens)) < 0.003
    assert abs(error_of(accuracy.predicted.cache_write_tokens, accuracy.recorded.cache_write_tokens)) < 0.03
    assert error_of(*accuracy.costs) == pytest.approx(0, abs=0.01)
    assert accuracy.close_share == 1
    assert measured.fixed == pytest.approx(SYSTEM_TOKENS, rel=0.01)
    assert 3 < measured.chars_per_token < 3.7
    # There is something to predict: calls that found nothing but the system prompt, and such as found all.
    reads = [compared.recorded.cache_read_tokens for compared in accuracy.calls]
    assert reads[0] == SYSTEM_TOKENS
    assert reads.count(0) >= 3
    assert max(reads) > 70_000


def test_no_call_is_predicted_from_its_own_usage(tmp_path: Path) -> None:
    """Were a call's prediction made of what was recorded of it, a lie about the last one would change it."""
    lines = list(neutral_lines(Session(6, 30), Provider()))
    last = max(index for index, line in enumerate(lines) if line["role"] == "assistant")
    honest = check(read_file(write(tmp_path / "a.jsonl", iter(lines))))[0].rest
    lines[last]["usage"] = {**lines[last]["usage"], "input_tokens": lines[last]["usage"]["input_tokens"] + 9_000}
    lying = check(read_file(write(tmp_path / "b.jsonl", iter(lines))))[0].rest
    assert honest is not None
    assert lying is not None
    assert lying.calls[-1].recorded.input_tokens == honest.calls[-1].recorded.input_tokens + 9_000
    assert lying.calls[-1].predicted.input_tokens == pytest.approx(honest.calls[-1].predicted.input_tokens, abs=50)
    assert lying.calls[-1].predicted.cache_read_tokens == pytest.approx(
        honest.calls[-1].predicted.cache_read_tokens, abs=50
    )


def test_an_hour_long_cache_is_seen_in_the_file(tmp_path: Path) -> None:
    recording = claude(tmp_path, 4, 120, Provider(hour=True))
    assert recording.cache_ttl_s == 3600
    short, _, _ = check(recording)
    long, _, _ = check(recording, cache_ttl_s=3600)
    assert long.close_share == 1
    assert long.losses["pause"].calls == 0
    # Where the rules say five minutes, the recording itself tells that nothing is lost after them.
    assert short.losses["pause"].calls > 0
    assert short.losses["pause"].lost == 0


def lossy(lines: Iterator[dict[str, Any]], every: int) -> Iterator[dict[str, Any]]:
    """The same recording by a client that loses its cache at every so many prompts."""
    prompts, fresh = 0, False
    for line in lines:
        if line["role"] == "user":
            prompts, fresh = prompts + 1, True
        if line["role"] == "assistant" and fresh:
            fresh = False
            if prompts > 1 and not prompts % every:
                usage = line["usage"]
                whole = usage["cache_read_tokens"] + usage["cache_write_tokens"]
                line = {**line, "usage": {**usage, "cache_read_tokens": 0, "cache_write_tokens": whole}}
        yield line


def test_a_cache_that_its_client_loses_is_predicted_and_said(tmp_path: Path) -> None:
    honest, _, _ = check(read_file(write(tmp_path / "a.jsonl", neutral_lines(Session(6, 200), Provider()))))
    lines = lossy(neutral_lines(Session(6, 200), Provider()), 2)
    accuracy, _, _ = check(read_file(write(tmp_path / "b.jsonl", lines)))
    lost, before = accuracy.losses["prompt"], honest.losses["prompt"]
    assert before.lost == 0
    assert lost.calls == before.calls
    assert lost.calls / 4 < lost.lost < lost.calls * 3 / 4
    assert accuracy.explained < 0.9 < honest.explained
    assert accuracy.costs[1] > 1.1 * honest.costs[1]
    assert error_of(*accuracy.costs) == pytest.approx(0, abs=0.01)
    assert accuracy.rest is not None
    assert error_of(*accuracy.rest.costs) == pytest.approx(0, abs=0.1)


def test_a_server_that_reports_no_cache_is_not_predicted_to_have_one(tmp_path: Path) -> None:
    """As those that only pass requests on: nothing is read, and nothing is billed as written."""
    lines = list(neutral_lines(Session(5, 90), Provider()))
    for line in lines:
        if "usage" in line:
            line["usage"] |= {"cache_read_tokens": 0, "cache_write_tokens": 0}
    for cache in ("marked", "implicit"):
        accuracy, _, _ = check(read_file(write(tmp_path / "s.jsonl", iter(lines))), cache=cache)
        for found in (accuracy, accuracy.rest):
            assert found is not None
            assert (found.predicted.cache_read_tokens, found.predicted.cache_write_tokens) == (0, 0)
            assert error_of(*found.costs) == pytest.approx(0, abs=0.03)


def test_a_cache_that_was_lost_once_early_is_not_expected_to_be_lost_again_and_again(tmp_path: Path) -> None:
    lines = list(neutral_lines(Session(8, 120), Provider(warm=True)))
    early = [line for line in lines if "usage" in line][11]
    early["usage"] |= {"cache_read_tokens": 0, "cache_write_tokens": early["usage"]["input_tokens"]}
    accuracy, _, _ = check(read_file(write(tmp_path / "s.jsonl", iter(lines))))
    assert accuracy.losses["step"].lost == 1
    assert accuracy.rest is not None
    assert error_of(*accuracy.rest.costs) == pytest.approx(0, abs=0.1)


def growing(reads: Callable[[int, int, str], int]) -> Iterator[dict[str, Any]]:
    """120 calls whose prompts grow by 1,000 tokens each, with prompts and pauses between them.

    `reads` gives what a call reads from the cache: of its number, the tokens of the last prompt, and the moment.
    """
    now = 0.0
    for number in range(120):
        moment = "pause" if number % 30 == 29 else "prompt" if number % 6 == 0 else "step"
        now += 900 if moment == "pause" else 20
        if moment == "step":
            yield {**result(str(number - 1), "word " * 580), "time": now}
        else:
            yield user("word " * 580, time=now)
        usage = {"input_tokens": 10_000 + 1_000 * number, "output_tokens": 10}
        usage["cache_read_tokens"] = reads(number, 9_000 + 1_000 * number, moment) if number else 0
        calls = () if number % 6 == 5 or number % 30 == 28 else (call(str(number)),)
        yield answer("word", *calls, usage=usage, time=now + 1, model=MODEL)


def test_whatever_a_cache_loses_the_sum_is_right_as_recorded(tmp_path: Path) -> None:
    """Some calls lose nearly all, some a part; at some moments the one, at some the other."""

    def reads(number: int, before: int, moment: str) -> int:
        lost = {"pause": 1.0, "prompt": (number % 4) / 4, "step": 0.9 * (number % 17 == 3)}[moment]
        return round(before * (1 - lost))

    accuracy, _, _ = check(read_file(write(tmp_path / "s.jsonl", growing(reads))), cache="implicit")
    assert {moment: each.calls for moment, each in accuracy.losses.items()} == {
        "prompt": 19,
        "step": 96,
        "pause": 4,
        "edit": 0,
    }
    predicted, recorded = accuracy.predicted, accuracy.recorded
    assert error_of(predicted.cache_read_tokens, recorded.cache_read_tokens) == pytest.approx(0, abs=0.002)
    assert error_of(*accuracy.costs) == pytest.approx(0, abs=0.01)


def test_what_is_not_yet_in_a_cache_is_not_more_in_a_longer_prompt(tmp_path: Path) -> None:
    lines = growing(lambda _, before, moment: before - (3_000 if moment == "step" else 0))
    accuracy, _, _ = check(read_file(write(tmp_path / "s.jsonl", lines)), cache="implicit")
    assert accuracy.rest is not None
    predicted, recorded = accuracy.rest.predicted, accuracy.rest.recorded
    steps = [each for each in accuracy.rest.calls if each.recorded.cache_read_tokens < each.likely_read]
    assert len(steps) > 60
    assert max(abs(each.predicted.cache_read_tokens - each.recorded.cache_read_tokens) for each in steps) < 1_000
    assert error_of(predicted.input_tokens, recorded.input_tokens) == pytest.approx(0, abs=0.002)


def test_of_prompts_smaller_than_what_is_usually_lost_all_is_expected_to_be_lost(tmp_path: Path) -> None:
    """The rates of a first third that lost nearly all, and the usual ones, come to more than there was to read."""

    def lines() -> Iterator[dict[str, Any]]:
        yield user("a", time=0)
        for number in range(60):
            usage = {"input_tokens": 1_000 + number, "output_tokens": 1, "cache_read_tokens": 900 * (number == 9)}
            yield answer("b", call(str(number)), usage=usage, time=number, model=MODEL)
            yield {**result(str(number), "c"), "time": number}

    accuracy, _, _ = check(read_file(write(tmp_path / "s.jsonl", lines())), cache="implicit")
    assert accuracy.rest is not None
    assert accuracy.rest.predicted.cache_read_tokens == accuracy.rest.recorded.cache_read_tokens == 0


def test_what_another_model_has_read_is_in_no_cache(tmp_path: Path) -> None:
    """A cache is that of one model, and lives from its last call on."""
    lines = list(growing(lambda _, before, __: before))
    answers = [line for line in lines if line["role"] == "assistant"]
    for line in (*answers[:20], *answers[60:80]):
        line["model"] = "claude-other"
    accuracy, _, _ = check(read_file(write(tmp_path / "s.jsonl", iter(lines))))
    first = accuracy.calls[0]
    assert (first.number, first.predicted.cache_read_tokens) == (21, 0)
    assert accuracy.losses["pause"].calls == 5


def test_reasoning_that_the_provider_removes_at_a_prompt_is_learned(tmp_path: Path) -> None:
    def lines(shrinks: int) -> Iterator[dict[str, Any]]:
        prompt, number = 10_000, 0
        for _ in range(12):
            yield user("go on with it")
            for _ in range(4):
                number += 1
                yield answer("", call(str(number)), usage={"input_tokens": prompt, "output_tokens": 10})
                yield result(str(number), "word " * 580)
                prompt += 1_000
            prompt -= shrinks

    kept, _, _ = check(read_file(write(tmp_path / "a.jsonl", lines(0))))
    stripped, _, _ = check(read_file(write(tmp_path / "b.jsonl", lines(500))))
    for accuracy in (kept, stripped):
        assert error_of(accuracy.predicted.input_tokens, accuracy.recorded.input_tokens) == pytest.approx(0, abs=0.005)
    shares = [call.predicted.input_tokens - call.recorded.input_tokens for call in stripped.calls[5:]]
    assert max(map(abs, shares)) < 150


@pytest.mark.parametrize("beside", [False, True])
def test_usage_of_the_neutral_format_counts_the_whole_prompt_or_the_rest(tmp_path: Path, *, beside: bool) -> None:
    provider = Provider(compact_at=60_000)
    lines = neutral_lines(Session(6, 80), provider, beside=beside)
    accuracy, outcome, _ = check(read_file(write(tmp_path / "s.jsonl", lines)))
    assert outcome.compactions == provider.compactions == 1
    assert accuracy.close_share == 1
    assert abs(error_of(accuracy.predicted.input_tokens, accuracy.recorded.input_tokens)) < 0.01


def test_a_compaction_that_was_left_out_is_an_error_that_shows(tmp_path: Path) -> None:
    lines = [
        line for line in neutral_lines(Session(6, 80), Provider(compact_at=60_000)) if line["role"] != "compaction"
    ]
    accuracy, _, _ = check(read_file(write(tmp_path / "s.jsonl", iter(lines))))
    (shrunk,) = accuracy.shrunk
    wrong = next(each for each in accuracy.calls if each.number == shrunk)
    assert error_of(wrong.predicted.input_tokens, wrong.recorded.input_tokens) > 1
    # The next call is predicted from what was counted of this one.
    assert error_of(accuracy.predicted.input_tokens, accuracy.recorded.input_tokens) < 0.03


def test_what_a_compaction_keeps_stays_verbatim(tmp_path: Path) -> None:
    def lines(keeps: int) -> Iterator[dict[str, Any]]:
        yield user("go")
        yield answer("", call("1"), usage={"input_tokens": 1_000, "output_tokens": 10})
        yield result("1", "src/alpha_beta.py")
        yield answer("", call("2"), usage={"input_tokens": 1_100, "output_tokens": 10})
        yield result("2", "src/gamma_delta.py")
        yield {"role": "compaction", "text": "We looked at src/alpha_beta.py.", "keeps": keeps}
        yield user("on")
        yield answer("src/alpha_beta.py src/gamma_delta.py", usage={"input_tokens": 900, "output_tokens": 10})

    _, kept, _ = check(read_file(write(tmp_path / "a.jsonl", lines(2))))
    assert dict(kept.evidence.depths) == {0: 1, 1: 1}
    # A result alone is not kept: its call would be missing.
    _, grouped, _ = check(read_file(write(tmp_path / "b.jsonl", lines(1))))
    assert dict(grouped.evidence.depths) == {0: 1, 1: 1}
    _, all_of_it, _ = check(read_file(write(tmp_path / "c.jsonl", lines(0))))
    assert dict(all_of_it.evidence.depths) == {1: 1}
    assert (all_of_it.evidence.verbatim_share, all_of_it.evidence.depth) == (0, 1)


def test_results_that_claude_code_has_cleared_are_predicted_as_cleared(tmp_path: Path) -> None:
    recording = claude(tmp_path, 3, 60, Provider(clear_at=40_000, warm=True))
    cleared = next(entry for entry in recording.log if isinstance(entry, Cleared))
    by_seq = {message.seq: message for message in recording.messages}
    assert len(cleared.results) > 3
    assert all(by_seq[seq].kind == "tool_result" and seq < cleared.seq for seq in cleared.results)
    accuracy, outcome, _ = check(recording)
    assert outcome.clearings == 1
    assert accuracy.shrunk == ()
    assert abs(error_of(accuracy.predicted.cache_write_tokens, accuracy.recorded.cache_write_tokens)) < 0.01
    assert abs(error_of(*accuracy.costs)) < 0.01


def test_what_claude_code_preserves_over_a_compaction_stays(tmp_path: Path) -> None:
    lines = list(claude_code_lines(Session(3, 40), Provider(compact_at=30_000)))
    boundary = next(index for index, line in enumerate(lines) if line.get("subtype") == "compact_boundary")
    said = [line for line in lines[:boundary] if line["type"] == "assistant" and line["uuid"].endswith(".0")]
    lines[boundary]["compactMetadata"]["preservedSegment"] = {"headUuid": said[-2]["uuid"]}
    recording = read_file(write(tmp_path / "s.jsonl", iter(lines)))
    summary = next(entry for entry in recording.log if isinstance(entry, Summarized))
    kept = recording.messages[summary.last]
    assert isinstance(kept.blocks[0], Text)
    assert kept.blocks[0].text == said[-2]["message"]["content"][0]["text"]


@pytest.mark.parametrize(
    "usage",
    ["many", {"input_tokens": -1}, {"input_tokens": 1.5}, {"input_tokens": 10**30}, {"cache_read_tokens": 1}, []],
)
def test_usage_that_is_none_is_named_and_the_line_kept(tmp_path: Path, usage: object) -> None:
    recording = read_file(write_lines(tmp_path / "a.jsonl", user("go"), answer("done", usage=usage)))
    assert [problem.line for problem in recording.problems] == [2]
    assert len(recording.messages) == 2
    assert measure(recording) is None


def test_a_compaction_of_nothing_is_named(tmp_path: Path) -> None:
    lines = [{"role": "compaction", "text": "x"}, user("go"), {"role": "compaction", "text": " "}, answer("done")]
    recording = read_file(write_lines(tmp_path / "a.jsonl", *lines))
    assert [problem.line for problem in recording.problems] == [1, 3]


counts = st.integers(0, 200_000)
steps = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "tool", "compaction"]),
        st.integers(0, 9_000),
        st.none() | st.tuples(counts, counts, counts),
        st.integers(0, 4),
        st.integers(0, 900),
    ),
    max_size=25,
)


@example([("assistant", 1, (1_000, 0, 0), 0, 0), *[("user", 1, None, 0, 1), ("assistant", 1, (1_000, 0, 0), 0, 1)] * 2])
@given(steps)
def test_any_usage_can_be_compared(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[str, int, tuple[int, int, int] | None, int, int]]
) -> None:
    """Whatever a recording claims was used: sizes stay sizes, and a part of a prompt is never more than the prompt."""
    lines: list[dict[str, Any]] = [user("go", time=1.0)]
    now = 1.0
    for number, (role, size, claimed, keeps, pause) in enumerate(told):
        now += pause
        line: dict[str, Any] = {"role": role, "text": "word " * size, "time": now}
        if role == "assistant":
            line["tool_calls"] = [call(f"c{number + 1}")]
            if claimed is not None:
                total, read, written = claimed
                line["usage"] = {"input_tokens": total, "cache_read_tokens": read, "cache_write_tokens": written}
        elif role == "tool":
            line["tool_call_id"] = f"c{number}"
        elif role == "compaction":
            line["keeps"] = keeps
        lines.append(line)
    lines.append(answer("done", time=now, usage={"input_tokens": 20_000, "output_tokens": 5}))
    recording = read_file(write(tmp_path_factory.mktemp("any") / "any.jsonl", iter(lines)))
    accuracy, outcome, measured = check(recording)
    assert measured.fixed >= 0
    assert all(size >= 0 for size in measured.sizes.values())
    for used in (*outcome.used, *(compared.predicted for compared in accuracy.calls)):
        assert min(used.cache_read_tokens, used.cache_write_tokens) >= 0
        assert used.cache_read_tokens + used.cache_write_tokens <= used.input_tokens


def test_a_request_that_shrank_unseen_does_not_make_text_weigh_nothing(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [user("go")]
    for number in range(12):
        total = 9_000 + 1_000 * number - (6_000 if number >= 6 else 0)
        lines.append(answer("", call(str(number)), usage={"input_tokens": total, "output_tokens": 5}))
        lines.append(result(str(number), f"{number} " + "x" * 2_900))
    recording = read_file(write_lines(tmp_path / "a.jsonl", *lines))
    measured = measure(recording)
    assert measured is not None
    sizes = [size for block, size in measured.sizes.items() if isinstance(block, ToolResult)]
    assert min(sizes) > 800
    assert max(sizes) < 1_200


def test_an_error_without_anything_recorded_is_infinite() -> None:
    assert error_of(0, 0) == 0
    assert error_of(5, 0) == float("inf")
    assert error_of(90, 100) == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("usage", "why"),
    [
        ({"input_tokens": 5_000, "output_tokens": 5}, "which is nobody-sells-this's: its prices are not known"),
        (None, "no usage recorded: sizes are estimated, and no prediction is compared"),
    ],
)
def test_it_is_said_why_no_usage_is_compared(tmp_path: Path, usage: object, why: str) -> None:
    lines = [user("a"), answer("b", usage=usage, model="nobody-sells-this")]
    report = Replay(read_file(write_lines(tmp_path / "a.jsonl", *lines)), Settings())
    report.run(["as recorded"], report.profile(OWN))
    assert why in table(report)


def test_the_small_model_may_be_named_by_a_part_as_in_a_session() -> None:
    profile = look_up(CATALOGUE.quick_profile(MODEL))
    small = small_profile(profile, msgspec.convert({"agentic": {"small_model": "gemini-3.8"}}, Settings))
    assert small is not None
    assert small.name == "gemini:gemini-3.8-flash"
    with pytest.raises(UnreadableRecording, match=r"agentic\.small_model: .* several"):
        small_profile(profile, msgspec.convert({"agentic": {"small_model": "gemini-3"}}, Settings))


def test_calls_of_another_model_are_not_compared(tmp_path: Path) -> None:
    usage = {"input_tokens": 5_000, "output_tokens": 5}
    lines = [user("a"), answer("b", usage=usage, model=MODEL), user("c"), answer("d", usage=usage, model="claude-x")]
    recording = read_file(write_lines(tmp_path / "a.jsonl", *lines))
    profile = ModelProfile(provider="anthropic", cache="marked", id="m", window=100_000, prices=Prices(1, 1, 0.1, 1))
    measured = measure(recording)
    assert measured is not None
    script = make_script(recording, measured)
    outcome = simulate(script, "as recorded", as_recorded(recording, Settings()), profile)
    accuracy = compare(recording, measured, script, outcome.used, profile)
    assert accuracy is not None
    assert [each.number for each in accuracy.calls] == [1]
