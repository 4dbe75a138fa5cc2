"""Small recordings, written line by line."""

import json
from pathlib import Path

from tui_agent.replay.script import Script, make_script
from tui_agent.storage.recordings.reading import read_file


def write_lines(path: Path, *lines: object) -> Path:
    """A JSON Lines file; a line that is text or bytes is written as it is."""
    encoded = [line if isinstance(line, bytes) else _text(line).encode() for line in lines]
    path.write_bytes(b"\n".join(encoded) + b"\n")
    return path


def user(text: str, **more: object) -> dict[str, object]:
    return {"role": "user", "text": text, **more}


def answer(text: str, *calls: dict[str, object], **more: object) -> dict[str, object]:
    return {"role": "assistant", "text": text, "tool_calls": list(calls), **more}


def call(call_id: str, name: str = "read_file", **args: object) -> dict[str, object]:
    return {"id": call_id, "name": name, "args": args}


def result(call_id: str, text: str, **more: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call_id, "text": text, **more}


def script_of(path: Path, *lines: object) -> Script:
    """These lines as a script."""
    return make_script(read_file(write_lines(path, *lines)))


def _text(line: object) -> str:
    return line if isinstance(line, str) else json.dumps(line)
