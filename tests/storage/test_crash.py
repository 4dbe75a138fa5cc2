"""Real processes, killed at any moment: what they acknowledged is there."""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.storage.children import start_writer
from tests.storage.test_trace import all_events_of, told
from tui_agent.conversation.log import Log
from tui_agent.conversation.view import View
from tui_agent.storage.log import LogStore
from tui_agent.storage.verify import verify


def killed_after(folder: Path, lines: int, delay_s: float) -> list[str]:
    """The lines a writer printed until it was killed, `delay_s` after its `lines`-th."""
    child = start_writer(folder, "append")
    assert child.stdout is not None
    said = [child.stdout.readline() for _ in range(lines)]
    time.sleep(delay_s)
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read()
    child.wait()
    child.stdout.close()
    return [*said, *(line for line in rest.splitlines(keepends=True) if line.endswith("\n"))]


async def kill_and_check(folder: Path, rounds: int, chance: random.Random) -> None:
    for _ in range(rounds):
        said = killed_after(folder, chance.randint(1, 12), chance.random() * 0.03)
        acknowledged = int(said[-1].split()[-1])
        assert all("killed before it wrote them" in problem for problem in verify(folder).problems)
        store = await LogStore.open(folder)
        entries = await store.load()
        await store.close()
        assert told(folder) == all_events_of(entries)
        assert verify(folder).ok
        assert len(entries) >= acknowledged
        assert store.notices == []
        view = View()
        for entry in Log(entries):
            view.apply(entry)
        assert sum(len(message.blocks) for message in view.messages()) == len(entries)


async def test_nothing_acknowledged_is_lost_by_a_kill_nor_missing_in_the_trace(tmp_path: Path) -> None:
    await kill_and_check(tmp_path, 6, random.Random(1))


@pytest.mark.soak
async def test_nothing_acknowledged_is_lost_by_many_kills(tmp_path: Path) -> None:
    await kill_and_check(tmp_path, 200, random.Random())


def test_open_connections_do_not_keep_the_process_alive(tmp_path: Path) -> None:
    child = start_writer(tmp_path, "hold", errors=True)
    output, errors = child.communicate(timeout=60)
    assert output == "open\n"
    assert "Traceback" not in errors
    assert child.returncode == 0


async def test_a_full_disk_is_said_plainly_and_costs_nothing_acknowledged(tmp_path: Path) -> None:
    child = start_writer(tmp_path, "full")
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 0, output
    *acknowledged, outcome = output.splitlines()
    kind, message, hint, last = outcome.split("|")
    assert kind == "DiskFull"
    assert "no space left" in message
    assert hint
    assert last == acknowledged[-1]
    store = await LogStore.open(tmp_path)
    assert len(await store.load()) == int(last)
    assert store.notices == []
    await store.close()
