"""What the pictures show: a small project, and turns as the agent tells of them."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from time import time
from typing import Final

from msgspec.json import encode

from tui_agent.agent import events
from tui_agent.agent.events import AgentEvent
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    NO_OUTCOME,
    AnyEntry,
    Hit,
    Message,
    ModelSwitched,
    Outcome,
    Prefix,
    Usage,
    tool_result,
    user_message,
)
from tui_agent.conversation.log import Log
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import create_session
from tui_agent.tools.diffs import unified

MODEL: Final = "anthropic:claude-sonnet-5-5"
WINDOW: Final = 1_000_000

LEDGER: Final = '''"""Accounts and what is in them."""

from decimal import Decimal


def average(amounts: list[Decimal]) -> Decimal:
    """The mean of all amounts."""
    return sum(amounts) / len(amounts)
'''
MENDED: Final = LEDGER.replace("/ len(amounts)", "/ len(amounts) if amounts else Decimal(0)")

REPORT: Final = '''"""The monthly report."""

from ledger import average


def row(name, amounts):
    return f"{name:<12}{average(amounts):>10.2f}"
'''

PROJECT: Final = {
    "ledger.py": LEDGER,
    "report.py": REPORT,
    "test_report.py": 'from report import row\n\n\ndef test_row():\n    assert row("rent", []).endswith("0.00")\n',
    "README.md": "# Ledger\n\nA small ledger with a monthly report.\n",
}

PROMPT: Final = "The report crashes for an account without entries. Find out why, fix it and run the tests."

ANSWER: Final = """An account without entries made `average` **divide by zero**. It answers 0 now:

```python
def average(amounts: list[Decimal]) -> Decimal:
    return sum(amounts) / len(amounts) if amounts else Decimal(0)
```

- `report.py` is its only caller; such an account is shown with `0.00`
- all **14 tests** pass
"""


def make_project(folder: Path) -> Path:
    """The project the pictures are taken in."""
    folder.mkdir()
    for name, text in PROJECT.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


class Script:
    """Writes the events of turns, with numbers and ids that follow each other."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = [events.ModelChanged(model=MODEL, window=WINDOW, tier="mid")]
        self._numbers = count(1)

    def ask(self, text: str) -> "Script":
        """The user says something."""
        self.events.append(events.UserMessage(seq=next(self._numbers), text=text))
        return self

    def think(self, text: str) -> "Script":
        """The model reasons."""
        self.events.append(events.ReasoningDelta(text=text))
        return self

    def say(self, text: str) -> "Script":
        """The model streams text."""
        self.events.append(events.TextDelta(text=text))
        return self

    def message(self, text: str = "", *, reasoning_tokens: int = 0) -> "Script":
        """The model's message is whole."""
        self.events.append(
            events.AssistantMessage(
                seq=next(self._numbers),
                model=MODEL,
                text=text,
                reasoning="",
                usage=Usage(reasoning_tokens=reasoning_tokens),
                cost_usd=0.0,
                stop_reason="end_turn",
                duration_ms=0,
            )
        )
        return self

    def call(self, name: str, **arguments: object) -> str:
        """The model calls a tool; the call's id."""
        call_id = f"call_{next(self._numbers)}"
        self.events.append(events.ToolStarted(call_id=call_id, name=name, arguments=encode(arguments).decode()))
        return call_id

    def result(
        self,
        call_id: str,
        text: str,
        *,
        summary: str,
        tokens: int = 0,
        ms: int = 0,
        diff: str = "",
        notes: int = 0,
        outcome: Outcome = NO_OUTCOME,
    ) -> "Script":
        """A call has its result."""
        self.events.append(
            events.ToolFinished(
                call_id=call_id,
                name="",
                status="ok",
                text=text,
                size=len(text),
                tokens=tokens or len(text) // 4,
                duration_ms=ms,
                summary=summary,
                diff=diff,
                outcome=outcome.with_notes(notes),
            )
        )
        return self

    def fill(self, tokens: int, cost_usd: float, window: int = WINDOW) -> "Script":
        """The window is so full, and the session has cost so much."""
        self.events.append(
            events.ContextChanged(
                tokens=tokens, window=window, measured=True, cost_usd=cost_usd, turn_cost_usd=cost_usd
            )
        )
        return self


FOUND: Final = Outcome(
    hits=(Hit("ledger.py", 6, LEDGER.splitlines()[5]), Hit("report.py", 7, REPORT.splitlines()[6])), hit_count=2
)


def numbered(text: str) -> str:
    """A file as `read_file` gives it."""
    lines = text.rstrip("\n").split("\n")
    pages = [f"{number}\t{line}" for number, line in enumerate(lines, 1)]
    return "\n".join([*pages, f"[Lines 1-{len(lines)} of {len(lines)}. This is the end of the file.]"])


def reading() -> Script:
    """The beginning of the coding turn: it thinks, and reads."""
    script = Script().ask(PROMPT)
    script.think("The report prints one row for each account. A row needs an average, which cannot exist for no ")
    script.think("amounts at all, so I expect a division by zero. I read the module and look for its callers.")
    script.say("I read the module and look for its callers.").message(reasoning_tokens=74)
    read = script.call("read_file", path="ledger.py")
    grep = script.call("grep", pattern="average(", path=".")
    script.result(read, numbered(LEDGER), summary="lines 1-8 of 8", tokens=112)
    found = f"ledger.py\n6:{LEDGER.splitlines()[5]}\nreport.py\n7:{REPORT.splitlines()[6]}"
    return script.result(grep, found, summary="2 matches in 2 files", tokens=41, outcome=FOUND).fill(68_400, 0.118)


def edited() -> Script:
    """The coding turn up to the edit."""
    script = reading().say("Here it is: `average` divides by the number of amounts, and there are none.").message()
    edit = script.call(
        "edit_file",
        path="ledger.py",
        old="return sum(amounts) / len(amounts)",
        new="return sum(amounts) / len(amounts) if amounts else Decimal(0)",
    )
    return script.result(
        edit,
        "Replaced 1 occurrence in ledger.py.",
        summary="line 8",
        diff=unified(LEDGER, MENDED, "ledger.py"),
        tokens=24,
    )


def coding_turn() -> Script:
    """A whole coding turn."""
    script = edited()
    run = script.call("run_command", command="pytest -q")
    printed = "..............                                            [100%]\n14 passed in 0.31s\n[exit code 0]"
    script.result(run, printed, summary="exit code 0", ms=1240, notes=1)
    return script.say(ANSWER).message().fill(71_900, 0.141)


async def record_session(home: Path, cwd: Path, prompt: str, *, age_s: float) -> str:
    """A finished offline conversation, `age_s` seconds old, on disk; its id."""
    return await record_entries(home, cwd, list(_conversation(prompt)), age_s=age_s)


async def record_entries(home: Path, cwd: Path, entries: list[AnyEntry], *, age_s: float, apart_s: float = 0.0) -> str:
    """These entries on disk as a session, the first `age_s` seconds old, each `apart_s` after the other; its id."""
    folder = create_session(home)
    store = await LogStore.open(folder)
    try:
        await store.set_meta({"cwd": str(cwd)})
        await store.append(_stamped(entries, time() - age_s, apart_s))
    finally:
        await store.close()
    return folder.name


def planned() -> list[AnyEntry]:
    """A turn that keeps a task list, up to its middle."""
    steps = ("Find who calls `average`", "Answer 0 where there are no amounts", "Add a test", "Run the tests", "Say so")
    plan = encode({"items": [{"text": step, "state": "pending"} for step in steps]}).decode()
    states = ("done", "done", "in_progress", "pending", "pending")
    later = [{"text": step, "state": state} for step, state in zip(steps, states, strict=True)]
    grep = ToolCall("call_2", "grep", '{"pattern":"average(","path":"."}')
    found = f"ledger.py\n6:{LEDGER.splitlines()[5]}\nreport.py\n7:{REPORT.splitlines()[6]}"
    model = "offline:offline"

    def answer(text: str, *calls: ToolCall) -> Message:
        return Message(
            role="assistant",
            blocks=(Text(text), *calls),
            model=model,
            usage=Usage(2_100, output_tokens=40),
            cost_usd=0.0,
        )

    return [
        ModelSwitched(model=model),
        Prefix(system="You are helpful."),
        user_message(PROMPT),
        answer("I look for its callers first.", ToolCall("call_1", "todo", plan), grep),
        tool_result(ToolResult("call_1", "Noted: 0 of 5 done."), summary="0/5 done"),
        tool_result(ToolResult("call_2", found), summary="2 matches in 2 files", outcome=FOUND),
        answer(
            "`average` divides by zero; it answers 0 now. Next comes a test.",
            ToolCall("call_3", "todo", encode({"items": later}).decode()),
        ),
        tool_result(ToolResult("call_3", "Noted: 2 of 5 done."), summary="2/5 done"),
    ]


def _conversation(prompt: str) -> Iterator[AnyEntry]:
    model = "offline:offline"
    yield ModelSwitched(model=model)
    yield Prefix(system="You are helpful.")
    yield user_message(prompt)
    read = ToolCall("call_1", "read_file", '{"path":"README.md"}')
    yield Message(
        role="assistant",
        blocks=(Reasoning("One plain command: read README.md."), Text("Reading `README.md`."), read),
        model=model,
        usage=Usage(2_100, output_tokens=40, reasoning_tokens=12),
        cost_usd=0.0,
    )
    yield tool_result(ToolResult("call_1", numbered(PROJECT["README.md"])), summary="lines 1-3 of 3")
    answer = "`README.md` has 3 lines:\n\n> # Ledger\n>\n> A small ledger with a monthly report."
    yield Message(
        role="assistant",
        blocks=(Text(answer),),
        model=model,
        usage=Usage(2_260, output_tokens=38),
        cost_usd=0.0,
        stop_reason="end_turn",
    )


def _stamped(entries: list[AnyEntry], when: float, apart: float) -> list[AnyEntry]:
    log = Log()
    for number, entry in enumerate(entries):
        log.append(log.stamp(entry, when + number * apart))
    return list(log)
