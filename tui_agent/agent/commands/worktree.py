"""``/worktree``: what the session's worktree would hand back, and handing it back."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from tui_agent.agent.commands.command import CommandReply, refused
from tui_agent.text import one_line, short_path

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent

STAT_LINES = 20
"""Changed files that a preview lists."""


async def worktree(agent: "Agent", argument: str) -> CommandReply:
    from tui_agent.worktrees import WorktreeError

    verb, _, file = argument.partition(" ")
    try:
        async with agent.turns.held():
            return await asyncio.to_thread(_handed_back, agent.folder, verb, file.strip())
    except WorktreeError as error:
        return refused("Nothing was handed back", f"{one_line(str(error), 2_000)}\nThe worktree is as it was.")
    except OSError as error:
        return refused("No patch was written", f"{error.filename}: {error.strerror}")


def _handed_back(folder: Path, verb: str, file: str) -> CommandReply:
    from tui_agent.worktrees import apply, handover_of, merge, patch_of, worktree_at

    made = worktree_at(folder)
    place, kept = short_path(made.repository), f"The worktree stays in {short_path(made.folder)}"
    if verb not in ("", "merge", "apply", "patch") or (file and verb != "patch"):
        opens = "`tui-agent --worktree NAME` opens another."
        return refused("/worktree takes nothing, or merge, or apply, or patch [FILE]", opens)
    found = handover_of(made)
    left = [f"Not handed over: changes inside the submodule {one_line(name)}." for name in found.left]
    if not found.stat:
        same = f"{short_path(made.folder)} {'otherwise ' if left else ''}is what {place} has."
        return CommandReply("Nothing is to be handed back", "\n".join((*left, same)))
    if verb == "merge":
        done = merge(made)
        kept_until = f"{kept} until the session ends, and longer if something changes again."
        return CommandReply(f"Merged into {one_line(done.target)} in {place}", f"{_stat(done.stat)}\n{kept_until}")
    if verb == "apply":
        apply(made)
        return CommandReply(f"Its changes are in {place}, not committed", f"{kept}.")
    if verb == "patch":
        path = folder / Path(file).expanduser() if file else made.folder.with_name(f"{made.folder.name}.patch")
        patch = patch_of(made).encode(errors="surrogateescape")
        with path.open("xb") as stream:
            stream.write(patch)
        return CommandReply(f"{len(patch):,} bytes in {short_path(path)}", f"`git apply` takes it. {kept}.")
    lines = [_stat(found.stat), *(one_line(obstacle, 2_000) for obstacle in found.obstacles)]
    lines += left
    lines += ["What is not committed would be committed first."] if found.uncommitted else []
    lines.append("It cannot be merged now." if found.obstacles else "/worktree merge merges it without conflict.")
    lines.append(
        f"/worktree apply changes the files in {place} without a commit, /worktree patch [FILE] writes a patch."
    )
    return CommandReply(f"{one_line(made.branch)} into {one_line(found.target)} in {place}", "\n".join(lines))


def _stat(stat: str) -> str:
    *files, total = (one_line(line, 100) for line in stat.splitlines())
    more = [f"… {len(files) - STAT_LINES} more"] if len(files) > STAT_LINES else []
    return "\n".join((*files[:STAT_LINES], *more, total))
