"""Probes of the full-screen app: the real widgets, and the real command in a pseudo-terminal."""

from collections.abc import Mapping
from pathlib import Path

from tests.settings.effects.probe import Observe, Probe
from tests.tui.app.test_terminal_app import Terminal
from tests.tui.app_of_parts import until
from tui_agent.arguments import Arguments
from tui_agent.settings import Settings, json_text, values_by_key
from tui_agent.tui.app.app import TuiAgent

OFFLINE = {"model.id": "offline"}


def app(settings: Settings, folder: Path) -> TuiAgent:
    return TuiAgent(Arguments(folder=folder, home=folder / "home", project=folder), settings)


def gauge(tokens: int) -> Observe:
    """The colours of the status bar at this share of the window, in hundredths."""

    async def observe(settings: Settings, folder: Path) -> object:
        shown = app(settings, folder)
        async with shown.run_test(size=(80, 24)):
            shown.status.show(tokens=tokens, window=100, measured=True)
            return [str(span.style) for span in shown.status.render().spans]

    return observe


async def symbols(settings: Settings, folder: Path) -> object:
    shown = app(settings, folder)
    async with shown.run_test(size=(80, 24)):
        shown.status.show(tokens=50, window=100)
        return shown.status.render().plain


def in_terminal(settings: Settings, folder: Path, *more: str) -> Terminal:
    """The command, with what the settings say beyond files."""
    values = values_by_key(settings)
    given = {key: values[key] for key in sorted(settings.overridden)}
    flags = [f"--set={key}={value if isinstance(value, str) else json_text(value)}" for key, value in given.items()]
    return Terminal(folder, folder / "home", *flags, *more)


def mouse(settings: Settings, folder: Path) -> object:
    """Whether the terminal is asked to tell of the mouse."""
    terminal = in_terminal(settings, folder)
    terminal.shows("ready")
    terminal.close()
    return b"\x1b[?1000h" in terminal.raw


def notification(settings: Settings, folder: Path) -> object:
    """Whether the terminal is asked to notify of a question that nobody sees, in either of the two ways."""
    terminal = in_terminal(settings, folder, "--set=permissions.unasked=known")
    terminal.shows("ready")
    terminal.process.send("run touch made\r\x1b[O")  # a key after the focus went would bring it back
    terminal.shows("your answer is needed")
    terminal.close()
    return b"]9;tui-agent: " in terminal.raw or b"]777;notify;tui-agent: " in terminal.raw


async def opened_by_a_key(settings: Settings, folder: Path) -> object:
    """What lies over the screen after a key."""
    shown = app(settings, folder)
    async with shown.run_test(size=(80, 24)) as pilot:
        opens = "f9" in shown.active_bindings
        await pilot.press("f9")
        await until(pilot, lambda: len(shown.screen_stack) > 1 or not opens)
        return [type(screen).__name__ for screen in shown.screen_stack]


async def panel(settings: Settings, folder: Path) -> object:
    """Whether the context panel stands beside the conversation from the start."""
    shown = app(settings, folder)
    async with shown.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: shown.conductor.session is not None)
        await until(pilot, lambda: all(each.is_finished for each in shown.workers if each.name == "context"))
        return shown.steering.panel is not None


PROBES: Mapping[str, Probe] = {
    "ui.theme": Probe("light", lambda settings, folder: app(settings, folder).theme),
    "ui.glyphs": Probe("ascii", symbols, OFFLINE),
    "ui.panel_columns": Probe(120, panel, OFFLINE),
    "ui.mouse": Probe(False, mouse, OFFLINE),
    "ui.notifications": Probe(False, notification, OFFLINE),
    "ui.gauge_yellow": Probe(0.3, gauge(50), OFFLINE),
    "ui.keymap": Probe(("help=f9",), opened_by_a_key, OFFLINE),
    "ui.gauge_red": Probe(0.3, gauge(50), OFFLINE),
}
