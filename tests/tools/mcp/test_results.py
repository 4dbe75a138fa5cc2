"""What of a server's results is told, and the tasks that are kept for a later run."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, GetPromptResult, ReadResourceResult

from tui_agent.tools.mcp.open_tasks import OpenTasks, call_key
from tui_agent.tools.mcp.results import output_of, text_of_prompt, text_of_resource

LINK = {"type": "resource_link", "uri": "https://a.example/x", "name": "x"}
PICTURE = {"type": "image", "mimeType": "image/png", "data": "eA=="}


def _text(*said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in said]


def _inside(**fields: str) -> list[dict[str, Any]]:
    return [{"type": "resource", "resource": {"uri": "a://b", **fields}}]


@pytest.mark.parametrize(
    ("content", "structured", "told"),
    [
        (_text("a\x1b[31mb"), None, "ab"),
        (_text("a", "", "b"), None, "a\n\nb"),
        (_text("7"), {"result": 7}, "7"),
        (_text("seven"), {"result": "seven"}, "seven"),
        (_text('{"a": 1, "b": 2}'), {"b": 2, "a": 1}, '{"a": 1, "b": 2}'),
        (_text("1"), {"a": 1, "b": 2}, '1\n\n{\n "a": 1,\n "b": 2\n}'),
        (_text("no JSON"), {"a": "ü"}, 'no JSON\n\n{\n "a": "ü"\n}'),
        ([LINK, {**LINK, "description": "more\nof it"}], None, "{0} (x)]\n\n{0} (more of it)]"),
        ([{"type": "audio", "mimeType": "a/w", "data": ""}], None, "[sound, a/w: it cannot be listened to]"),
        (_inside(text="said"), None, "[a://b]\nsaid"),
        (_inside(blob="AAAAAAAA", mimeType="x/y"), None, "[a://b]\n[6 bytes of the kind x/y: no text]"),
        (_inside(blob=""), None, "[a://b]\n[0 bytes of the kind unknown: no text]"),
        ([{**PICTURE, "mimeType": "image/x"}], None, "[a picture of the kind image/x: it cannot be looked at]"),
    ],
)
@pytest.mark.parametrize("failed", [False, True])
def test_what_a_result_says(content: list[dict[str, Any]], structured: object, told: str, failed: bool) -> None:
    given = {"content": content, "structuredContent": structured, "isError": failed}
    output = output_of(CallToolResult.model_validate(given))
    link = "[a resource: https://a.example/x"
    assert (output.text, output.is_error, output.images) == (told.replace("{0}", link), failed, ())


def test_pictures_are_looked_at_wherever_they_stand() -> None:
    (inside,) = _inside(mimeType="image/png", blob="eA==")
    output = output_of(CallToolResult.model_validate({"content": [PICTURE, inside]}))
    assert (output.text, len(output.images)) == ("", 2)
    resource = ReadResourceResult.model_validate({"contents": [inside["resource"], {"uri": "a://b", "text": "said"}]})
    assert text_of_resource(resource).endswith("said")


def test_a_prompts_messages_are_told_with_their_roles() -> None:
    messages = [{"role": "user", "content": _text("do it")[0]}, {"role": "assistant", "content": PICTURE}]
    assert text_of_prompt(GetPromptResult.model_validate({"messages": messages})) == "do it\n\n[assistant] [a picture]"


def test_an_open_task_is_found_by_a_later_run_alone(tmp_path: Path) -> None:
    path = tmp_path / "session/tasks.json"
    call, other = call_key("build", {"a": 1, "b": 2}), call_key("build", {"a": 1})
    assert call == call_key("build", {"b": 2, "a": 1}) != other
    tasks = OpenTasks(path)
    assert tasks.find(call) is None
    tasks.keep(call, "t1")
    assert stat.S_IMODE(path.parent.stat().st_mode) == stat.S_IRWXU
    with tasks.waiting(call):
        assert tasks.find(call) is None
        with tasks.waiting(call):
            pass
        assert (tasks.find(call), OpenTasks(path).find(call)) == (None, "t1")
    assert tasks.find(call) == "t1"
    before = path.stat().st_mtime_ns, path.read_bytes()
    tasks.forget(other)
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before
    tasks.forget(call)
    assert (tasks.find(call), json.loads(path.read_text())) == (None, {})
    path.write_text("[damaged")
    assert OpenTasks(path).find(call) is None
    path.unlink()
    path.mkdir()
    tasks.keep(call, "t2")
    assert tasks.find(call) == "t2"
