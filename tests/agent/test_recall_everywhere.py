"""Searching what left the view, and the other sessions of a project: ours, and those that other agents left here."""

import json
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tui_agent.agent.commands.table import run_command
from tui_agent.agent.persistence import Persistence
from tui_agent.conversation.entries import AnyEntry, HeadMoved, Summarized, user_message
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion

WORDS = "the harbour master is Sörensen"


def left_by_claude_code(home: Path, cwd: Path, name: str, text: str) -> None:
    asked = {"role": "user", "content": text}
    content = [{"type": "text", "text": "Noted."}]
    usage = {"input_tokens": 9, "output_tokens": 2}
    said = {"id": "m", "role": "assistant", "model": "claude-opus-4-5", "content": content, "usage": usage}
    shared = {"sessionId": name, "cwd": str(cwd), "timestamp": "2026-11-03T10:00:00Z"}
    lines = [
        {"type": "user", "uuid": "1", "parentUuid": None, "message": asked} | shared,
        {"type": "assistant", "uuid": "2", "parentUuid": "1", "message": said} | shared,
    ]
    file = home / ".claude/projects/p" / f"{name}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(map(json.dumps, lines)))


async def test_other_sessions_of_the_project_are_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[PermissionQuestion] = []

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question)
        return PermissionAnswer(allowed=True)

    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    left_by_claude_code(tmp_path / "user", tmp_path / "project", "theirs", "Sörensen is the HARBOUR master of Husum")
    left_by_claude_code(tmp_path / "user", tmp_path / "elsewhere", "not-ours", WORDS)
    async with talking(tmp_path) as first:
        await say(first, f"remember: {WORDS}")
    async with talking(tmp_path, ask=ask) as session:
        assert (await run_command(session.agent, "/recall Sörensen")).title.startswith("Nothing")
        reply = await run_command(session.agent, "/recall --all Sörensen is the")
        assert reply.title.endswith("in 2 other sessions of this project")
        assert "2026-11-03  you, Claude Code, theirs.jsonl" in reply.text
        found = await session.agent.context.recall(WORDS, everywhere=True)
        assert [hit.excerpt[hit.offset :][: len(WORDS)] for hit in found.hits if hit.role == "user"] == [WORDS]
        assert all(first.id in hit.session for hit in found.hits)
        for _ in range(2):
            await say(session, 'call recall query="Husum" other_sessions=true')
    assert [question.tool for question in asked] == ["recall"]
    assert "Husum" in asked[0].preview.text


async def test_what_the_user_forbids_is_not_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def no(question: PermissionQuestion) -> PermissionAnswer:
        return PermissionAnswer(allowed=False)

    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    left_by_claude_code(tmp_path / "user", tmp_path / "project", "theirs", WORDS)
    async with talking(tmp_path, ask=no) as session:
        events = await say(session, 'call recall query="Sörensen" other_sessions=true')
        assert not any("harbour" in str(event) for event in events)


# Over a session's own view: what left it, and what is on another branch


async def test_each_hit_says_whether_it_left_the_view_or_is_on_another_branch(tmp_path: Path) -> None:
    kept = await Persistence.on_disk(tmp_path)
    view = kept.view
    entries: list[AnyEntry] = [
        user_message("port 8421"),
        Summarized(first=1, last=1, text="a port was set"),
        user_message("port 8421, the wrong way"),
        HeadMoved(to=2),
    ]
    for entry in entries:
        view.apply(view.log.stamp(entry, 1.0))
    found = (await kept.recall("8421", 5)).hits
    assert [(hit.seq, hit.hidden, "on another branch" in hit.place) for hit in found] == [
        (1, True, False),
        (3, True, True),
    ]
    view.apply(view.log.stamp(user_message("port 8421, anew"), 2.0))
    found = (await kept.recall("8421", 5)).hits
    assert [(hit.seq, hit.hidden, "on another branch" in hit.place) for hit in found] == [
        (1, True, False),
        (3, True, True),
        (5, False, False),
    ]
    await kept.close()
