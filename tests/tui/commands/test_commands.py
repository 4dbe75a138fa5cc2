"""The one table of what a user can do: each row stands in the help and does what it says, or says why it does not."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.binding import ActiveBinding
from textual.pilot import Pilot

from tests.tui.app_of_parts import ALLOW, OFFLINE, agent_of, answered, blocks, project_of_parts, running, send, until
from tests.tui.dialogs.test_dialogs_end_once import EVERY
from tui_agent.agent.commands.command import is_command
from tui_agent.agent.commands.table import COMMANDS, ERRANDS, IN_TEXT, ON_SCREEN
from tui_agent.models.choice import meant_model
from tui_agent.settings.schema import UiSettings
from tui_agent.tui.actions import ACTIONS, DIALOGS, SLASH_COMMANDS, TITLES, Action, Place
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import NoticeBlock, ToolBlock, UserBlock
from tui_agent.tui.commands import loop
from tui_agent.tui.commands.shell import needs_terminal, only_changes_folder
from tui_agent.tui.commands.table import complete
from tui_agent.tui.dialogs.fields import KeyScreen
from tui_agent.tui.dialogs.pickers import PickerScreen
from tui_agent.tui.dialogs.reading import HelpScreen
from tui_agent.tui.keys import Keymap, commands_text


def test_what_is_a_command() -> None:
    commands = ("/help", "  /help  ", "/model claude", "/nonsense")
    texts = ("/etc/hosts has what", "/help\nand more", "no /help here", "")
    assert [*filter(is_command, (*commands, *texts))] == [*commands]


def test_every_action_has_an_id_of_its_own_and_stands_in_the_help() -> None:
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    names = [name for action in SLASH_COMMANDS for name in action.names]
    assert len(names) == len(set(names))
    told = "\n".join([*map(Keymap().help_text, TITLES), commands_text()])
    for action in ACTIONS:
        assert action.keys or action.name, action.id
        assert action.help in told, action.id
        assert not action.name or all(f"/{name}" in told for name in action.names), action.id


def test_what_only_the_screen_has_is_known_without_it() -> None:
    known = {name for command in (*COMMANDS, *IN_TEXT) for name in command.names} | {name for name, *_ in ERRANDS}
    assert {name for action in SLASH_COMMANDS for name in action.names} - known == set(ON_SCREEN)


def test_help_fits_eighty_columns() -> None:
    texts = [commands_text(), *map(Keymap().help_text, TITLES)]
    assert [line for text in texts for line in text.splitlines() if len(line) > 72] == []


def test_the_keys_of_the_table_do_not_clash() -> None:
    assert Keymap([f"{action.id}={action.keys}" for action in ACTIONS if action.keys]).problems == ()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/", [f"/{action.name}" for action in SLASH_COMMANDS]),
        ("/mode", ["/mode", "/model"]),
        ("/MODE", ["/mode", "/model"]),
        ("/model", ["/model"]),
        ("/ex", ["/quit", "/export", "/extensions", "/context"]),
        ("/prms", ["/permissions"]),
        ("/zzz", []),
        ("/model x", []),
        ("/mode a", ["ask", "auto", "allow", "plan"]),
        ("/mode al", ["allow"]),
        ("/policy ", ["thrifty", "balanced", "careful"]),
        ("/preview ", ["compact", "clear", "done"]),
        ("word", []),
    ],
)
def test_completion(typed: str, offered: list[str]) -> None:
    completion = complete(typed)
    found = [choice.insert.strip() for choice in completion.choices] if completion else []
    assert found == offered


OTHER_KEYS = {
    action.id: f"{modifiers}+f{number}"
    for action, (modifiers, number) in zip(
        ACTIONS, product(("ctrl", "alt", "shift", "ctrl+shift", "alt+shift", "super"), range(1, 25)), strict=False
    )
}


@pytest.mark.parametrize("keymap", [{}, OTHER_KEYS], ids=["own keys", "other keys"])
async def test_at_its_place_each_key_runs_what_the_table_says(
    keymap: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, 1)
    settings = replace(OFFLINE, ui=UiSettings(keymap=tuple(f"{name}={key}" for name, key in keymap.items())))
    async with running(arguments, settings, size=(100, 30)) as (app, pilot):
        assert app.keymap.problems == ()
        await pilot.press(keymap.get("context", "f2"))
        await until(pilot, lambda: app.steering.panel is not None)
        await pilot.press(keymap.get("focus", "tab"))
        await until(pilot, lambda: app.steering.has_focus)
        app.permission.display = True
        focus: dict[Place, Callable[[], object]] = {
            "context": lambda: None,
            "prompt": app.entry.prompt.focus,
            "conversation": app.pane.focus,
            "question": app.permission.focus,
        }
        for place, go in focus.items():
            go()
            await pilot.pause()
            active = app.screen.active_bindings
            for action in ACTIONS:
                if action.place == place or action.place == "everywhere":
                    for key in app.keymap.keys(action.id):
                        self_made = not action.does and not action.name
                        assert self_made or does(active[key], action) or key in keys_at(place, action), (action, key)


@pytest.mark.parametrize("keymap", [{}, OTHER_KEYS], ids=["own keys", "other keys"])
async def test_in_each_dialog_too(keymap: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = replace(OFFLINE, ui=UiSettings(keymap=tuple(f"{name}={key}" for name, key in keymap.items())))
    app = TuiAgent(project_of_parts(monkeypatch, tmp_path, 1), settings)
    shown: set[Place] = set()
    async with app.run_test(size=(100, 30)) as pilot:
        for make in EVERY:
            dialog = make()
            app.push_screen(dialog)
            await until(pilot, lambda dialog=dialog: dialog.stands)  # type: ignore[misc]
            active = dialog.active_bindings
            own = {each.binding.id for each in active.values() if each.node is dialog}
            for action in (action for action in ACTIONS if action.id in own):
                shown.add(action.place)
                for key in app.keymap.keys(action.id):
                    # What the field or the list with the keyboard does with a key comes first, and means the same.
                    assert active[key].node is not dialog or does(active[key], action), (action, key)
            dialog.dismiss(None)
    # A draft and calls are of a session: `test_drafting` and `test_calls_screen` show them.
    assert shown == set(DIALOGS) - {"draft", "calls"}


async def test_what_follows_a_command_is_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with running(project_of_parts(monkeypatch, tmp_path, 1), size=(100, 30)) as (app, pilot):
        completions = app.entry.completions
        for typed, offered in (
            ("/theme contr", "contrast"),
            ("/mode al", "allow"),
            ("/model sonnet", "claude-sonnet-5"),
        ):
            app.entry.prompt.clear_draft()
            app.entry.prompt.type(typed)
            await until(pilot, lambda offered=offered: offered in inserted(app))  # type: ignore[misc]
            assert completions.marked is not None
            assert completions.marked.description
        assert completions.marked is not None
        assert f"anthropic:{completions.marked.insert}" == meant_model(app.settings, "sonnet")


def inserted(app: TuiAgent) -> list[str]:
    completion = app.entry.completions.completion
    return [choice.insert for choice in completion.choices] if completion is not None else []


def does(active: ActiveBinding, action: Action) -> bool:
    """Whether a binding runs an action, by a method that is there."""
    namespace, _, method = active.binding.action.partition("(")[0].rpartition(".")
    node = active.node.app if namespace == "app" else active.node
    return active.binding.action.removeprefix("app.") == action.textual_action.removeprefix("app.") and hasattr(
        node, f"action_{method}"
    )


def keys_at(place: Place, action: Action) -> set[str]:
    """The keys that something of the place itself has, which comes before what works everywhere."""
    own = (other for other in ACTIONS if other.place == place and action.place == "everywhere")
    return {key for other in own for key in other.keys.split(",")}


async def test_help_history_and_modes_are_a_key_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with running(project_of_parts(monkeypatch, tmp_path, 1), size=(100, 30)) as (app, pilot):
        prompt = app.entry.prompt
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("escape", *"a?b")
        assert prompt.text == "a?b"
        seen = []
        for _ in range(4):
            await pilot.press("shift+tab")
            await pilot.pause()
            seen.append(app.status.status.mode)
        assert seen == ["plan", "ask", "auto", "plan"]
        for text in ("first thing", "second thing"):
            prompt.sent.add(text)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        await pilot.press(*"frst", "enter")
        await until(pilot, lambda: prompt.text == "first thing")
        await pilot.press("ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        # What stood in the prompt before is the newest text now.
        await pilot.press("down", "enter")
        await until(pilot, lambda: prompt.text == "second thing")
        prompt.clear_draft()
        await send(app, pilot, "/mode")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        await pilot.press(*["down"] * 3, "enter")
        await until(pilot, lambda: app.status.status.mode == "allow")


def notices(app: TuiAgent) -> list[str]:
    return [block.plain_text for block in blocks(app, NoticeBlock)]


async def told(app: TuiAgent, pilot: Pilot[object], text: str) -> str:
    """What the app says to this command, which replaces nothing."""
    before = len(notices(app))
    app.status.show(hint="")
    await send(app, pilot, text)
    await until(pilot, lambda: len(notices(app)) > before or app.status.status.hint)
    return "\n".join(notices(app)[before:]) or app.status.status.hint


async def test_while_a_turn_runs_what_would_change_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with running(project_of_parts(monkeypatch, tmp_path, 1), ALLOW, size=(100, 40)) as (app, pilot):
        await send(app, pilot, "run sleep 60")
        await until(pilot, lambda: blocks(app, ToolBlock))
        agent = agent_of(app)
        policy, model = agent.settings.context.policy, agent.profile.name
        assert "stays offline:offline while a turn runs" in await told(app, pilot, "/model claude-haiku-4-5")
        assert f"The policy stays {policy} while a turn runs" in await told(app, pilot, "/policy thrifty")
        for command in ("/compact!", "/clear-results!", "/undo-step"):
            assert "turn" in await told(app, pilot, command), command
        assert (agent.settings.context.policy, agent.profile.name) == (policy, model)
        await pilot.press("escape")
        await until(pilot, lambda: not app.conductor.busy)


async def test_what_there_is_not_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with running(project_of_parts(monkeypatch, tmp_path, 1), size=(100, 40)) as (app, pilot):
        assert "The model stays offline:offline" in await told(app, pilot, "/model nonesuch")
        assert "There is no policy lavish" in await told(app, pilot, "/policy lavish")
        assert "There is no theme plaid" in await told(app, pilot, "/theme plaid")
        await answered(app, pilot, "read part0.txt")
        for place in ("nowhere/at/all.md", "~nobody-here/all.md", "all.txt"):
            assert "Nothing was exported" in await told(app, pilot, f"/export {place}")
        assert "/talk of it.md" in await told(app, pilot, '/export "part/../talk of it.md"')
        await send(app, pilot, "/model gemini-3 ")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, KeyScreen))
        await pilot.press("escape")
        await until(pilot, lambda: any("There is no key for gemini:gemini-3" in each for each in notices(app)))


def said(app: TuiAgent) -> list[str]:
    return [block.title for block in blocks(app, NoticeBlock)]


async def test_a_prompt_is_sent_again_until_it_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, 1)
    async with running(arguments) as (app, pilot):

        def sent() -> int:
            return len(blocks(app, UserBlock))

        await app.run_command("/loop 9s read part0.txt")
        assert said(app)[-1] == "That is no loop"
        await app.run_command("/loop 1h read part0.txt")
        await until(pilot, lambda: sent() == 1 and not app.conductor.busy)  # at once
        await app.run_command("/loop 10s read part0.txt")
        assert said(app)[-1] == "Every 10s: read part0.txt"
        monkeypatch.setattr(loop, "SHORTEST_S", 1)
        await app.run_command("/loop 1s read part0.txt")
        await until(pilot, lambda: sent() >= 3)
        await app.run_command("/loop")
        assert said(app)[-1] == "Every 1s: read part0.txt"
        assert app.status.status.loop == "1s"
        await app.run_command("/loop off")
        assert not app.status.status.loop
        assert said(app)[-1] == "The loop has ended"
        await app.run_command("/loop")
        assert said(app)[-1] == "No loop runs"


async def test_it_ends_with_a_turn_that_was_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, 1)
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0.5")
    monkeypatch.setattr(loop, "SHORTEST_S", 1)
    async with running(arguments) as (app, pilot):
        await app.run_command("/loop 1s read part0.txt")
        await until(pilot, lambda: app.status.status.activity == "thinking")
        app.conductor.stop()
        await until(pilot, lambda: said(app)[-1].startswith("The loop has ended"))


NEED_IT = (
    "vim|vim notes.txt|/usr/bin/top|TERM=xterm htop -d 5|python3|python3 -i|less big.log|git commit|git commit --amend"
    "|git rebase -i HEAD~3|git add -p|ssh host uptime"
)
WATCHED = (
    "|ls -la|python3 -c 'print(1)'|python3 script.py|bash build.sh|echo vim|git commit -m done|git commit -am done"
    "|git log -p|$(which vim)|'unclosed"
)


def test_programs_that_need_the_terminal_and_programs_that_are_watched() -> None:
    assert [command for command in NEED_IT.split("|") if not needs_terminal(command)] == []
    watched = [*WATCHED.split("|"), "vim | cat", "cat big.log | less; echo done"]
    assert [command for command in watched if needs_terminal(command)] == []


def test_a_change_of_folder_alone_has_no_effect() -> None:
    assert all(map(only_changes_folder, ("cd", "cd /tmp", "pushd src")))
    assert not any(map(only_changes_folder, ("cd /tmp && ls", "cdrecord", "ls", "(cd src; make)")))
