"""Probes of the servers of tools."""

import json
from pathlib import Path

import msgspec

from tests.settings.effects.probe import Observe, Probe
from tests.tools.mcp.connecting import faulty
from tests.tools.support import Call
from tui_agent.agent.briefing.tool_servers import OfferedTools
from tui_agent.settings import Settings
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.mcp.servers import ToolServers


def served(*faults: str) -> dict[str, object]:
    """The setting with the tests' own server."""
    return {"test": msgspec.to_builtins(faulty(*faults))}


def opened(settings: Settings, folder: Path) -> ToolServers:
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": {"command": "x"}}}))
    return ToolServers.opened(settings.mcp, folder / "home", folder / "session", [folder], folder)


def standing(settings: Settings, folder: Path) -> object:
    return [(status.name, status.standing) for status in opened(settings, folder).statuses()]


async def told(settings: Settings, folder: Path) -> object:
    """What the model is told from the beginning."""
    servers = opened(settings, folder)
    offered = OfferedTools(servers, settings.mcp)
    try:
        await servers.learn()
        offered.look(100_000)
    finally:
        await servers.close()
    return [(definition.name, definition.deferred) for definition in offered.definitions], offered.index


def failing(tool: str) -> Observe:
    """What a call says that takes too long."""

    async def observe(settings: Settings, folder: Path) -> object:
        servers = opened(settings, folder)
        try:
            await servers.call("test", tool, {}, Call(Workspace(folder), (), folder))
        except ToolFailure as failure:
            return failure.why
        finally:
            await servers.close()
        return "it answered"

    return observe


PROBES = {
    "mcp.servers": Probe(served(), standing),
    "mcp.project": Probe(False, standing),
    "mcp.whole_share": Probe(0.0, told, {"mcp.servers": served()}),
    "mcp.index_tokens": Probe(0, told, {"mcp.servers": served()}),
    "mcp.start_seconds": Probe(0.4, failing("echo"), {"mcp.servers": served("hangs"), "mcp.start_seconds": 0.2}),
    "mcp.call_seconds": Probe(0.4, failing("wait"), {"mcp.servers": served(), "mcp.call_seconds": 0.2}),
}
