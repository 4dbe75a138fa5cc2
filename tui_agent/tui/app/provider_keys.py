"""The keys of providers: asked for, used in this process, and kept in the system's keyring if the user wants that."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tui_agent.tui.app.host import Host
from tui_agent.tui.cards.blocks import Level

if TYPE_CHECKING:
    from tui_agent.settings import Settings
    from tui_agent.tui.dialogs.pickers import Option

KEEP, FORGET, FOR_NOW = "keep", "forget", "now"


def key_options(settings: "Settings", home: Path) -> "tuple[Option, ...]":
    """The providers, whether each has a key, and which kept keys could be forgotten. Reads a file."""
    from tui_agent.models.catalogue import catalogue_of
    from tui_agent.settings.kept_keys import kept_variables
    from tui_agent.tui.dialogs.pickers import Option

    kept, providers = kept_variables(home), catalogue_of(settings).with_keys()
    forget = "take its key out of the system's keyring"
    return (
        *(Option(each.key, each.label, _state(each.key, kept)) for each in providers),
        *(Option(f"{FORGET} {each.key}", f"Forget {each.label}", forget) for each in providers if each.key in kept),
    )


async def ask_for_key(host: Host, variable: str, purpose: str) -> bool:
    """Ask for a key, and use it in this process; whether one was given."""
    from tui_agent.models.catalogue import catalogue_of
    from tui_agent.tui.dialogs.key_dialog import KeyScreen

    where = next((each.keys_at for each in catalogue_of(host.settings).with_keys() if each.key == variable), "")
    key = await host.question(KeyScreen(purpose, where))
    if key:
        os.environ[variable] = key
    return bool(key)


async def offer_to_keep(host: Host, variable: str) -> None:
    """Ask whether the key of a variable should be there at the next start, and keep it in the system's keyring then."""
    from tui_agent.settings.kept_keys import KeyringProblem, keep_key, keyring_name
    from tui_agent.tui.dialogs.pickers import Option

    shell = f"to have it at the next start, set {variable} in your shell"
    try:
        keyring = await asyncio.to_thread(keyring_name)
    except KeyringProblem as problem:
        host.say(Level.INFO, "The key is used until the program ends", f"The system's keyring: {problem}.", shell)
        return
    options = (
        Option(FOR_NOW, "Until the program ends", "it is written nowhere"),
        Option(KEEP, "For the next starts too", f"in the system's keyring ({keyring})"),
    )
    if await host.pick("How long should the key be kept?", options, FOR_NOW) != KEEP:
        host.say(Level.INFO, "The key is used until the program ends", hint=shell)
        return
    try:
        await asyncio.to_thread(keep_key, host.arguments.home, variable, os.environ[variable])
    except KeyringProblem as problem:
        host.say(Level.WARNING, "The key is not kept", f"The system's keyring: {problem}.", shell)
        return
    host.say(Level.INFO, "The key is kept in the system's keyring", hint="/key forgets it")


async def forget_kept(host: Host, variable: str) -> None:
    """Take the key of a variable out of the system's keyring."""
    from tui_agent.settings.kept_keys import KeyringProblem, forget_key

    try:
        await asyncio.to_thread(forget_key, host.arguments.home, variable)
    except KeyringProblem as problem:
        host.say(Level.WARNING, "The key stays in the system's keyring", f"{problem}.")
        return
    host.say(Level.INFO, "The key is out of the system's keyring", f"{variable} is used until the program ends.")


def _state(variable: str, kept: tuple[str, ...]) -> str:
    if variable in kept:
        return "kept in the system's keyring"
    return f"{variable} is set" if os.environ.get(variable) else f"{variable} is not set"
