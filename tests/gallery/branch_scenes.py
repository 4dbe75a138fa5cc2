"""The states of the screen that are about branches, and about what was too large to send."""

from hashlib import sha256
from typing import Final

from tests.gallery.conversations import PROJECT, numbered, record_entries
from tests.gallery.stage import Stage
from tests.gallery.states import state
from tui_agent.arguments import Arguments
from tui_agent.context.layers.limits import Cut
from tui_agent.context.layers.shortening import TOO_LARGE
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    FileChange,
    FilesChanged,
    FilesKept,
    FileState,
    HeadMoved,
    Message,
    ModelSwitched,
    Prefix,
    Shortened,
    Usage,
    tool_result,
    user_message,
)
from tui_agent.storage.kept_files import KeptFiles
from tui_agent.storage.sessions import session_folder
from tui_agent.tools.files.states import look_at
from tui_agent.tui.cards.blocks import BoundaryBlock, UserBlock
from tui_agent.tui.dialogs.branch_pickers import PlacePicker
from tui_agent.tui.dialogs.files_screen import FilesScreen

MODEL: Final = "offline:offline"
AGE_S: Final = 3.5 * 3600
APART_S: Final = 270.0
ASKED: Final = (
    "Where is the mean worked out, and who calls it?",
    "What happens for an account without entries?",
    "Answer 0 for it, and say so in the README. Then run the tests, and show me what of the report has changed by it.",
    "Now the same for the yearly report.",
)
TAIL: Final = 9
"""Lines of a pasted log that are shown of it."""


def _turn(question: str, path: str) -> list[AnyEntry]:
    call = ToolCall(f"call {question}", "read_file", f'{{"path":"{path}"}}')
    used = Usage(2_100, output_tokens=40)
    return [
        user_message(question),
        Message(role="assistant", blocks=(Text("I look."), call), model=MODEL, usage=used, cost_usd=0.0),
        tool_result(ToolResult(call.id, numbered(PROJECT[path])), summary="lines 1-8 of 8"),
        Message(
            role="assistant",
            blocks=(Text(f"`{path}` says it: one place, and one caller."),),
            model=MODEL,
            usage=used,
            cost_usd=0.0,
            stop_reason="end_turn",
        ),
    ]


def _talk() -> list[AnyEntry]:
    entries: list[AnyEntry] = [ModelSwitched(model=MODEL), Prefix(system="You are helpful.")]
    for number, question in enumerate(ASKED):
        entries += _turn(question, "report.py" if number % 2 else "ledger.py")
    return entries


def _branched() -> list[AnyEntry]:
    """Three ways the conversation went: to its end, another way after two questions, and a third after one."""
    entries = _talk()
    entries += [HeadMoved(to=10, reason="rewind"), *_turn("Raise an error for it instead.", "ledger.py")]
    entries += [HeadMoved(to=6, reason="rewind"), *_turn("Move it to a module of its own.", "report.py")]
    return [*entries, HeadMoved(to=18, reason="switch")]


async def _talked(arguments: Arguments) -> Arguments:
    session = await record_entries(arguments.home, arguments.folder, _talk(), age_s=AGE_S, apart_s=APART_S)
    return arguments._replace(resume=session)


async def _with_branches(arguments: Arguments) -> Arguments:
    session = await record_entries(arguments.home, arguments.folder, _branched(), age_s=AGE_S, apart_s=APART_S)
    return arguments._replace(resume=session)


async def _picking(stage: Stage, command: str) -> None:
    await stage.open()
    stage.fill()
    await stage.send(command)
    await stage.until(lambda: isinstance(stage.app.screen, PlacePicker))


async def _moved(stage: Stage, *keys: str) -> None:
    before = stage.app.pane.transcript
    await stage.pilot.press(*keys)
    await stage.until(lambda: stage.app.pane.transcript is not before)
    await stage.idle()
    stage.fill()


@state(arrange=_talked)
async def rewind_picker(stage: Stage) -> None:
    await _picking(stage, "/rewind ")
    await stage.pilot.press("down")


@state(arrange=_talked)
async def rewind_key(stage: Stage) -> None:
    await stage.open()
    stage.fill()
    said = [block for block in stage.app.pane.transcript if isinstance(block, UserBlock)]
    stage.app.pane.focus()
    stage.app.pane._move_cursor(said[-2].index)


@state(arrange=_talked)
async def rewound(stage: Stage) -> None:
    await _picking(stage, "/rewind ")
    await _moved(stage, "down", "enter")


async def _changed_files(arguments: Arguments) -> Arguments:
    """A turn changed one file and made two, of which the user has changed one since."""
    ledger, made, own = (arguments.folder / name for name in ("ledger.py", "yearly.py", "notes.md"))
    before = ledger.read_bytes()
    ledger.write_bytes(before.replace(b"return", b"return 0.0 +", 1))
    made.write_text('"""The yearly report."""\n\nMONTHS = 12\n')
    own.write_text("Begun by the model.\n")
    then = FileState("file", ledger.stat().st_mode & 0o777, len(before), sha256(before).hexdigest())
    changes = (
        FileChange(str(ledger), then, look_at(ledger, 0).state),
        FileChange(str(made), FileState(), look_at(made, 0).state),
        FileChange(str(own), FileState(), look_at(own, 0).state),
    )
    own.write_text("Gone on with by hand.\n")
    entries = [*_talk(), FilesKept(call="c", tree=True), FilesChanged(kept=19, files=changes)]
    session = await record_entries(arguments.home, arguments.folder, entries, age_s=AGE_S, apart_s=APART_S)
    KeptFiles(session_folder(arguments.home, session), len(before)).keep(before)
    return arguments._replace(resume=session)


@state(arrange=_changed_files)
async def files_put_back(stage: Stage) -> None:
    await stage.open()
    stage.fill()
    await stage.send("/rewind 15")
    await stage.until(lambda: isinstance(stage.app.screen, FilesScreen))


@state(arrange=_with_branches)
async def tree_picker(stage: Stage) -> None:
    await _picking(stage, "/tree ")
    await stage.pilot.press("down")


@state(arrange=_with_branches)
async def branch_switched(stage: Stage) -> None:
    await _picking(stage, "/tree ")
    await _moved(stage, "down", "enter")


async def _too_large(arguments: Arguments) -> Arguments:
    lines = [f"12:0{number % 10}:14 statement {number:>5} written, 14 rows\n" for number in range(4_000)]
    pasted, first, last = "".join(lines), "".join(lines[:TAIL]), "".join(lines[-TAIL:])
    shown = Cut(pasted, first, last, ("half of the room for the conversation",)).text(
        "large_tool_results/message-3.txt"
    )
    entries: list[AnyEntry] = [
        ModelSwitched(model=MODEL),
        Prefix(system="You are helpful."),
        user_message(pasted),
        user_message("Which of these statements are off by a cent?"),
        Shortened(items=(3,), blocks=((Text(shown),),), reason=TOO_LARGE, before=59_300, after=2_900),
        Message(
            role="assistant",
            blocks=(Text("None of those I was shown; the whole list is kept, and I can read on in it."),),
            model=MODEL,
            usage=Usage(2_900, output_tokens=40),
            cost_usd=0.0,
            stop_reason="end_turn",
        ),
    ]
    session = await record_entries(arguments.home, arguments.folder, entries, age_s=AGE_S, apart_s=APART_S)
    return arguments._replace(resume=session)


@state(arrange=_too_large)
async def shortened(stage: Stage) -> None:
    await stage.open()
    stage.fill()


@state(arrange=_too_large)
async def shortened_open(stage: Stage) -> None:
    await shortened(stage)
    (step,) = (block for block in stage.app.pane.transcript if isinstance(block, BoundaryBlock))
    stage.app.pane.focus()
    stage.app.pane.toggle_block(step.index)
    stage.app.pane._move_cursor(step.index)


@state(arrange=_too_large)
async def shortened_item(stage: Stage) -> None:
    await stage.open()
    stage.fill()
    await stage.pilot.press("f2")
    await stage.until(lambda: stage.app.steering.panel is not None and stage.app.steering.panel.overview is not None)
    await stage.pilot.press("tab")
    await stage.pilot.press("i", "down", "down")
