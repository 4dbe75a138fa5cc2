"""The shape of a Gemini generateContent request: known fields, and what tools and parts may hold.

Source: the request converters of the ``google-genai`` SDK 3.4 and the Gemini API reference. Unknown fields are refused
in the words of the API's JSON parser.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection
from typing import Any

from tests.servers.faults import RuleBroken

TOP_LEVEL = (
    "contents", "systemInstruction", "tools", "toolConfig", "safetySettings", "generationConfig", "cachedContent",
    "serviceTier", "store", "model",
)  # fmt: skip
_GENERATION = (
    "candidateCount", "frequencyPenalty", "logprobs", "maxOutputTokens", "mediaResolution", "presencePenalty",
    "responseJsonSchema", "responseLogprobs", "responseMimeType", "responseModalities", "responseSchema", "seed",
    "stopSequences", "temperature", "thinkingConfig", "topK", "topP",
)  # fmt: skip
_SCHEMA = (
    "additionalProperties", "anyOf", "default", "defs", "description", "enum", "example", "format", "items",
    "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum",
    "nullable", "pattern", "properties", "propertyOrdering", "ref", "required", "title", "type",
)  # fmt: skip
_TYPES = ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
_DECLARATION = (
    "name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "behavior",
)  # fmt: skip
DATA = ("text", "inlineData", "functionCall", "functionResponse")
_PART = (*DATA, "thought", "thoughtSignature", "partMetadata", "mediaResolution", "videoMetadata")
_MEDIA = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf", "text/plain")
_NAME = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$")


def check_known(value: object, known: Collection[str], where: str) -> dict[str, Any]:
    """``value`` as an object with known fields only."""
    if not isinstance(value, dict):
        raise RuleBroken(f"Invalid value at '{where or 'request'}', an object was expected")
    for key in value:
        if key not in known:
            place = f" at '{where}'" if where else ""
            raise RuleBroken(f'Invalid JSON payload received. Unknown name "{key}"{place}: Cannot find field.')
    return value


def check_settings(body: dict[str, Any], max_output: int) -> None:
    """Tools, tool configuration and generation configuration."""
    check_known(body, TOP_LEVEL, "")
    declared = _check_tools(body.get("tools", []))
    choice = check_known(
        body.get("toolConfig", {}), ("functionCallingConfig", "includeServerSideToolInvocations"), "tool_config"
    )
    where = "tool_config.function_calling_config"
    calling = check_known(choice.get("functionCallingConfig", {}), ("mode", "allowedFunctionNames"), where)
    if calling.get("mode", "AUTO") not in ("AUTO", "ANY", "NONE", "VALIDATED"):
        raise RuleBroken(f"Invalid value at '{where}.mode'")
    for name in calling.get("allowedFunctionNames", []):
        if name not in declared:
            raise RuleBroken(f"allowed_function_names: {name} is not declared in tools")
    config = check_known(body.get("generationConfig", {}), _GENERATION, "generation_config")
    limit = config.get("maxOutputTokens", max_output)
    if not isinstance(limit, int) or not 1 <= limit <= max_output:
        raise RuleBroken(
            "* GenerateContentRequest.generation_config.max_output_tokens: max_output_tokens must be in the range "
            f"[1, {max_output}].\n"
        )
    where = "generation_config.thinking_config"
    thinking = check_known(
        config.get("thinkingConfig", {}), ("includeThoughts", "thinkingBudget", "thinkingLevel"), where
    )
    if "thinkingBudget" in thinking and "thinkingLevel" in thinking:
        raise RuleBroken("You can only set only one of thinking budget and thinking level.")
    if thinking.get("thinkingLevel", "HIGH").upper() not in ("MINIMAL", "LOW", "MEDIUM", "HIGH", "XHIGH"):
        raise RuleBroken(f"Invalid value at '{where}.thinking_level'")


def check_content(content: object, where: str, *, system: bool = False) -> None:
    """Role and parts of one content."""
    value = check_known(content, ("role", "parts"), where)
    if not system and value.get("role", "user") not in ("user", "model"):
        raise RuleBroken("Please use a valid role: user, model.")
    parts = value.get("parts")
    if not isinstance(parts, list) or not parts:
        raise RuleBroken(f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.\n")
    for j, part in enumerate(parts):
        _check_part(part, f"{where}.parts[{j}]", "text" if system else str(value.get("role", "user")))


def signature_bytes(part: dict[str, Any], where: str) -> bytes | None:
    """The decoded thought signature of a part; both base64 alphabets are accepted."""
    signature = part.get("thoughtSignature")
    if signature is None:
        return None
    try:
        text = signature.replace("-", "+").replace("_", "/")
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (AttributeError, ValueError, binascii.Error):
        raise RuleBroken(
            f"Invalid value at '{where}.thought_signature' (TYPE_BYTES), Base64 decoding failed for \"{signature}\""
        ) from None


def _check_part(part: object, where: str, role: str) -> None:
    value = check_known(part, _PART, where)
    data = [name for name in DATA if name in value]
    # A signature may come on a part of its own, with empty text, and goes back the same way.
    empty_text = data == ["text"] and value["text"] == "" and "thoughtSignature" not in value
    if len(data) != 1 or empty_text:
        raise RuleBroken(
            f"* GenerateContentRequest.{where}.data: required oneof field 'data' must have one initialized field\n"
        )
    signature_bytes(value, where)
    match data[0]:
        case "text":
            if not isinstance(value["text"], str):
                raise RuleBroken(f"Invalid value at '{where}.text' (TYPE_STRING)")
        case "inlineData":
            _check_blob(value["inlineData"], f"{where}.inline_data")
        case "functionCall":
            call = check_known(value["functionCall"], ("id", "name", "args"), f"{where}.function_call")
            if role != "model":
                raise RuleBroken("Please ensure that function call turns have the role model.")
            _check_function(call, "args", f"{where}.function_call")
        case _:
            answer = check_known(
                value["functionResponse"],
                ("id", "name", "response", "parts", "scheduling", "willContinue"),
                f"{where}.function_response",
            )
            if role != "user":
                raise RuleBroken("Please ensure that function response turns have the role user.")
            if not isinstance(answer.get("response"), dict):
                raise RuleBroken(f"Invalid value at '{where}.function_response.response', an object was expected")
            _check_function(answer, "response", f"{where}.function_response")


def _check_function(value: dict[str, Any], field: str, where: str) -> None:
    if not isinstance(value.get("name"), str) or not value["name"]:
        raise RuleBroken(f"* GenerateContentRequest.{where}.name: Name cannot be empty.\n")
    if not isinstance(value.get(field, {}), dict):
        raise RuleBroken(f"Invalid value at '{where}.{field}', an object was expected")


def _check_blob(value: object, where: str) -> None:
    blob = check_known(value, ("mimeType", "data"), where)
    if blob.get("mimeType") not in _MEDIA:
        raise RuleBroken(f"Unsupported MIME type: {blob.get('mimeType')}")
    data = signature_bytes({"thoughtSignature": blob.get("data", "")}, f"{where}.data")
    if not data:
        raise RuleBroken(f"* GenerateContentRequest.{where}.data: must not be empty\n")


def _check_tools(tools: object) -> set[str]:
    if not isinstance(tools, list):
        raise RuleBroken("Invalid value at 'tools', a list was expected")
    names: set[str] = set()
    for i, tool in enumerate(tools):
        if check_known(tool, ("functionDeclarations", "googleSearch"), f"tools[{i}]").get("googleSearch") == {}:
            continue
        declarations = tool.get("functionDeclarations")
        if not declarations:
            raise RuleBroken(
                f"* GenerateContentRequest.tools[{i}].tool_type: required one_of 'tool_type' must be set\n"
            )
        for j, declaration in enumerate(declarations):
            where = f"tools[{i}].function_declarations[{j}]"
            value = check_known(declaration, _DECLARATION, where)
            name = value.get("name")
            if not isinstance(name, str) or not _NAME.match(name):
                raise RuleBroken(f"* GenerateContentRequest.{where}.name: [FIELD_INVALID] Invalid function name.\n")
            if name in names:
                raise RuleBroken(f"Duplicate function declaration found: {name}")
            names.add(name)
            if "parameters" in value and "parametersJsonSchema" in value:
                raise RuleBroken(f"{where}: only one of parameters and parameters_json_schema may be set")
            if "parameters" in value:
                _check_schema(value["parameters"], f"{where}.parameters")
            elif value.get("parametersJsonSchema", {"type": "object"}).get("type") != "object":
                raise RuleBroken(f"{where}.parameters_json_schema: the schema must describe an object")
    return names


def _check_schema(schema: object, where: str) -> None:
    value = check_known(schema, _SCHEMA, where)
    kind = value.get("type")
    if kind is not None and str(kind).upper() not in _TYPES:
        raise RuleBroken(f"Invalid value at '{where}.type' (type.googleapis.com/Type), \"{kind}\"")
    if str(kind).upper() == "ARRAY" and "items" not in value:
        raise RuleBroken(f"* GenerateContentRequest.{where}.items: missing field.\n")
    properties = value.get("properties", {})
    for name, inner in properties.items():
        _check_schema(inner, f"{where}.properties[{name}]")
    for name in value.get("required", []):
        if name not in properties:
            raise RuleBroken(f"* GenerateContentRequest.{where}.required: property is not defined: {name}\n")
    for inner in (*value.get("anyOf", []), *([value["items"]] if "items" in value else [])):
        _check_schema(inner, where)
