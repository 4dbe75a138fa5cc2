"""The states of the screen that are about the context: the panel, previews, and boundaries in the conversation."""

import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from time import time
from typing import Final

from msgspec import structs

from tests.gallery.conversations import MODEL, record_entries
from tests.gallery.stage import Stage
from tests.gallery.states import BOTH, state
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Step
from tui_agent.arguments import Arguments
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Cleared,
    Message,
    ModelSwitched,
    Pinned,
    Prefix,
    Summarized,
    Usage,
    Words,
    tool_result,
    user_message,
)
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.settings import ContextSettings, ModelSettings, Settings
from tui_agent.settings.schema import UiSettings
from tui_agent.tui.cards.blocks import BoundaryBlock
from tui_agent.tui.context.calls_screen import CallsScreen
from tui_agent.tui.context.draft_screen import COUNT_AFTER_S, DraftScreen, EditedText, WordsScreen
from tui_agent.tui.context.previews import PreviewScreen
from tui_agent.tui.dialogs.pickers import PickerScreen

LONG: Final = Settings(model=ModelSettings(id=MODEL), context=ContextSettings(context_window=128_000))
PLAIN: Final = Settings(
    model=ModelSettings(id=MODEL), context=ContextSettings(context_window=128_000), ui=UiSettings(glyphs="ascii")
)
AGE_S: Final = 5_430.0
THEN = datetime(2026, 11, 3, 14, 30, 30, tzinfo=UTC).timestamp()

FILES: Final = {
    "report.py": "from ledger import Entry, entries_of\n\ndef line(entry: Entry) -> str:\n"
    "    return f'{entry.day:%d %b} {round(entry.amount, 2):>12}'\n",
    "ledger.py": "from decimal import Decimal\nfrom pathlib import Path\n\ndef entries_of(path: Path):\n",
    "cli.py": "import argparse\nfrom report import page\n\ndef main() -> int:\n",
    "test_report.py": "from report import line\n\ndef test_a_cent_is_not_lost() -> None:\n"
    "    assert line(entry('1.005')).endswith('1.00')\n",
    "monthly.py": "from calendar import monthrange\nfrom report import page\n\ndef month(year: int, number: int):\n",
    "export.py": "import csv\nfrom ledger import Entry\n\ndef total(entries: list[Entry]) -> Decimal:\n"
    "    return round(sum(entry.amount for entry in entries), 2)\n",
    "accounts.csv": "day,account,amount\n2026-10-01,household,-48.205\n2026-10-02,savings,1.005\n",
    "rates.py": "from decimal import Decimal\n\nRATES = {'EUR': Decimal('1'), 'CHF': Decimal('0.9347')}\n",
    "README.md": "# ledger\n\nMonthly statements from `accounts.csv`, a page for each account.\n",
    "test_export.py": "from export import total\n\ndef test_the_total_is_that_of_the_rows() -> None:\n",
    "pages.py": "from string import Template\n\nPAGE = Template('$account, $month\\n$rows\\n$total')\n",
}
"""How each file begins."""
SIZES: Final = (8_820, 11_400, 3_900, 9_700, 6_200, 12_900)
"""Characters of the results, in turn."""
ASKED: Final = (
    "Where is the rounding done?",
    "And who calls it?",
    "Read the export too, it rounds as well.",
    "Which accounts are off by a cent?",
    "Move the rounding to one place.",
    "Now the tests, please.",
)
GOING_ON: Final = (
    "I begin where amounts are written out.",
    "It takes them from `ledger.py`; I read that one too.",
    "Nothing rounds there. Now what the command line calls.",
    "Now what the tests expect of it.",
    "The monthly run goes through pages.",
    "The export has a total of its own.",
    "Now the data both of them read.",
    "Rates may bring more digits in.",
    "What the README promises about cents.",
    "What the tests say of the total.",
    "How a page puts rows and total together.",
    "Back to the rows, now that the total is clear.",
    "Each account by itself, from the reader on.",
    "The command line chooses the account.",
    "The case of 1.005 is in the tests already.",
    "October is the month they differ in.",
    "The total goes first: it must add what is shown.",
    "A line of the data with three digits, to try it on.",
    "`rates.py` is where it belongs.",
    "The README names the old place.",
    "First the tests of the total.",
    "A page must show the same cents.",
    "Then the rows.",
    "And the reader once more, for its types.",
)
ANSWERS: Final = (
    "In `report.py`: each row is rounded by itself.",
    "The monthly run and the export, both.",
    "`export.py` rounds the total, after the rows were rounded.",
    "Household and savings, each in October.",
    "It is in `rates.py` now, as `rounded(amount)`.",
    "All fourteen pass, and one new case for half a cent.",
)
SUMMARY: Final = """[Previous conversation summary]

## Current state
The rounding is found: `report.py` rounds each row, `export.py` rounds the total.

## Exact next steps
Compare `accounts.csv` with both."""


WRITTEN: Final = """# Current state
`report.py` rounds each row and `export.py` rounds the total, so a statement can be off by a cent.

# Files & changes
Nothing is changed yet. The rounding is to move to `rates.py`, as `rounded(amount)`.

# Technical context
- `Decimal` everywhere; `ROUND_HALF_EVEN` is what the bank uses.
- `test_report.py` expects 1.00 for 1.005, which is right.

# Strategy & approach
One function, called last, once for each amount that is shown.

# Exact next steps
1. Write `rounded` in `rates.py`.
2. Call it in `report.py` and `export.py`, and take the two old ones out.
3. Compare `accounts.csv` with both."""


def long_log() -> list[AnyEntry]:
    """A conversation of six questions and twenty-four reads, with a summary, a clearing and a pin."""
    entries: list[AnyEntry] = [ModelSwitched(model=MODEL), Prefix(system="You are helpful. " * 300)]
    results: list[int] = []
    used = 4_000
    for turn, question in enumerate(ASKED):
        entries.append(user_message(question))
        for step in range(4):
            name = list(FILES)[(4 * turn + step) % len(FILES)]
            call = ToolCall(f"call_{turn}_{step}", "read_file", f'{{"path":"{name}"}}')
            used += 3_400
            entries.append(_answer(used, GOING_ON[4 * turn + step], call))
            entries.append(tool_result(ToolResult(call.id, _page(name, SIZES[(turn + step) % len(SIZES)]))))
            results.append(len(entries))
        entries.append(_answer(used + 200, ANSWERS[turn]))
        if turn == 1:
            last, before = len(entries), used
            used = 9_000
            entries.append(
                Summarized(
                    first=3, last=last, text=SUMMARY, focus="rounding", before=before, after=used, reason="it pays"
                )
            )
        if turn == 3:
            old = tuple(results[8:12])
            told = tuple(f"[cleared] read_file {number}: 8,820 characters." for number in old)
            entries.append(
                Cleared(results=old, texts=told, before=used, after=used - 13_000, reason="cache is cold: free")
            )
            used -= 13_000
    entries.append(Pinned(items=(results[14],), before=used, after=used, reason="by hand"))
    return entries


def _page(name: str, size: int) -> str:
    """A file as `read_file` shows it, so many characters of it."""
    row = "2026-10-{:02},household,-{}.95" if name.endswith(".csv") else "    # case {:02}: an amount below {} is a fee"
    rows = (row.format(number % 31 + 1, number) for number in range(size // 30))
    lines = (*FILES[name].split("\n")[:-1], *rows)
    return "".join(f"{number}\t{line}\n" for number, line in enumerate(lines, 1))[:size]


def _answer(used: int, text: str, *calls: ToolCall) -> Message:
    return Message(
        role="assistant",
        blocks=(Reasoning("Both places round; the order matters."), Text(text), *calls),
        model=MODEL,
        usage=Usage(used, cache_read_tokens=used - 3_400, output_tokens=60, reasoning_tokens=20),
        cost_usd=0.012,
        stop_reason="tool_use" if calls else "end_turn",
    )


async def _long(arguments: Arguments) -> Arguments:
    return await _recorded(arguments, long_log())


async def _recorded(arguments: Arguments, log: list[AnyEntry], age_s: float = AGE_S) -> Arguments:
    # A key that nobody is asked about: the model's prices come from the catalogue.
    os.environ |= {"ANTHROPIC_API_KEY": "no-key", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    session = await record_entries(arguments.home, arguments.folder, log, age_s=age_s)
    return arguments._replace(resume=session)


async def _panel(stage: Stage) -> None:
    await stage.open()
    await stage.pilot.press("f2")
    await stage.until(lambda: stage.app.steering.panel is not None and stage.app.steering.panel.overview is not None)
    await stage.pilot.press("tab")


@state(settings=LONG, arrange=_long, sizes=BOTH, light=True)
async def context_panel(stage: Stage) -> None:
    await _panel(stage)


@state(settings=LONG, arrange=_long, sizes=BOTH)
async def context_items(stage: Stage) -> None:
    await _panel(stage)
    await stage.pilot.press("i", "down", "down")


def words_log() -> list[AnyEntry]:
    """The same conversation, whose summary keeps what the user said; one of the messages is pinned."""
    entries = long_log()
    place = next(place for place, entry in enumerate(entries) if isinstance(entry, Summarized))
    summary = entries[place]
    assert isinstance(summary, Summarized)
    said = [
        (seq, entry)
        for seq, entry in enumerate(entries[:place], 1)
        if isinstance(entry, Message) and entry.role == "user" and not entry.kind
    ]
    texts = ("Where is the rounding done? Never round twice, and never in `accounts.csv`.", "And who calls it?")
    words = tuple(Words(seq, text) for (seq, _), text in zip(said, texts, strict=True))
    entries[place] = structs.replace(summary, words=words)
    return [*entries, Pinned(items=(words[1].seq,), before=41_000, after=41_010, reason="by hand")]


async def _with_words(arguments: Arguments) -> Arguments:
    return await _recorded(arguments, words_log())


async def _long_ago(arguments: Arguments) -> Arguments:
    # The picture shows the time of day, so it is always the same.
    return await _recorded(arguments, long_log(), time() - THEN)


@state(settings=LONG, arrange=_long_ago, sizes=BOTH)
async def calls(stage: Stage) -> None:
    await stage.open()
    await stage.send("/at 21")
    await stage.until(lambda: isinstance(screen := stage.app.screen, CallsScreen) and screen.seen is not None)


@state(settings=LONG, arrange=_with_words)
async def context_words(stage: Stage) -> None:
    await _panel(stage)
    await stage.pilot.press("w", "down")


@state(settings=LONG, arrange=_with_words)
async def context_words_edited(stage: Stage) -> None:
    await _panel(stage)
    await stage.pilot.press("w", "down", "e")
    await stage.until(lambda: isinstance(stage.app.screen, WordsScreen))


@state(settings=LONG, arrange=_long)
async def policy(stage: Stage) -> None:
    await stage.open()
    await stage.send("/policy")
    await stage.until(lambda: isinstance(stage.app.screen, PickerScreen))


@state(settings=PLAIN, arrange=_long)
async def context_ascii(stage: Stage) -> None:
    await _panel(stage)


@state(settings=LONG, arrange=_long)
async def context_original(stage: Stage) -> None:
    await _panel(stage)
    await stage.pilot.press("i", "down", "enter")


@state(settings=LONG, arrange=_long, sizes=BOTH, light=True)
async def preview_compact(stage: Stage) -> None:
    await _looked(stage, "/compact the rounding")


@state(settings=LONG, arrange=_long)
async def preview_draft(stage: Stage) -> None:
    await _drafted(stage)


@state(settings=LONG, arrange=_long)
async def preview_draft_edited(stage: Stage) -> None:
    await _drafted(stage)
    await stage.pilot.press("e")
    area = stage.app.screen.query_one(EditedText)
    area.replace("Round once, in `rates.py`.", (4, 0), (4, len(area.document.get_line(4))))
    await stage.pilot.pause(2 * COUNT_AFTER_S)


@state(settings=LONG, arrange=_long)
async def preview_clear(stage: Stage) -> None:
    await _looked(stage, "/clear-results ")


@state(settings=Settings(model=ModelSettings(id=MODEL)), arrange=_long)
async def preview_model(stage: Stage) -> None:
    await stage.open()
    other = CATALOGUE.create_model(
        next(profile.name for profile in CATALOGUE.known_models() if "haiku-4-5" in profile.name)
    )
    agent = await stage.app.agent()
    await _asked(stage, partial(stage.app.may_switch, agent, other))


@state(settings=LONG, arrange=_long, sizes=BOTH)
async def boundaries(stage: Stage) -> None:
    await stage.open()
    steps = [block for block in stage.app.pane.transcript if isinstance(block, BoundaryBlock)]
    stage.app.pane.focus()
    stage.app.pane.toggle_block(steps[0].index)
    stage.app.pane._move_cursor(steps[0].index)


async def _drafted(stage: Stage) -> None:
    """A summary that a scripted model has written."""
    with in_thread(AnthropicServer(lambda _: Step(text=WRITTEN))) as server:
        os.environ |= server.environment
        await _looked(stage, "/compact the rounding")
        await stage.pilot.press("enter")
        await stage.until(lambda: isinstance(stage.app.screen, DraftScreen))


async def _looked(stage: Stage, command: str) -> None:
    await stage.open()
    await stage.send(command)
    await stage.until(lambda: isinstance(stage.app.screen, PreviewScreen))


async def _asked(stage: Stage, ask: Callable[[], Awaitable[bool]]) -> None:
    stage.app.run_worker(ask(), name="ask")
    await stage.until(lambda: isinstance(stage.app.screen, PreviewScreen))
