"""`tui-agent replay` as a user starts it."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.replay.recordings import answer, call, result, user, write_lines
from tests.replay.sessions import write_session

ROOT = Path(__file__).parent.parent.parent


def start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in `folder`, with no way to any network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUI_AGENT")}
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    return subprocess.run(
        [sys.executable, "-m", "tui_agent", "replay", *arguments],
        capture_output=True,
        cwd=folder,
        env={**kept, **proxies, "TUI_AGENT_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
        text=True,
    )


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_session(tmp_path_factory.mktemp("replay") / "s.jsonl", seed=1, calls=60, size=2.0)


def test_the_table_has_at_most_100_columns_and_every_policy(session: Path) -> None:
    done = start(session.parent, str(session), "--model", "claude-opus-4-7", "--window", "100000")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert "claude-opus-4-7, window 100,000" in lines
    for name in ("layered", "digest", "summary-only", "off", "none", "langchain", "gemini-cli", "codex"):
        assert any(line.startswith(f"{name} ") for line in lines)


def test_json_for_chosen_policies_and_models(session: Path) -> None:
    done = start(
        session.parent,
        str(session),
        *("--policy", "none", "--policy", "layered", "--model", "claude-opus-5-5", "--model", "gemini-2.5-pro"),
        *("--set", "compaction.thrift=1", "--json"),
    )
    told = json.loads(done.stdout)
    assert [(each["policy"], each["model"]) for each in told["replays"]] == [
        ("none", "claude-opus-5-5"),
        ("layered", "claude-opus-5-5"),
        ("none", "gemini-2.5-pro"),
        ("layered", "gemini-2.5-pro"),
    ]
    first = told["replays"][0]
    assert first["cost_usd"] == pytest.approx(first["call_cost_usd"])
    assert first["input_tokens"] > first["cache_read_tokens"] > 0
    assert (first["evidence"], first["compactions"], told["malformed_lines"]) == (1.0, 0, [])


def test_the_window_of_the_settings_holds_for_every_policy(session: Path) -> None:
    names = ("--policy", "none", "--policy", "layered")
    done = start(session.parent, str(session), *names, "--json", "--set", "context.context_window=60000")
    replays = json.loads(done.stdout)["replays"]
    assert [each["window"] for each in replays] == [60_000, 60_000]
    assert replays[0]["calls_over_window"] > 0
    assert replays[1]["calls_over_window"] == 0


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
        (["s.jsonl", "--model", "gpt"], "--model: There is no model"),
        (["s.jsonl", "--model", "gemini-nothing"], "prices of gemini-nothing are not known"),
        (["s.jsonl", "--window", "-3"], "expected a number of tokens"),
        (["s.jsonl", "--set", "compaction.thrft=1"], "compaction.thrift"),
        ([], "FILE"),
    ],
)
def test_what_cannot_be_replayed_is_said(session: Path, arguments: list[str], said: str) -> None:
    done = start(session.parent, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_long_replay_shows_progress_on_a_terminal(tmp_path: Path) -> None:
    path = write_session(tmp_path / "long.jsonl", seed=2, calls=300)
    main, other = pty.openpty()
    environment = {**os.environ, "TUI_AGENT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "tui_agent", "replay", str(path), "--model", "claude-opus-5-5"],
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
    assert b"replaying [" in shown
    assert shown.endswith(b" \r")
    assert b"replaying" not in out
