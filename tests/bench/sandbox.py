"""What the sandbox adds to a command: the same call of `run_command` with and without it, in turns.

And what gate, sandbox and file history add together in a project of 500 files: milliseconds by the clock, and of the
processor in this process alone. Other work on the machine adds to the first.
"""

import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.report import Figure
from tests.tools.support import Call
from tui_agent.conversation.blocks import ToolCall
from tui_agent.storage.kept_files import KeptFiles
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tools.files.tree import Tree, TreeLimits
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox import kernel
from tui_agent.tools.sandbox.launching import AVAILABLE
from tui_agent.tools.sandbox.sandbox import Kind, Sandbox, SandboxFolders, SandboxMechanism, mechanism
from tui_agent.tools.shell.run_command import RunCommand

RUNS = 60
CHMODS = (
    'import os, time; open("x", "w"); began = time.perf_counter(); '
    '[os.chmod("x", 384) for _ in range(1000)]; print(time.perf_counter() - began)'
)
"""Prints how many milliseconds one call takes."""
FILES = 500
TOGETHER_MS = 8
LINES = {"reads": "cat src/d1/f1.py", "changes a file": "echo x >> src/d2/f2.py", "makes one": "echo x > src/n$RANDOM"}


def figures() -> list[Figure]:
    """The whole of a call of ``true``, in milliseconds: its median outside, and what each kind of sandbox adds."""
    found = mechanism()
    kinds: list[Kind] = [] if found.kind == "none" else [found.kind]
    if AVAILABLE and kernel.landlock_version() and found.kind != "landlock":
        kinds.append("landlock")
    # Where thousands of files lie beside what is hidden, as in /tmp, Landlock alone has to name them one by one.
    with tempfile.TemporaryDirectory(dir="/var/tmp" if Path("/var/tmp").is_dir() else None) as place:
        project, state = Path(place).resolve() / "project", Path(place).resolve() / "state"
        (state / "session").mkdir(parents=True)
        project.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=project, check=True)
        found_alone = asyncio.run(_measure(project, state, kinds))
        for number in range(FILES):
            file = project / "src" / f"d{number % 25}" / f"f{number}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"x = {number}\n" * 40)
        for line in ("git add .", "git -c user.name=x -c user.email=x@x commit -qm x"):
            subprocess.run(line.split(), cwd=project, check=True)
        shutil.copytree(project, state / "same")
        return found_alone + [figure for kind in kinds for figure in asyncio.run(_together(project, state, kind))]


class Historian(Tree):
    """File history as the gate and a command's call use it."""

    def earlier(self, path: Path) -> bytes | None:
        return None


async def _together(project: Path, state: Path, kind: Kind) -> list[Figure]:
    async def never(question: PermissionQuestion) -> PermissionAnswer:
        raise AssertionError(question.reason)

    places = SandboxFolders(folders=(project,), project=project, program=state, session=state / "session")
    sandbox = Sandbox("auto", places, offered=SandboxMechanism(kind, ""))
    history = Historian(project, [state], KeptFiles(state / "kept", 10**9), TreeLimits(10_000, 5, 10**6))
    workspace, beside = Workspace(project), Workspace(state / "same")
    gate = PermissionGate("auto", workspace, confinement=sandbox, history=history)
    confined, plain = RunCommand(sandbox=sandbox), RunCommand()
    added: dict[str, list[tuple[float, float]]] = {name: [] for name in LINES}
    for number in range(RUNS + 3):
        for name, line in LINES.items():
            arguments = json.dumps({"command": line})
            before = time.perf_counter(), time.process_time()
            await plain.run(arguments, Call(beside, (), state / "session"))
            between = time.perf_counter(), time.process_time()
            verdict = await gate.check(confined, ToolCall("1", "run_command", arguments), never)
            await history.look()
            output = await confined.run(arguments, Call(workspace, verdict.accesses, state / "session"))
            await history.changes()
            after = time.perf_counter(), time.process_time()
            assert not output.is_error, output.text
            if number >= 3:
                wall, cpu = ((c - b) - (b - a) for a, b, c in zip(before, between, after, strict=True))
                added[name].append((1000 * wall, 1000 * cpu))
    history.close()
    sandbox.close()
    figures = []
    for name, found in added.items():
        wall, cpu = map(statistics.median, zip(*found, strict=True))
        figures.append(Figure(f"{kind}, gate, history: a command that {name}", wall, "ms", TOGETHER_MS))
        figures.append(Figure("  of that, this process's processor", cpu, "ms"))
    return figures


async def _measure(project: Path, state: Path, kinds: list[Kind]) -> list[Figure]:
    places = SandboxFolders(folders=(project,), project=project, program=state, session=state / "session")
    sandboxes = {kind: Sandbox("auto", places, offered=SandboxMechanism(kind, "")) for kind in kinds}
    tools = {"": RunCommand()} | {kind: RunCommand(sandbox=sandbox) for kind, sandbox in sandboxes.items()}
    taken: dict[str, list[float]] = {name: [] for name in tools}
    for number in range(RUNS + 3):
        for name, tool in tools.items():
            began = time.perf_counter()
            await tool.run(json.dumps({"command": "true"}), Call(Workspace(project), (), state / "session"))
            if number >= 3:  # the first calls start the launchers
                taken[name].append(1000 * (time.perf_counter() - began))
    context = Call(Workspace(project), (), state / "session")
    line = json.dumps({"command": f"{sys.executable} -c '{CHMODS}'"})
    chmods = {name: float((await tool.run(line, context)).text.split()[0]) for name, tool in tools.items()}
    for sandbox in sandboxes.values():
        sandbox.close()
    plain = statistics.median(taken[""])
    added = [
        Figure(
            f"added by {kind}", statistics.median(a - b for a, b in zip(taken[kind], taken[""], strict=True)), "ms", 15
        )
        for kind in kinds
    ]
    calls = [Figure(f"a chmod, {name or 'without a sandbox'}", each, "ms") for name, each in chmods.items()]
    return [Figure("run_command true, without a sandbox", plain, "ms"), *added, *calls]
