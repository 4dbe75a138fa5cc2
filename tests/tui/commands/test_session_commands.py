"""The slash commands about a session as a whole, in the app with a real session."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Step
from tests.tui.app_of_parts import agent_of, project_of_parts, prompts, running, send, until
from tests.tui.commands.test_branches import notices
from tui_agent.settings import ModelSettings, Settings
from tui_agent.settings.keys import meaning_of
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.dialogs.fields import LineScreen
from tui_agent.tui.dialogs.pickers import PickerScreen
from tui_agent.tui.dialogs.reading import TextScreen
from tui_agent.tui.dialogs.row_list import RowList


async def picker(app: TuiAgent, pilot: Pilot[object]) -> list[str]:
    await until(pilot, lambda: isinstance(app.screen, PickerScreen))
    assert isinstance(app.screen, PickerScreen)
    return [option.label for option in app.screen._options]


async def test_what_a_session_offers_as_a_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, 1)
    async with running(arguments, size=(100, 30)) as (app, pilot):
        for command, title in (
            ("/undo", "nothing to undo"),
            ("/jobs", "No commands run"),
            ("/pin", "nothing to pin"),
            ("/undo all", "/undo takes nothing, or one of "),
            ("/undo-edits all", "/undo-edits takes nothing, or diff, or redo"),
            ("/theme none", "There is no theme none"),
            ("/config ui.them", "There is no setting ui.them"),
            ("/copy", "There is no answer yet"),
            ("/copy code", "The last answer has no code"),
            ("/copy all", "/copy takes nothing, or code"),
            ("/export", "There is nothing to export yet"),
            ("/trust", "Nothing in this project needs trust"),
            ("/sessions", "There is no earlier session"),
            ("! ", "Nothing was run"),
        ):
            await send(app, pilot, command)
            await until(pilot, partial(told, app, title))
        await send(app, pilot, "read part0.txt")
        await until(pilot, lambda: not app.conductor.busy and app.status.status.tokens)
        await send(app, pilot, "/copy")
        await until(pilot, lambda: "line of part 0" in app.clipboard)
        await send(app, pilot, "/export talk.md")
        await until(pilot, lambda: notices(app)[-1].title.startswith("Exported to"))
        assert "line of part 0" in (arguments.folder / "talk.md").read_text()
        await send(app, pilot, "/export talk.md")
        assert await picker(app, pilot) == ["Leave it as it is", "Replace it"]
        await pilot.press("escape")
        await send(app, pilot, "/config")
        assert "ui.theme" in await picker(app, pilot)
        await pilot.press(*"notifications", "enter")
        assert (await picker(app, pilot))[-1] == "Unset"
        await pilot.press("down", "enter")
        assert (await picker(app, pilot))[0] == "Set back ui.notifications"
        file = arguments.home / "config.json"
        assert json.loads(file.read_text()) == {"ui": {"notifications": app.settings.ui.notifications}}
        await pilot.press(*"set", "space", *"back", "enter")
        await until(pilot, lambda: json.loads(file.read_text()) == {"ui": {}})
        assert "ui.theme" in await picker(app, pilot)
        assert not app.settings.is_set("ui.notifications")
        await pilot.press(*"ui.panel_columns", "enter")
        await until(pilot, lambda: isinstance(app.screen, LineScreen))
        await until(pilot, lambda: bool(app.screen.query(".dialog-text")))
        assert meaning_of("ui.panel_columns") in str(app.screen.query_one(".dialog-text", Static).content)
        await pilot.press("x", "enter")
        await until(pilot, lambda: bool(app.screen.query(".dialog-problem").first().display))
        await pilot.press("escape")
        assert "ui.theme" in await picker(app, pilot)
        for key, value, why in (
            ("permissions.deny", '["Bash("]', "is no rule"),
            ("model.id", "nosuch-7", "no model"),
            ("model.fallbacks", '["nosuch-8"]', "no model"),
        ):
            await pilot.press("home", "ctrl+k", *key, "enter")
            await until(pilot, lambda: isinstance(app.screen, LineScreen))
            app.screen.query_one(Input).value = value
            await pilot.press("enter")
            await until(pilot, lambda why=why: why in str(app.screen.query(".dialog-problem").last(Static).content))  # type: ignore[misc]
            await pilot.press("escape")
            await picker(app, pilot)
        before = app.theme
        await pilot.press(*"ui.theme", "enter")
        assert await picker(app, pilot) == [*app.theme_names(), "Unset"]
        await pilot.press("up", "enter")
        assert (await picker(app, pilot))[0] == "Set back ui.theme"
        assert app.theme != before
        await pilot.press(*"set", "space", *"back", "enter")
        await until(pilot, lambda: app.theme == before)
        await picker(app, pilot)
        await pilot.press("escape")
        await send(app, pilot, "/pin")
        assert any("read part0.txt" in label and "tokens" in label for label in await picker(app, pilot))
        await pilot.press(*"read", "enter")
        await until(pilot, lambda: any(item.pinned for item in agent_of(app).context.items()))
        await send(app, pilot, "!cd /")
        await until(pilot, lambda: "no effect" in notices(app)[-1].title)
        await send(app, pilot, "/init")
        await until(pilot, lambda: notices(app)[-1].title == "This needs a real model")
        assert len(prompts(app)) == 1


async def test_errands_are_for_a_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, 1)
    (arguments.folder / "AGENTS.md").write_text("mine\n")
    with in_thread(AnthropicServer(lambda _: Step(text="It is well."))) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with running(arguments, Settings(model=ModelSettings(id="claude-opus-5-5")), size=(100, 30)) as (
            app,
            pilot,
        ):
            await send(app, pilot, "/init")
            assert await picker(app, pilot) == ["Update it", "Start over"]
            await pilot.press("escape")
            await send(app, pilot, "/review the tests")
            await until(pilot, lambda: "/review the tests" in prompts(app))
            await until(pilot, lambda: not app.conductor.busy)
            assert "above all: the tests" in str(server.model_requests[-1].body)
            await send(app, pilot, "/undo")
            await until(pilot, lambda: app.entry.prompt.text == "/review the tests")
    assert (arguments.folder / "AGENTS.md").read_text() == "mine\n"


async def test_jobs_are_counted_read_and_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, 1)
    async with running(arguments, size=(100, 20)) as (app, pilot):
        assert app.session is not None
        background = app.session.background
        await begin(app, "seq 20; while [ ! -e go ]; do sleep 0.02; done; echo more; exec sleep 1000")
        await until(pilot, lambda: app.status.status.jobs == 1)
        assert "1 job" in app.status.render().plain
        (job,) = background.all().values()
        await until(pilot, lambda: job.newest_output(1) == "20")
        await send(app, pilot, "/jobs")
        await picker(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "Show its newest output" in labels(app))
        await pilot.press("enter")
        await until(pilot, lambda: shown_rows(app).endswith("20"))
        (arguments.folder / "go").touch()
        await until(pilot, lambda: shown_rows(app).endswith("20\nmore"))
        await pilot.press("escape")
        await send(app, pilot, "/new")
        assert await picker(app, pilot) == ["Stay here", "Stop and go"]
        await pilot.press("escape")
        await pilot.press("ctrl+q")
        assert app.status.status.hint == "1 command in the background would be stopped; once more quits"
        await send(app, pilot, "/jobs")
        await picker(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: "Stop it" in labels(app))
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.status.status.jobs == 0)
        assert not job.is_running


async def begin(app: TuiAgent, command: str) -> None:
    """Start a command in the background as the model would."""
    from tests.tools.support import Call
    from tui_agent.tools.gate.workspace import Workspace
    from tui_agent.tools.shell.run_command import RunCommand

    assert app.session is not None
    assert app.session_folder is not None
    tool = RunCommand(background=app.session.background)
    workspace = Workspace(app.arguments.folder)
    call = Call(workspace, (), app.session_folder)
    await asyncio.shield(tool.run(f'{{"command": "{command}", "background": true}}', call))


def shown_rows(app: TuiAgent) -> str:
    """What of a text over the screen can be seen."""
    if not isinstance(app.screen, TextScreen):
        return ""
    rows = app.screen.query_one(RowList)
    return "\n".join(rows.render_line(place).text.strip() for place in range(rows.size.height)).strip()


def labels(app: TuiAgent) -> list[str]:
    return [option.label for option in app.screen._options] if isinstance(app.screen, PickerScreen) else []


def told(app: TuiAgent, title: str) -> bool:
    return any(title in notice.title for notice in notices(app))
