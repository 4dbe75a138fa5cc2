"""Calls of servers' tools at the gate: which are asked about, which pass, which are refused."""

from pathlib import Path

import pytest

from tests.tools.mcp.connecting import faulty
from tui_agent.conversation.blocks import ToolCall
from tui_agent.settings.schema import McpSettings, ToolServer
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tools.gate.permissions import Mode, PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.mcp.configuration import configured
from tui_agent.tools.mcp.known import KnownServer, KnownTool, ServerListCache
from tui_agent.tools.mcp.servers import ToolServers


def opened(server: ToolServer, folder: Path) -> ToolServers:
    """Servers of which is known what they offer: nothing is started."""
    (given,), _ = configured({"test": server}, folder, None)
    known = KnownServer(tools=(KnownTool("look", reads=True), KnownTool("change")))
    ServerListCache(folder / "home").save(given, known)
    return ToolServers.opened(
        McpSettings(servers={"test": server}), folder / "home", folder / "session", [folder], None
    )


@pytest.mark.parametrize(
    ("mode", "rules", "believed", "tool", "outcome"),
    [
        ("auto", {}, False, "look", "asked"),
        ("auto", {}, True, "look", "done"),
        ("auto", {}, True, "change", "asked"),
        ("plan", {}, True, "look", "done"),
        ("plan", {}, True, "change", "refused"),
        ("plan", {}, False, "look", "refused"),
        ("allow", {}, False, "change", "done"),
        ("allow", {"deny": ["mcp__test__*"]}, True, "look", "refused"),
        ("auto", {"allow": ["mcp__test__*"]}, False, "change", "done"),
        ("auto", {"allow": ["mcp__other__*"]}, False, "change", "asked"),
        ("auto", {"allow": ["mcp__test__change"], "ask": ["mcp__*"]}, False, "change", "asked"),
    ],
)
async def test_modes_and_rules_hold_for_servers(
    mode: Mode, rules: dict[str, list[str]], believed: bool, tool: str, outcome: str, tmp_path: Path
) -> None:
    asked: list[PermissionQuestion] = []

    async def no(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question)
        return PermissionAnswer(allowed=False)

    base = faulty()
    server = ToolServer(command=base.command, args=base.args, believe_hints=believed)
    found = opened(server, tmp_path).tool(f"mcp__test__{tool}")
    assert found is not None
    allow, ask, deny = (rules.get(kind, []) for kind in ("allow", "ask", "deny"))
    gate = PermissionGate(mode, Workspace(tmp_path), allow=allow, ask=ask, deny=deny)
    verdict = await gate.check(found, ToolCall("c", found.definition.name, '{"city": "Ulm"}'), no)
    assert ("asked" if asked else "done" if verdict.allowed else "refused") == outcome
    if asked:
        assert asked[0].reason in ("It calls a tool of the server test.", "The rule mcp__* asks about it.")
        assert asked[0].preview.text == 'city: "Ulm"'
