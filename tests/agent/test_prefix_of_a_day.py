"""Whatever helps through a day, used in one session: no request changes what the one before it had sent."""

import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.agent.serving import Serve
from tests.agent.talking import of, say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, Script, Step, Turn
from tests.tools.lsp import words_server
from tui_agent.agent import events
from tui_agent.agent.commands.table import run_command
from tui_agent.settings import GivenValue
from tui_agent.tools.lsp import programs, servers

EDITS = [{"old": "books", "new": "all_books"}, {"old": "missing", "new": "missing  # soon"}]
NOTEBOOK = """{"cells": [{"cell_type": "code", "execution_count": null, "id": "a", "metadata": {}, "outputs": [],
 "source": ["1 + 1"]}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
"""
OTHERS = {"query": "harbour", "other_sessions": True}
DAY = Script(
    (
        Turn(
            (
                Step(calls=(Call("write_file", {"path": "one.py", "content": "books = missing\n"}),)),
                Step(calls=(Call("find_tool", {"query": "where a name is defined"}),)),
                Step(calls=(Call("definition", {"path": "one.py", "line": 1, "name": "books"}),)),
                Step(calls=(Call("web_search", {"query": "what harbours"}),)),
                Step(calls=(Call("recall", OTHERS),)),
                Step(calls=(Call("edit_file", {"path": "one.py", "edits": EDITS}),)),
                Step(calls=(Call("write_file", {"path": "n.ipynb", "content": NOTEBOOK}),)),
                Step(calls=(Call("read_file", {"path": "n.ipynb"}),)),
                Step(calls=(Call("edit_file", {"path": "n.ipynb", "old": "1 + 1", "new": "2 + 2"}),)),
                Step(text="All done."),
            ),
            when="work",
        ),
        Turn((Step(text="They are large.", pages=(("Harbours", "https://a.example/"),)),), when="what harbours"),
    ),
    after=Step(text="Yes."),
)


def sent(body: dict[str, Any]) -> list[Any]:
    """A request in the order in which a prefix of it is cached, without the marks for that."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(each) for key, each in value.items() if key != "cache_control"}
        return [bare(each) for each in value] if isinstance(value, list) else value

    return [bare(body["tools"]), bare(body["system"]), *bare(body["messages"])]


async def test_each_request_begins_with_the_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    server_program = tmp_path / "bin/words-server"
    server_program.parent.mkdir()
    server_program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{words_server.__file__}"\n')
    server_program.chmod(0o755)
    monkeypatch.setenv("PATH", str(server_program.parent), prepend=os.pathsep)
    for module in (programs, servers):
        monkeypatch.setattr(module, "PROGRAMS", ((programs.Program((server_program.name,), ("python",)),),))
    settings: dict[str, GivenValue] = {
        "model.id": "claude-opus-5-5",
        "permissions.mode": "allow",
        "permissions.sandbox": "off",
        "diagnostics.wait_s": 60.0,
        "diagnostics.checks": ("*.py=grep -Hn missing {file}; false",),
        "limits.day_usd": 5.0,
    }
    server = serve(AnthropicServer(DAY))
    for _ in range(3):
        async with talking(tmp_path, settings) as earlier:
            await say(earlier, "A harbour is near. Keep it quick, please.")
    before = len(server.model_requests)
    async with talking(tmp_path, settings) as session:
        seen = await say(session, "work")
        finished = of(events.ToolFinished, seen)
        assert all(event.status == "ok" for event in finished)
        results = {event.name: event.text for event in reversed(finished)}
        assert "missing is not defined" in results["write_file"]
        assert "one.py:1: books = missing" in results["definition"]
        assert "https://a.example/" in results["web_search"]
        assert "A harbour is near" in results["recall"]
        await run_command(session.agent, "/memory 1 memory")
        assert not (await run_command(session.agent, "/memory take 1 memory")).failed
        await run_command(session.agent, "/diagnostics")
        await say(session, "go on")
        goal = await session.agent.own_commands.named("goal")
        assert goal is not None
        text = await session.agent.own_commands.expand(goal, "mend --until 'test -f one.py -a -f two' --max-turns 2")
        pursued = await say(session, text)
        assert len(of(events.GoalCheck, pursued)) == 2
        assert not (await run_command(session.agent, "/memory forget wishes")).failed
        await say(session, "read it")
        assert session.agent.context_stats().reasoning_dropped == 0
    bodies = [request.json or {} for request in server.model_requests[before:]]
    mine = [sent(body) for body in bodies if body.get("model") == "claude-opus-5-5"]
    assert len(mine) >= 14
    for first, then in pairwise(mine):
        assert then[: len(first)] == first
