"""The program's own client, as the protocol's conformance suite starts it: with the address of a server that checks.

It connects, lists what there is and calls every tool once, and signs in when it is told to, as a user does. The suite
judges what arrives at its server; this program only drives.
"""

import asyncio
import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from typing_extensions import override

from tests.tools.mcp.connecting import Talk
from tests.tools.support import Call
from tui_agent.settings.servers import server_from
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.mcp.configuration import ServerTimeouts, ServerUnavailable

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
MAX_SIGN_INS = 3
"""So often somebody signs in before they give up."""


class Agreeable(Call):
    """A call whose user gives the first answer to every question."""

    @override
    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        return PermissionAnswer(True, choice=question.choices[0] if question.choices else "")


def _browse(address: str) -> None:
    try:
        with urllib.request.urlopen(address) as page:  # noqa: S310
            page.read()
    except urllib.error.URLError as error:
        print(f"the browser: {error}")


async def _sign_in(talk: Talk) -> None:
    loop = asyncio.get_running_loop()
    await talk.connection.sign_in(lambda address: (loop.run_in_executor(None, _browse, address), None)[1])


async def _signed_in(talk: Talk, ask: Any) -> Any:
    """What `ask` returns; where the server wants a sign-in, the user signs in and asks again."""
    for _ in range(MAX_SIGN_INS):
        try:
            return await ask()
        except ServerUnavailable as error:
            print(f"unavailable: {error}")
            if "sign in" not in str(error):
                raise
        await _sign_in(talk)
    return await ask()


def _value(name: str, wanted: Any) -> object:
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    return {"number": 2.5 if "float" in name else 2, "integer": 3, "boolean": True, "array": [], "object": {}}.get(
        str(kind), "text"
    )


def _arguments(schema: str) -> dict[str, object]:
    return {name: _value(name, wanted) for name, wanted in json.loads(schema).get("properties", {}).items()}


def _calls(context: dict[str, Any], tools: Any) -> list[tuple[str, dict[str, object]]]:
    if wanted := context.get("toolCalls"):
        return [(each["name"], each.get("arguments", {})) for each in wanted]
    return [(tool.name, _arguments(tool.schema)) for tool in tools]


async def main(url: str) -> None:
    os.environ["BROWSER"] = "true"
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    oauth: dict[str, object] = {}
    if client := context.get("client_id"):
        oauth = {"clientId": client, "clientSecret": context.get("client_secret", "")}
    if "client-credentials" in SCENARIO:
        oauth |= {"grant": "client_credentials", "privateKey": context.get("private_key_pem", "")}
        oauth |= {"algorithm": context.get("signing_algorithm", "")}
    if SCENARIO == "auth/basic-cimd":
        oauth = {"clientId": "https://conformance-test.local/client-metadata.json"}
    server = server_from({"url": url, **({"oauth": oauth} if oauth else {})}).server
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        talk = Talk(server, folder, ServerTimeouts(start=20.0, call=20.0))
        try:
            await _signed_in(talk, talk.connection.start)
            user = Agreeable(Workspace(folder), (), folder)
            for name, given in _calls(context, talk.lists[-1].tools):

                async def call(name: str = name, given: dict[str, object] = given) -> object:
                    return await talk.connection.call(name, given, user)

                try:
                    print(await _signed_in(talk, call))
                except ValueError as error:
                    print(f"refused: {error}")
            for prompt in talk.lists[-1].prompts:
                print(await talk.connection.prompt(prompt.name, {each.rstrip("?"): "a" for each in prompt.arguments}))
        finally:
            await talk.connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
