"""Elicitation: a server asks the user during a call, with one question for each field it wants to know."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from tui_agent.text import one_line
from tui_agent.tools.base import PermissionQuestion, Preview, ToolContext
from tui_agent.tools.gate.permissions import NobodyToAsk

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult

MAX_CHOICES: Final = 8
"""The most choices that are listed; any other is typed."""
_YES, _NO = "yes", "no"
_LEFT_OUT: Final = "leave it out"


async def answered(server: str, params: "ElicitRequestParams", context: ToolContext | None) -> "ElicitResult":
    """Ask the user a server's questions, one after the other. Only they decline: by leaving one unanswered."""
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
    found: dict[str, str | int | float | bool | list[str] | None] = {}
    fields = properties if isinstance(properties, dict) else {}
    if not fields and await _ask(context, _said(server, message), (_YES, _NO)) != _YES:
        return ElicitResult(action="decline")
    for number, (name, about) in enumerate(fields.items(), 1):
        wanted = about if isinstance(about, dict) else {}
        place = f" ({number} of {len(fields)})" if len(fields) > 1 else ""
        text = f"{_said(server, message)}\n\n{_described(str(name), wanted)}{place}"
        answer = await _field(context, text, wanted, optional=name not in needed)
        if answer is None:
            return ElicitResult(action="decline")
        if answer.given:
            found[str(name)] = answer.value
    return ElicitResult(action="accept", content=found)


class _Answer(msgspec.Struct, frozen=True):
    """The answer to one field; not `given`: the user left it out."""

    given: bool
    value: str | int | float | bool | list[str] = ""


async def _field(context: ToolContext, text: str, wanted: Mapping[str, object], *, optional: bool) -> _Answer | None:
    """Ask for one field, and again until the answer fits; None if the user leaves it unanswered."""
    choices, default, wrong = _choices(wanted), wanted.get("default"), ""
    if default not in (None, "") and not _fits(_shown(default), wanted):
        default = None  # the server would refuse it, as it would any other wrong value
    offered = "" if default is None else one_line(_shown(default), 200)
    if not choices and (default is not None or optional):
        choices = (_LEFT_OUT if default is None else offered,)
    elif choices:
        usual = (offered,) if offered in choices else ()
        others = [each for each in choices if each not in usual]
        choices = (*usual, *others) if not optional or usual else (*others[: MAX_CHOICES - 1], _LEFT_OUT)
    while True:
        said = await _ask(context, f"{text}{wrong}", choices)
        if said is None:
            return None
        if said in ("", _LEFT_OUT, offered):
            if default is not None and said in ("", offered):
                return _Answer(True, default if isinstance(default, str | int | float | bool) else _listed(default))
            if optional:
                return _Answer(False)
        try:
            return _Answer(True, _value(said, wanted))
        except ValueError as error:
            wrong = f"\nThat does not fit: {error}. Esc declines the form."


def _fits(said: str, wanted: Mapping[str, object]) -> bool:
    try:
        _value(said, wanted)
    except ValueError:
        return False
    return True


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return _YES if default else _NO
    return ", ".join(map(str, default)) if isinstance(default, list) else str(default)


def _listed(value: object) -> list[str]:
    return list(map(str, value)) if isinstance(value, list) else [str(value)]


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
    if wanted.get("type") == "array":
        return ()
    listed = wanted.get("enum")
    if not isinstance(listed, list):
        offered = wanted.get("oneOf")
        named = [each.get("const") for each in offered if isinstance(each, dict)] if isinstance(offered, list) else []
        listed = [each for each in named if each is not None]
    # Each choice has to fit as it is shown: whoever answers with one is not asked again.
    return tuple(filter(lambda said: _fits(said, wanted), (one_line(str(each), 200) for each in listed[:MAX_CHOICES])))


def _value(said: str, wanted: Mapping[str, object]) -> str | int | float | bool | list[str]:
    """The answer converted to the wanted type. Raises ValueError."""
    match wanted.get("type"):
        case "boolean":
            if said.lower() not in ("yes", "no", "true", "false", "y", "n"):
                raise ValueError("yes or no")
            return said.lower() in (_YES, "true", "y")
        case "integer":
            return _number(said, int, wanted)
        case "number":
            return _number(said, float, wanted)
        case "array":
            return [part.strip() for part in said.split(",") if part.strip()]
        case _:
            return _text(said, wanted)


def _number(said: str, kind: type[int] | type[float], wanted: Mapping[str, object]) -> int | float:
    try:
        value = kind(said)
    except ValueError:
        raise ValueError("a whole number" if kind is int else "a number") from None
    least, most = wanted.get("minimum"), wanted.get("maximum")
    if (isinstance(least, int | float) and value < least) or (isinstance(most, int | float) and value > most):
        raise ValueError(f"a number from {'any' if least is None else least} to {'any' if most is None else most}")
    return value


def _text(said: str, wanted: Mapping[str, object]) -> str:
    least, most = wanted.get("minLength"), wanted.get("maxLength")
    if (isinstance(least, int) and len(said) < least) or (isinstance(most, int) and len(said) > most):
        raise ValueError(f"a text of {least or 0} to {most or 'any number of'} characters")
    listed = wanted.get("enum")
    if isinstance(listed, list) and said not in map(str, listed):
        raise ValueError(f"one of {one_line(', '.join(map(str, listed)), 500)}")
    if not said:
        raise ValueError("it is needed")
    return said
