"""The command /mcp: state and cost of MCP servers, turning them on and off, signing in, and importing."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_agent.agent.commands.command import CommandReply, refused
from tui_agent.text import counted, money_text, one_line

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.agent.briefing.tool_servers import OfferedTools, ServerWeight
    from tui_agent.tools.mcp.servers import ServerStatus, ToolServers

NONE: Final = (
    "None are configured. `tui-agent mcp add` adds one to your settings, `--scope project` to the project's .mcp.json; "
    "/mcp import takes over those of another agent."
)
USAGE: Final = "/mcp shows all; /mcp NAME one of them; /mcp on NAME, /mcp off NAME; /mcp login NAME; /mcp import."
LAST_LINES: Final = 5


async def mcp(agent: "Agent", argument: str) -> CommandReply:
    word, _, rest = argument.partition(" ")
    name = rest.strip()
    offered = agent.offered
    if offered is not None and word == "import":
        return await _import(offered.servers, name)
    if offered is None or not offered.servers:
        problems = offered.servers.problems if offered is not None else ()
        return CommandReply("No MCP servers", "\n".join((*problems, NONE)))
    if word == "login":
        return await _sign_in(offered.servers, name)
    if word in ("on", "off"):
        return await _turn(offered.servers, name, on=word == "on")
    if not word:
        return _all(agent, offered)
    status = next((each for each in offered.servers.statuses() if each.name == word), None)
    return _one(agent, offered, status) if status else _unknown(offered.servers, word)


def _all(agent: "Agent", offered: "OfferedTools") -> CommandReply:
    statuses = offered.servers.statuses()
    weights = _weights(agent, offered)
    width = max(len(status.name) for status in statuses) + 2
    lines: list[str] = []
    for status in statuses:
        lines.append(f"{status.name:<{width}}{_described(agent, status, weights.get(status.name))}")
        lines += [f"{'':<{width}}{one_line(status.error, 400)}"] * bool(status.error)
    sent, saved = sum(each.sent for each in weights.values()), sum(each.saved for each in weights.values())
    total = f"All together: {_price(agent, sent)} a call in front of every request"
    total += f"; looking tools up when they are needed saves {_price(agent, saved)} a call." if saved else "."
    shown = "\n".join([*lines, *offered.servers.problems, total, USAGE])
    return CommandReply(f"{counted(len(statuses), 'server')} of tools", shown)


def _described(agent: "Agent", status: "ServerStatus", weight: "ServerWeight | None") -> str:
    parts: list[str] = [status.standing]
    if status.known is not None and weight is not None:
        count = len(status.known.tools)
        left_out = f" ({len(status.left_out)} left out)" if status.left_out else ""
        parts.append(f"{counted(count, 'tool')}{left_out}")
        parts.append(f"{_price(agent, weight.sent)} a call" if weight.sent else "looked up when needed")
        if weight.saved:
            parts.append(f"saves {_price(agent, weight.saved)} a call")
    if status.calls:
        parts.append(f"called {counted(status.calls, 'time')}")
    if status.standing == "new":
        parts.append(f"would run: {status.command} · /mcp on {status.name} starts it")
    return " · ".join(parts)


def _one(agent: "Agent", offered: "OfferedTools", status: "ServerStatus") -> CommandReply:
    weights = _weights(agent, offered)
    lines = [
        _described(agent, status, weights.get(status.name)),
        f"runs: {status.command}" if "://" not in status.command[:10] else f"at: {status.command}",
        f"named by: {'your settings' if status.source == 'user' else 'the .mcp.json of this project'}",
        f"last error: {one_line(status.error, 1_000)}" if status.error else "",
        f"log: {status.log}" if status.log.exists() else "",
    ]
    if known := status.known:
        hints = "are believed" if status.believed else "are not believed (believe_hints)"
        lines.append(f"says of itself: {one_line(known.instructions, 600)}" if known.instructions else "")
        lines += [f"not as it should be: {problem}" for problem in known.problems]
        lines.append(f"left out: {one_line(', '.join(status.left_out), 600)}" if status.left_out else "")
        lines.append(f"not among its tools: {one_line(', '.join(status.unmatched), 600)}" if status.unmatched else "")
        reads = sum(tool.reads for tool in known.tools)
        lines.append(f"{reads} of its tools only read, it says; such hints {hints}" if reads else "")
        width = max((len(tool.name) for tool in known.tools), default=0) + 2
        lines += [f"  {tool.name:<{width}}{one_line(tool.description, 120)}" for tool in known.tools]
    return CommandReply(f"Server {status.name}", "\n".join(filter(None, lines)))


async def _turn(servers: "ToolServers", name: str, *, on: bool) -> CommandReply:
    if name not in {status.name for status in servers.statuses()}:
        return _unknown(servers, name)
    try:
        await servers.turn(name, on=on)
    except OSError as error:
        return refused(f"{name} is {'on' if on else 'off'} for this session only", str(error.strerror))
    status = next(each for each in servers.statuses() if each.name == name)
    if on and status.standing == "failed":
        return refused(f"{name} is on, but it cannot be used", status.error)
    if not on:
        return CommandReply(f"{name} is off", "Its tools can no longer be called, here and in later sessions.")
    count = len(status.known.tools) if status.known else 0
    return CommandReply(f"{name} is on", f"{counted(count, 'tool')}. The model is told of it with your next message.")


async def _sign_in(servers: "ToolServers", name: str) -> CommandReply:
    from tui_agent.tools.base import ToolFailure

    if name not in {status.name for status in servers.statuses() if status.command.startswith("http")}:
        return refused(f"{one_line(name, 60) or 'nothing'} is not an MCP server at an address", USAGE)
    try:
        address = await servers.sign_in(name)
    except ToolFailure as failure:
        return refused(f"Signing in at {name} failed", str(failure))
    if not address:
        return CommandReply(f"{name} asks for no sign-in", "It can be used as it is.")
    text = f"Open this address where your browser has not done so:\n{one_line(address, 4_000)}"
    return CommandReply(f"Sign in at {name}", text)


async def _import(servers: "ToolServers", wanted: str) -> CommandReply:
    from msgspec import to_builtins

    from tui_agent.settings import SettingsError
    from tui_agent.settings.servers import narrowing
    from tui_agent.settings.writing import keep_servers
    from tui_agent.tools.mcp.importing import foreign

    found = await asyncio.to_thread(foreign, Path.home(), servers.folder)
    if not found:
        return CommandReply(
            "Nothing to take over", "Looked for the servers of Claude Code, codex, Gemini CLI and Cursor."
        )
    if not wanted:
        lines: list[str] = []
        for each in found:
            lines.append(f"{each.agent} ({each.path})")
            for name, server in each.servers.items():
                place = server.url or " ".join((server.command, *server.args))
                lines.append("  " + one_line(f"{name}: {one_line(place, 300)}{narrowing(server)}", 600))
            lines += [f"  {problem}" for problem in each.problems]
        lines.append("/mcp import NAME takes one over, /mcp import all takes all.")
        return CommandReply("Servers of other agents", "\n".join(lines))
    every = {name: server for each in found for name, server in each.servers.items()}
    chosen = every if wanted == "all" else {name: every[name] for name in wanted.split() if name in every}
    if not chosen:
        return refused(f"No other agent has a server {one_line(wanted, 60)}", "/mcp import lists them.")
    own = {status.name for status in servers.statuses() if status.source == "user"}
    added = {name: server for name, server in chosen.items() if name not in own}
    if not added:
        return CommandReply("Nothing new", "Your settings name these servers already.")
    try:
        await asyncio.to_thread(keep_servers, servers.home, {name: to_builtins(added[name]) for name in added})
    except SettingsError as error:
        return refused("The servers could not be added to your settings", str(error))
    await servers.add(added)
    return CommandReply(
        f"Added: {', '.join(added)}", "They are in your settings now (mcp.servers). /mcp shows how they stand."
    )


def _unknown(servers: "ToolServers", name: str) -> CommandReply:
    names = ", ".join(status.name for status in servers.statuses())
    return refused(f"There is no server {one_line(name, 60)}", f"There are: {names}. {USAGE}")


def _weights(agent: "Agent", offered: "OfferedTools") -> "dict[str, ServerWeight]":
    prefix = agent.engine.view.prefix
    if prefix is None:
        offered.look(agent.engine.window.tokens)
        return offered.weights(offered.definitions)
    return offered.weights(prefix.tools)


def _price(agent: "Agent", tokens: int) -> str:
    """Tokens with their cost in each call, at the price of cached input if the provider has a cache."""
    prices = agent.profile.prices
    if prices is None or not prices.input:
        return f"{tokens:,} tokens"
    return f"{tokens:,} tokens ({money_text(prices.of_input(tokens, tokens))})"
