"""The commands /model and /key: choosing the model, and the providers' API keys."""

import asyncio
import os
import re
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_agent.text import compact_count, one_line
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.host import Host
from tui_agent.tui.prompt.completion import CompletionItem
from tui_agent.tui.wording import model_label

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

    from tui_agent.agent.agent import Agent
    from tui_agent.conversation.profile import ModelProfile
    from tui_agent.models.base import Model, PullProgress
    from tui_agent.models.catalogue import Catalogue
    from tui_agent.settings import Settings
    from tui_agent.tui.dialogs.pickers import Option

    MaySwitch = Callable[[Agent, Model], Awaitable[bool]]

GET, LEAVE = "get", "leave"
KEEP, FORGET, FOR_NOW = "keep", "forget", "now"
BAR_CELLS: Final = 8
TITLE: Final = "Model: $ per million tokens in / out, window"
MAX_MODEL: Final = 27
"""Characters of a model's name, so that the text after it fits a screen of 80 columns."""

_VENDORS: Final = re.compile(r"^(?:[a-z-]+[./])+")
"""Who made or sells a model, at the beginning of its id: ``global.anthropic.``, ``meta-llama/``."""


async def choose_model(host: Host, argument: str) -> None:
    """Switch the model, asking for its API key first if that is missing."""
    from tui_agent.models.base import ModelError
    from tui_agent.models.catalogue import OFFLINE, catalogue_of

    agent = await host.agent()
    before = agent.profile.name
    try:
        name = await _wanted(host, agent, argument)
        if name is None:
            return
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
        # A turn may have begun during the download.
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
    # Do not save the offline model: at the next start it would hide a key that was set meanwhile.
    if agent.profile.provider != OFFLINE:
        await host.keep("model.id", agent.profile.name)
    if missing is not None:
        await offer_to_keep(host, missing)


async def _wanted(host: Host, agent: "Agent", typed: str) -> str | None:
    """The model that the user typed or picks; None if they cancelled. Raises `UnknownModel`."""
    from tui_agent.models.base import SeveralModels
    from tui_agent.models.choice import meant_model

    settings, present = agent.settings, agent.profile.name
    if not typed:
        return await host.pick(TITLE, await asyncio.to_thread(model_options, present, settings), present, search=True)
    try:
        return await asyncio.to_thread(meant_model, settings, typed)
    except SeveralModels as several:
        return await pick_of(host, settings, present, typed, several.names)


async def pick_of(
    host: Host, settings: "Settings", present: str, typed: str, names: "Sequence[str]", text: str = ""
) -> str | None:
    """The one of the models `names` that the user picks, or what they typed, if that can be a name: it may be newer
    than this program. None if they cancelled.
    """
    from msgspec.structs import replace

    from tui_agent.models.base import UnknownModel
    from tui_agent.models.catalogue import catalogue_of
    from tui_agent.tui.dialogs.pickers import Option

    options = await asyncio.to_thread(model_options, present, settings)
    alike = [replace(option, folded=False) for option in options if option.value in names]
    try:
        written = str(catalogue_of(settings).resolve(typed))
        alike.append(Option(written, written, "as you wrote it"))
    except UnknownModel:
        pass
    return await host.pick(TITLE, alike, "", text=text, search=True)


def _turn_runs(agent: "Agent") -> bool:
    # A function, because mypy would take a second check of the property for redundant.
    return agent.busy


async def _at_hand(host: Host, agent: "Agent", name: str) -> bool:
    """Whether the model is available, after downloading it to the local server if it is missing and the user agrees.

    Raises `ModelError`.
    """
    from tui_agent.models.catalogue import catalogue_of
    from tui_agent.models.choice import local_models
    from tui_agent.tui.dialogs.pickers import Option

    catalogue, local = catalogue_of(agent.settings), local_models(agent.settings)
    provider, model = catalogue.provider_of(name), catalogue.resolve(name).id
    here = [each.id for each in await asyncio.to_thread(provider.installed, local)] if provider.pull is not None else []
    # If the server does not answer, the first request will say so.
    if provider.pull is None or not here or {model, f"{model}:latest"} & set(here):
        return True
    options = (Option(GET, f"Get {one_line(model, 40)}", f"{provider.title} downloads it"), Option(LEAVE, "Leave it"))
    if await host.pick(f"{provider.title} has no {one_line(model, 40)}", options, GET) != GET:
        return False
    return await _downloaded(host, name, provider.pull(model, local))


async def _downloaded(host: Host, name: str, download: "AsyncGenerator[PullProgress, None]") -> bool:
    """Download a model; False if Esc stopped it. Raises `ModelError`."""
    from tui_agent.models.base import PullProgress

    newest = PullProgress("")
    model = name.partition(":")[2]

    async def follow() -> None:
        nonlocal newest
        async with aclosing(download) as download_events:
            async for newest in download_events:
                host.working(pull_text(model, newest))

    try:
        if await host.until_stopped(follow()):
            return True
    finally:
        host.working("")
    size = f"{newest.done / 1e9:.1f} of {newest.total / 1e9:.1f} GB are here" if newest.total else "Nothing is here yet"
    host.say(Level.INFO, f"The download of {one_line(model, 40)} is stopped", size, f"/model {name} resumes it")
    return False


def pull_text(model: str, pulled: "PullProgress") -> str:
    """The progress of a download, with a bar of fixed width."""
    if not pulled.total:
        return f"{one_line(model, 16)}: {one_line(pulled.step, 20)}"
    share = min(1.0, pulled.done / pulled.total)
    filled = int(share * BAR_CELLS)
    bar = "█" * filled + "░" * (BAR_CELLS - filled)
    return f"{one_line(model, 16)} {bar} {share:>4.0%} of {pulled.total / 1e9:.1f} GB"


async def enter_key(host: Host, argument: str) -> None:
    """Ask for a provider's API key, switch to that provider from the offline model, and offer to save the key."""
    from tui_agent.models.catalogue import catalogue_of

    agent = await host.agent()
    options = await asyncio.to_thread(key_options, agent.settings, host.arguments.home)
    chosen = await host.pick("Which provider is the key for?", options, "", search=True)
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
    """Use the new key: if the offline model is active, switch to the provider's default model."""
    from tui_agent.models.catalogue import OFFLINE, catalogue_of
    from tui_agent.models.choice import default_model

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
    """Switch the model, unless the user declines after the preview; False if they did."""
    from tui_agent.models.choice import configured_model

    model = await asyncio.to_thread(configured_model, agent.settings, name)
    if may_switch is not None and not await may_switch(agent, model):
        await model.close()
        return False
    await agent.swap_model(model)
    await agent.connect()
    return True


def model_options(current: str, settings: "Settings") -> "tuple[Option, ...]":
    """The models of the catalogue and of local servers, each with price in USD per million tokens, window, tier, and
    whether its key is missing.

    The current one is first, then they are listed by provider, cheap ones first, old ones folded. Slow, it imports the
    price catalogue and asks local servers: call it in a thread.
    """
    from tui_agent.models.catalogue import catalogue_of
    from tui_agent.models.choice import local_models, newest
    from tui_agent.tui.dialogs.pickers import Option

    catalogue = catalogue_of(settings)
    known, short_name = catalogue.known_models(local_models(settings)), catalogue.short_name
    present = next((each for each in known if each.name == current), None)
    options = [
        Option("", "Now", heading=True),
        Option(current, _label(short_name(current)), _model_facts(present, catalogue) if present else ""),
    ]
    by_provider = [
        (provider, [each for each in known if each.provider == provider.id and each.name != current])
        for provider in catalogue.providers
    ]
    # Local models come first: they work without a key, and would be hard to find below a hundred others.
    by_provider.sort(key=lambda served: not any(each.local for each in served[1]))
    for provider, served in by_provider:
        newer = set(newest(served))
        served.sort(key=lambda each: (each.name not in newer, each.prices.input if each.prices else 0.0))
        if served:
            options.append(Option("", provider.label, heading=True))
        for each in served:
            label, facts = _label(short_name(each.name)), _model_facts(each, catalogue)
            whole = each.name if "…" in label else ""
            options.append(Option(each.name, label, facts, folded=each.name not in newer, whole=whole))
    return tuple(options)


class ModelChoices:
    """Completions for `/model`. They are looked up when first needed; then the completion is refreshed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._found: tuple[CompletionItem, ...] | None = None

    def known(self) -> tuple[CompletionItem, ...]:
        """The choices known so far; starts the look-up on first use."""
        if self._found is None:
            self._found = ()
            self._host.run_worker(self._look(), name="models", exit_on_error=False)
        return self._found

    async def _look(self) -> None:
        from tui_agent.models.catalogue import catalogue_of

        host, catalogue = self._host, catalogue_of(self._host.settings)
        options = await asyncio.to_thread(model_options, host.status.status.model, host.settings)
        named = sorted((option for option in options if not option.heading), key=lambda option: option.folded)
        words = await asyncio.to_thread(_words, (option.value for option in named), catalogue)
        self._found = tuple(
            CompletionItem(
                catalogue.short_name(option.value), option.label, option.description, names=words.get(option.value, ())
            )
            for option in named
        )
        host.entry.prompt.offer_anew()


def _words(models: "Iterable[str]", catalogue: "Catalogue") -> dict[str, tuple[str, ...]]:
    """The words of models' names that mean a model by themselves, such as ``opus`` and ``claude-opus``, by its name."""
    from tui_agent.models.base import UnknownModel

    parts = [tuple(filter(str.isalpha, name.rpartition(":")[2].split("-"))) for name in models]
    found: dict[str, tuple[str, ...]] = {}
    for word in sorted({word for each in parts for word in (*each, "-".join(each))}):
        with suppress(UnknownModel):
            name = str(catalogue.resolve(word))
            found[name] = (*found.get(name, ()), word)
    return found


def _label(name: str) -> str:
    """A model's name as the list shows it: of a long one, not the words before it that others have too."""
    label = model_label(name)
    if len(label) > MAX_MODEL:
        provider, colon, model = label.partition(":")
        label = f"{provider}{colon}{_VENDORS.sub('…', model)}"
    return one_line(label, MAX_MODEL)


def _model_facts(profile: "ModelProfile", catalogue: "Catalogue") -> str:
    tier = "" if profile.tier == "unknown" else profile.tier
    assumed = "?" if profile.source == "default" else " "
    window = f"{compact_count(profile.window)}{assumed}" if profile.window else ""
    prices = profile.prices
    cost = f"{_price(prices.input):>6} / {_price(prices.output)}" if prices is not None else ""
    if profile.local:
        size = f"{profile.size / 1e9:.1f} GB" if profile.size else ""
        able = ("loaded" * profile.loaded, "tools" if profile.tools else "no tools", "vision" * profile.images)
        return f"{size:<14}{window:>6} {', '.join(filter(None, able))}".rstrip()
    absent = catalogue.provider_of(profile.name).missing()
    lacks = "no key" if catalogue.missing_key(profile.name) else "not installed" if absent else ""
    # What is lacking comes before the tier, which a narrow list may cut.
    return f"{cost:<14} {window:>5}  {f'{lacks}  ' if lacks else ''}{tier}".rstrip()


def _price(usd: float) -> str:
    """USD per million tokens; whole amounts without decimals."""
    return f"${usd:.2f}" if usd % 1 and round(usd, 2) == usd else f"${usd:g}"


def key_options(settings: "Settings", home: Path) -> "tuple[Option, ...]":
    """The providers with the state of their keys, and the saved keys that can be forgotten. Reads a file."""
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
    """Ask for an API key and use it in this process; False if none was given."""
    from tui_agent.models.catalogue import catalogue_of
    from tui_agent.tui.dialogs.fields import KeyScreen

    where = next((each.keys_page for each in catalogue_of(host.settings).with_keys() if each.key == variable), "")
    key = await host.question(KeyScreen(purpose, where))
    if key:
        os.environ[variable] = key
    return bool(key)


async def offer_to_keep(host: Host, variable: str) -> None:
    """Offer to save the key of a variable in the system's keyring."""
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
    """Delete the key of a variable from the system's keyring."""
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
