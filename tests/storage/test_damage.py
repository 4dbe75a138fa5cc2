"""Any one row of a real session's log is damaged: nothing else is lost, and the session goes on with valid requests."""

import asyncio
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tests.conversation.logs import broken_rules
from tui_agent.agent import events
from tui_agent.conversation.entries import AnyEntry, HeadMoved, Lost
from tui_agent.storage.log import LOG_NAME, LogStore, read_entries
from tui_agent.storage.verify import verify

PROMPTS = ("read calc.py", "run seq 400; echo more >> calc.py", "find def in .", "read README.md")


async def _talk(folder: Path) -> tuple[Path, int]:
    async with talking(folder, {"output.max_lines": "20"}) as session:
        agent = session.agent
        for prompt in PROMPTS:
            await say(session, prompt)
        await agent.context.clear_results()
        await agent.branches.rewind(agent.branches.prompts()[2].seq)
        await say(session, "run echo otherwise")
        await agent.compact()
        await say(session, "read test_calc.py")
        return session.folder, len(agent.engine.view.log)


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The folder of a session with tools, a cleared result, a rewind and a summary, and the number of its entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
        return asyncio.run(_talk(tmp_path_factory.mktemp("talked")))


def damage(path: Path, seq: int, chance: random.Random) -> None:
    """Damage one row, as a disk or a hand would: another byte, nothing left of it, or the row is gone."""
    with closing(sqlite3.connect(path)) as connection:
        (body,) = connection.execute("SELECT body FROM entries WHERE seq = ?", (seq,)).fetchone()
        place = chance.randrange(len(body))
        flipped = body[:place] + bytes([body[place] ^ (1 << chance.randrange(8))]) + body[place + 1 :]
        new = chance.choice((flipped, b"", body[:place], None))
        if new is None:
            connection.execute("DELETE FROM entries WHERE seq = ?", (seq,))
        else:
            connection.execute("UPDATE entries SET body = ? WHERE seq = ?", (new, seq))
        connection.commit()


async def _damaged(talked: Path, folder: Path, seqs: list[int], chance: random.Random) -> None:
    """Damage these rows of a copy of the session, open it, and go on."""
    shutil.copytree(talked.parents[2], folder)
    session_folder = folder / talked.relative_to(talked.parents[2])
    whole: list[AnyEntry] = list(read_entries(session_folder / LOG_NAME))
    for seq in seqs:
        damage(session_folder / LOG_NAME, seq, chance)
    assert not verify(session_folder).ok
    async with talking(folder, resume=session_folder.name) as session:
        view = session.agent.engine.view
        for entry, was in zip(view.log, whole, strict=False):
            assert entry == was or (entry.seq in seqs and isinstance(entry, Lost | HeadMoved)), seqs
        assert any("damaged" in notice.text and "lost" in notice.text for notice in session.notices)
        assert broken_rules(view.messages()) == [], seqs
        assert list(session.agent.branches.history())
        session.agent.branches.all()
        for prompt in session.agent.branches.prompts():
            await session.agent.files.changes(prompt.seq)
        told = await say(session, "read calc.py")
        finished = told[-1]
        assert isinstance(finished, events.TurnFinished)
        assert finished.stop_reason == "end_turn", (seqs, told)
        assert broken_rules(view.messages()) == [], seqs
        assert view.unanswered() == ()
    store = await LogStore.open(session_folder)
    await store.load()
    assert store.notices == []
    await store.close()
    assert all("was lost" in problem for problem in verify(session_folder).problems), verify(session_folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("part", range(2))
async def test_nothing_else_is_lost(
    talked: tuple[Path, int], part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    folder, count = talked
    chance = random.Random(part)
    for number in range(5):
        seqs = chance.sample(range(1, count + 1), chance.choice((1, 1, 1, 3)))
        await _damaged(folder, tmp_path / str(number), seqs, chance)


@pytest.mark.soak
async def test_no_row_takes_another_with_it(
    talked: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    folder, count = talked
    for seq in range(1, count + 1):
        await _damaged(folder, tmp_path / str(seq), [seq], random.Random(seq))
