"""Every moment in which a person may want out, in a real terminal: how soon Esc, and Ctrl+C twice, are answered."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

from PIL import Image

from tests.agent.summaries import Reader
from tests.e2e.person import BREAK, DOWN, ENTER, ESC, Person, at_the_terminal
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, ParsedRequest, Step

SIZE: Final = (24, 80)
PICTURES: Final = 12
"""Pictures of a prompt: reading them takes some seconds."""
SIDE: Final = 9_000
"""Pixels of a picture's side."""
TALK: Final = "".join(f"Line {number} of a long answer.\n\n" for number in range(400))
LINGERS: Final = "trap '' TERM INT HUP; echo here to stay; while true; do sleep 1; done"
SETTINGS: Final = (
    *("--set", "compaction.keep_recent_tokens=1000", "--set", "agentic.small_model=claude-opus-5-5"),
    *("--set", "permissions.unasked=known"),
)


def _said(request: ParsedRequest) -> Step:
    if "Talk" in request.prompt:
        return Step(text=TALK, delay=0.05)
    if "Ask" in request.prompt:
        return Step(calls=(Call("run_command", {"command": "touch made"}),))
    if "Linger" in request.prompt and not request.position:
        return Step(calls=(Call("run_command", {"command": LINGERS, "background": True}),))
    return Step(text=f"{'It is so. ' * 900}End of {request.prompt}.")


def server() -> AnthropicServer:
    """What answers: slowly where it talks, and slower where it writes a summary."""
    return AnthropicServer(Reader(_said, lambda _: Step(text="# Current state\n" + "All is said. " * 400, delay=0.1)))


Shows = Callable[[], bool]
"""Whether the screen answers Esc."""


@contextmanager
def moment_at(folder: Path, name: str) -> Iterator[tuple[Person, Shows]]:
    """A person in this moment, in a program of their own, and whether the screen answers Esc."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    if name == "reading pictures":
        for number in range(PICTURES):
            Image.new("L", (SIDE, SIDE), number).save(project / f"{number}.png")
    arguments = ["--model", "claude-opus-5-5", *SETTINGS, *([] if name == "asking" else ["--yolo"])]
    with (
        in_thread(server()) as running,
        TemporaryDirectory(dir=folder) as home,
        at_the_terminal(project, Path(home), *arguments, size=SIZE, url=running.url, key=running.api_key) as person,
    ):
        yield person, MOMENTS[name](person)


def answers(folder: Path) -> Iterator[tuple[str, float]]:
    """Each moment, and the seconds from Esc to its answer on the screen; then from Ctrl+C twice to the end."""
    for name in MOMENTS:
        with moment_at(folder, name) as (person, shows):
            began = monotonic()
            person.sends(ESC)
            person.terminal.until(shows)
            yield name, monotonic() - began
        with moment_at(folder, name) as (person, _):
            began = monotonic()
            person.sends(BREAK * 2)
            assert person.terminal.ends() == 0
            yield f"{name}, quitting", monotonic() - began


def _ready(person: Person) -> None:
    person.sees("Say what you would like done here")
    person.waits_until_ready()


def _opening(person: Person) -> Shows:
    person.sees("Ask, or")
    person.sends(f"Talk early{ENTER}")
    person.sees("▌ Talk early")
    return lambda: "stopping" in person.status or "ready" in person.status or "│ Talk early" in person.screen


def _reading(person: Person) -> Shows:
    _ready(person)
    person.sends(f"See {' '.join(f'@{number}.png' for number in range(PICTURES))} {ENTER}")
    person.terminal.until(lambda: "Esc stops" in person.status)
    return lambda: "│ See @0.png" in person.screen


def _running(person: Person) -> Shows:
    _ready(person)
    person.says("Talk", "Line 1 ")
    return lambda: "stopping" in person.status or "Stopped" in person.screen


def _asking(person: Person) -> Shows:
    _ready(person)
    person.says("Ask", "Allow this?", "Esc stops the turn")
    return lambda: "Allow this?" not in person.screen


def _compacting(person: Person) -> Shows:
    _ready(person)
    for text in ("One", "Two", "Three"):
        person.says(text, f"End of {text}.")
        person.waits_until_ready()
    person.says("/compact", "Enter ")
    person.sends(ENTER)
    person.terminal.until(lambda: "summarising" in person.status)
    return lambda: "summarising" not in person.status


def _closing(person: Person) -> Shows:
    _ready(person)
    person.says("Linger", "End of Linger.", "1 job")
    person.waits_until_ready()
    person.says("/clear", "Stop and go")
    person.sends(f"{DOWN}{ENTER}")
    return lambda: "closing" in person.status or "A new session" in person.screen


MOMENTS: Final[dict[str, Callable[[Person], Shows]]] = {
    "opening": _opening,
    "reading pictures": _reading,
    "running": _running,
    "asking": _asking,
    "compacting": _compacting,
    "closing": _closing,
}
