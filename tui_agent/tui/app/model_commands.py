"""The commands that choose who answers, and the keys to ask with."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from tui_agent.text import one_line
from tui_agent.tui.app.host import Host
from tui_agent.tui.app.provider_keys import (
    FORGET,
    ask_for_key,
    forget_kept,
    key_options,
    offer_to_keep,
)
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.wording import model_label

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from tui_agent.agent.agent import Agent
    from tui_agent.models.base import Model, Pulled

    MaySwitch = Callable[[Agent, Model], Awaitable[bool]]

GET, LEAVE = "get", "leave"
BAR_CELLS: Final = 8
TITLE: Final = "Who answers: $ per million tokens in / out, window"


async def choose_model(host: Host, argument: str) -> None:
    """Let another model answer; where its key is missing, ask for that first."""
    from tui_agent.models.base import ModelError
    from tui_agent.models.catalogue import OFFLINE, catalogue_of
    from tui_agent.tui.dialogs.options import model_options

    agent = await host.agent()
    before = agent.profile.name
    options = () if argument else await asyncio.to_thread(model_options, before, agent.settings)
    name = argument or await host.pick(TITLE, options, before, search=True)
    if name is None:
        return
    try:
        missing = catalogue_of(agent.settings).missing_key(name)
        if name == before and missing is None:
            return
        if _turn_runs(agent):
            host.say(Level.WARNING, f"The model stays {before} while a turn runs", hint="Esc stops the turn")
            return
        if missing is not None and not await ask_for_key(host, missing, name):
            hint = f"set {missing} and start again with -c, or enter it with /key"
            host.say(Level.WARNING, f"The model stays {before}", f"There is no key for {name}.", hint)
            return
        if not await _at_hand(host, agent, name):
            return
        # A turn may have begun while it was fetched.
        if _turn_runs(agent):
            host.say(Level.INFO, f"{name} is here", f"{before} answers until the turn ends", f"/model {name} then")
            return
        if not await swap(agent, name, host.may_switch):
            return
    except ModelError as error:
        host.say(Level.ERROR, f"The model stays {before}", error.message, "/model without a name lists what there is")
        return
    host.refresh_status()
    host.say(Level.INFO, f"{model_label(agent.profile.name)} answers from here on")
    # The demonstration is never what the next start is meant to begin with: a key would wait unseen.
    if agent.profile.provider != OFFLINE:
        await host.keep("model.id", agent.profile.name)
    if missing is not None:
        await offer_to_keep(host, missing)


def _turn_runs(agent: "Agent") -> bool:
    return agent.busy


async def _at_hand(host: Host, agent: "Agent", name: str) -> bool:
    """Whether the model can be asked: one that a local server does not have is downloaded, where the user wants that.

    Raises `ModelError`.
    """
    from tui_agent.agent.model_choice import local_models
    from tui_agent.models.catalogue import catalogue_of
    from tui_agent.tui.dialogs.pickers import Option

    catalogue, local = catalogue_of(agent.settings), local_models(agent.settings)
    provider, model = catalogue.provider_of(name), catalogue.resolve(name).id
    here = [each.id for each in await asyncio.to_thread(provider.running, local)] if provider.pull is not None else []
    # Where the server does not answer, asking it will say so.
    if provider.pull is None or not here or {model, f"{model}:latest"} & set(here):
        return True
    options = (Option(GET, f"Get {one_line(model, 40)}", f"{provider.title} downloads it"), Option(LEAVE, "Leave it"))
    if await host.pick(f"{provider.title} has no {one_line(model, 40)}", options, GET) != GET:
        return False
    return await _downloaded(host, name, provider.pull(model, local))


async def _downloaded(host: Host, name: str, download: "AsyncGenerator[Pulled, None]") -> bool:
    """Have a model downloaded, unless Esc stops that; whether it is here. Raises `ModelError`."""
    from tui_agent.models.base import Pulled

    newest = Pulled("")
    model = name.partition(":")[2]

    async def follow() -> None:
        nonlocal newest
        async with aclosing(download) as told:
            async for newest in told:
                host.working(pull_text(model, newest))

    try:
        if await host.until_stopped(follow()):
            return True
    finally:
        host.working("")
    size = f"{newest.done / 1e9:.1f} of {newest.total / 1e9:.1f} GB are here" if newest.total else "Nothing is here yet"
    host.say(Level.INFO, f"The download of {one_line(model, 40)} is stopped", size, f"/model {name} goes on with it")
    return False


def pull_text(model: str, pulled: "Pulled") -> str:
    """How far a download is, as a bar of fixed width."""
    if not pulled.total:
        return f"{one_line(model, 16)}: {one_line(pulled.step, 20)}"
    share = min(1.0, pulled.done / pulled.total)
    filled = int(share * BAR_CELLS)
    bar = "█" * filled + "░" * (BAR_CELLS - filled)
    return f"{one_line(model, 16)} {bar} {share:>4.0%} of {pulled.total / 1e9:.1f} GB"


async def enter_key(host: Host, argument: str) -> None:
    """Ask for a provider's key, let that provider answer where nobody else does, and offer to keep the key."""
    from tui_agent.models.catalogue import catalogue_of

    agent = await host.agent()
    options = await asyncio.to_thread(key_options, agent.settings, host.arguments.home)
    chosen = await host.pick("A key for", options, "", search=True)
    if chosen is None:
        return
    if chosen.startswith(FORGET):
        await forget_kept(host, chosen.split()[1])
        return
    provider = next(each for each in catalogue_of(agent.settings).with_keys() if each.key == chosen)
    if await ask_for_key(host, chosen, provider.label):
        await _use_key(host, agent, provider.id)
        await offer_to_keep(host, chosen)


async def _use_key(host: Host, agent: "Agent", provider: str) -> None:
    """Let the provider's own model answer with the new key; it takes the place of the offline one, which needs none."""
    from tui_agent.agent.model_choice import default_model
    from tui_agent.models.catalogue import OFFLINE, catalogue_of

    before = catalogue_of(agent.settings).resolve(agent.profile.name).provider
    if before not in (OFFLINE, provider):
        host.say(Level.INFO, f"{agent.profile.name} still answers", hint="/model chooses another")
    elif agent.busy:
        host.say(Level.INFO, f"{agent.profile.name} answers until the turn ends", hint="/model chooses another then")
    else:
        name = agent.profile.name if before == provider else default_model(agent.settings, provider)
        await swap(agent, name)
        host.refresh_status()
        host.say(Level.INFO, f"{model_label(agent.profile.name)} answers from here on", hint="/model chooses another")
        if before == OFFLINE and agent.settings.model.id and "model.id" not in agent.settings.overridden:
            await host.keep("model.id", agent.profile.name)


async def swap(agent: "Agent", name: str, may_switch: "MaySwitch | None" = None) -> bool:
    """Let another model answer, unless the user would rather not; whether it does."""
    from tui_agent.agent.model_choice import configured_model

    model = await asyncio.to_thread(configured_model, agent.settings, name)
    if may_switch is not None and not await may_switch(agent, model):
        await model.close()
        return False
    await agent.swap_model(model)
    await agent.connect()
    return True
