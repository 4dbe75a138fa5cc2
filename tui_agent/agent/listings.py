"""The commands that the full-screen app shows as pickers and pages, in text form."""

import asyncio
from collections.abc import Iterable
from difflib import get_close_matches
from textwrap import shorten

from tui_agent.agent.agent import Agent
from tui_agent.agent.command_names import CommandName
from tui_agent.agent.task_class import configured_model
from tui_agent.models.base import ModelError
from tui_agent.models.catalogue import missing_key

DESCRIPTION_CHARS = 200
"""Characters of a tool's description in the list of tools."""


def help_text(commands: Iterable[CommandName]) -> str:
    """Every command on a line."""
    usages = [(f"/{command.name} {command.argument}".rstrip(), command) for command in commands]
    width = max(len(usage) for usage, _ in usages) + 2
    return "\n".join(f"{usage:<{width}}{command.description}" for usage, command in usages)


def unknown_text(word: str, commands: Iterable[CommandName]) -> str:
    """What to type in place of a command that does not exist."""
    names = [name for command in commands for name in (command.name, *command.aliases)]
    close = get_close_matches(word.lower(), names, n=1)
    nearest = f"Did you mean /{close[0]}?" if close else "/help lists the commands."
    return f"{nearest} A space before the slash sends it to the model as it is."


def tools_text(agent: Agent) -> str:
    """Every tool of the model on a line, with the first sentence of its description."""
    tools = agent.tools()
    width = max((len(tool.name) for tool in tools), default=0) + 2
    return "\n".join(f"{tool.name:<{width}}{_first_sentence(tool.description)}" for tool in tools)


def model_text(agent: Agent) -> str:
    """Who answers, with tier, window and prices."""
    profile = agent.profile
    facts = [profile.name, "" if profile.tier == "unknown" else profile.tier]
    facts.append(f"{profile.window:,} tokens" if profile.window else "window unknown")
    prices = profile.prices
    facts.append(f"${prices.input:g} / ${prices.output:g} per million tokens" if prices else "price unknown")
    return ", ".join(fact for fact in facts if fact)


async def change_model(agent: Agent, name: str) -> str:
    """Let the model `name` answer from here on; why it does not, or empty. Raises `AgentBusy`, `StorageError`."""
    try:
        missing = missing_key(name)
        if missing is not None:
            return f"There is no key for {name}: set {missing}."
        await agent.swap_model(await asyncio.to_thread(configured_model, agent.settings, name))
    except ModelError as error:
        return error.message
    return ""


def _first_sentence(text: str) -> str:
    line = " ".join(text.split()).split(". ", 1)[0].rstrip(".")
    return shorten(line, DESCRIPTION_CHARS, placeholder=" …")
