"""Files as tools found them are kept before a change, compared around a command, and put back."""

import asyncio
import json
import os
import random
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from tests.agent.models import Scripted, answers
from tests.agent.talking import of, say, talking
from tests.storage.files import names
from tests.tools.world import tree
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.commands.command import CommandReply
from tui_agent.agent.commands.table import run_command
from tui_agent.agent.history.file_history import PutBackDone
from tui_agent.conversation.blocks import Text, ToolCall
from tui_agent.conversation.entries import AnyEntry, FileChange, FilesChanged, FilesKept, FileState, Message
from tui_agent.conversation.file_changes import RecentChanges, files_since
from tui_agent.conversation.log import Log
from tui_agent.session import Session
from tui_agent.storage.kept_files import KEPT_FOLDER, KeptFiles
from tui_agent.tools.files.put_back import PutBack
from tui_agent.tools.files.tree import Tree, TreeLimits

COMMITTED = ("-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "Begin")


def commit(project: Path) -> None:
    for words in (("init", "-q"), ("add", "-A"), COMMITTED):
        subprocess.run(["git", *words], cwd=project, check=True)


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(name, name, json.dumps(arguments))


def calling(*given: Sequence[ToolCall]) -> Scripted:
    """A model that makes these calls, one answer's after another's, and then says that it is done."""
    return Scripted(*(answers(*calls) for calls in given), answers(Text("Done.")))


class Reading(Log):
    """Counts its entries that are looked at."""

    looks = 0

    @override
    def __getitem__(self, seq: int) -> AnyEntry:
        self.looks += 1
        return super().__getitem__(seq)


def test_the_changes_since_the_users_newest_words_are_kept_up_without_reading_them_again() -> None:
    rolls = random.Random(5)
    for _ in range(60):
        log, words, begun, looks = Reading(), 0, 0, 0
        recent = RecentChanges(log)
        for _ in range(40):
            before, after = (FileState("file", sha256=each) for each in rolls.choices("abc", k=2))
            files = (FileChange(f"/p/{rolls.randrange(3)}", before, after),)
            if rolls.random() < 0.1:
                entry: AnyEntry = Message(role="user", blocks=(Text("More."),))
                words, begun = len(log) + 1, 0
            elif begun:
                entry, begun = FilesChanged(kept=begun, files=files), 0
            elif rolls.random() < 0.2:
                entry = Message(role="assistant", blocks=(Text("Well."),))
            else:
                entry, begun = FilesKept(call="c", files=files), len(log) + 1
            log.append(log.stamp(entry, 1.0))
            looked, found = log.looks, recent.files()
            looks += log.looks - looked
            if not begun:
                assert found == {file.path: file for file in files_since(log, words).files}
        assert 9 < looks <= len(log)


class Counting(KeptFiles):
    """Tells what was copied."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        super().__init__(folder, max_bytes)
        self.stashed: list[bytes] = []

    @override
    def stash(self, content: bytes, digest: str) -> str:
        self.stashed.append(content)
        return super().stash(content, digest)


async def plan_of(agent: Agent, turn: int = -1) -> PutBack:
    return await agent.files.changes(agent.branches.prompts()[turn].seq)


def standing(folder: Path) -> dict[str, tuple[int, str]]:
    """All below a folder, without its times."""
    return {path: (mode, content) for path, (mode, _, content) in tree(folder).items()}


async def commanded(session: Session, line: str) -> PutBack:
    """What putting back what a command has changed would do."""
    await say(session, f"run {line}")
    return await plan_of(session.agent)


async def redone(session: Session) -> PutBackDone:
    """What was put back last is as it was before that."""
    planned = await session.agent.files.newest(redo=True)
    assert planned is not None
    return await session.agent.files.put_back(planned)


def did(planned: PutBack) -> dict[str, str]:
    return {step.name: step.does for step in planned.ours}


async def test_what_a_command_does_is_put_back(session: Session, project: Path) -> None:
    before = (project / "calc.py").read_bytes()
    line = "rm calc.py; chmod 755 test_calc.py; mkdir -p a/b; echo new > a/b/new.txt; ln -s /etc a/link"
    planned = await commanded(session, line)
    assert did(planned) == {
        "a/b/new.txt": "remove",
        "a/link": "remove",
        "calc.py": "bring back",
        "test_calc.py": "mode",
    }
    assert "+def add(a: int, b: int) -> int:" in planned.diff
    assert "mode 755 to 644" in planned.diff
    done = await session.agent.files.put_back(planned)
    assert (len(done.done), done.failed) == (4, ())
    assert (project / "calc.py").read_bytes() == before
    assert stat.S_IMODE((project / "test_calc.py").stat().st_mode) == 0o644
    assert names(project) == ["calc.py", "test_calc.py"]
    assert not await plan_of(session.agent)
    # The model is told, and the user can have it otherwise again.
    assert "has put files back" in session.agent.engine.view.messages()[-1].blocks[0].text  # type: ignore[union-attr]
    await redone(session)
    assert (project / "a" / "b" / "new.txt").read_text() == "new\n"
    assert not (project / "calc.py").exists()


@pytest.mark.parametrize(
    "line",
    [
        "rm calc.py; mkdir calc.py; echo x > calc.py/in",
        "rm calc.py; mkdir -p calc.py/a/b; echo x > calc.py/a/b/c; echo y > calc.py/d",
        "rm -r sub; echo file > sub",
        "rm -r sub; ln -s calc.py sub; rm link; mkdir link; echo x > link/in",
    ],
)
async def test_a_file_and_a_folder_that_take_each_others_place_are_put_back(
    session: Session, project: Path, line: str
) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "one.txt").write_text("one\n")
    (project / "link").symlink_to("/etc")
    before = standing(project)
    planned = await commanded(session, line)
    then = standing(project)
    assert (planned.impossible, planned.gaps, planned.theirs) == ((), (), ())
    assert (await session.agent.files.put_back(planned)).failed == ()
    assert standing(project) == before
    assert (await redone(session)).failed == ()
    assert standing(project) == then


async def test_undo_edits_goes_back_turn_by_turn(session: Session, project: Path) -> None:
    agent = session.agent
    for number in range(3):
        await say(session, f"run echo {number} >> {number}.txt")
    await say(session, "read calc.py")
    for left in (["0.txt", "1.txt"], ["0.txt"], []):
        assert not (await run_command(agent, "/undo-edits")).failed
        assert names(project, "?.txt") == left
    assert (await run_command(agent, "/undo-edits")).failed
    for left in (["0.txt"], ["0.txt", "1.txt"], ["0.txt", "1.txt", "2.txt"]):
        assert not (await run_command(agent, "/undo-edits redo")).failed
        assert names(project, "?.txt") == left
    assert (await run_command(agent, "/undo-edits redo")).failed


async def test_what_somebody_else_has_changed_stays_unless_it_is_asked_for(session: Session, project: Path) -> None:
    await say(session, "run echo one > one.txt; echo two > two.txt; echo three > three.txt")
    (project / "one.txt").write_text("mine\n")
    (project / "two.txt").unlink()
    planned = await plan_of(session.agent)
    assert did(planned) == {"three.txt": "remove"}
    assert [(step.name, step.others) for step in planned.theirs] == [("one.txt", "changed since by somebody else")]
    await session.agent.files.put_back(planned)
    assert ((project / "one.txt").read_text(), (project / "three.txt").exists()) == ("mine\n", False)
    planned = await plan_of(session.agent)
    await session.agent.files.put_back(planned, overwrite=True)
    assert not (project / "one.txt").exists()
    # Even then nothing is lost.
    await redone(session)
    assert (project / "one.txt").read_text() == "mine\n"


async def test_what_somebody_else_did_between_two_calls_is_not_lost(session: Session, project: Path) -> None:
    await say(session, "run echo one > one.txt")
    (project / "one.txt").write_text("mine\n")
    await say(session, "run echo more >> one.txt")
    (step,) = (await plan_of(session.agent, 0)).theirs
    assert step.others == "changed by somebody else in between"
    await session.agent.files.put_back(await plan_of(session.agent))
    assert (project / "one.txt").read_text() == "mine\n"


async def test_a_session_that_goes_on_puts_back_what_it_did_before(tmp_path: Path, project: Path) -> None:
    async with talking(tmp_path) as session:
        await say(session, "run mkdir deep; echo x > deep/own.env; echo more >> calc.py")
    # Of the copies that were made only what was changed is left.
    assert len(list((session.folder / KEPT_FOLDER).glob("*/*"))) == 1
    (project / ".gitignore").write_text("*.env\n")
    async with talking(tmp_path, resume=session.id) as session:
        planned = await plan_of(session.agent)
        assert did(planned) == {"calc.py": "restore", "deep/own.env": "remove"}
        # A file that was changed before is watched, even if it is ignored by now.
        assert did(await commanded(session, "rm deep/own.env")) == {"deep/own.env": "bring back"}
        await session.agent.files.put_back(planned)
    assert "more" not in (project / "calc.py").read_text()


async def test_what_fails_while_it_is_put_back_is_said_and_the_rest_is_done(tmp_path: Path) -> None:
    project = tmp_path / "project"
    async with talking(tmp_path, {"file_history.max_file_bytes": "1000"}) as session:
        for name in ("deep/a.txt", "gone.txt", "theirs.txt", "fine.txt", "one.txt"):
            (project / name).parent.mkdir(exist_ok=True)
            (project / name).write_text(f"{name}\n")
        await say(session, "run rm -r deep gone.txt fine.txt; echo more | tee -a theirs.txt one.txt")
        (project / "theirs.txt").write_text("x" * 2_000)
        planned = await plan_of(session.agent)
        then = {step.name: step.then.sha256 for step in planned.steps}
        (session.folder / KEPT_FOLDER / then["gone.txt"][:2] / then["gone.txt"][2:]).unlink()
        (project / "deep").write_text("in its way")
        (project / "one.txt").write_text("mine\n")
        done = await session.agent.files.put_back(planned, overwrite=True)
    assert [step.name for step in done.done] == ["fine.txt"]
    told = dict(done.failed)
    assert told["gone.txt"] == "its kept content is gone or damaged"
    assert "not a folder" in told["deep/a.txt"]
    assert "somebody else's changes would be lost; it is larger than 1,000 bytes" in told["theirs.txt"]
    assert (project / "theirs.txt").read_text() == "x" * 2_000
    assert told["one.txt"] == "changed by somebody else just now"
    assert (project / "one.txt").read_text() == "mine\n"


async def test_the_file_tools_keep_what_they_change_and_only_the_projects_own_is_put_back(tmp_path: Path) -> None:
    """Also what ignore rules name; what lies outside of the project, or is guarded, is left to the user."""
    project, outside = tmp_path / "project", tmp_path / "outside.txt"
    outside.write_text("as it was")
    async with talking(tmp_path, yolo=True, settings={"permissions.mode": "allow"}) as session:
        (project / ".gitignore").write_text("*.log\n")
        (project / "a.log").write_text("as it was\n")
        await session.agent.swap_model(
            calling(
                [call("write_file", path="a.log", content="new")],
                [call("write_file", path=str(outside), content="new")],
                [call("write_file", path=".envrc", content="new")],
                [call("write_file", path="AGENTS.md", content="new")],
                [call("write_file", path="deep/er/b.txt", content="new")],
                [call("edit_file", path="calc.py", old="a - b", new="a + b")],
                [call("edit_file", path="calc.py", old="a + b", new="a * b")],
                [call("run_command", command="echo more >> calc.py")],
            )
        )
        await say(session, "Go.")
        assert outside.read_text() == "new"
        planned = await plan_of(session.agent)
        assert did(planned) == {
            "AGENTS.md": "remove",
            "a.log": "restore",
            "calc.py": "restore",
            "deep/er/b.txt": "remove",
        }
        assert dict(planned.impossible) == {
            str(outside): "it lies outside the session's folders",
            ".envrc": "it is a guarded file: put it back yourself",
        }
        await session.agent.files.put_back(planned)
    assert (project / "a.log").read_text() == "as it was\n"
    assert outside.read_text() == (project / ".envrc").read_text() == "new"
    assert "a - b" in (project / "calc.py").read_text()
    assert not (project / "deep").exists()


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
async def test_what_git_holds_is_not_copied(session: Session, project: Path, tmp_path: Path) -> None:
    await asyncio.to_thread(commit, project)
    before = (project / "calc.py").read_bytes()
    (project / "own.txt").write_text("unknown to git\n")
    counting = Counting(tmp_path / "elsewhere", 1_000_000)
    await Tree(project, [], counting, TreeLimits(files=100, seconds=20.0, file_bytes=1_000)).look()
    assert counting.stashed == [b"unknown to git\n"]
    counting.close()
    planned = await commanded(session, "rm -f calc.py own.txt")
    assert did(planned) == {"calc.py": "bring back", "own.txt": "bring back"}
    # What is needed is kept here from now on, whatever becomes of the repository.
    await asyncio.to_thread(shutil.rmtree, project / ".git")
    await session.agent.files.put_back(planned)
    assert (project / "calc.py").read_bytes() == before
    assert (project / "own.txt").read_text() == "unknown to git\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
async def test_nothing_that_a_repository_names_is_run(session: Session, project: Path, tmp_path: Path) -> None:
    await asyncio.to_thread(commit, project)
    ran = tmp_path / "ran"
    script = project / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    script.chmod(0o755)
    (project / ".gitattributes").write_text("* filter=evil diff=evil\n")
    for key in ("core.fsmonitor", "filter.evil.smudge", "filter.evil.clean", "diff.evil.textconv", "core.pager"):
        set_key = ["git", "config", key, str(script)]
        await asyncio.to_thread(subprocess.run, set_key, cwd=project, check=True)
    planned = await commanded(session, "rm -f calc.py")
    assert did(planned) == {"calc.py": "bring back"}
    await session.agent.files.put_back(planned)
    assert not ran.exists()


async def test_what_cannot_be_put_back_is_said(tmp_path: Path) -> None:
    limits = {"file_history.max_file_bytes": "1000", "file_history.max_files": "20"}
    project = tmp_path / "project"
    async with talking(tmp_path, limits) as session:
        (project / "large.bin").write_bytes(bytes(5_000))
        told = await say(session, "run echo more >> large.bin")
        (notice,) = of(events.Notice, told)
        assert "large.bin cannot be put back: it is larger than 1,000 bytes." in notice.text
        planned = await plan_of(session.agent)
        assert (planned.steps, planned.impossible) == (
            (),
            (("large.bin", "not kept: it is larger than 1,000 bytes"),),
        )
        for number in range(20):
            (project / f"{number}.txt").write_text("x")
        told = await say(session, "run echo more >> calc.py")
        (notice,) = of(events.Notice, told)
        assert "more than 20 files" in notice.text
        assert (await plan_of(session.agent)).gaps == (notice.text,)
        # Said once, and a file tool keeps its files all the same.
        told = await say(session, "run echo more >> calc.py")
        assert not of(events.Notice, told)


async def test_a_file_seen_through_a_changed_ignore_rule_is_never_removed(session: Session, project: Path) -> None:
    (project / ".gitignore").write_text("*.env\n")
    (project / "deep").mkdir()
    (project / "deep/own.env").write_text("secret\n")
    planned = await commanded(session, "rm .gitignore; echo x > deep/new.env")
    assert did(planned) == {".gitignore": "bring back", "deep/new.env": "remove"}
    assert "came into view" in planned.gaps[0]
    await session.agent.files.put_back(planned)
    assert names(project / "deep", "*.env") == ["own.env"]


async def test_an_ignored_file_in_the_projects_own_folder_is_put_back(session: Session, project: Path) -> None:
    (project / ".gitignore").write_text("*.env\n*.log\n")
    (project / "own.env").write_text("secret\n")
    planned = await commanded(session, "rm own.env; echo x > made.log")
    assert did(planned) == {"made.log": "remove", "own.env": "bring back"}
    assert planned.gaps == ()
    await session.agent.files.put_back(planned)
    assert (project / "own.env").read_text() == "secret\n"
    assert not (project / "made.log").exists()


async def test_a_link_is_put_back_and_never_followed(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    (outside / "calc.py").write_text("not to be touched\n")
    async with talking(tmp_path) as session:
        (project / "link").symlink_to("calc.py")
        planned = await commanded(session, "ln -sfn /etc/passwd link; mkdir sub; echo x > sub/calc.py")
        await session.agent.files.put_back(planned)
        assert os.readlink(project / "link") == "calc.py"  # noqa: PTH115
        planned = await commanded(session, "mkdir sub; echo x > sub/calc.py")
        # Somebody puts a link to the outside in a folder's place.
        shutil.rmtree(project / "sub")
        (project / "sub").symlink_to(outside)
        planned = await plan_of(session.agent)
        await session.agent.files.put_back(planned, overwrite=True)
        assert (outside / "calc.py").read_text() == "not to be touched\n"


async def test_files_with_odd_names_are_put_back(tmp_path: Path) -> None:
    project, odd = tmp_path / "project", os.fsdecode(b"odd\xff\n")
    async with talking(tmp_path) as session:
        (project / odd).write_text("mine\n")
        planned = await commanded(
            session, 'printf new > "$(printf \'other\\377\')"; for each in odd*; do rm "$each"; done'
        )
        assert did(planned) == {"odd\\xff\\n": "bring back", "other\\xff": "remove"}
        newest = await session.agent.files.newest()
        assert newest == planned
        await session.agent.files.put_back(planned)
        assert names(project) == ["calc.py", odd, "test_calc.py"]
        assert (project / odd).read_text() == "mine\n"
    async with talking(tmp_path, resume=session.folder.name) as again:
        await redone(again)
        assert names(project) == ["calc.py", os.fsdecode(b"other\xff"), "test_calc.py"]


async def test_a_pipe_and_a_closed_file_are_put_back(session: Session, project: Path) -> None:
    before = standing(project)
    planned = await commanded(session, "rm calc.py; mkfifo calc.py; chmod 000 test_calc.py")
    assert len(planned.ours) == 2
    done = await session.agent.files.put_back(planned)
    assert (len(done.done), done.failed) == (2, ())
    assert standing(project) == before
    # What somebody else has put there stays.
    planned = await commanded(session, "rm calc.py")
    (project / "calc.py").mkdir()
    assert not (await plan_of(session.agent)).ours


async def test_a_link_in_a_folder_that_holds_nothing_else_is_put_back(session: Session, project: Path) -> None:
    for folder in ("links/deep", "node_modules/.bin"):
        (project / folder).mkdir(parents=True)
        (project / folder / "one").symlink_to("nowhere")
    (project / ".gitignore").write_text("node_modules\n")
    (project / "node_modules" / ".lock.json").write_text("")
    line = "ln -sfn other links/deep/one; ln -s new links/two; ln -sfn other node_modules/.bin/one"
    planned = await commanded(session, line)
    assert did(planned) == {"links/deep/one": "restore", "links/two": "remove"}
    await session.agent.files.put_back(planned)
    assert (os.readlink(project / "links/deep/one"), names(project / "links")) == ("nowhere", ["deep"])  # noqa: PTH115
    assert did(await commanded(session, "rm -r links")) == {"links/deep/one": "bring back"}


async def test_a_call_that_was_stopped_is_put_back_too(session: Session, project: Path) -> None:
    async for _ in session.agent.run("run echo half > half.txt; echo seen; sleep 30"):
        if (project / "half.txt").exists():
            session.agent.interrupt()
    kept = [entry for entry in session.agent.engine.view.log if isinstance(entry, FilesKept)]
    changed = [entry for entry in session.agent.engine.view.log if isinstance(entry, FilesChanged)]
    assert [entry.kept for entry in changed] == [entry.seq for entry in kept]
    assert did(await plan_of(session.agent)) == {"half.txt": "remove"}


async def reply(session: Session, text: str) -> CommandReply:
    return await run_command(session.agent, text)


async def test_the_commands_say_what_they_do(session: Session, project: Path) -> None:
    await say(session, "run echo one > one.txt; echo two > two.txt")
    (project / "two.txt").write_text("mine\n")
    seq = session.agent.branches.prompts()[0].seq
    shown = await reply(session, f"/rewind {seq} diff")
    assert shown.title == "1 file will be deleted, 1 changed by somebody else"
    assert "two.txt: changed since by somebody else" in shown.text
    assert "-one" in shown.text
    assert (await reply(session, f"/rewind {seq} nonsense")).failed
    assert (await reply(session, f"/rewind {seq + 1} files")).failed
    done = await reply(session, f"/rewind {seq} both")
    assert "1 file put back" in done.text
    assert names(project, "*.txt") == ["two.txt"]
    assert session.agent.branches.prompts() == ()
    await say(session, "run echo one > one.txt")
    seq = session.agent.branches.prompts()[0].seq
    done = await reply(session, f"/rewind {seq}")
    assert "The files stay as they are" in done.text
    assert names(project, "*.txt") == ["one.txt", "two.txt"]
    # What a branch that was left has changed can be put back all the same.
    assert (await reply(session, "/undo-edits diff")).title == "1 file will be deleted"
    assert not (await reply(session, "/undo-edits")).failed
    assert names(project, "*.txt") == ["two.txt"]


async def test_undo_takes_the_newest_turn_back(session: Session, project: Path) -> None:
    assert (await reply(session, "/undo")).title == "There is nothing to undo"
    await say(session, "run echo one > one.txt")
    await say(session, "run echo two > two.txt")
    assert (await reply(session, "/undo nonsense")).failed
    assert "two.txt: removed" in (await reply(session, "/undo diff")).text
    assert not (await reply(session, "/undo files")).failed
    assert (names(project, "*.txt"), len(session.agent.branches.prompts())) == (["one.txt"], 2)
    await reply(session, "/undo conversation")
    assert (names(project, "*.txt"), len(session.agent.branches.prompts())) == (["one.txt"], 1)
    await reply(session, "/undo")
    assert (names(project, "*.txt"), len(session.agent.branches.prompts())) == ([], 0)
    await say(session, "list .")
    assert (await reply(session, "/undo")).text == "list .", "of files nothing is said"
