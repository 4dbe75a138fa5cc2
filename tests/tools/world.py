"""A workspace with every kind of way out of it, and an outside that tells whether anyone was there."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st

from tests.tools.support import Call
from tui_agent.conversation.blocks import ToolCall
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion, Tool, ToolFailure, ToolOutput
from tui_agent.tools.gate.permissions import PermissionGate, Verdict
from tui_agent.tools.gate.workspace import Workspace

SECRET = "Qz7-secret-text"
HIDDEN = "Qz7-hidden-name"
NFC, NFD = "\u00e9.txt", "e\u0301.txt"
_NAMES = (
    *("a.txt", "src", "src/b.py", "src/deep", "src/deep/c.txt", "sub repo", NFC, NFD, "A.TXT", "SRC"),
    *("..", "../..", ".", "...", "\uff0e\uff0e", "\u2025", ".\u200b.", "\u202e..", "~", "$HOME", "-", "%2e%2e"),
    *("link-file", "link-dir", "chain", "chain-file", "up", "absolute", "dangling", "circle", "root", "hard"),
    *(".git", ".git/config", ".GIT", "AGENTS.md", "agents.MD", ".agents/config.json", "AGENTS.md\u200b", "CLAUDE.md."),
    *("secret.txt", "dir", "dir/inner.txt", "outside", "outside/secret.txt", "outside/new", "home", "new/file.txt"),
    *("proc/self/root", "etc/hostname", "*", "*.txt", ".*", "link-*", "?ink-dir/*", "[a-z]*", "**", "{a,b}"),
)
_INSIDE = ("a.txt", "src", "src/b.py", "src/deep/../b.py", "up/space/src", "./src/deep/", NFD, "sub repo", ".", "hard")


class World:
    """`root` is the workspace, `outside` a folder beside it with a home and secrets, `bin` a PATH of chosen programs.

    The program EVIL is on that PATH: it leaves a mark outside.
    """

    def __init__(self, base: Path, programs: tuple[str, ...] = ()) -> None:
        self.base = Path(os.path.realpath(base))
        self.root, self.outside, self.home = self.base / "space", self.base / "outside", self.base / "outside/home"
        self.bin, self.artifacts = self.base / "bin", self.base / "session"
        self._model = self.base / "model"
        for folder in (self.bin, self.artifacts):
            folder.mkdir()
        self._make_outside()
        for program in programs:
            (self.bin / program).symlink_to(shutil.which(program) or f"/missing/{program}")
        evil = self.bin / "EVIL"
        evil.write_text(f"#!/bin/sh\necho evil >> '{self.outside}/evil'\n")
        evil.chmod(0o755)
        self._make_model()
        self.restore()
        self.workspace = Workspace(self.root, read_roots=[self.artifacts])
        self.before = tree(self.outside)

    @property
    def paths(self) -> "st.SearchStrategy[str]":
        """Paths as a model may write them."""
        starts = st.sampled_from(
            [
                *("", "", "", "./", "/", "//", "~/", "~root/", "~+/", "~-/", "$HOME/", "../space/", "../", "file://"),
                *(f"{place}/" for place in (self.root, self.outside, self.home, "/proc/self/root" + str(self.outside))),
                *(
                    "/proc/self/cwd/",
                    "/dev/fd/",
                    "/dev/stdin",
                    str(self.root).upper() + "/",
                    f"{self.root}/../outside/",
                ),
            ]
        )
        ends = st.sampled_from(["", "", "", "/", "/.", "//", "/..", " ", ".", "\u200b"])
        middle = st.lists(st.sampled_from(_NAMES), min_size=0, max_size=3)
        wild = st.builds(lambda start, names, end: start + "/".join(names) + end, starts, middle, ends)
        return st.one_of(st.sampled_from(_INSIDE), wild, wild)

    def restore(self) -> None:
        """Make the workspace what it was at the beginning."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self._model, self.root, symlinks=True)
        (self.root / "hard").hardlink_to(self.outside / "hard.txt")

    def check(self, output: ToolOutput | None) -> None:
        """Fail where something outside was changed, or anything of it was told. All is as before then."""
        text = "" if output is None else output.text
        if tree(self.outside) != self.before:
            changed = {path for path, _ in tree(self.outside).items() ^ self.before.items()}
            shutil.rmtree(self.outside)
            self._make_outside()
            self.before = tree(self.outside)
            raise AssertionError(f"changed: {changed}")
        assert SECRET not in text
        assert HIDDEN not in text

    def _make_outside(self) -> None:
        for folder in (self.outside / "dir", self.home / ".ssh"):
            folder.mkdir(parents=True)
        for name in ("secret.txt", f"{HIDDEN}.txt", "dir/inner.txt", f"dir/{HIDDEN}.txt", "home/.ssh/id", "home/x.txt"):
            (self.outside / name).write_text(f"{SECRET} of {name}\nA line\n")
        (self.outside / "hard.txt").write_text("a file with a second name\n")

    def _make_model(self) -> None:
        root = self._model
        (root / "src/deep").mkdir(parents=True)
        (root / ".agents").mkdir()
        (root / "sub repo").mkdir()
        for name in ("a.txt", "src/b.py", "src/deep/c.txt", "AGENTS.md", ".agents/config.json", NFC):
            (root / name).write_text("A line\nanother\n")
        for name, target in {
            "link-file": "../outside/secret.txt",
            "link-dir": "../outside/dir",
            "chain": "src/one",
            "src/one": "../link-dir",
            "chain-file": "link-file",
            "up": "..",
            "src/deep/up": "../../..",
            "absolute": str(self.outside),
            "dangling": "../outside/new",
            "circle": "circle",
            "root": "../outside/..",
        }.items():
            (root / name).symlink_to(target)
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"]
        for command in (["init", "-q"], ["add", "a.txt", "src/b.py"], ["commit", "-q", "-m", "first"]):
            subprocess.run([*git, *command], cwd=root, check=True, capture_output=True)
        (root / "a.txt").write_text("A line\nchanged\n")


class Person:
    """Whoever is asked. They allow what lies below `within`; None: nothing."""

    def __init__(self, within: Path | None = None) -> None:
        self._within = within
        self.questions: list[PermissionQuestion] = []

    async def __call__(self, question: PermissionQuestion) -> PermissionAnswer:
        self.questions.append(question)
        targets = [Path(access.target) for access in question.accesses]
        within = self._within
        return PermissionAnswer(within is not None and all(target.is_relative_to(within) for target in targets))


async def attempt(
    world: World, gate: PermissionGate, tool: Tool, person: Person, arguments: Mapping[str, object]
) -> tuple[Verdict | None, ToolOutput | None]:
    """Do a call as a turn does; what failed says so in its output."""
    call = ToolCall("c1", tool.definition.name, json.dumps(arguments))
    verdict = None
    try:
        verdict = await gate.check(tool, call, person)
        if not verdict.allowed:
            return verdict, None
        return verdict, await tool.run(call.arguments, Call(world.workspace, verdict.accesses, world.artifacts))
    except ToolFailure as failure:
        return verdict, ToolOutput(str(failure), is_error=True)


def tree(folder: Path) -> dict[str, tuple[int, int, str]]:
    """All below a folder: mode, time of change and content (or where a link leads) of each."""
    found = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files, "."):
            path = Path(place, name)
            status = path.lstat()
            if path.is_symlink():
                content = os.readlink(path)  # noqa: PTH115 - as text
            else:
                content = path.read_text(errors="replace") if path.is_file() else ""
            found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found
