"""The registry of slash commands."""

import pytest

from tui_agent.agent.commands import is_command
from tui_agent.tui.app.commands import default_commands
from tui_agent.tui.app.keys import PLACES, keys_text


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("/help", True),
        ("  /help  ", True),
        ("/model claude", True),
        ("/nonsense", True),
        ("/etc/hosts has what", False),
        ("/help\nand more", False),
        ("no /help here", False),
        ("", False),
    ],
)
def test_what_is_a_command(text: str, asks: bool) -> None:
    assert is_command(text) is asks


def test_every_command_is_in_the_help() -> None:
    commands = default_commands()
    text = commands.help_text()
    for command in commands.all:
        assert f"/{command.name}" in text
        assert command.description in text
        for alias in command.aliases:
            assert f"/{alias}" in text


def test_no_name_is_used_twice() -> None:
    names = [name for command in default_commands().all for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names))


def test_help_fits_eighty_columns() -> None:
    texts = [default_commands().help_text(), *map(keys_text, PLACES)]
    assert max(len(line) for text in texts for line in text.splitlines()) <= 72


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/", [f"/{command.name}" for command in default_commands().all]),
        ("/mod", ["/model", "/mode"]),
        ("/ex", ["/quit"]),
        ("/MODE", ["/model", "/mode"]),
        ("/zzz", []),
        ("/model x", []),
        ("word", []),
    ],
)
def test_completion(typed: str, offered: list[str]) -> None:
    completion = default_commands().complete(typed)
    assert [choice.insert.strip() for choice in completion.choices] == offered if completion else offered == []
