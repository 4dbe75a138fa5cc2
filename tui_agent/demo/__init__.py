"""The demonstration: a recorded session in a small project, on the offline model, in a temporary folder.

The program recorded it itself (`python -m tests.making_demo`): the offline model took the user's commands, the tools
really ran. Tokens are the offline model's own count, prices those of Claude Opus 5.5.
"""

import asyncio
import platform
import re
import time
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.conversation.entries import AnyEntry, Message, decode
from tui_agent.storage.sessions import make_session

RECORDING: Final = Path(__file__).with_name("recording.json")
PLACE: Final = "/the/demonstration"
"""Stands in the recording for the folder that it is opened in."""
MODEL: Final = "offline:demo"
SECONDS_APART: Final = 7.0
AGO_S: Final = 40.0
"""When its newest entry was said, before the demonstration is opened: its cache is still there."""


class DemoRecording(msgspec.Struct, frozen=True):
    """The files of the project by their paths, as they are after the session, and the entries of its log."""

    files: dict[str, str]
    entries: list[msgspec.Raw]


class Demo(msgspec.Struct, frozen=True):
    """Where the demonstration is: its project, its folder of state, and the session."""

    project: Path
    home: Path
    session: str


async def make_demo(folder: Path) -> Demo:
    """Lay the demonstration out in an empty folder. Raises OSError, `StorageError`."""
    project, home = folder / "tides", folder / "home"
    entries = await asyncio.to_thread(_lay_out, project, home)
    session = await make_session(home, entries, {})
    return Demo(project, home, session.name)


def _lay_out(project: Path, home: Path) -> list[AnyEntry]:
    """Write the project's files; returns the entries of the session, as if it had ended a moment ago."""
    place = msgspec.json.encode(str(project)).decode()[1:-1]
    text = RECORDING.read_text(encoding="utf-8").replace(PLACE, place)
    # With what it was recorded on, and when, the system prompt would be another one from the first summary on.
    now_here = f"Platform: {platform.system()} {platform.machine()}\\\\nStarted on: {time.strftime('%Y-%m-%d')}"
    text = re.sub(r"Platform: [^\\]+\\nStarted on: [\d-]+", now_here, text)
    recording = msgspec.json.decode(text, type=DemoRecording)
    for name, content in recording.files.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    home.mkdir(mode=0o700)
    count, now = len(recording.entries), time.time() - AGO_S
    entries = []
    for number, raw in enumerate(recording.entries, 1):
        entry = msgspec.structs.replace(decode(bytes(raw)), time=now - SECONDS_APART * (count - number))
        # The requests name the folder, so their hashes are not those of the recording.
        entries.append(msgspec.structs.replace(entry, prefix_hash="") if isinstance(entry, Message) else entry)
    return entries
