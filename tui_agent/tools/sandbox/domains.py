"""Asking the user whether a command may reach a domain: once a session, in words, through the permission gate."""

import json
from urllib.parse import urlsplit

from tui_agent.conversation.blocks import ToolCall, ToolDefinition
from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolOutput, WorkspaceView
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.rules import NETWORK
from tui_agent.tools.sandbox.proxy import KNOWN, belonging_to
from tui_agent.tools.sandbox.proxy import Ask as AskForDomain


def asking(gate: PermissionGate, context: ToolContext, command: str) -> AskForDomain:
    """A function that asks whether this command may reach an origin, such as ``https://pypi.org``."""

    async def ask(origin: str) -> bool:
        arguments = json.dumps({"address": f"{origin}/", "command": command})
        verdict = await gate.check(_ReachDomain(), ToolCall(context.call_id, NETWORK, arguments), context.ask)
        return verdict.allowed

    return ask


class _ReachDomain:
    """What the gate judges: the reaching of a domain by a command that runs."""

    effect: Effect = "network"
    definition = ToolDefinition(NETWORK, "", "{}")

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        origin = json.loads(arguments)["address"].removesuffix("/")
        return tuple(Access("network", f"{each}/", inside=False) for each in belonging_to(origin))

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        given = json.loads(arguments)
        address = urlsplit(given["address"])
        reached = " and ".join(urlsplit(each).netloc for each in belonging_to(given["address"].removesuffix("/")))
        known = next((f"{name} ({reached})" for name, hosts in KNOWN if address.hostname in hosts), reached)
        return Preview(title=f"Let it reach {known}, in this session", command=given["command"])

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        raise NotImplementedError("it is asked about, not called")
