"""What the providers' own packages say a request may contain: a second opinion beside the rules of the servers here."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from google.genai import types
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter, ValidationError

from tests.servers.recording import RecordedRequest

_GEMINI: dict[str, Any] = {
    "contents": list[types.Content],
    "systemInstruction": types.Content,
    "tools": list[types.Tool],
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
    "safetySettings": list[types.SafetySetting],
}


def unknown_to_the_sdk(request: RecordedRequest) -> list[str]:
    """What of a request for an answer by Anthropic or Gemini the SDK's types do not have, with its place."""
    if request.json is None:
        return []
    if request.path.partition("?")[0] == "/v1/messages":
        return [f"{error.json_path}: {error.message[:200]}" for error in _messages().iter_errors(request.json)]
    return list(_gemini(request.json)) if "enerateContent" in request.path else []


@cache
def _messages() -> Draft202012Validator:
    from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming

    return Draft202012Validator(_closed(TypeAdapter(MessageCreateParamsStreaming).json_schema()))


def _closed(schema: Any) -> Any:
    """The schema without fields that it does not name."""
    if isinstance(schema, dict):
        closed = {name: _closed(value) for name, value in schema.items()}
        return {"additionalProperties": False, **closed} if isinstance(schema.get("properties"), dict) else closed
    return [_closed(value) for value in schema] if isinstance(schema, list) else schema


def _gemini(body: dict[str, Any]) -> Iterator[str]:
    for name, value in body.items():
        if name not in _GEMINI:
            yield f"{name}: unknown"
            continue
        try:
            TypeAdapter(_GEMINI[name]).validate_python(value)
        except ValidationError as error:
            yield f"{name}: {error}"
