"""A long session as it lies on disk: turns of a prompt, reasoning, three tool results and an answer with code."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Message, ModelSwitched, Prefix, Usage, tool_result, user_message
from tui_agent.conversation.view import View
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import create_session

MODEL: Final = "offline:offline"
ANSWER: Final = """## Turn {turn}

The function reads `path` and returns **rows**; it fails when the file is missing, so the caller has to check first.
Nothing else in the module depends on it.

1. Read the file
2. Split it into lines
3. Return a row for each

```python
def rows(path: str) -> list[str]:
    \"\"\"The lines of a file.\"\"\"
    with open(path) as source:  # {turn}
        return [line.rstrip() for line in source if line.strip()]
```

All tests pass."""


def prompt(turn: int) -> str:
    """What the user asks."""
    return f"Please look at module {turn} and explain what its main function does."


def thought(turn: int) -> str:
    """What the model thinks."""
    return f"I should read module {turn} first.\n" * 4


def result(turn: int, number: int) -> str:
    """What a tool returns: 40 lines."""
    return "\n".join(f"{line:>4}  value_{line} = compute({turn}, {number}, {line})" for line in range(40))


def long_view(turns: int) -> View:
    """The conversation; six entries a turn."""
    view = View()
    for entry in _said(turns):
        view.apply(view.log.stamp(entry, 1_790_000_000.0 + len(view.log)))
    return view


async def write_session(home: Path, turns: int, *, cwd: Path | None = None) -> str:
    """Save such a session below `home`; its id."""
    folder = await asyncio.to_thread(create_session, home)
    store = await LogStore.open(folder)
    try:
        await store.load()
        await store.append(list(long_view(turns).log))
        await store.set_meta({"cwd": str(cwd or home)})
    finally:
        await store.close()
    return folder.name


def _said(turns: int) -> Iterator[AnyEntry]:
    yield ModelSwitched(model=MODEL)
    yield Prefix(system="rules " * 500)
    for turn in range(turns):
        yield user_message(prompt(turn))
        calls = [
            ToolCall(f"{turn}-{number}", "read_file", json.dumps({"path": f"src/module_{turn}_{number}.py"}))
            for number in range(3)
        ]
        used = Usage(input_tokens=2_000 + 1_000 * turn, output_tokens=120, reasoning_tokens=40)
        yield Message(role="assistant", blocks=(Reasoning(thought(turn)), *calls), model=MODEL, usage=used)
        for number, call in enumerate(calls):
            yield tool_result(ToolResult(call.id, result(turn, number)))
        used = Usage(input_tokens=2_700 + 1_000 * turn, output_tokens=180)
        yield Message(role="assistant", blocks=(Text(ANSWER.format(turn=turn)),), model=MODEL, usage=used)
