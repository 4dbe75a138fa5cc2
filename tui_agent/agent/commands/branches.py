"""The commands on branches: rewind, undo, fork and tree. Modules that only a handler needs are imported inside it."""

from textwrap import shorten
from typing import TYPE_CHECKING, Final

from tui_agent.agent.commands.command import CommandReply, number_of, refused
from tui_agent.text import sentence

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent

REWOUND: Final = ("", "files", "both", "diff")
"""What may follow the number of /rewind: rewind the files, or both, or show the diff; empty: the conversation alone."""

UNDONE: Final = {"": "both", "both": "both", "files": "files", "conversation": "", "diff": "diff"}
"""What may follow /undo, with the corresponding word of `REWOUND`."""


async def rewind(agent: "Agent", argument: str) -> CommandReply:
    if not argument:
        from tui_agent.system.durable import in_thread

        said = await in_thread(agent.branches.prompts)
        lines = [f"{prompt.seq:>6}  {_words(prompt.text)}" for prompt in said]
        return CommandReply("Take back which message, with all that came after it? /rewind NUMBER", "\n".join(lines))
    number, _, what = argument.partition(" ")
    seq = number_of(number)
    if seq is None or what.strip() not in REWOUND:
        takes = (
            "/rewind takes the number of a message of yours, and then files, both or diff; without one it lists them"
        )
        return refused(takes)
    try:
        agent.branches.prompt(seq)
        return await _rewound(agent, seq, what.strip())
    except ValueError as error:
        return refused("Nothing was taken back", f"{sentence(str(error))} /rewind lists your messages.")


async def _rewound(agent: "Agent", seq: int, what: str) -> CommandReply:
    from tui_agent.agent.files import done_text, plan_text, plan_title, title_of_done

    planned = await agent.files.changes(seq)
    if what == "diff":
        return CommandReply(plan_title(planned), plan_text(planned))
    parts: list[str] = []
    if what == "files" or (what == "both" and planned):
        done = await agent.files.put_back(planned, tell=what == "files")
        parts = [title_of_done(done), done_text(planned, done)]
        if what == "files":
            return CommandReply(parts[0], parts[1], failed=not done.done)
    elif planned:
        parts = [f"{plan_title(planned)}. The files stay as they are: /rewind {seq} both puts them back as well."]
    text = await agent.branches.rewind(seq)
    shown = "\n\n".join(part for part in (text, *parts) if part)
    return CommandReply(f"Message {seq} and what followed is taken back; /tree leads back to it", shown)


async def undo(agent: "Agent", what: str) -> CommandReply:
    if what not in UNDONE:
        return refused(f"/undo takes nothing, or one of {', '.join(filter(None, UNDONE))}")
    newest = agent.branches.newest_prompt()
    if not newest:
        return refused("There is nothing to undo")
    return await _rewound(agent, newest, UNDONE[what])


async def undo_edits(agent: "Agent", argument: str) -> CommandReply:
    from tui_agent.agent.files import NOTHING, NOTHING_TO_REDO, done_text, plan_text, plan_title, title_of_done

    if argument not in {"", "diff", "redo"}:
        return refused("/undo-edits takes nothing, or diff, or redo")
    planned = await agent.files.newest(redo=argument == "redo")
    if planned is None or not planned:
        return refused(NOTHING_TO_REDO if argument == "redo" else NOTHING)
    if argument == "diff":
        return CommandReply(plan_title(planned), plan_text(planned))
    done = await agent.files.put_back(planned)
    return CommandReply(title_of_done(done), done_text(planned, done), failed=not done.done)


async def fork(agent: "Agent", number: str) -> CommandReply:
    seq = number_of(number) if number else None
    if number and seq is None:
        return refused("/fork takes the number of a message, or nothing for the newest")
    try:
        place = await agent.branches.fork(seq)
    except ValueError as error:
        return refused("No branch was begun", f"{sentence(str(error))} /items lists the messages.")
    return CommandReply(f"A branch begins after entry {place}; /tree leads back to the other one")


async def tree(agent: "Agent", number: str) -> CommandReply:
    if number:
        tip = number_of(number)
        try:
            await agent.branches.switch(tip or 0)
        except ValueError as error:
            why = f"{sentence(str(error))} /tree lists them."
            return refused("The conversation stays on its branch", why)
        return CommandReply(f"Back on the branch that ends at {tip}")
    from tui_agent.system.durable import in_thread

    branches = await in_thread(agent.branches.all)
    lines = [
        f"{'*' if branch.present else ' '}{branch.tip:>6}  {branch.messages:>5} message{'s' * (branch.messages != 1)}"
        f"{'' if branch.present else f' from {branch.fork}'}  {_words(branch.text)}".rstrip()
        for branch in branches
    ]
    title = f"{len(branches)} branches" if len(branches) != 1 else "One branch"
    return CommandReply(f"{title}; /tree NUMBER switches to one", "\n".join(lines))


def _words(text: str) -> str:
    return shorten(" ".join(text.split()), 60, placeholder=" …")
