"""The welcome says what is set and what could be asked here; without a key, the ways to a real model."""

from pathlib import Path

import pytest

from tests.servers.ollama import OllamaServer
from tests.servers.running import in_thread
from tests.servers.script import Step
from tests.tui.app.test_prompt_actions import CLAUDE, _environment, arguments
from tests.tui.app_of_parts import running, said, send, until
from tui_agent.arguments import Arguments
from tui_agent.settings import Settings
from tui_agent.tui.app.welcome import MAX_NAMES, command_example, example, folder_name, names_in

__all__ = ["_environment", "arguments"]


def test_the_example_fits_the_folder_and_the_commands_the_offline_model() -> None:
    for names, asked in (
        (["src", "tests"], "Run the tests"),
        (["Cargo.toml", "src"], "Run cargo test"),
        (["README.md", "node_modules", "package.json", "src"], "What can be run here with npm"),
        (["go.mod", "main.go"], "Run go vet"),
        (["zeta.go", "alpha.py"], "What does alpha.py do"),
        (["README.md"], "What is this project for"),
        (["holiday.jpg"], "Look through this folder"),
        ([], "Write a script"),
    ):
        assert example(names).startswith(asked)
    for names, commands in (
        (["go.mod", "main.go"], "summarise go.mod · find TODO in ."),
        (["holiday.jpg"], "find TODO in ."),
        ([], 'write "hello" to notes.txt · read notes.txt'),
    ):
        assert command_example(names).startswith(commands)


def test_only_the_end_of_a_long_path_is_in_the_title() -> None:
    for folder, name in (
        ("/srv/ledger", "/srv/ledger"),
        ("/srv/teams/accounting/services/reports/ledger", "…/accounting/services/reports/ledger"),
        ("/srv/" + "long" * 20, "…" + ("long" * 20)[-35:]),
    ):
        assert folder_name(Path(folder)) == name


def test_names_are_safe_and_few(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "evil\x1b[31m.py").write_text("")
    (folder / ".hidden.py").write_text("")
    assert names_in(folder) == ["evil\x1b[31m.py"]
    assert "\x1b" not in example(names_in(folder)) + command_example(names_in(folder))
    for number in range(MAX_NAMES + 5):
        (folder / str(number)).write_text("")
    assert len(names_in(folder)) == MAX_NAMES
    assert names_in(folder / "missing") == []


async def test_without_a_key_a_model_of_this_machine_is_offered_and_answers(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(OllamaServer(lambda _: Step(text="From this machine."))) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        async with running(arguments, Settings()) as (app, pilot):
            await until(pilot, lambda: "/model ollama:" in said(app))
            assert "/key" in said(app)
            (offered, *_) = [line.split("  ")[0] for line in said(app).splitlines() if "/model ollama:" in line]
            await send(app, pilot, offered.strip())
            await until(pilot, lambda: "answers from here on" in said(app))
            await send(app, pilot, "hello")
            await until(pilot, lambda: "From this machine." in said(app))


async def test_with_a_key_it_says_what_is_set(arguments: Arguments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-shown")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    async with running(arguments, CLAUDE) as (app, pilot):
        await until(pilot, lambda: "Sandbox" in said(app))
        text = said(app)
    assert "claude-opus-5-5" in text
    assert "ANTHROPIC_API_KEY, from the environment" in text
    assert "/key" not in text
    assert "sk-ant" not in text


async def test_who_chose_the_offline_model_is_not_asked_for_a_key(arguments: Arguments) -> None:
    async with running(arguments) as (app, pilot):
        await until(pilot, lambda: "Sandbox" in said(app))
        assert "/key" not in said(app)
        assert "summarise hello.txt" in said(app)
