"""What a client offers its user to choose in a session: the mode, the model, commands."""

from typing import Final, Literal

from acp.schema import (
    AuthEnvVar,
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    EnvVarAuthMethod,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
    TerminalAuthMethod,
    UnstructuredCommandInput,
)

from tui_agent.agent.agent import Agent
from tui_agent.agent.commands.table import ERRANDS, available_commands
from tui_agent.models.catalogue import OFFLINE, Catalogue, catalogue_of
from tui_agent.models.choice import TIERS, model_of_tier
from tui_agent.models.provider import Provider
from tui_agent.text import one_line
from tui_agent.tools.gate.permissions import Mode

MODE: Final[Literal["mode"]] = "mode"
MODEL: Final[Literal["model"]] = "model"

TERMINAL: Final = "terminal"
"""The way to sign in that is the app itself."""

MODES: Final[dict[Mode, tuple[str, str]]] = {
    "plan": ("Plan", "Reads and thinks; changes nothing."),
    "ask": ("Ask", "Asks before each change, command and address that no rule allows."),
    "auto": ("Auto", "Changes files in the project, runs commands in the sandbox (else what only reads); else asks."),
    "allow": ("Allow", "Asks nothing; what your rules forbid stays forbidden."),
}
"""Each permission mode's title and description for the user."""


def mode_state(agent: Agent) -> SessionModeState:
    """The available modes, and the present one."""
    modes = [SessionMode(id=mode, name=name, description=description) for mode, (name, description) in MODES.items()]
    return SessionModeState(current_mode_id=agent.permissions.mode, available_modes=modes)


def model_names(agent: Agent, *, every: bool = False) -> list[str]:
    """The models to choose from, as ``provider/id``: the present one, and for every provider with a key one of each
    tier and those it suggests, or all that are known (`every`).

    Any other name can be set too. Imports the price catalogue for `every`: call it in a thread.
    """
    settings, catalogue = agent.settings, catalogue_of(agent.settings)
    found = [agent.profile.name]
    for provider in filter(Provider.has_credentials, catalogue.providers):
        names = [model_of_tier(settings, provider.id, tier) for tier in TIERS]
        names += [str(catalogue.resolve(name)) for name in provider.suggested if provider.id != OFFLINE]
        if every:
            from tui_agent.models.prices import listed_models

            names += [f"{provider.id}:{model}" for model in listed_models(provider)]
        found += filter(None, names)
    return list(dict.fromkeys(map(as_offered, [*found, OFFLINE])))


def as_offered(name: str) -> str:
    """A model's name as clients are offered it: ``provider/id``, which is how harnesses and registries write it."""
    return OFFLINE if name.startswith(OFFLINE) else name.replace(":", "/", 1)


def auth_methods(catalogue: Catalogue) -> list[EnvVarAuthMethod | TerminalAuthMethod]:
    """How a user can give keys: an environment variable for each provider that needs one, or the app in a terminal."""
    found: list[EnvVarAuthMethod | TerminalAuthMethod] = [
        EnvVarAuthMethod(
            id=provider.id,
            name=f"{provider.title}: API key",
            description=f"Set {' or '.join(provider.keys)}.",
            vars=[AuthEnvVar(name=provider.keys[0])],
            link=provider.keys_page or None,
            type="env_var",
        )
        for provider in catalogue.with_keys()
    ]
    description = "Opens the app in a terminal; /key stores a key in the keyring."
    return [
        *found,
        TerminalAuthMethod(id=TERMINAL, name="In the terminal", description=description, type="terminal", args=[]),
    ]


def config_options(agent: Agent, *, every: bool = False) -> list[SessionConfigOptionSelect]:
    """Modes and models as config options, which newer clients use. `every`: see `model_names`."""
    modes = [
        SessionConfigSelectOption(value=mode, name=name, description=description)
        for mode, (name, description) in MODES.items()
    ]
    short_name = catalogue_of(agent.settings).short_name
    names = model_names(agent, every=every)
    models = [SessionConfigSelectOption(value=name, name=short_name(name.replace("/", ":", 1))) for name in names]
    return [
        _select(MODE, "Mode", "What needs your approval.", agent.permissions.mode, modes),
        _select(MODEL, "Model", "Which model answers.", as_offered(agent.profile.name), models),
    ]


def _select(
    name: Literal["mode", "model"], title: str, description: str, value: str, options: list[SessionConfigSelectOption]
) -> SessionConfigOptionSelect:
    return SessionConfigOptionSelect(
        id=name, name=title, description=description, category=name, type="select", current_value=value, options=options
    )


async def commands(agent: Agent) -> AvailableCommandsUpdate:
    """The available slash commands, including the user's own and servers' prompts."""
    found = [_command(each.name, each.description, each.argument) for each in available_commands(agent)]
    found += [_command(name, description, argument) for name, description, argument in ERRANDS]
    taken = {each.name for each in found}
    found += [
        _command(each.name, one_line(each.description), one_line(each.hint))
        for each in await agent.own_commands.all()
        if not each.problem and each.name not in taken
    ]
    return AvailableCommandsUpdate(session_update="available_commands_update", available_commands=found)


def _command(name: str, description: str, argument: str) -> AvailableCommand:
    if not argument:
        return AvailableCommand(name=name, description=description)
    return AvailableCommand(
        name=name, description=description, input=AvailableCommandInput(root=UnstructuredCommandInput(hint=argument))
    )
