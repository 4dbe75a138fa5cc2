import asyncio
import fcntl
import json
import os
from pathlib import Path

import pytest

from tests.tools.support import call
from tests.tools.world import Person
from tui_agent.conversation.blocks import ToolCall
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.permissions import Mode, PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.notes.memory import MAX_DESCRIPTION, MAX_TEXT, Memory, Notes, memory_folder


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(memory_folder(tmp_path / "home", tmp_path / "project"))


async def write(notes: Notes, where: Path, name: str, description: str = "about it", text: str = "text") -> str:
    output = await call(Memory(notes), where, action="write", name=name, description=description, text=text)
    return output.text


async def test_a_note_and_its_line_are_written_replaced_and_removed(tmp_path: Path, notes: Notes) -> None:
    assert (
        await write(notes, tmp_path, "one", "The first:\n thing", "Text.")
        == f"Wrote the note one: {notes.folder}/one.md"
    )
    await write(notes, tmp_path, "two", text="# Two")
    assert (notes.folder / "one.md").read_text() == '---\nname: "one"\ndescription: "The first: thing"\n---\n\nText.\n'
    assert notes.text() == "# Memory\n\n- [two](two.md): about it\n- [one](one.md): The first: thing\n"
    assert (await write(notes, tmp_path, "one", "Changed")).startswith("Replaced the note one")
    assert notes.text() == "# Memory\n\n- [two](two.md): about it\n- [one](one.md): Changed\n"
    await call(Memory(notes), tmp_path, action="remove", name="two")
    assert notes.text() == "# Memory\n\n- [one](one.md): Changed\n"
    assert sorted(path.name for path in notes.folder.iterdir()) == [".lock", "MEMORY.md", "one.md"]
    with pytest.raises(ToolFailure, match=r"no note called two\. There are: one\."):
        await call(Memory(notes), tmp_path, action="remove", name="two")


async def test_what_people_write_in_the_index_stays_and_what_they_do_is_followed(tmp_path: Path, notes: Notes) -> None:
    for name in ("a", "b", "c"):
        await write(notes, tmp_path, name)
    (notes.folder / "b.md").unlink()
    (notes.folder / "mine.md").write_text("First line of mine\nmore")
    (notes.folder / "titled.md").write_text("---\ndescription: >\n  By\n  hand\n---\nx")
    notes.index.write_text(
        "# Ours\nKeep this.\n\n* [A note](./a.md) – reworded\n- [b](b.md): gone\n- [c](c.md)\n- [c](c.md): twice\n"
        "\nEnd\n"
    )
    await write(notes, tmp_path, "new", "n")
    assert notes.text() == (
        "# Ours\nKeep this.\n\n- [new](new.md): n\n- [mine](mine.md): First line of mine\n"
        "- [titled](titled.md): By hand\n* [A note](./a.md) – reworded\n- [c](c.md)\n\nEnd\n"
    )
    notes.index.unlink()
    assert [(note.name, note.description) for note in notes.listed()] == [
        ("a", "about it"),
        ("c", "about it"),
        ("mine", "First line of mine"),
        ("new", "n"),
        ("titled", "By hand"),
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Release Steps", "such as release-steps"),
        ("../../etc/passwd", "such as etc-passwd"),
        ("memory", "is no name"),
        ("MEMORY", "is no name"),
        ("", "An empty text"),
        ("a" * 61, "at most 60"),
        ("a\n", "is no name"),
        (".lock", "such as lock"),
    ],
)
async def test_only_plain_names_are_taken(tmp_path: Path, notes: Notes, name: str, words: str) -> None:
    with pytest.raises(ToolFailure, match=words):
        await write(notes, tmp_path, name)
    assert not notes.folder.exists()


async def test_what_is_too_long_or_empty_is_refused(tmp_path: Path, notes: Notes) -> None:
    for arguments in ({"description": " "}, {"text": "\n"}, {"text": "x" * (MAX_TEXT + 1)}):
        with pytest.raises(ToolFailure, match="Nothing was written"):
            await write(notes, tmp_path, "n", **arguments)
    await write(notes, tmp_path, "n", "d" * 1_000)
    assert notes.text() == f"# Memory\n\n- [n](n.md): {'d' * (MAX_DESCRIPTION - 1)}…\n"


async def test_a_link_in_place_of_a_note_is_not_followed(tmp_path: Path, notes: Notes) -> None:
    await write(notes, tmp_path, "n")
    victim = tmp_path / "victim"
    victim.write_text("kept")
    for file in (notes.folder / "n.md", notes.index):
        file.unlink()
        file.symlink_to(victim)
        with pytest.raises(ToolFailure, match="link"):
            await write(notes, tmp_path, "n")
        file.unlink()
    assert victim.read_text() == "kept"


async def test_sessions_that_write_at_once_lose_nothing(tmp_path: Path, notes: Notes) -> None:
    others = [Notes(notes.folder) for _ in range(6)]
    await asyncio.gather(*(write(other, tmp_path, f"n{n}-{k}") for n, other in enumerate(others) for k in range(4)))
    assert len(notes.listed()) == 24
    assert not any(note.missing for note in notes.listed())
    assert notes.text().count("\n- [") == 24


async def test_a_lock_that_is_kept_can_be_waited_for_and_cancelled(tmp_path: Path, notes: Notes) -> None:
    await write(notes, tmp_path, "first")
    lock = os.open(notes.folder / ".lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    waiting = asyncio.create_task(write(notes, tmp_path, "second"))
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    os.close(lock)
    assert [note.name for note in notes.listed()] == ["first"]
    await write(notes, tmp_path, "third")


@pytest.mark.parametrize(
    ("mode", "trusted", "asked", "allowed"),
    [("auto", True, 0, True), ("ask", True, 1, True), ("plan", True, 0, False), ("auto", False, 1, True)],
)
async def test_the_gate_treats_a_note_as_a_change_of_a_file_and_asks_where_nobody_trusts_the_folder(
    tmp_path: Path, notes: Notes, mode: Mode, trusted: bool, asked: int, allowed: bool
) -> None:
    person = Person(tmp_path)
    tool = Memory(notes, trusted=trusted)
    arguments = {"action": "write", "name": "one", "description": "d", "text": "whole text"}
    workspace = Workspace(tmp_path / "project", read_roots=(tmp_path / "session", notes.folder))
    verdict = await PermissionGate(mode, workspace).check(tool, ToolCall("1", "memory", json.dumps(arguments)), person)
    assert (verdict.allowed, len(person.questions)) == (allowed, asked)
    assert all("whole text" in question.preview.text for question in person.questions)
    await call(tool, tmp_path, **arguments)
    whence = "" if trusted else " [written in a folder that was not trusted]"
    assert notes.text() == f"# Memory\n\n- [one](one.md): d{whence}\n"
    assert ('origin: "written in a folder that was not trusted"' in notes.file("one").read_text()) == (not trusted)
    notes.index.unlink()
    assert [note.description for note in notes.listed()] == [f"d{whence}"]


def test_each_project_has_its_own_folder(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "My Project", tmp_path / "b" / "My Project"
    one.mkdir(parents=True)
    (tmp_path / "link").symlink_to(one)
    folder = memory_folder(tmp_path, one)
    assert folder == memory_folder(tmp_path, tmp_path / "link")
    assert folder != memory_folder(tmp_path, other)
    assert folder.parent == tmp_path / "memory"
    assert folder.name.startswith("my-project-")


async def test_an_index_of_ones_own_making_is_told_from_a_foreign_one(tmp_path: Path, notes: Notes) -> None:
    def own() -> bool:
        notes.look()
        return notes.is_own

    seen = [own()]
    await write(notes, tmp_path, "n")
    await write(notes, tmp_path, "m")
    seen.append(own())
    notes.index.write_text(notes.text() + "a person's line\n")
    await write(notes, tmp_path, "k")
    seen.append(own())
    await write(notes, tmp_path, "j")
    seen.append(own())
    assert seen == [False, True, False, True]


async def test_notes_are_private(tmp_path: Path, notes: Notes) -> None:
    notes.folder.parent.mkdir(parents=True, mode=0o755)
    longest = "a-b2" * 15
    await write(notes, tmp_path, longest)
    for path, mode in ((notes.folder.parent, 0o700), (notes.folder, 0o700), (notes.folder / f"{longest}.md", 0o600)):
        assert path.stat().st_mode & 0o777 == mode
    assert notes.index.stat().st_mode & 0o777 == 0o600


async def test_a_folder_of_notes_that_is_none_is_said(tmp_path: Path, notes: Notes) -> None:
    notes.folder.parent.mkdir(parents=True)
    notes.folder.write_text("a file where a folder should be")
    with pytest.raises(ToolFailure, match="cannot be read: Not a directory"):
        notes.listed()
    assert (
        Memory(notes).preview('{"action": "remove", "name": "one"}', Workspace(tmp_path)).title == "Remove the note one"
    )
