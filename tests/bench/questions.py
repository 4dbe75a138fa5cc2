"""How many questions recorded commands raise: they run one after another, in the sandbox, in mode `auto`.

    python -m tests.bench.questions PROJECT RECORDING...

The commands of each recording (of any agent that `tui-agent replay` reads) run in a fresh copy of PROJECT, whose path
takes the place of the recorded one. Asked is what the permission gate and the network's proxy ask; it is allowed. A
command that failed because of the sandbox counts as one more: its model would ask to leave. Run this in a container or
in namespaces of its own: it runs what others recorded.
"""

import asyncio
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.sandbox import Historian
from tests.tools.support import Call
from tui_agent.conversation.blocks import ToolCall
from tui_agent.storage.kept_files import KeptFiles
from tui_agent.storage.recordings.reading import read_file
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tools.files.tree import TreeLimits
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox.domains import asking
from tui_agent.tools.sandbox.sandbox import Sandbox, SandboxFolders
from tui_agent.tools.shell.run_command import RunCommand

SHELLS = {"bash", "shell", "run_command", "exec_command", "run_shell_command", "local_shell"}
FOLDER = re.compile(rb'"(?:cwd|workdir)": ?"([^"]+)"')
TIMEOUT_S = 10


def commands(path: Path) -> Iterator[str]:
    """The command lines of a recording, with the most frequent folder in it as `{project}`."""
    found = Counter(FOLDER.findall(path.read_bytes())).most_common(1)
    folder = found[0][0].decode() if found else "{project}"
    for message in read_file(path).messages:
        for block in message.blocks:
            if isinstance(block, ToolCall) and block.name.lower() in SHELLS:
                given = json.loads(block.arguments or "{}").get("command", "")
                line = given if isinstance(given, str) else " ".join(given[2:] if given[1:2] == ["-lc"] else given)
                yield line.replace(folder, "{project}")


async def replay(lines: list[str], original: Path, folder: Path) -> tuple[Counter[str], int, list[str]]:
    """Run the lines; returns how many questions of each kind there were, how many programs were missing, and them."""
    project, state = folder / "project", folder / "state"
    shutil.copytree(original, project, symlinks=True)
    (state / "session").mkdir(parents=True)
    places = SandboxFolders(folders=(project,), project=project, program=state, session=state / "session")
    sandbox = Sandbox("auto", places)
    history = Historian(project, [state], KeptFiles(state / "kept", 10**9), TreeLimits(10_000, 5, 10**6))
    workspace = Workspace(project)
    gate = PermissionGate("auto", workspace, confinement=sandbox, history=history)
    tool = RunCommand(sandbox=sandbox, asking=lambda context, command: asking(gate, context, command))
    asked, missing, told = Counter[str](), 0, list[str]()

    async def allow(question: PermissionQuestion) -> PermissionAnswer:
        asked["network" if question.tool == "network" else "gate"] += 1
        told.append(f"{question.preview.title}: {question.reason} {question.preview.command[:100]}")
        return PermissionAnswer(True)

    for line in lines:
        arguments = json.dumps({"command": line.replace("{project}", str(project)), "timeout": TIMEOUT_S})
        verdict = await gate.check(tool, ToolCall("1", "run_command", arguments), allow)
        context = Call(workspace, verdict.accesses, state / "session")
        context.ask = allow  # type: ignore[method-assign]
        output = await tool.run(arguments, context)
        await history.changes()
        if note := re.search(r"\[the sandbox (?:may be|is) why[^\]]{,120}", output.text):
            asked["leaving"] += 1
            told.append(f"{line[:100]}: {note[0]}")
        missing += output.outcome.exit_code == 127
    history.close()
    sandbox.close()
    return asked, missing, told


def main() -> None:
    """Replay every recording, and print its questions and their number per 100 commands."""
    original, *paths = map(Path, sys.argv[1:])
    every, count = Counter[str](), 0
    for path in paths:
        lines = list(commands(path))
        with TemporaryDirectory(dir=original.parent) as folder:
            asked, missing, told = asyncio.run(replay(lines, original, Path(folder).resolve()))
        print(
            f"{path.name:<40} {len(lines):>4} commands, {missing} of missing programs: {dict(asked) or 'no question'}"
        )
        for each in told:
            print(f"    {each!r}")
        every, count = every + asked, count + len(lines)
    print(f"{count} commands: {sum(every.values())} questions, {100 * sum(every.values()) / max(count, 1):.1f} per 100")


if __name__ == "__main__":
    main()
