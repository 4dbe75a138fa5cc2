"""The commands that choose who answers, and the keys to ask with."""

import asyncio
import os
from typing import TYPE_CHECKING, Final, Protocol

from tui_agent.tui.cards.blocks import Level

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from textual.screen import Screen

    from tui_agent.agent.agent import Agent
    from tui_agent.models.base import Model
    from tui_agent.tui.dialogs.pickers import Option

    MaySwitch = Callable[[Agent, Model], Awaitable[bool]]

TITLE: Final = "Model: tier, window, $ per million tokens in / out"
PROVIDERS: Final = {"ANTHROPIC_API_KEY": "Claude (Anthropic)", "GEMINI_API_KEY": "Gemini (Google)"}


class ModelHost(Protocol):
    """What these commands use of the app."""

    async def agent(self) -> "Agent":
        """The agent, once the session is open. Raises SessionUnavailable."""
        ...

    def say(self, level: Level, title: str, text: str = "", hint: str = "") -> None:
        """Show a notice in the pane."""
        ...

    async def pick(
        self,
        title: str,
        options: "Iterable[Option]",
        current: str,
        *,
        search: bool = False,
        preview: "Callable[[str], None] | None" = None,
    ) -> str | None:
        """Let the user choose one; None: they did not."""
        ...

    async def question(self, screen: "Screen[str | None]") -> str | None:
        """Show a dialog and wait for its result."""
        ...

    async def may_switch(self, agent: "Agent", model: "Model") -> bool:
        """Whether another model may go on, after a look at what that means."""
        ...

    def refresh_status(self) -> None:
        """Bring what the agent is now to the status bar."""
        ...


async def choose_model(host: ModelHost, argument: str) -> None:
    """Let another model answer; where its key is missing, ask for that first."""
    from tui_agent.agent.model_choice import local_models
    from tui_agent.models.base import ModelError
    from tui_agent.models.catalogue import missing_key
    from tui_agent.tui.dialogs.options import model_options

    agent = await host.agent()
    before = agent.profile.name
    options = () if argument else await asyncio.to_thread(model_options, before, local_models(agent.settings))
    name = argument or await host.pick(TITLE, options, before, search=True)
    if name is None:
        return
    try:
        missing = missing_key(name)
        if name == before and missing is None:
            return
        if agent.busy:
            host.say(Level.WARNING, f"The model stays {before} while a turn runs", hint="Esc stops the turn")
            return
        if missing is not None and not await _keep_key(host, missing, name):
            hint = f"set {missing} and start again with -c, or enter it with /key"
            host.say(Level.WARNING, f"The model stays {before}", f"There is no key for {name}.", hint)
            return
        if not await _swap(agent, name, host.may_switch):
            return
    except ModelError as error:
        host.say(Level.ERROR, f"The model stays {before}", error.message, "/model without a name lists what there is")
        return
    host.refresh_status()
    host.say(Level.INFO, f"{agent.profile.name} answers from here on")


async def enter_key(host: ModelHost, argument: str) -> None:
    """Ask for a provider's key, and use it at once where that provider answers."""
    from tui_agent.models.catalogue import resolve
    from tui_agent.tui.dialogs.pickers import Option

    agent = await host.agent()
    options = [Option(variable, name, _key_state(variable)) for variable, name in PROVIDERS.items()]
    variable = await host.pick("A key for", options, "")
    if variable is None or not await _keep_key(host, variable, PROVIDERS[variable]):
        return
    name = agent.profile.name
    mine = {"anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}.get(resolve(name).provider)
    if mine == variable and not agent.busy:
        await _swap(agent, name)
    host.refresh_status()
    host.say(Level.INFO, f"The key for {PROVIDERS[variable]} is used until the program ends", hint="/model chooses")


async def _keep_key(host: ModelHost, variable: str, purpose: str) -> bool:
    """Ask for a key, and keep it in this process alone; whether one was given."""
    from tui_agent.tui.dialogs.key_dialog import KeyScreen

    key = await host.question(KeyScreen(variable, purpose))
    if key:
        os.environ[variable] = key
    return bool(key)


async def _swap(agent: "Agent", name: str, may_switch: "MaySwitch | None" = None) -> bool:
    """Let another model answer, unless the user would rather not; whether it does."""
    from tui_agent.agent.model_choice import configured_model

    model = await asyncio.to_thread(configured_model, agent.settings, name)
    if may_switch is not None and not await may_switch(agent, model):
        await model.close()
        return False
    await agent.swap_model(model)
    await agent.connect()
    return True


def _key_state(variable: str) -> str:
    return f"{variable} is set" if os.environ.get(variable) else f"{variable} is not set"
