"""What an agent sends, held against the schema of the protocol, strictly: nothing unknown, nothing of a wrong kind.

The library's own models bear a great deal (they mend what does not fit), so their JSON Schema is checked instead, with
no key allowed that it does not name.
"""

from functools import cache
from typing import Any

import acp.schema as protocol
from acp.connection import StreamDirection, StreamEvent
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

ASKED: dict[str, Any] = {
    "session/update": protocol.SessionNotification,
    "session/request_permission": protocol.RequestPermissionRequest,
    "fs/read_text_file": protocol.ReadTextFileRequest,
    "fs/write_text_file": protocol.WriteTextFileRequest,
    "terminal/create": protocol.CreateTerminalRequest,
    "terminal/wait_for_exit": protocol.WaitForTerminalExitRequest,
    "terminal/release": protocol.ReleaseTerminalRequest,
    "elicitation/create": protocol.CreateFormSessionElicitationRequest,
}
"""What the agent asks and tells, by its method."""
ANSWERED: dict[str, Any] = {
    "initialize": protocol.InitializeResponse,
    "authenticate": protocol.AuthenticateResponse,
    "session/new": protocol.NewSessionResponse,
    "session/load": protocol.LoadSessionResponse,
    "session/resume": protocol.ResumeSessionResponse,
    "session/fork": protocol.ForkSessionResponse,
    "session/list": protocol.ListSessionsResponse,
    "session/close": protocol.CloseSessionResponse,
    "session/delete": protocol.DeleteSessionResponse,
    "session/prompt": protocol.PromptResponse,
    "session/set_mode": protocol.SetSessionModeResponse,
    "session/set_config_option": protocol.SetSessionConfigOptionResponse,
}
"""What it answers, by the method that was asked."""


class Checked:
    """Hears the messages of a connection of the client; `violations` are those of the agent's that are not right."""

    def __init__(self) -> None:
        self.count = 0
        self.violations: list[str] = []
        self._asked: dict[object, str] = {}

    def __call__(self, event: StreamEvent) -> None:
        message = event.message
        if event.direction == StreamDirection.OUTGOING:
            if "method" in message and "id" in message:
                self._asked[message["id"]] = message["method"]
            return
        self.count += 1
        if message.get("jsonrpc") != "2.0":
            self.violations.append(f"no JSON-RPC 2.0: {message}")
        if "method" in message:
            self._check(message["method"], ASKED, message.get("params"))
        elif "result" in message:
            self._check(self._asked[message["id"]], ANSWERED, message["result"])
        elif not {"code", "message"} <= message.get("error", {}).keys():
            self.violations.append(f"neither an answer nor an error: {message}")

    def _check(self, method: str, known: dict[str, Any], said: Any) -> None:
        if method not in known:
            self.violations.append(f"nobody knows {method}")
            return
        for error in _validator(known[method]).iter_errors(said):
            self.violations.append(f"{method} at {error.json_path}: {error.message[:500]}")


@cache
def _validator(model: Any) -> Draft202012Validator:
    schema = TypeAdapter(model).json_schema(by_alias=True)
    for part in (schema, *schema.get("$defs", {}).values()):
        if "properties" in part and part.get("additionalProperties") is None:
            part["additionalProperties"] = False
    return Draft202012Validator(schema)
