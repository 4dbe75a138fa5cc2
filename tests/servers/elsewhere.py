"""Claude and Gemini where others serve them: servers in Anthropic's place that know a part of its API, and Vertex AI.

Vertex AI (Google Cloud, "Claude on Vertex AI" and "Gemini on Vertex AI", November 2026): the model is named in the
address, ``anthropic_version`` in the body, and the key is a token that a service account's signature is exchanged for.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import struct
import zlib
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from typing_extensions import override

from tests.servers.anthropic import AnthropicServer
from tests.servers.faults import RuleBroken
from tests.servers.gemini import GeminiServer
from tests.servers.recording import RecordedRequest
from tests.servers.script import Fault, ScriptSource, Step
from tests.servers.server import Event, Reply, compact
from tests.servers.wire import Exchange, Request

_CLAUDE = re.compile(r"^/projects/test-project/locations/global/publishers/anthropic/models/([^/:]+):streamRawPredict$")
_BEDROCK = re.compile(r"^/model/global\.anthropic\.([^/]+)/invoke-with-response-stream$")
AWS = {
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "AKIATEST",
    "AWS_SECRET_ACCESS_KEY": "test-secret-of-aws",
}
_CHUNK = {":message-type": "event", ":event-type": "chunk"}
_GEMINI = re.compile(r"^/v1/projects/test-project/locations/global/publishers/google/(models/[^/:]+:\w+)$")


class PartialServer(AnthropicServer):
    """A server in Anthropic's place. ``lacks``: what it refuses, each in its own words; it tells no models."""

    def __init__(self, script: ScriptSource, *, lacks: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(script, **options)
        self.lacks = lacks
        self.refusals: list[str] = []

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        if request.path != "/v1/messages":
            await exchange.respond(404, {"detail": "Not Found"})
            return
        refusal = self._refusal(request, recorded.json or {})
        if refusal:
            self.refusals.append(refusal)
            await exchange.respond(
                400, {"type": "error", "error": {"type": "invalid_request_error", "message": refusal}}
            )
            return
        await super().route(request, recorded, exchange)

    def _refusal(self, request: Request, body: dict[str, Any]) -> str:
        thinking = body.get("thinking") or {}
        found = {
            "betas": "anthropic-beta" in request.headers and "anthropic-beta: unknown header value",
            "binding": "block_binding" in thinking and "thinking.block_binding: Extra inputs are not permitted",
            "display": "display" in thinking and "thinking.display: Extra inputs are not permitted",
            "adaptive": thinking.get("type") == "adaptive" and "thinking.type: 'adaptive' is not one of 'enabled'",
            "thinking": bool(thinking) and "thinking: this model does not support it",
            "caching": "cache_control" in compact(body) and "cache_control: Extra inputs are not permitted",
        }
        return next((str(text) for name, text in found.items() if name in self.lacks and text), "")


class ClaudeOnVertexServer(AnthropicServer):
    """Anthropic's models as Vertex AI serves them."""

    @property
    @override
    def environment(self) -> dict[str, str]:
        return {"ANTHROPIC_VERTEX_BASE_URL": self.url}

    @staticmethod
    @override
    def is_generation(path: str) -> bool:
        return _CLAUDE.match(path) is not None

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        if await _token(request, exchange, self.api_key):
            return
        found = _CLAUDE.match(request.path)
        if found is None:
            raise RuleBroken("Not Found", status=404)
        body = json.loads(request.body)
        if body.pop("anthropic_version", None) != "vertex-2023-10-16" or "model" in body:
            raise RuleBroken("anthropic_version: Field required")
        headers = {**request.headers, "anthropic-version": "2023-06-01"}
        asked = json.dumps({"model": found[1], **body}).encode()
        direct = dataclasses.replace(request, path="/v1/messages", headers=headers, body=asked)
        await super().route(direct, recorded, exchange)


class GeminiOnVertexServer(GeminiServer):
    """Google's models as Vertex AI serves them."""

    @property
    @override
    def environment(self) -> dict[str, str]:
        return {"GOOGLE_VERTEX_BASE_URL": self.url}

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        if await _token(request, exchange, self.api_key):
            return
        found = _GEMINI.match(request.path)
        if found is None:
            raise RuleBroken("Requested entity was not found.", status=404)
        if request.headers.get("authorization") != f"Bearer {self.api_key}":
            raise RuleBroken("Request had invalid authentication credentials.", status=401)
        headers = {**request.headers, "x-goog-api-key": self.api_key}
        await super().route(dataclasses.replace(request, path=f"/v1/{found[1]}", headers=headers), recorded, exchange)


async def _token(request: Request, exchange: Exchange, token: str) -> bool:
    if request.path != "/token":
        return False
    await exchange.respond(200, {"access_token": token, "expires_in": 3600, "token_type": "Bearer"})
    return True


def service_account(url: str) -> str:
    """The file of a service account whose tokens the server at `url` gives out."""
    key = rsa.generate_private_key(65537, 2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": "test-project",
        "private_key_id": "1",
        "private_key": private.decode(),
        "client_email": "test@test-project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"{url}/token",
    }
    return json.dumps(account)


class ClaudeOnBedrockServer(AnthropicServer):
    """Anthropic's models as Amazon Bedrock serves them: the model in the address, the betas in the body, and the events
    of a stream as frames of ``application/vnd.amazon.eventstream``.
    """

    @property
    @override
    def environment(self) -> dict[str, str]:
        return {**AWS, "ANTHROPIC_BEDROCK_BASE_URL": self.url}

    @staticmethod
    @override
    def is_generation(path: str) -> bool:
        return _BEDROCK.match(path) is not None

    @override
    def stream_fields(self) -> dict[str, str]:
        return {"content-type": "application/vnd.amazon.eventstream"}

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        found = _BEDROCK.match(request.path)
        if found is None:
            raise RuleBroken("Not Found", status=404)
        if "Credential=AKIATEST/" not in request.headers.get("authorization", ""):
            raise RuleBroken("The security token included in the request is invalid.", status=403)
        body = json.loads(request.body)
        if body.pop("anthropic_version", None) != "bedrock-2023-05-31" or "model" in body or "stream" in body:
            raise RuleBroken("anthropic_version: Field required")
        headers = {**request.headers, "anthropic-version": "2023-06-01", "x-api-key": self.api_key}
        if betas := body.pop("anthropic_beta", []):
            headers["anthropic-beta"] = ",".join(betas)
        asked = json.dumps({"model": found[1], "stream": True, **body}).encode()
        direct = dataclasses.replace(request, path="/v1/messages", headers=headers, body=asked)
        await super().route(direct, recorded, exchange)

    @override
    async def stream(self, number: int, reply: Reply, step: Step, fault: Fault | None, exchange: Exchange) -> None:
        events = [Event(frame(event.data), event.paced) for event in reply.events]
        await super().stream(number, dataclasses.replace(reply, events=events), step, fault, exchange)


def frame(event: bytes, *, exception: str = "", checksum: int | None = None) -> bytes:
    """An event as a frame: lengths and their checksum, headers, the event in base64, a checksum of all (AWS, Smithy:
    event stream encoding). `exception`: the name of the failure that the event's data is about.
    """
    data = event.partition(b"data: ")[2].strip()
    payload = data if exception else compact({"bytes": base64.b64encode(data).decode()}).encode()
    kind = {":message-type": "exception", ":exception-type": exception} if exception else _CHUNK
    named = {**kind, ":content-type": "application/json"}
    headers = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in named.items()
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole) if checksum is None else checksum)
