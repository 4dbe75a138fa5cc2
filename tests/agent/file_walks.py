"""Random walks of changes to a project's files: by the file tools, by commands and by somebody else, with kills.

A walk is told by its seed alone. Besides the project and the log it leaves on disk what an onlooker knows: a picture of
the project before each message of the user, and which files somebody else has touched since.
"""

import asyncio
import json
import os
import pickle
import random
import shlex
import shutil
import stat
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from tests.agent.models import Scripted
from tests.forked import forking, start
from tui_agent.agent.agent import Agent, SessionParts
from tui_agent.agent.history.file_history import FileHistory, PutBackDone
from tui_agent.agent.persistence import Persistence
from tui_agent.conversation.blocks import Text, ToolCall
from tui_agent.conversation.entries import FilesChanged, FilesKept, Usage
from tui_agent.conversation.file_changes import kept_contents
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import Completed, StreamEvent
from tui_agent.storage.kept_files import KeptFiles
from tui_agent.storage.session_lock import SessionLock
from tui_agent.tools.base import Tool
from tui_agent.tools.files.editing import EditFile, WriteFile
from tui_agent.tools.files.put_back import FileStep, PutBack
from tui_agent.tools.files.tree import TreeLimits
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.shell.run_command import RunCommand

FILES: Final = ("a.txt", "b c.txt", "d/e.txt", "d/f/g.txt", "h/i.sh", "link", "-x", "ä.txt")
LIMITS: Final = TreeLimits(files=1_000, seconds=20.0, file_bytes=100_000)
MODES: Final = (0o644, 0o600, 0o755, 0o640)


class Found(NamedTuple):
    """A file or link as an onlooker sees it: permission bits (0 of a link), and content or target."""

    mode: int
    content: bytes


Picture = dict[str, Found | None]
"""Every file and link by its path, and every folder with None."""


def picture(project: Path) -> Picture:
    """The project as it is; of `.git` nothing."""
    found: Picture = {}
    for folder, folders, files in os.walk(project):
        if ".git" in folders:
            folders.remove(".git")
        for name in (*folders, *files):
            path = Path(folder) / name
            state = path.lstat()
            key = str(path.relative_to(project))
            if stat.S_ISLNK(state.st_mode):
                found[key] = Found(0, os.fsencode(os.readlink(path)))  # noqa: PTH115 - Path would change what it says
            elif stat.S_ISDIR(state.st_mode):
                found[key] = None
            else:
                found[key] = Found(stat.S_IMODE(state.st_mode), path.read_bytes())
    return found


class Onlooker:
    """What is known of a walk from outside, on disk at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def before_turn(self, turn: int, project: Path) -> None:
        self._folder.joinpath(f"picture-{turn}").write_bytes(pickle.dumps(picture(project)))

    def touches(self, path: str) -> None:
        """Somebody else is about to change a file."""
        turns = 1 + max((int(name.name.partition("-")[2]) for name in self._folder.glob("picture-*")), default=-1)
        with self._folder.joinpath("journal").open("a") as journal:
            journal.write(json.dumps([turns, path]) + "\n")

    def picture(self, turn: int) -> Picture:
        found: Picture = pickle.loads(self._folder.joinpath(f"picture-{turn}").read_bytes())  # noqa: S301
        return found

    def touched_since(self, turn: int) -> set[str]:
        """What somebody else has touched since the message of a turn, and all that lies below."""
        with suppress(FileNotFoundError):
            lines = self._folder.joinpath("journal").read_text().splitlines()
            return {path for when, path in map(json.loads, lines) if when > turn}
        return set()


def is_touched(path: str, touched: set[str]) -> bool:
    return any(path == each or path.startswith(f"{each}/") or each.startswith(f"{path}/") for each in touched)


class Walk:
    """One walk in `folder`, told by its seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.project = folder / "project"
        self.onlooker = Onlooker(folder / "onlooker")

    def begin(self) -> None:
        """The project as it is at first; every second one is a git repository."""
        chance = random.Random(self.seed)
        self.project.mkdir()
        self.project.joinpath(".gitignore").write_text("ignored/\n")
        for path in ("ignored/kept.txt", *chance.sample(FILES, 4)):
            self._write(path, chance)
        if self.seed % 2:
            self.project.joinpath("empty").mkdir()
        if self.seed % 2 and shutil.which("git"):
            who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
            for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "Begin")):
                subprocess.run(["git", *words], cwd=self.project, check=True, capture_output=True)

    async def turns(self, first: int, count: int) -> None:
        """Do turns, in this process."""
        async with self.agent() as agent:
            for turn in range(first, first + count):
                chance = random.Random(f"{self.seed} {turn}")
                if chance.random() < 0.4:
                    self._somebody_else(chance)
                if turn and chance.random() < 0.3:
                    await self._put_something_back(agent, chance)
                self.onlooker.before_turn(turn, self.project)
                async for _ in agent.run(f"turn {turn}"):
                    pass

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[Agent]:
        """The conversation as it lies on disk, to go on with."""
        session = self.folder / "session"
        persistence = await Persistence.on_disk(session)
        try:
            entries = persistence.view.log.entries()
            kept = KeptFiles(session, 10_000_000)
            kept.remove_unreferenced(kept_contents(entries))
            history = FileHistory(kept, [self.project], [], LIMITS)
            history.resume(list(entries.of(FilesKept, FilesChanged)))
            tools: list[Tool] = [WriteFile(), EditFile(), RunCommand()]
            async with Agent(
                Scripted(self._answer),
                tools=tools,
                persistence=persistence,
                permissions="allow",
                workspace=Workspace(self.project),
                session=SessionParts(files=history),
            ) as agent:
                yield agent
        finally:
            await persistence.close()

    async def _answer(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Some calls, one after another, then words; somebody else is at work in between, too."""
        said = [block.text for message in request.messages for block in message.blocks if isinstance(block, Text)]
        turn = next(text for text in reversed(said) if text.startswith("turn "))
        done = 0
        for message in reversed(request.messages):
            if any(isinstance(block, Text) and block.text == turn for block in message.blocks):
                break
            done += sum(isinstance(block, ToolCall) for block in message.blocks)
        chance = random.Random(f"{self.seed} {turn} {done}")
        if done and chance.random() < 0.15:
            self._somebody_else(chance)
        usage = Usage(100, output_tokens=10)
        if done < random.Random(f"{self.seed} {turn}").randint(1, 4):
            yield Completed((self._call(chance, f"{turn} {done}"),), usage, "tool_calls")
        else:
            yield Completed((Text("Done."),), usage, "end_turn")

    def _call(self, chance: random.Random, name: str) -> ToolCall:
        path = chance.choice(FILES)
        real = self.project / path
        match chance.choice(("write", "edit", "command", "command")):
            case "write":
                return _tool(name, "write_file", path=path, content=words(chance))
            case "edit" if real.is_file() and not real.is_symlink() and (text := real.read_text()):
                return _tool(name, "edit_file", path=path, old=text[: chance.randint(1, 9)], new=words(chance))
            case _:
                return _tool(name, "run_command", command=command(chance))

    def _somebody_else(self, chance: random.Random) -> None:
        path = chance.choice(FILES)
        real = self.project / path
        self.onlooker.touches(path)
        if real.is_dir() and not real.is_symlink():
            return
        match chance.choice(("write", "write", "remove", "mode", "link")):
            case "remove":
                real.unlink(missing_ok=True)
            case "mode" if real.is_file() and not real.is_symlink():
                real.chmod(chance.choice(MODES))
            case "link" if real.parent.is_dir():
                real.unlink(missing_ok=True)
                real.symlink_to(f"nowhere-{chance.randrange(10**9)}")
            case _:
                with suppress(NotADirectoryError, FileExistsError):
                    self._write(path, chance)

    def _write(self, path: str, chance: random.Random) -> None:
        real = self.project / path
        real.parent.mkdir(parents=True, exist_ok=True)
        real.unlink(missing_ok=True)
        real.write_text(words(chance))
        real.chmod(chance.choice(MODES))

    # Putting back

    async def _put_something_back(self, agent: Agent, chance: random.Random) -> None:
        match chance.choice(("newest", "redo", "rewind")):
            case "newest":
                planned = await agent.files.newest()
            case "redo":
                planned = await agent.files.newest(redo=True)
            case _:
                prompts = agent.branches.prompts()
                planned = await agent.files.changes(chance.choice(prompts).seq) if prompts else None
        if planned is not None:
            await self.checked(agent, planned)

    async def checked(self, agent: Agent, planned: PutBack) -> PutBackDone:
        """Put files back as planned; what was promised is done, byte for byte, and nothing else has changed."""
        before = picture(self.project)
        done = await agent.files.put_back(planned)
        after = picture(self.project)
        assert done.failed == (), done.failed
        assert done.done == planned.ours
        put = {self._path(step) for step in done.done}
        for step in done.done:
            kept = None if step.then.kind == "absent" else agent_content(self.folder, step.then.sha256)
            found = after.get(self._path(step))
            assert (found.content if found else None) == kept, (step, found, kept)
            assert found is None or found.mode == step.then.mode, (step, found)
        for path in before.keys() | after.keys():
            if path in put:
                continue
            if before.get(path, 0) is None or after.get(path, 0) is None:
                assert path in before or any(name.startswith(f"{path}/") for name in put), f"{path} was made"
                assert path in after or any(name.startswith(f"{path}/") for name in put), f"{path} was removed"
            else:
                assert before.get(path) == after.get(path), f"{path} has changed"
        return done

    def _path(self, step: FileStep) -> str:
        return os.path.relpath(step.path, self.project)

    async def check_rewind(self, killed: bool) -> int:
        """Rewind the files to some message: what nobody else has touched since is as it was. How many were put back."""
        chance = random.Random(f"{self.seed} end")
        async with self.agent() as agent:
            prompts = [prompt for prompt in agent.branches.prompts() if not prompt.text.startswith("!")]
            if not prompts:
                return 0
            prompt = chance.choice(prompts)
            turn = int(prompt.text.removeprefix("turn "))
            planned = await agent.files.changes(prompt.seq)
            touched, then = self.onlooker.touched_since(turn), self.onlooker.picture(turn)
            now = picture(self.project)
            for step in planned.steps:
                assert step.others == "" or is_touched(self._path(step), touched) or killed, (step.others, step.name)
            done = await self.checked(agent, planned)
            if not planned.gaps:
                unsure = {self._path(step) for step in planned.theirs} | {name for name, _ in planned.impossible}
                after = picture(self.project)
                for path in now.keys() | then.keys():
                    states = (now.get(path, 0), then.get(path, 0))
                    # What ignore rules name is not looked at.
                    outside = None in states or path in unsure or is_touched(path, {*touched, "ignored"})
                    if not outside:
                        assert after.get(path) == then.get(path), path
            else:
                # A link alone in its folder comes into view with the first file there.
                assert killed or all("came into view" in gap for gap in planned.gaps), planned.gaps
            again = await agent.files.changes(prompt.seq)
            assert again.ours == ()
            return len(done.done)


def agent_content(folder: Path, digest: str) -> bytes:
    content = KeptFiles(folder / "session", 0).read(digest)
    assert content is not None
    return content


def words(chance: random.Random, count: int = 0) -> str:
    """A text unlike any other."""
    return "".join(f"{chance.randrange(10**9)}\n" for _ in range(count or chance.randint(1, 20)))


def command(chance: random.Random) -> str:
    """A command line that changes something, or nothing, or more than one thing."""
    one, other = (shlex.quote(f"./{path}") for path in chance.sample(FILES, 2))
    text = shlex.quote(words(chance))
    lines = (
        f"printf %s {text} > {one}",
        f"printf %s {text} >> {one}",
        f"rm -f {one}",
        f"mv {one} {other}",
        f"cp -p {one} {other}",
        f"chmod {chance.choice(MODES):o} {one}",
        "rm -rf d",
        f"mkdir -p d/f h new/deep && printf %s {text} | tee new/deep/{chance.randrange(3)} > d/f/g.txt",
        f"printf %s {text} > empty/made",
        f"ln -sfn {one} {other}",
        f"mkdir -p links/deep && ln -sfn {one} links/deep/{chance.randrange(3)}",
        "rm -rf links",
        f"printf %s {text} > \"$(printf 'odd\\377 name')\"",
        f"touch -r .gitignore {one}",
        f"printf %s {text} > ignored/kept.txt",
        "true",
        "git stash -q; git stash pop -q",
    )
    return "; ".join(chance.sample(lines, chance.randint(1, 3)))


def _tool(call: str, name: str, **arguments: object) -> ToolCall:
    return ToolCall(call.replace(" ", "-"), name, json.dumps(arguments))


# Processes


def go(walk: Walk, turns: int) -> int:
    """Do the walk in processes of which some are killed; how many files were put back at its end."""
    walk.begin()
    chance = random.Random(f"{walk.seed} kills")
    kills = walk.seed % 4 != 0
    turn = 0
    while turn < turns:
        count = chance.randint(1, turns - turn)
        wait = chance.uniform(0.0, 0.12 * count) if kills and chance.random() < 0.7 else None
        _in_process(walk, turn, count, wait)
        turn += count
    return asyncio.run(walk.check_rewind(kills))


def _in_process(walk: Walk, first: int, count: int, kill_after_s: float | None) -> None:
    context = forking("tests.agent.file_walks")
    ready, told = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(walk.folder, walk.seed, first, count, told))
    start(process)
    told.close()
    with suppress(EOFError):
        ready.recv()
    if kill_after_s is not None:
        process.join(kill_after_s)
        process.kill()
    process.join()
    ready.close()
    assert process.exitcode == 0 or kill_after_s is not None, f"seed {walk.seed}: exit {process.exitcode}"
    assert process.exitcode in (0, -9), f"seed {walk.seed}: exit {process.exitcode}"
    # A process that was just being forked has the session's lock until it runs its command.
    _wait_for(lambda: not _commands_in(walk.project) and not SessionLock.is_held(walk.folder / "session"))


def _work(folder: Path, seed: int, first: int, count: int, told: Connection) -> None:
    told.send("ready")
    asyncio.run(Walk(folder, seed).turns(first, count))


def _commands_in(project: Path) -> list[int]:
    """The processes that work in the project: of a killed one they end a moment later."""
    found: list[int] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if Path(process.cwd()).is_relative_to(project):
                found.append(process.pid)
    return found


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
