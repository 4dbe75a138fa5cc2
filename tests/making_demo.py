"""Records the demonstration anew, in the project that it holds: ``python -m tests.making_demo``."""

import asyncio
import tempfile
from pathlib import Path

import msgspec

from tui_agent.arguments import Arguments
from tui_agent.conversation.entries import FilesChanged, FilesKept, encode
from tui_agent.demo import MODEL, PLACE, RECORDING, DemoRecording
from tui_agent.session import open_session
from tui_agent.settings import load_settings
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion

SETTINGS = {"model.id": MODEL, "permissions.mode": "allow", "file_history.enabled": "false"}
TESTS = "run python3 -m unittest"
PROMPTS = (
    (
        "Read README.md, then list . and read tides/__main__.py, then read tides/extremes.py, "
        f"then read tides/table.py, then {TESTS}"
    ),
    (
        f'find sum( in tides, then read tests/test_extremes.py, then replace "place - half : place + half]" with '
        f'"place - half : place + half + 1]" in tides/extremes.py, then {TESTS}'
    ),
    (
        f'read tests/test_table.py, then replace "5.1f" with "6.2f" in tides/table.py, then {TESTS}, '
        "then run python3 -m tides brest 2026-03-14, then run python3 -m tides bergen 2026-03-14"
    ),
    (
        "read data/bergen.csv, then read tides/stations.py, then read tides/readings.py, then replace "
        '"offset_m=0.12, zone" with "offset_m=0.12, unit=0.01, zone" in tides/stations.py, '
        "then run python3 -m tides bergen 2026-03-14"
    ),
    (
        "read data/brest.csv, then find height in tides, then run python3 -m tides brest 2026-03-14 --feet, "
        'then replace "- Two gauges report centimetres." with "- One gauge in centimetres is known: Bergen\'s." '
        "in README.md, then run git status --short, then run git diff --stat"
    ),
    (
        f'write "Heights have two decimals since March." to CHANGES.md, then read tides/table.py, then {TESTS}, '
        "then run python3 -m tides bergen 2026-03-14 --feet, then run git log --stat, then find feet in tests, "
        "then read README.md, then run git diff"
    ),
)


EDITS = (
    ("tides/extremes.py", "place - half : place + half]", "place - half : place + half + 1]"),
    ("tides/table.py", "5.1f", "6.2f"),
    ("tides/stations.py", "offset_m=0.12, zone", "offset_m=0.12, unit=0.01, zone"),
    ("README.md", "- Two gauges report centimetres.", "- One gauge in centimetres is known: Bergen's."),
)
"""What the session does to the project, besides writing `CHANGES.md`: the file, what is there before and after it."""


def lay_out_as_before(place: Path) -> None:
    recording = msgspec.json.decode(RECORDING.read_bytes(), type=DemoRecording)
    for name, content in recording.files.items():
        for edited, before, after in EDITS:
            content = content.replace(after, before) if name == edited else content
        if name != "CHANGES.md":
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(content)


async def record(folder: Path) -> bytes:
    place, home = folder / "tides", folder / "home"
    lay_out_as_before(place)
    for line in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "One"]):
        await (await asyncio.create_subprocess_exec("git", *line, cwd=place)).wait()
    settings = load_settings(
        home, place, trusted=True, environ={}, overrides=[f"{key}={value}" for key, value in SETTINGS.items()]
    )

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        raise AssertionError(question)

    session = await open_session(settings, Arguments(folder=place, home=home, project=place, trusted=True), ask)
    for prompt in PROMPTS:
        async for _ in session.agent.run(prompt):
            pass
    entries = list(session.agent.engine.view.log)
    files = {
        str(path.relative_to(place)): path.read_text()
        for path in sorted(place.rglob("*"))
        if path.is_file() and not {".git", "__pycache__"} & set(path.parts)
    }
    await session.close()
    assert not any(isinstance(entry, FilesKept | FilesChanged) for entry in entries)
    text = msgspec.json.encode({"files": files, "entries": [msgspec.Raw(encode(entry)) for entry in entries]})
    return text.replace(str(place).encode(), PLACE.encode())


if __name__ == "__main__":
    # Outside the temporary folder, which a sandbox hides.
    with tempfile.TemporaryDirectory(dir=Path.home()) as made:
        RECORDING.write_bytes(asyncio.run(record(Path(made).resolve())))
    print(RECORDING, RECORDING.stat().st_size)
