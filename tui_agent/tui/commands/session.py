"""Slash commands on a session as a whole: its settings, export, review, background commands and pins."""

import asyncio
import os
from pathlib import Path
from typing import Final

from tui_agent.text import expanded, one_line, short_path
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.host import Host

TAIL_LINES: Final = 200
"""Lines shown from the end of a background command's output."""
MAX_PICKED: Final = 300
"""The most messages and results offered for pinning; older ones can be pinned by number."""


async def write_instructions(host: Host, argument: str) -> None:
    """Have the model write the project's instruction file; an existing one is kept unless the user says otherwise."""
    from tui_agent.agent.commands.table import INSTRUCTIONS, init_message
    from tui_agent.tui.dialogs.pickers import Option

    name = next(iter(host.settings.context.instruction_files), INSTRUCTIONS)
    there = await asyncio.to_thread((host.arguments.project / name).exists)
    chosen: str | None = "anew"
    if await _only_demonstrates(host):
        return
    if there:
        options = [
            Option("mend", "Update it", "keep what is right, correct and complete the rest"),
            Option("anew", "Start over", "replace what it says now"),
        ]
        chosen = await host.pick(f"{name} exists already", options, "mend")
    if chosen is not None:
        host.ask_model(init_message(name, mend=chosen == "mend"), "/init")


async def review(host: Host, argument: str) -> None:
    """Have the model review the changes in the working tree."""
    from tui_agent.agent.commands.table import review_message

    if not await _only_demonstrates(host):
        host.ask_model(review_message(one_line(argument)), f"/review {argument}".rstrip())


async def _only_demonstrates(host: Host) -> bool:
    """Tell the user if the offline model is active: it would take single words of a long task for its commands."""
    from tui_agent.models.catalogue import OFFLINE

    if (await host.agent()).profile.provider != OFFLINE:
        return False
    host.say(Level.INFO, "This needs a real model", hint="/key enters a key, /model chooses a model")
    return True


async def copy_answer(host: Host, argument: str) -> None:
    """Copy the last answer, or with `code` the next piece of code in it."""
    if argument not in ("", "code"):
        host.say(Level.WARNING, "/copy takes nothing, or code")
    elif not host.pane.copy_answer(code=bool(argument)):
        host.say(Level.INFO, "The last answer has no code" if argument else "There is no answer yet")


async def export_session(host: Host, argument: str) -> None:
    """Write the whole conversation to a file: Markdown, HTML or JSON, by its suffix."""
    from tui_agent.reports.export import ENDINGS, export, file_name
    from tui_agent.tui.dialogs.pickers import Option

    agent = await host.agent()
    entries = tuple(agent.engine.view.log)
    if host.session_folder is None or not entries:
        host.say(Level.INFO, "There is nothing to export yet")
        return
    name = host.session_folder.name
    path = _place(host.arguments.folder, argument or f"{file_name(entries)}.md")
    if path.suffix.lower() in ENDINGS and await asyncio.to_thread(path.exists):
        options = [Option("no", "Leave it as it is"), Option("yes", "Replace it")]
        if await host.pick(f"{short_path(path)} exists already", options, "no") != "yes":
            return
    try:
        size = await asyncio.to_thread(export, path, name, entries)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason_text = f"{short_path(path)}: {reason}"
        host.say(Level.WARNING, "Nothing was exported", reason_text, "/export FILE.md, .html or .json")
        return
    host.say(Level.INFO, f"Exported to {short_path(path)}", f"{size:,} bytes")


def _place(folder: Path, named: str) -> Path:
    if named[:1] in ("'", '"') and named.endswith(named[0]):
        named = named[1:-1]
    return Path(os.path.normpath(folder / expanded(named)))


async def show_jobs(host: Host, argument: str) -> None:
    """List the background commands, and show the output of the chosen one or stop it."""
    from tui_agent.tui.dialogs.pickers import Option

    jobs = host.session.background.all() if host.session is not None else {}
    if not jobs:
        host.say(Level.INFO, "No commands run in the background", hint="ask the model to start one, such as a server")
        return
    options = [
        Option(str(process), one_line(job.line, 60), "running" if job.is_running else "ended")
        for process, job in jobs.items()
    ]
    chosen = await host.pick("Commands in the background", options, "")
    if chosen is None:
        return
    job = jobs[int(chosen)]
    wanted: str | None = "output"
    if job.is_running:
        wanted = await host.pick(
            one_line(job.line, 60),
            [Option("output", "Show its newest output"), Option("stop", "Stop it", "with everything it started")],
            "output",
        )
    if wanted == "output":
        grows = True

        def newest() -> str | None:
            nonlocal grows
            # Return the text once more after it ended, for its last output.
            before, grows = grows, job.is_running
            return (job.newest_output(TAIL_LINES) or "It has printed nothing yet.") if before else None

        title = job.line if job.is_running else job.description
        await host.read(title, "", newest)
    elif wanted == "stop":
        await job.stop()
        host.say(Level.INFO, f"Stopped: {one_line(job.line, 80)}")


async def read_recalled(host: Host, query: str) -> bool:
    """Show where something was said, and read the chosen place word for word; False if nothing was found."""
    from tui_agent.agent.commands.context import RECALL_HITS, everywhere_in, hit_title, hit_words, hits_title
    from tui_agent.tools.base import ToolFailure
    from tui_agent.tui.dialogs.pickers import Option

    agent = await host.agent()
    try:
        words, everywhere = everywhere_in(query)
        found = await agent.context.recall(words, RECALL_HITS, everywhere=everywhere)
    except ToolFailure:
        return False
    if not found.hits:
        return False
    options = [Option(str(place), hit_title(hit), hit_words(hit)) for place, hit in enumerate(found.hits)]
    chosen = await host.pick(f"{hits_title(found)}: choosing one opens it", options, "")
    if chosen is not None:
        hit = found.hits[int(chosen)]
        if hit.session:
            await host.read(f"From {one_line(hit.session)}, as it was", hit.excerpt, at=hit.offset)
        else:
            whole = await agent.context.original(hit.seq)
            begin = whole.find(hit.excerpt)
            text, at = (whole, begin + hit.offset) if begin >= 0 else (whole or hit.excerpt, None)
            await host.read(f"Message {hit.seq}, as it was", text, at=at)
    return True


async def pin_item(host: Host, argument: str) -> None:
    """Let the user pick a message or result to pin, or to unpin if it is pinned."""
    from tui_agent.agent.context import item_line
    from tui_agent.tui.dialogs.pickers import Option

    agent = await host.agent()
    items = {str(item.seq): item for item in reversed(agent.context.items())}
    if not items:
        host.say(Level.INFO, "There is nothing to pin yet")
        return
    scale = agent.context_stats().scale
    options = [
        Option(seq, f"{seq:>5}  {item_line(item, agent.context.excerpt(item.seq), scale)}")
        for seq, item in list(items.items())[:MAX_PICKED]
    ]
    chosen = await host.pick("Pin or unpin: number, kind, tokens, words", options, "", search=True)
    if chosen is not None:
        await host.run_command(f"/{'unpin' if items[chosen].pinned else 'pin'} {chosen}")
