"""Elicitation: a server asks the user during a call, with one question for each field it wants to know."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tui_agent.text import one_line
from tui_agent.tools.base import PermissionQuestion, Preview, ToolContext
from tui_agent.tools.gate.permissions import NobodyToAsk

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult

MAX_QUESTIONS: Final = 8
"""The most fields that one request of a server may ask for."""
MAX_CHOICES: Final = 8
_YES, _NO = "yes", "no"
_LEFT_OUT: Final = "leave it out"


async def answered(server: str, params: "ElicitRequestParams", context: ToolContext | None) -> "ElicitResult":
    """Ask the user a server's questions, one after the other. What they do not answer is declined."""
    from mcp_types import ElicitRequestURLParams, ElicitResult

    if context is None:
        return ElicitResult(action="cancel")
    try:
        if isinstance(params, ElicitRequestURLParams):
            return await _at_address(server, params.message, params.url, context)
        return await _form(server, params.message, params.requested_schema, context)
    except NobodyToAsk:
        return ElicitResult(action="cancel")


async def _at_address(server: str, message: str, url: str, context: ToolContext) -> "ElicitResult":
    from mcp_types import ElicitResult

    if urlsplit(url).scheme not in ("http", "https"):
        return ElicitResult(action="decline")
    text = f"{_said(server, message)}\n\nOpen {one_line(url, 2_000)} in your browser?"
    if await _ask(context, text, (_YES, _NO)) != _YES:
        return ElicitResult(action="decline")
    import webbrowser

    with contextlib.suppress(webbrowser.Error, OSError):
        await asyncio.to_thread(webbrowser.open, url)
    return ElicitResult(action="accept")


async def _form(server: str, message: str, schema: Mapping[str, object], context: ToolContext) -> "ElicitResult":
    from mcp_types import ElicitResult

    properties = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    if not isinstance(properties, dict) or len(properties) > MAX_QUESTIONS:
        return ElicitResult(action="decline")
    found: dict[str, str | int | float | bool | list[str] | None] = {}
    for name, about in properties.items():
        wanted = about if isinstance(about, dict) else {}
        choices = _choices(wanted)
        optional = name not in needed
        asked = choices if not optional or not choices else (*choices[: MAX_CHOICES - 1], _LEFT_OUT)
        said = await _ask(context, f"{_said(server, message)}\n\n{_described(str(name), wanted)}", asked)
        if said is None:
            return ElicitResult(action="decline")
        if optional and said in ("", _LEFT_OUT):
            continue
        try:
            found[str(name)] = _value(said, wanted)
        except ValueError:
            return ElicitResult(action="decline")
    return ElicitResult(action="accept", content=found)


async def _ask(context: ToolContext, text: str, choices: tuple[str, ...]) -> str | None:
    """The user's answer; None if they gave none. Raises NobodyToAsk."""
    preview = Preview("A server asks you", text=text)
    question = PermissionQuestion(context.call_id, "ask_user", "{}", (), preview, "", kind="question", choices=choices)
    answer = await context.ask(question)
    return answer.choice.strip() if answer.allowed else None


def _said(server: str, message: str) -> str:
    return f"The server {server} asks: {one_line(message, 1_000)}"


def _described(name: str, wanted: Mapping[str, object]) -> str:
    title = one_line(str(wanted.get("title") or name), 100)
    about = one_line(str(wanted.get("description") or ""), 400)
    return f"{title}: {about}" if about else title


def _choices(wanted: Mapping[str, object]) -> tuple[str, ...]:
    if wanted.get("type") == "boolean":
        return (_YES, _NO)
    listed = wanted.get("enum")
    if not isinstance(listed, list):
        offered = wanted.get("oneOf")
        named = [each.get("const") for each in offered if isinstance(each, dict)] if isinstance(offered, list) else []
        listed = [each for each in named if each is not None]
    return tuple(one_line(str(each), 200) for each in listed[:MAX_CHOICES])


def _value(said: str, wanted: Mapping[str, object]) -> str | int | float | bool | list[str]:
    """The answer converted to the wanted type. Raises ValueError."""
    match wanted.get("type"):
        case "boolean":
            return said.lower() in (_YES, "true", "y")
        case "integer":
            return int(said)
        case "number":
            return float(said)
        case "array":
            return [part.strip() for part in said.split(",") if part.strip()]
        case _:
            return said
