"""`tui-agent replay` as a user starts it."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.starter import STARTER
from tests.replay.metered import MODEL, Provider, claude_code_lines, write
from tests.replay.pictures import elements
from tests.replay.recordings import answer, call, result, user, write_lines
from tests.replay.sessions import Session, write_session
from tui_agent.replay.simulation import NAMES

ROOT = Path(__file__).parent.parent.parent


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in `folder`, with no way to any network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUI_AGENT")}
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    environ = {**kept, **proxies, "TUI_AGENT_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    return STARTER.run(["replay", *arguments], folder=folder, environ=environ, stdin="", timeout=120)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_session(tmp_path_factory.mktemp("replay") / "s.jsonl", seed=1, calls=60, size=2.0)


def test_the_table_has_at_most_100_columns_and_every_policy_and_the_frontier_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "f.svg"
    write(tmp_path / "m.jsonl", claude_code_lines(Session(3, 8), Provider(compact_at=20_000)))
    done = start(tmp_path, "m.jsonl", "--model", MODEL, "--window", "100000", "--plot", str(picture))
    assert (done.returncode, done.stderr) == (0, "")
    shown = {name for text in elements(picture.read_text(), "text") for name in (text.text or "").split(", ")}
    assert shown >= {"as recorded", *NAMES}
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert "claude-opus-4-7, window 100,000" in lines
    for name in ("layered", "digest", "summary-only", "off", "none", "langchain", "gemini-cli", "codex"):
        assert any(line.startswith(f"{name} ") for line in lines)


def test_json_for_chosen_policies_and_models_in_the_window_of_the_settings(session: Path) -> None:
    done = start(
        session.parent,
        str(session),
        *("--policy", "none", "--policy", "layered", "--model", "claude-opus-5-5", "--model", "gemini-2.5-pro"),
        *("--set", "compaction.thrift=1", "--set", "context.context_window=60000", "--json"),
    )
    told = json.loads(done.stdout)
    assert [(each["policy"], each["model"]) for each in told["replays"]] == [
        ("none", "claude-opus-5-5"),
        ("layered", "claude-opus-5-5"),
        ("none", "gemini-2.5-pro"),
        ("layered", "gemini-2.5-pro"),
    ]
    assert [each["window"] for each in told["replays"]] == [60_000] * 4
    first, second, *_ = told["replays"]
    assert first["calls_over_window"] > second["calls_over_window"] == 0
    assert first["cost_usd"] == pytest.approx(first["call_cost_usd"])
    assert first["input_tokens"] > first["cache_read_tokens"] > 0
    assert (first["evidence"], first["compactions"], told["malformed_lines"]) == (1.0, 0, [])


def row(lines: list[str], policy: str) -> list[str]:
    """The cells of a policy's row."""
    return next(line.removeprefix(policy).split() for line in lines if line.startswith(f"{policy} "))


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session of Claude Code with its usage and three compactions."""
    path = tmp_path_factory.mktemp("metered") / "m.jsonl"
    return write(path, claude_code_lines(Session(3, 120), Provider(compact_at=60_000)))


def test_the_error_stands_over_the_table(metered: Path) -> None:
    done = start(metered.parent, "m.jsonl", "--policy", "none", "--model", MODEL, "--model", "claude-haiku-4-5")
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, max(map(len, lines)) <= 100) == (0, "", True)
    first = lines.index(f"{MODEL}, window 1,000,000")
    heading = next(index for index, line in enumerate(lines) if line.startswith("policy "))
    told = "\n".join(lines[first:heading])
    assert "as recorded: predicted for recorded usage of 131 calls" in told
    assert re.search(r"sent \S+ for \S+ \([+-]0\.\d%\), read \S+ for \S+ \([+-]0\.\d%\), written", told)
    assert "cache reads within 5%: 131 of 131 calls (100.0%)" in told
    assert lines[heading + 1].startswith("as recorded ")
    assert row(lines, "as recorded")[4] == "3"
    assert (
        "not compared with the recorded usage, which is claude-opus-4-7's: --model claude-opus-4-7 does that" in lines
    )
    assert done.stdout.count("cache reads within") == 1


def test_a_call_that_was_predicted_wrongly_is_named(metered: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in metered.read_text().splitlines()]
    answers = [line for line in lines if line["type"] == "assistant"]
    ids = list(dict.fromkeys(line["message"]["id"] for line in answers))
    for line in answers:
        if line["message"]["id"] == ids[7]:
            usage = line["message"]["usage"]
            usage["cache_creation_input_tokens"] += usage["cache_read_input_tokens"]
            usage["cache_read_input_tokens"] = 0
    done = start(tmp_path, str(write(tmp_path / "m.jsonl", iter(lines))), "--policy", "none")
    assert "cache reads within 5%: 130 of 131 calls (99.2%)" in done.stdout
    assert re.search(r"^  not: call 8 \(\S+ for 0\)$", done.stdout, re.MULTILINE)


def test_json_has_what_was_predicted_and_recorded_of_every_call(metered: Path) -> None:
    told = json.loads(start(metered.parent, "m.jsonl", "--policy", "none", "--json").stdout)
    (accuracy,) = told["as_recorded"]
    assert accuracy["model"] == MODEL
    assert [call["call"] for call in accuracy["calls"]] == list(range(1, 132))
    for side in ("predicted", "recorded"):
        sums = {key: sum(call[side][key] for call in accuracy["calls"]) for key in accuracy[side]}
        assert sums == pytest.approx(accuracy[side])
    sent, real = accuracy["predicted"]["input_tokens"], accuracy["recorded"]["input_tokens"]
    assert accuracy["errors"]["input_tokens"] == pytest.approx((sent - real) / real)
    assert abs(accuracy["errors"]["input_tokens"]) < 0.03
    assert accuracy["reads_within_5_percent"] == 1
    assert told["measured"]["fixed_tokens"] == pytest.approx(14_200, rel=0.02)
    first = told["replays"][0]
    assert first["policy"] == "as recorded"
    assert (first["compactions"], first["waits"]) == (3, 3)
    assert first["wait_s"] > first["longest_wait_s"] > 0
    assert first["verbatim"] < first["evidence"] < 1
    assert first["depths"].keys() <= {"0", "1", "2"}


def test_writing_for_an_hour_costs_twice_the_input(tmp_path: Path) -> None:
    path = write(tmp_path / "h.jsonl", claude_code_lines(Session(4, 30), Provider(hour=True)))
    told = json.loads(start(tmp_path, str(path), "--policy", "none", "--json").stdout)
    (accuracy,) = told["as_recorded"]
    recorded = accuracy["recorded"]
    fresh = recorded["input_tokens"] - recorded["cache_read_tokens"] - recorded["cache_write_tokens"]
    rates = fresh * 5 + recorded["cache_read_tokens"] * 0.5 + recorded["cache_write_tokens"] * 10
    assert recorded["cost_usd"] == pytest.approx((rates + recorded["output_tokens"] * 25) / 1e6)
    # The same holds for every policy, so that they can be compared.
    row, none = told["replays"]
    assert none["cost_usd"] == pytest.approx(row["cost_usd"], rel=0.01)


def test_a_picture_that_could_not_be_written_is_said_at_once(metered: Path) -> None:
    done = start(metered.parent, "m.jsonl", "--plot", "no/such/f.svg")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no folder no/such" in done.stderr
    done = start(metered.parent, "m.jsonl", "--plot", ".")
    assert (done.returncode, "it is a folder" in done.stderr) == (2, True)


def test_malformed_lines_are_counted_and_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", user("go"), "oops", answer("", call("1")), result("1", "x"), "\x1b[31m")
    done = start(tmp_path, "a.jsonl", "--policy", "none", "--model", "claude-opus-5-5")
    assert done.returncode == 0
    assert "2 malformed lines left out: 2 (" in done.stdout
    assert "\x1b" not in done.stdout
    assert path.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.jsonl"], "There is no session 'missing.jsonl'."),
        (["s.jsonl", "--policy", "layerd"], "did you mean layered?"),
        (["s.jsonl", "--model", "nonesuch"], "--model: There is no model"),
        (["s.jsonl", "--model", "gemini-nothing"], "prices of gemini-nothing are not known"),
        (["s.jsonl", "--window", "-3"], "expected a number"),
        (["s.jsonl", "--set", "compaction.thrft=1"], "compaction.thrift"),
        ([], "SESSION"),
    ],
)
def test_what_cannot_be_replayed_is_said(session: Path, arguments: list[str], said: str) -> None:
    done = start(session.parent, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("model", "shown"), [("zai/glm-4.6", "glm-4.6"), ("gpt-5.3-codex", "gpt-5.3-codex")])
def test_a_recording_is_compared_at_its_own_model_whoever_sells_it(tmp_path: Path, model: str, shown: str) -> None:
    used = {"input_tokens": 9_000, "cache_read_tokens": 0, "cache_write_tokens": 0, "output_tokens": 20}
    lines = [user("Go."), answer("Hello.", model=model, usage=used)]
    done = start(tmp_path, str(write_lines(tmp_path / "s.jsonl", *lines)), "--policy", "none")
    assert re.search(rf"^{shown}, window [\d,]+$", done.stdout, re.MULTILINE)
    assert "predicted for recorded usage of 1 calls" in done.stdout


OURS = [word for name in ("layered", "digest") for word in ("--policy", name)]


def test_a_long_replay_shows_progress_on_a_terminal(tmp_path: Path) -> None:
    path = write_session(tmp_path / "long.jsonl", seed=2, calls=150)
    main, other = pty.openpty()
    environment = {**os.environ, "TUI_AGENT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tui_agent", "replay", str(path), "--model", "claude-opus-5-5", *OURS],
        stdout=subprocess.PIPE,
        stderr=other,
        env=environment,
        cwd=tmp_path,
    )
    os.close(other)
    shown = b""
    try:
        while data := os.read(main, 65536):
            shown += data
    except OSError:
        # The other end was closed: the process has ended.
        pass
    finally:
        os.close(main)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"replaying" in shown
    assert shown.endswith(b"\x1b[2K"), "the bar is removed"
    assert b"replaying" not in out
