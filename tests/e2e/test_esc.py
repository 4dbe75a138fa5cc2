"""Esc and Ctrl+C at every moment, from a real terminal: each is answered, and nothing typed is lost."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

from tests.e2e.person import BREAK, ENTER, ESC, Person, at_the_terminal
from tests.e2e.test_first_ten_minutes import project, server
from tests.servers.anthropic import AnthropicServer

__all__ = ["project", "server"]

ANSWERS_S: Final = 2.0
"""Seconds until Esc shows its answer (alone on the machine a tenth of one), and until the program is left."""


def _answer_of(person: Person, keys: str, shows: Callable[[], bool]) -> float:
    """Seconds until the screen answers these keys."""
    began = monotonic()
    person.sends(keys)
    person.terminal.until(shows)
    return monotonic() - began


def test_esc_answers_at_every_moment_and_gives_back_what_was_typed(
    project: Path, tmp_path: Path, server: AnthropicServer
) -> None:
    """Opening, running, asking, and over a dialog; then Ctrl+C twice while a turn runs."""
    taken: dict[str, float] = {}
    home = tmp_path / "home"
    arguments = ("--model", "claude-opus-5-5")
    with at_the_terminal(project, home, *arguments, size=(24, 80), url=server.url, key=server.api_key) as person:
        person.sees("Ask, or")
        person.sends(f"Talk on early{ENTER}")
        person.sees("▌ Talk on early")
        taken["opening"] = _answer_of(person, ESC, lambda: "stopping" in person.status or "ready" in person.status)
        person.waits_until_ready()
        person.sends(BREAK)
        person.sees("│ Ask, or / for commands")
        person.says("Talk on", "Line 1 ")
        taken["running"] = _answer_of(person, ESC, lambda: "stopping" in person.status or "Stopped" in person.screen)
        person.sees("Stopped")
        person.waits_until_ready()
        person.says("Add tax", "Esc stops the turn")
        taken["asking"] = _answer_of(person, ESC, lambda: "Allow this?" not in person.screen)
        person.waits_until_ready()
        person.sends("?")
        person.sees("Keys in the prompt")
        taken["help"] = _answer_of(person, ESC, lambda: "Keys in the prompt" not in person.screen)
        person.says("/clear", "A new session")
        person.says("Talk on", "Line 1 ")
        person.types("half written")
        began = monotonic()
        person.sends(BREAK * 2)
        assert person.terminal.ends() == 0
        taken["quitting"] = monotonic() - began
    print(taken)
    assert all(seconds < ANSWERS_S for seconds in taken.values()), taken
    assert "half written" in (home / "history.jsonl").read_text()
