"""Killed at any instant, a session goes on: nothing acknowledged is missing, and the next request is valid."""

import asyncio
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import MODELS, Program, events_of
from tests.servers.coding_task import PROMPT, coding_task_script
from tests.servers.running import in_process
from tui_agent.conversation.entries import AnyEntry, Message
from tui_agent.storage import trace
from tui_agent.storage.log import LogStore
from tui_agent.storage.verify import verify

PROVIDERS = tuple(MODELS)


def _kill_once(seed: int, tmp_path: Path) -> None:
    provider = PROVIDERS[seed % 2]
    chance = random.Random(seed)
    with in_process(provider, tmp_path, coding_task_script(delay=0.004)) as server:
        program = Program.in_folder(tmp_path, server.environment)
        acknowledged = _run_and_kill(program, provider, chance)
        entries = asyncio.run(_entries(program))
        for event in acknowledged:
            _must_be_there(event, entries)
        answer = program.ask("-c", "-p", "Go on.", "--ask", "allow") if entries else {"exit": 0}
        assert answer["exit"] == 0, answer
        _record_must_tell_of(program, entries)
        assert server.violations == []


def _run_and_kill(program: Program, provider: str, chance: random.Random) -> list[dict[str, Any]]:
    """Kill the program after a random number of its output lines and a moment more; the events it had printed."""
    lines_to_see, moment = chance.randint(1, 90), chance.random() * 0.05
    process = program.start(
        *("-p", PROMPT, "--model", MODELS[provider], "--ask", "allow", "--output-format", "stream-json")
    )
    lines: list[str] = []
    assert process.stdout is not None
    timer: threading.Timer | None = None
    for line in process.stdout:
        lines.append(line)
        if len(lines) == lines_to_see:
            timer = threading.Timer(moment, os.killpg, (process.pid, signal.SIGKILL))
            timer.start()
    if timer is not None:
        timer.join()
    process.communicate()
    return events_of(lines)


async def _entries(program: Program) -> list[AnyEntry]:
    (folder,) = _sessions(program)
    store = await LogStore.open(folder)
    try:
        return list(await store.load())
    finally:
        await store.close()


def _must_be_there(event: dict[str, Any], entries: list[AnyEntry]) -> None:
    if event["type"] in ("user_message", "assistant_message", "tool_finished"):
        entry = entries[event["seq"] - 1]
        assert isinstance(entry, Message)
        assert event["text"] in "\n\n".join(getattr(block, "text", "") for block in entry.blocks)


def _record_must_tell_of(program: Program, entries: list[AnyEntry]) -> None:
    (folder,) = _sessions(program)
    recorded = [trace.TraceEvent(0, event.time, event.kind, event.body) for event in trace.read_events(folder)]
    for entry in entries:
        assert all(event in recorded for event in trace.events_of(entry)), entry
    report = verify(folder)
    assert report.ok, report


def _sessions(program: Program) -> list[Path]:
    return list((program.home / "sessions").iterdir())


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_session_goes_on(seed: int, tmp_path: Path) -> None:
    _kill_once(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 110))
def test_a_hundred_killed_sessions_go_on(seed: int, tmp_path: Path) -> None:
    _kill_once(seed, tmp_path)
