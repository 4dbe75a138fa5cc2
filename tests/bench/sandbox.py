"""What the sandbox adds to a command: the same call of `run_command` with and without it, in turns."""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.report import Figure
from tests.tools.support import Call
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox import kernel
from tui_agent.tools.sandbox.launching import AVAILABLE
from tui_agent.tools.sandbox.sandbox import Kind, Mechanism, Places, Sandbox, mechanism
from tui_agent.tools.shell.run_command import RunCommand

RUNS = 60
CHMODS = (
    'import os, time; open("x", "w"); began = time.perf_counter(); '
    '[os.chmod("x", 384) for _ in range(1000)]; print(time.perf_counter() - began)'
)
"""Prints how many milliseconds one call takes."""


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
        return asyncio.run(_measure(project, state, kinds))


async def _measure(project: Path, state: Path, kinds: list[Kind]) -> list[Figure]:
    places = Places(folders=(project,), project=project, program=state, session=state / "session")
    sandboxes = {kind: Sandbox("auto", places, offered=Mechanism(kind, "")) for kind in kinds}
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
