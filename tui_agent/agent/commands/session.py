"""The commands on the model, tools, permissions, extensions, styles, skills and memory.

Modules that only a handler needs are imported inside it.
"""

import asyncio
import contextlib
from textwrap import shorten
from typing import TYPE_CHECKING, Final

from tui_agent.agent.commands.command import Reply, number_of
from tui_agent.text import counted, one_line

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.conversation.profile import ModelProfile
    from tui_agent.tools.gate.permissions import GrantedRule

LEARNING_S: Final = 8.0
"""Seconds a command waits for the provider's facts on the model, including the import of an SDK."""

DESCRIPTION_CHARS: Final = 200
"""Characters shown of a tool's description."""


async def learn_profile(agent: "Agent") -> None:
    """Wait at most `LEARNING_S` for the provider's facts on the model."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(agent.connect(), LEARNING_S)


async def model(agent: "Agent", name: str) -> Reply:
    """``/model``: show or switch the model."""
    if name:
        refused = await _change_model(agent, name)
        if refused:
            return Reply(f"The model stays {agent.profile.name}", refused, failed=True)
        return Reply(f"{agent.profile.name} answers from here on")
    await learn_profile(agent)
    profile = agent.profile
    facts = [profile.name, "" if profile.tier == "unknown" else profile.tier]
    facts.append(f"{profile.window:,} tokens" if profile.window else "window unknown")
    prices = profile.prices
    facts.append(f"${prices.input:g} / ${prices.output:g} per million tokens" if prices else "price unknown")
    others = "/model NAME lets another one answer; claude-…, gemini-…, openai:NAME, ollama:NAME, offline."
    return Reply(
        ", ".join(fact for fact in facts if fact), "\n".join(line for line in (figures_from(profile), others) if line)
    )


async def _change_model(agent: "Agent", name: str) -> str:
    """Switch to the model `name`; returns why not, or an empty string. Raises `AgentBusy`, `StorageError`."""
    from tui_agent.agent.model_choice import configured_model
    from tui_agent.models.base import ModelError
    from tui_agent.models.catalogue import catalogue_of

    try:
        missing = catalogue_of(agent.settings).missing_key(name)
        if missing is not None:
            return f"There is no key for {name}: set {missing}."
        await agent.swap_model(await asyncio.to_thread(configured_model, agent.settings, name))
    except ModelError as error:
        return error.message
    return ""


def figures_from(profile: "ModelProfile") -> str:
    """The source of a model's figures if they are not from the provider; else empty."""
    match profile.source:
        case "provider" | "settings":
            return ""
        case "catalogue":
            return f"The provider reports nothing about {profile.name}: its window and prices are from the catalogue."
        case _:
            return f"Neither the provider nor the catalogue knows the window of {profile.name}: it is assumed."


async def escalate(agent: "Agent", _: str) -> Reply:
    """``/escalate``: switch to the provider's frontier model."""
    from tui_agent.models.base import ModelError

    busy = agent.busy
    try:
        name = await agent.escalate()
    except ModelError as error:
        return Reply(f"The model stays {agent.profile.name}", error.message, failed=True)
    if not name:
        return Reply(f"The model stays {agent.profile.name}", "No larger model is available; see /model.", failed=True)
    return Reply(f"{name} answers from {'the next step' if busy else 'here'} on")


async def tools(agent: "Agent", _: str) -> Reply:
    """``/tools``: list the model's tools."""
    tools = agent.tools()
    width = max((len(tool.name) for tool in tools), default=0) + 2
    lines = [f"{tool.name:<{width}}{_first_sentence(tool.description)}" for tool in tools]
    return Reply(counted(len(tools), "tool"), "\n".join(lines))


def _first_sentence(text: str) -> str:
    line = " ".join(text.split()).split(". ", 1)[0].rstrip(".")
    return shorten(line, DESCRIPTION_CHARS, placeholder=" …")


async def permissions(agent: "Agent", argument: str) -> Reply:
    """``/permissions``: list the rules in force, or revoke a remembered one."""
    from tui_agent.tools.gate.remembered import RememberedError

    rules = agent.permissions.rules()
    if not argument:
        lines = [f"{place:>3}  {rule_text(rule)}" for place, rule in enumerate(rules, 1)]
        again = "/permissions NUMBER takes a remembered one back." if any(rule.remembered for rule in rules) else ""
        shown = "\n".join(filter(None, [f"Mode {agent.permissions.mode}.", *lines, again]))
        return Reply(counted(len(rules), "rule"), shown)
    number = number_of(argument)
    if number is None or not 1 <= number <= len(rules):
        return Reply("There is no such rule", "/permissions lists them by number.", failed=True)
    rule = rules[number - 1]
    if not rule.remembered:
        return Reply(
            "That rule comes from the settings",
            "`tui-agent config` says which file has it; take it out there.",
            failed=True,
        )
    try:
        await asyncio.to_thread(agent.permissions.take_back, rule.text)
    except RememberedError as error:
        return Reply("The rule is taken back for this session only", str(error), failed=True)
    return Reply("You will be asked again", one_line(rule.text, 4_000))


def rule_text(rule: "GrantedRule") -> str:
    """A rule on a line, for people."""
    source = "remembered" if rule.remembered else f"settings, {rule.kind}"
    said = "" if rule.said == rule.text else f" · {one_line(rule.said, 4_000)}"
    return f"{one_line(rule.text, 4_000)}{said} ({source})"


async def extensions(agent: "Agent", _: str) -> Reply:
    """``/extensions``: list the user's and the project's extensions."""
    skills = "\n  ".join(("Skills", *(await agent.briefing.skills_text()).split("\n")))
    return Reply("Your own, and the project's", f"{await agent.own_commands.listed()}\n\n{skills}")


async def style(agent: "Agent", name: str) -> Reply:
    """``/style``: show or switch the output style."""
    from tui_agent.agent.extensions.styles import OFF

    if not name:
        styles = await agent.own_commands.styles()
        lines = [f"  {each.name:<20}  {each.problem or each.description}" for each in styles]
        present = agent.briefing.style
        now = f"Answers are written in the style {present}." if present else "Answers are written as always."
        more = "/style NAME chooses one, /style off none; the setting session.style does for every session."
        if not styles:
            more = "There is no style yet: write one as .agents/styles/NAME.md, in a project or at home."
        return Reply(now, "\n".join((*lines, more)))
    if not await agent.own_commands.use_style("" if name == OFF else name.lower()):
        return Reply(
            f"There is no style {name}",
            "/style alone lists those there are, and says where they are written.",
            failed=True,
        )
    return Reply("Answers are written as always" if name == OFF else f"Answers are written in the style {name}")


async def skills(agent: "Agent", _: str) -> Reply:
    """``/skills``: list the skills the model can read."""
    return Reply("Skills", await agent.briefing.skills_text())


async def memory(agent: "Agent", _: str) -> Reply:
    """``/memory``: list the notes about this project."""
    return Reply("Memory", await agent.briefing.memory_text())


async def continue_spending(agent: "Agent", _: str) -> Reply:
    """``/continue-spending``: let the session go on after its cost ceiling."""
    return Reply(agent.reset_cost_ceiling())
