"""What all sessions have cost, by what, with missed caches and what compaction saved."""

import json
import os
from datetime import date, datetime
from pathlib import Path

import pytest
from msgspec import structs

from tests.e2e.starter import STARTER
from tui_agent.agent import spending as module
from tui_agent.agent.spending import SUMS_NAME, By, as_text, spending
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Message, Summarized, UnattributedCall, Usage, tool_result
from tui_agent.conversation.log import Log
from tui_agent.storage.sessions import delete_session, make_session

MODEL = "anthropic:claude-opus-4-7"
DAY = datetime(2026, 11, 20, 12).timestamp()
TODAY = date(2026, 11, 21)


def said(text: str) -> Message:
    return Message(role="user", blocks=(Text(text),))


def answer(usage: Usage, usd: float, *calls: ToolCall, model: str = MODEL) -> Message:
    return Message(role="assistant", blocks=(Text("So."), *calls), model=model, usage=usage, cost_usd=usd)


def run(call_id: str, command: str) -> ToolCall:
    return ToolCall(call_id, "run_command", json.dumps({"command": command}))


async def session(home: Path, *timed: tuple[float, AnyEntry], cwd: str = "/p") -> Path:
    log = Log()
    for after, entry in timed:
        log.append(log.stamp(entry, DAY + after))
    return await make_session(home, list(log), {"cwd": cwd})


async def two_sessions(home: Path) -> Path:
    """Three dollars of Opus with a cache lost after a pause and a summary, and one of Gemini the day before."""
    first = await session(
        home,
        (0, said("Go")),
        (1, answer(Usage(20_000, 0, 20_000, 10), 1.0, run("a", "CI=1 pytest -q"), run("b", "git log"))),
        (2, tool_result(ToolResult("a", "x" * 3_000))),
        (2, tool_result(ToolResult("b", "x" * 1_000))),
        (3, answer(Usage(24_000, 20_000, 4_000, 10), 0.8)),
        (1000, said("On")),
        (1001, answer(Usage(25_000, 0, 25_000, 10), 0.7, ToolCall("c", "mcp__github__list", "{}"))),
        (1002, tool_result(ToolResult("c", "x"))),
        (1003, UnattributedCall(model=MODEL, usage=Usage(20_000), purpose="summary", cost_usd=0.3)),
        (1004, Summarized(first=1, last=4, text="t", saved_usd=-0.1, saving_usd=0.25)),
        (1005, answer(Usage(9_000, 0, 9_000, 10), 0.2)),
        (1006, said("And")),
        (1007, answer(Usage(9_100, 9_000, 100, 10), 0.0)),
    )
    await session(
        home,
        (-86_400, said("Hi")),
        (-86_400, answer(Usage(10, 0, 0, 1), 1.0, model="gemini:gemini-2.5-pro")),
        cwd="/q",
    )
    return first


def costs(home: Path, by: By, days: int = 30) -> dict[str, float]:
    found = spending(home, days=days, by=by, today=TODAY)
    return {line.name: round(line.usd, 6) for line in found.lines}


async def test_each_way_of_parting_it_adds_up_to_the_same_bill(tmp_path: Path) -> None:
    await two_sessions(tmp_path)
    assert costs(tmp_path, "model") == {MODEL: 3.0, "gemini:gemini-2.5-pro": 1.0}
    assert costs(tmp_path, "project") == {"/p": 3.0, "/q": 1.0}
    assert costs(tmp_path, "day") == {"2026-11-19": 1.0, "2026-11-20": 3.0}
    assert costs(tmp_path, "tool") == {
        "(prompt)": 2.7,
        "run_command": 0.8,
        "(summaries)": 0.3,
        "mcp__github__list": 0.2,
    }
    assert costs(tmp_path, "server") == {"(built in)": 3.8, "github": 0.2}
    assert costs(tmp_path, "command")["pytest"] == 0.6
    assert costs(tmp_path, "command")["git"] == 0.2
    assert costs(tmp_path, "model", days=2) == {MODEL: 3.0}
    assert sum(line.usd for line in spending(tmp_path, days=0, by="command", today=TODAY).lines) == pytest.approx(4)


async def test_missed_caches_have_a_cause_and_compaction_what_it_saved(tmp_path: Path) -> None:
    await two_sessions(tmp_path)
    found = spending(tmp_path, days=30, by="model", today=TODAY)
    reasons = {miss.reason: (miss.calls, miss.tokens, round(miss.usd, 6)) for miss in found.misses}
    assert reasons == {
        "the cache had expired": (1, 24_000, 0.138),
        "earlier messages had changed": (1, 9_000, 0.05175),
    }
    assert found.saved_usd == pytest.approx(-0.3 - 0.1 + 0.25 + 0.25)
    told = as_text(found)
    assert "$4.00 in the last 30 days, 2 sessions" in told
    assert "1 call, 24k tokens: the cache had expired" in told
    assert "Clearing and compaction saved $0.100, after their own cost." in told
    told = as_text(structs.replace(found, saved_usd=-0.1))
    assert "Clearing and compaction have cost $0.100 more than they saved so far." in told


async def test_only_what_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = await two_sessions(tmp_path)
    first = spending(tmp_path, days=30, by="tool", today=TODAY)
    with monkeypatch.context() as patch:
        patch.setattr(module, "read_entries", lambda *_: pytest.fail("a log was read again"))
        assert spending(tmp_path, days=30, by="tool", today=TODAY) == first
    (tmp_path / SUMS_NAME).write_text("{broken")
    assert spending(tmp_path, days=30, by="tool", today=TODAY) == first
    await delete_session(tmp_path, folder.name)
    assert costs(tmp_path, "model") == {"gemini:gemini-2.5-pro": 1.0}
    assert folder.name not in (tmp_path / SUMS_NAME).read_text()


async def test_the_command_prints_a_table_or_json_and_names_a_log_it_cannot_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = await two_sessions(home)
    for path in folder.glob("*.sqlite*"):
        path.write_bytes(b"no database")
    environ = {**os.environ, "TUI_AGENT_HOME": str(home)}
    words = ["usage", "--days", "0", "--by", "day"]
    done = STARTER.run([*words, "--json"], folder=tmp_path, environ=environ, stdin="", timeout=60)
    told = json.loads(done.stdout)
    assert (told["usd"], told["unreadable"], [line["name"] for line in told["lines"]]) == (1.0, 1, ["2026-11-19"])
    shown = STARTER.run(words, folder=tmp_path, environ=environ, stdin="", timeout=60).stdout
    assert "1 session could not be read." in shown
