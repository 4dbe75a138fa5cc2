"""What the user is asked for a server, field by field, and what the server is told."""

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

from tui_agent.agent.turn.toolbox import CallContext
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tools.gate.permissions import NobodyToAsk
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.mcp.elicitation import answered

Field = dict[str, Any]


async def filled_in(
    folder: Path, fields: dict[str, Field], answers: Sequence[str], required: Sequence[str] = ()
) -> tuple[ElicitResult, list[PermissionQuestion]]:
    """The result of a form whose user gives these answers; an empty one is the first choice, none declines."""
    left, asked = list(answers), []

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question)
        if not left:
            return PermissionAnswer(allowed=False)
        return PermissionAnswer(allowed=True, choice=left.pop(0) or question.choices[0])

    schema = {"type": "object", "properties": fields, "required": list(required)}
    params = ElicitRequestFormParams(message="Tell me", requested_schema=schema)
    context = CallContext(Workspace(folder), folder, "one", (), 1_000, lambda _: None, ask)
    return await answered("server", params, context), asked


@pytest.mark.parametrize(
    ("field", "answer", "value"),
    [
        ({"type": "string", "default": "me"}, "", "me"),
        ({"type": "integer", "default": 7}, "", 7),
        ({"type": "boolean", "default": False}, "", False),
        ({"type": "string", "enum": ["a", "b"], "default": "b"}, "", "b"),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "string", "oneOf": [{"const": "x", "title": "X"}]}, "x", "x"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "default": ["a", "b"]}, "", ["a", "b"]),
    ],
)
async def test_a_default_is_the_first_choice(tmp_path: Path, field: Field, answer: str, value: object) -> None:
    result, _ = await filled_in(tmp_path, {"it": field}, [answer], required=["it"])
    assert (result.action, result.content) == ("accept", {"it": value})


async def test_any_number_of_fields_is_asked_for_and_optional_ones_may_be_left_out(tmp_path: Path) -> None:
    fields: dict[str, Field] = {f"f{number}": {"type": "string"} for number in range(13)}
    answers = [str(number) if number % 2 else "" for number in range(13)]
    result, asked = await filled_in(tmp_path, fields, answers)
    assert result.action == "accept"
    assert result.content == {f"f{number}": str(number) for number in range(1, 13, 2)}
    assert "(13 of 13)" in asked[-1].preview.text


async def test_an_answer_that_does_not_fit_is_asked_for_again(tmp_path: Path) -> None:
    field = {"type": "integer", "minimum": 1, "maximum": 9}
    result, asked = await filled_in(tmp_path, {"it": field}, ["many", "12", *["x"] * 20, "3"], required=["it"])
    assert result.content == {"it": 3}
    assert [each.preview.text.rpartition("does not fit: ")[2] for each in asked[1:3]] == [
        "a whole number. Esc declines the form.",
        "a number from 1 to 9. Esc declines the form.",
    ]


@pytest.mark.parametrize(
    "field",
    [
        {"type": "integer", "default": "many"},
        {"type": "integer", "default": 12, "maximum": 9},
        {"type": "string", "enum": ["x" * 300, "b"], "default": "c"},
    ],
)
async def test_what_does_not_fit_is_no_choice(tmp_path: Path, field: Field) -> None:
    _, asked = await filled_in(tmp_path, {"it": field}, [], required=["it"])
    assert asked[0].choices == (("b",) if "enum" in field else ())


async def test_a_long_default_is_given_whole(tmp_path: Path) -> None:
    told = "a line\n" * 100
    result, asked = await filled_in(tmp_path, {"it": {"type": "string", "default": told}}, [""])
    assert len(asked[0].choices[0]) <= 200
    assert result.content == {"it": told}


async def test_only_the_user_declines(tmp_path: Path) -> None:
    result, asked = await filled_in(tmp_path, {"it": {"type": "string"}}, [], required=["it"])
    assert (result.action, len(asked)) == ("decline", 1)
    for answer, action in (("yes", "accept"), ("no", "decline")):
        result, asked = await filled_in(tmp_path, {}, [answer])
        assert (result.action, len(asked)) == (action, 1)


@pytest.mark.parametrize(
    ("url", "answer", "action"),
    [
        ("https://a.example/in", "yes", "accept"),
        ("http://a.example/in", "yes", "accept"),
        ("https://a.example/in", "no", "decline"),
        ("https://a.example/in", None, "decline"),
        ("https://a.example/in", "", "cancel"),  # nobody is there to ask
        ("file:///etc/passwd", "yes", "decline"),
    ],
)
async def test_an_address_is_opened_only_on_the_web_and_with_a_yes(
    url: str, answer: str | None, action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    asked: list[PermissionQuestion] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question)
        if answer == "":
            raise NobodyToAsk(question)
        return PermissionAnswer(allowed=answer is not None, choice=answer or "")

    context = CallContext(Workspace(tmp_path), tmp_path, "one", (), 1_000, lambda _: None, ask)
    params = ElicitRequestURLParams(message="Sign in", url=url)
    assert (await answered("server", params, context)).action == action
    assert opened == ([url] if action == "accept" else [])
    assert [url in question.preview.text for question in asked] == [True] * url.startswith("http")
    assert (await answered("server", params, None)).action == "cancel"
