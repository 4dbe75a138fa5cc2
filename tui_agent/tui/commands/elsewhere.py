"""A session that is open elsewhere: looking in, answering its question, stopping its turn."""

import asyncio
from pathlib import Path

import msgspec

from tui_agent.agent.presence import LOOK_S, Instruction, statuses, tell
from tui_agent.conversation.entries import Prefix
from tui_agent.storage.errors import StorageError
from tui_agent.storage.sessions import SessionInfo
from tui_agent.text import one_line
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.host import Host

NEWEST = 40
"""Entries of a log, from its end, that a look shows."""


async def visit(host: Host, home: Path, info: SessionInfo) -> bool:
    """Let the user choose what to do with it. True: they are done with the list of sessions."""
    from tui_agent.tui.dialogs.pickers import Option
    from tui_agent.tui.dialogs.sessions_screen import state_text

    status = (await asyncio.to_thread(statuses, home)).get(info.id)
    if status is None:
        return False  # it was closed just now
    options = [Option("look", "Look in", "what was said last, as it grows")]
    if status.question is not None:
        options.insert(0, Option("answer", "Answer its question", one_line(status.question.asked, 200)))
    if status.turn:
        options.append(Option("stop", "Stop its turn", "everything is kept"))
    title = one_line(info.title, 60) or info.id
    where = "in the background" if status.background else "in another terminal"
    wanted = await host.pick(f"{title}: {state_text(status)}, {where}", options, "")
    if wanted == "look":
        await host.read(title, "", lambda: newest_text(home, info))
    elif wanted == "answer":
        host.run_worker(answer(host, home, info.id, title), name="answer")
    elif wanted == "stop":
        await _send(host, home, info.id, Instruction(status.turn), f"{title} was told to stop")
    return wanted is not None


async def answer(host: Host, home: Path, session: str, title: str) -> None:
    """Ask the user what a session asks, and pass the answer on; it is withdrawn once somebody else has answered."""
    status = (await asyncio.to_thread(statuses, home)).get(session)
    if status is None or status.question is None:
        host.say(Level.INFO, f"{title} asks nothing any more")
        return
    reason = f"The session “{title}” asks. {status.question.reason}".rstrip()
    question = msgspec.structs.replace(status.question, reason=reason, call_id="")
    asking = asyncio.ensure_future(host.permission.ask(question))
    try:
        while not (await asyncio.wait((asking,), timeout=LOOK_S))[0]:
            now = (await asyncio.to_thread(statuses, home)).get(session)
            if now is None or now.asked != status.asked:
                host.say(Level.INFO, f"{title} asks nothing any more")
                return
    finally:
        asking.cancel()
    await _send(host, home, session, Instruction(status.asked, asking.result()), f"{title} has your answer")


async def _send(host: Host, home: Path, session: str, message: Instruction, said: str) -> None:
    try:
        await asyncio.to_thread(tell, home, session, message)
    except OSError as error:
        host.say(Level.WARNING, "It could not be told", f"{error.filename}: {error.strerror}")
    else:
        host.say(Level.INFO, said)


def newest_text(home: Path, info: SessionInfo) -> str | None:
    """What was said last in a session; None once it is closed. Reads its log."""
    from tui_agent.reports.export import markdown
    from tui_agent.storage.log import log_file, read_newest

    if info.id not in statuses(home):
        return None
    try:
        entries = sorted(read_newest(log_file(info.folder), NEWEST), key=lambda entry: entry.seq)
    except StorageError as error:
        return error.message
    return "".join(markdown(info.id, [entry for entry in entries if not isinstance(entry, Prefix)]))
