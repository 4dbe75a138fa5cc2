"""What a person sees in the first ten minutes: colours, the gauge, the cost of a summary."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.agent.summaries import Reader
from tests.e2e.person import BREAK, ENTER, SIZES, Person, at_the_terminal
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import ParsedRequest, Step

WORDS: Final = "".join(f"Sentence {number} tells what the till does on day {number * 7}. " for number in range(220))
HANDOVER: Final = f"# Current state\n{WORDS[:3200]}\n\n# Exact next steps\n1. Go on with the taxes."


def said(request: ParsedRequest) -> Step:
    return Step(text=f"{WORDS}End of {request.prompt}." if "Explain" in request.prompt else "It is done.")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    with in_thread(AnthropicServer(Reader(said, lambda _: Step(text=HANDOVER)))) as running:
        yield running
    assert running.violations == []


def _is_there(person: Person) -> None:
    person.sees("Say what you would like done here")
    person.waits_until_ready()


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_a_terminal_of_sixteen_colours_keeps_its_own(
    project: Path, tmp_path: Path, server: AnthropicServer, size: tuple[int, int]
) -> None:
    more = {"TERM": "xterm", "COLORTERM": ""}
    with at_the_terminal(
        project, tmp_path / "home", size=size, url=server.url, key=server.api_key, more=more
    ) as person:
        _is_there(person)
        person.says("Is it done?", "It is done.")
        person.waits_until_ready()
        person.says("/theme", "terminal")
        person.closes("Theme")
        person.sends(BREAK * 2)
        assert person.terminal.ends() == 0
        colours = set(re.findall(rb"\x1b\[[0-9;]*[345]8;[0-9;]*m", person.terminal.raw))
        assert not colours, "no colour that the terminal's owner has not chosen"


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_the_gauge_tells_what_comes_and_a_summary_costs_what_was_said(
    project: Path, tmp_path: Path, server: AnthropicServer, size: tuple[int, int]
) -> None:
    arguments = ("--context-window", "60000", "--set", "compaction.keep_recent_tokens=1000")
    with at_the_terminal(
        project, tmp_path / "home", *arguments, size=size, url=server.url, key=server.api_key
    ) as person:
        _is_there(person)
        full = ["", "0%"]
        for text in ("Explain one", "Explain two", "Explain three"):
            person.says(text, f"End of {text}.")
            person.waits_until_ready()
            person.terminal.until(lambda: _percent(person) not in full and "~" not in person.status)
            full.append(_percent(person))
        _points_at_the_gauge(person)
        _compacts(person)
        # No provider has counted it yet.
        person.terminal.until(lambda: "~" in person.status)
        person.says("/undo", "Undone: “Explain three”")
        # The last answer before it was counted by the provider: so it reads as it read then.
        person.terminal.until(lambda: _percent(person) == full[-2])


def _percent(person: Person) -> str:
    return next((word for word in person.status.split() if word.endswith("%")), "")


def _points_at_the_gauge(person: Person) -> None:
    """How full it is, what comes next and when, and what a tick means."""
    row = person.terminal.screen.lines
    column = person.status.index("%")
    person.sends(f"\x1b[<35;{column};{row}M")
    person.sees("of 60,000 tokens", "A tick marks")
    person.sends("\x1b[<35;2;1M")
    person.no_longer_sees("A tick marks")


def _compacts(person: Person) -> None:
    """What it will cost, against what it did: at most twice as much, or half."""
    person.says("/compact", "Writing it", "Paid back")
    expected = _figures(person)
    person.sends(ENTER)
    person.sees("Use this summary?", "Paid back")
    real = _figures(person)
    assert len(expected) == 2, person.screen
    assert all(0.5 <= thought / is_so <= 2 for thought, is_so in zip(expected, real, strict=True)), (expected, real)
    person.sends(ENTER)
    person.sees("older turns summarised")


def _figures(person: Person) -> list[float]:
    """What writing it costs, and the next call."""
    found = [re.search(rf"{label} +(?:about )?\$(\d+\.\d+)", person.screen) for label in ("Writing it", "Next call")]
    return [float(each[1]) for each in found if each is not None]
