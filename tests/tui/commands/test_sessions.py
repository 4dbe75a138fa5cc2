"""Going from one session to another inside the app: new ones, the list, trust, and sessions somebody else has open."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input

from tests.bench.long_session import write_session
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Step
from tests.tui.app_of_parts import ALLOW, OFFLINE, agent_of, answered, project_of_parts, prompts, said, send, until
from tui_agent.arguments import Arguments
from tui_agent.session import open_session
from tui_agent.settings import ModelSettings, Settings
from tui_agent.settings.schema import AgentSettings
from tui_agent.settings.trust import is_refused, is_trusted
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import SessionInfo, last_words, list_sessions, session_to_resume
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.dialogs.fields import TitleScreen
from tui_agent.tui.dialogs.pickers import PickerScreen
from tui_agent.tui.dialogs.sessions_screen import SessionsScreen
from tui_agent.tui.dialogs.trust import TrustScreen
from tui_agent.tui.session.states import Phase


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, 2)


async def idle(app: TuiAgent, pilot: Pilot[object]) -> None:
    await until(pilot, lambda: app.conductor.phase is Phase.IDLE and not app.conductor.busy)


async def at(app: TuiAgent, pilot: Pilot[object], session: str = "", *, left: str = "") -> None:
    """Wait until this session is open, or another than the one that was left."""
    await until(pilot, lambda: present(app) == session or (not session and present(app) not in ("", left)))
    await idle(app, pilot)


def present(app: TuiAgent) -> str:
    return app.conductor.session.id if app.conductor.session is not None else ""


@asynccontextmanager
async def running(
    arguments: Arguments, settings: Settings = OFFLINE, *, wait: bool = True
) -> AsyncIterator[tuple[TuiAgent, Pilot[object]]]:
    app = TuiAgent(arguments, settings)
    async with app.run_test(size=(120, 40)) as pilot:
        if wait:
            await idle(app, pilot)
        yield app, pilot


async def earlier(arguments: Arguments, *texts: str) -> str:
    """A session in which these texts were said."""
    session = await open_session(OFFLINE, arguments, nobody)
    for text in texts:
        async for _ in session.agent.run(text):
            pass
    await session.close()
    return session.id


async def nobody(question: PermissionQuestion) -> PermissionAnswer:
    raise AssertionError(question)


async def infos(arguments: Arguments) -> dict[str, SessionInfo]:
    return {info.id: info for info in await list_sessions(arguments.home)}


async def test_a_new_session_here_keeps_the_old_one_the_model_and_the_mode(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(AnthropicServer(lambda _: Step(text="I see."))) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with running(arguments, Settings(model=ModelSettings(id="claude-opus-5-5"))) as (app, pilot):
            await send(app, pilot, "the first words")
            await until(pilot, lambda: "I see." in said(app) and not app.conductor.busy)
            before = present(app)
            await send(app, pilot, "/mode plan")
            await until(pilot, lambda: app.status.status.mode == "plan")
            await send(app, pilot, "/clear")
            await at(app, pilot, left=before)
            assert prompts(app) == []
            assert (app.status.status.mode, app.status.status.cost_usd) == ("plan", 0)
            await send(app, pilot, "other words")
            await until(pilot, lambda: "I see." in said(app) and not app.conductor.busy)
            assert prompts(app) == ["other words"]
        assert [b"the first words" in request.body for request in server.model_requests] == [True, False]
    assert {info.title for info in (await infos(arguments)).values()} == {"the first words", "other words"}


async def test_the_list_goes_to_a_session_and_back_and_forks(arguments: Arguments) -> None:
    there = await earlier(arguments, "read part0.txt", "read part1.txt")
    async with running(arguments) as (app, pilot):
        await answered(app, pilot, "read part1.txt")
        here = present(app)
        await send(app, pilot, "/resume")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        await pilot.press(*"part0", "enter")
        await at(app, pilot, there)
        assert prompts(app) == ["read part0.txt", "read part1.txt"]
        assert app.focused is app.entry.prompt
        await send(app, pilot, f"/sessions {here}")
        await at(app, pilot, here)
        assert prompts(app) == ["read part1.txt"]
        await send(app, pilot, "/rename The parser")
        await until(pilot, lambda: "This session is called “The parser” now" in said(app))
        assert (await infos(arguments))[here].title == "The parser"
        await send(app, pilot, "/rename ")
        await until(pilot, lambda: isinstance(app.screen, TitleScreen))
        assert app.screen.query_one(Input).value == "The parser"
        await pilot.press("ctrl+a", "ctrl+k", *"Parts", "enter")
        await until(pilot, lambda: "“Parts” now" in said(app))
        assert (await infos(arguments))[here].title == "Parts"
        # A fork from the list is another branch.
        await send(app, pilot, "/sessions ")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        await pilot.press(*"part0", "ctrl+f")
        await at(app, pilot, there)
        await until(pilot, lambda: "A new branch from here" in said(app))
        await answered(app, pilot, "read part1.txt")
        assert len(agent_of(app).branches.all()) == 2
        assert "part1.txt" in await last_words((await infos(arguments))[there].folder)
        assert await last_words(arguments.home) == ""


async def test_a_running_turn_is_stopped_after_a_question(arguments: Arguments) -> None:
    async with running(arguments, ALLOW) as (app, pilot):
        await send(app, pilot, "run sleep 60")
        await until(pilot, lambda: "running" in app.status.status.activity)
        before = present(app)
        for answer in (("enter",), ("down", "enter")):
            await send(app, pilot, "/new ")
            await until(pilot, lambda: isinstance(app.screen, PickerScreen))
            await pilot.press(*answer)
            await until(pilot, lambda: not isinstance(app.screen, PickerScreen))
        await at(app, pilot, left=before)
        assert prompts(app) == []
    assert (await infos(arguments))[before].messages


async def test_switching_lifts_no_spending_limit(arguments: Arguments) -> None:
    """What a ceiling has shut stays shut, whichever way the user comes back to it."""
    settings = Settings(model=ModelSettings(id="offline"), agent=AgentSettings(max_session_cost_usd=0.0))
    async with running(arguments, settings) as (app, pilot):
        await send(app, pilot, "read part0.txt")
        await until(pilot, lambda: "/continue-spending" in said(app) and not app.conductor.busy)
        before = present(app)
        await send(app, pilot, "/new ")
        await at(app, pilot, left=before)
        await send(app, pilot, f"/resume {before}")
        await at(app, pilot, before)
        shown = said(app).count("/continue-spending")
        await send(app, pilot, "and now?")
        await until(pilot, lambda: said(app).count("/continue-spending") > shown and not app.conductor.busy)


async def test_what_another_program_recorded_goes_on_here(arguments: Arguments) -> None:
    lines = (
        {"type": "user", "message": {"content": "Why?"}, "uuid": "u"},
        {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "For that."}]}, "uuid": "a"},
    )
    (arguments.folder / "other one.jsonl").write_text("\n".join(map(json.dumps, lines)))
    async with running(arguments) as (app, pilot):
        before = present(app)
        await send(app, pilot, "/resume other one.jsonl")
        await at(app, pilot, left=before)
        assert "For that." in said(app)
        await send(app, pilot, "/resume none.jsonl")
        await until(pilot, lambda: "There is no session" in said(app))


async def test_a_session_is_renamed_and_deleted_with_a_question(arguments: Arguments) -> None:
    first = await earlier(arguments, "read part0.txt")
    second = await earlier(arguments, "read part1.txt")
    async with running(arguments) as (app, pilot):
        await send(app, pilot, "/sessions ")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        # In one go: the key means the row that the letters before it leave.
        for letter in "part0":
            app.post_message(Key(letter, letter))
        app.post_message(Key("ctrl+r", None))
        await until(pilot, lambda: isinstance(app.screen, TitleScreen))
        await pilot.press("ctrl+a", "ctrl+k", *"The parser", "enter")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        assert (await infos(arguments))[first].title == "The parser"
        # It is marked still.
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, TitleScreen))
        assert app.screen.query_one(Input).value == "The parser"
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        await pilot.press(*"part1", "ctrl+x")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen) and not isinstance(app.screen, SessionsScreen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        assert second in await infos(arguments)
        await pilot.press("ctrl+x")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen) and not isinstance(app.screen, SessionsScreen))
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        assert second not in await infos(arguments)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, PickerScreen))


async def test_a_session_of_which_nothing_is_left_says_so(arguments: Arguments) -> None:
    there = await earlier(arguments, "read part0.txt")
    async with running(arguments._replace(resume=there)) as (app, pilot):
        assert "taken back" not in said(app)
        app.pane.transcript.add_boundary("old results cleared", before=9, after=5)
        app.pane.transcript.add_boundary("pinned")
        await send(app, pilot, "/undo")
        await until(pilot, lambda: prompts(app) == [])
        assert "“read part0.txt”, its answer, 1 tool call and 1 context step" in said(app)
    async with running(arguments._replace(resume=there)) as (app, pilot):
        await until(pilot, lambda: "All of this conversation was taken back" in said(app))


async def test_after_the_list_at_the_start_the_prompt_has_the_focus(arguments: Arguments) -> None:
    await earlier(arguments, "read part0.txt")
    async with running(arguments._replace(resume=""), wait=False) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        await pilot.press("enter")
        await idle(app, pilot)
        await pilot.press(*"here")
        assert app.entry.prompt.text == "here"


async def test_a_session_in_use_elsewhere_offers_a_new_one_here_also_later(arguments: Arguments) -> None:
    session = await write_session(arguments.home, 3)
    held = await LogStore.open(await session_to_resume(arguments.home, session))
    for key in ("enter", "escape"):
        async with running(arguments._replace(resume=session), wait=False) as (app, pilot):
            await until(pilot, lambda: isinstance(app.screen, PickerScreen))
            await pilot.press(key)
            if key == "escape":
                await until(pilot, lambda: app.conductor.phase is Phase.VACANT)
                await send(app, pilot, "read part0.txt")
                await until(pilot, lambda: "There is no session" in said(app))
                assert app.entry.prompt.text == "read part0.txt"
                await pilot.press("ctrl+c")
                await send(app, pilot, "/new ")
            await idle(app, pilot)
            assert present(app) != session
            assert prompts(app) == []
            await answered(app, pilot, "read part1.txt")
    await held.close()


async def test_the_question_about_trust_names_what_it_found_and_can_be_asked_again(arguments: Arguments) -> None:
    (arguments.folder / "AGENTS.md").write_text("Speak of the sea.")
    own = arguments.folder / ".agents"
    own.mkdir()
    (own / "config.json").write_text(json.dumps({"permissions": {"mode": "allow"}, "context.cold_notice_usd": 1}))
    asking = arguments._replace(ask_trust=True)
    async with running(asking, wait=False) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, TrustScreen) and bool(app.screen.query("OptionList")))
        text = "\n".join(str(part.render()) for part in app.screen.query("Static"))
        assert "AGENTS.md: instructions that the model follows" in text
        assert ".agents/config.json: settings: what may happen without asking, what the model is shown" in text
        assert 'permissions.mode = "allow"' in text
        await pilot.press("up", "enter")
        await idle(app, pilot)
        assert is_refused(arguments.folder, arguments.home)
        assert "Not trusted, so ignored" in said(app)
        assert "AGENTS.md" in said(app)
        await answered(app, pilot, "read part0.txt")
        before = present(app)
        await send(app, pilot, "/trust")
        await until(pilot, lambda: isinstance(app.screen, TrustScreen))
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.status.status.mode == "allow")
        await idle(app, pilot)
        assert is_trusted(arguments.folder, arguments.home)
        assert present(app) == before
        assert prompts(app) == ["read part0.txt"]
        assert "Not trusted, so ignored" not in said(app)
        assert "This project is trusted from now on" in said(app)
        await send(app, pilot, "/new ")
        await until(pilot, lambda: "A new session" in said(app))
        await idle(app, pilot)
        await send(app, pilot, "/trust")
        await until(pilot, lambda: isinstance(app.screen, TrustScreen))
        await pilot.press("up", "enter")
        await until(pilot, lambda: "This project is not trusted from now on" in said(app))
        assert "A new session" not in said(app)
