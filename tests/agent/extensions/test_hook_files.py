"""Reading hooks of any form, and asking what is no command, without a session."""

import asyncio
import json
from pathlib import Path

import pytest

from tui_agent.agent.extensions.files import MOST_BYTES, ExtensionFolder
from tui_agent.agent.extensions.hook_calls import _filled, posted, used, verdict_of
from tui_agent.agent.extensions.hook_files import (
    TIMEOUT_S,
    FoundHooks,
    Hook,
    PostAction,
    ServerToolAction,
    read_hooks,
)
from tui_agent.tools.base import ToolFailure


def found(folder: Path, document: object) -> FoundHooks:
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / "hooks.json").write_text(text)
    return read_hooks((ExtensionFolder(folder, "yours"),))


@pytest.mark.parametrize(
    ("given", "does"),
    [
        ({"type": "http", "url": "http://a/", "headers": {"X": "1"}}, "sends the event to http://a/ (X: 1)"),
        ({"type": "http", "url": "http://a/"}, "sends the event to http://a/"),
        (
            {"type": "mcp_tool", "server": "s", "tool": "t", "input": {"a": 1}},
            'calls the tool t of the server s with {"a": 1}',
        ),
        ({"type": "agent", "prompt": "May it?"}, "has a subtask of the small model that reads files decide: May it?"),
        ({"type": "prompt", "prompt": "May it?", "model": "m"}, "asks m: May it?"),
        ({"command": "make"}, "runs, unconfined: make"),
    ],
)
def test_what_a_hook_does_is_told(tmp_path: Path, given: dict[str, object], does: str) -> None:
    (hook,), problems, *_ = found(tmp_path, {"Stop": [{"hooks": [given]}]})
    assert problems == ()
    assert hook.does == does


@pytest.mark.parametrize(
    "given",
    [
        {"command": " "},
        {"command": 5},
        {"type": "odd", "command": "x"},
        {"type": [], "command": "x"},
        {"command": "x", "timeout": 0},
        {"command": "x", "timeout": True},
        {"command": "x", "timeout": "9"},
        {"type": "python", "call": "no colon"},
        {"type": "http", "url": "file:///etc/passwd"},
        {"type": "http", "url": "http://a/", "headers": []},
        {"type": "http", "url": "http://a/", "allowedEnvVars": "KEY"},
        {"type": "mcp_tool", "tool": "t"},
        {"type": "mcp_tool", "server": "s", "tool": "t", "input": []},
        5,
    ],
)
def test_a_hook_that_is_none_is_named_and_keeps_no_other_from_being_read(tmp_path: Path, given: object) -> None:
    read = found(tmp_path, {"Stop": [{"hooks": [given, {"command": "fine"}]}]})
    assert [hook.command for hook in read.hooks] == ["fine"]
    (problem,) = read.problems
    assert "Stop: a hook is a `command`" in problem


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("[]", "it has no object that lists hooks by event."),
        ("{", "cannot be read: "),
        ("[" * 100_000, "cannot be read: "),
        ({"Stop": [{"matcher": "x"}]}, "Stop: every entry needs a list of `hooks`."),
        ({"Stop": [5]}, "Stop: every entry needs a list of `hooks`."),
        ({"Stop": [{"matcher": "(", "hooks": []}]}, "Stop: the matcher '(' is not a regular expression."),
        ({"Stop": [{"matcher": 5, "hooks": []}]}, "Stop: the matcher 5 is not a regular expression."),
        ({"Odd": []}, "'Odd' is not an event, or has no list; the events are "),
        ({"Stop": {}}, "'Stop' is not an event, or has no list; the events are "),
    ],
)
def test_what_cannot_be_read_as_hooks_is_said(tmp_path: Path, document: object, problem: str) -> None:
    hooks, (said,), *_ = found(tmp_path, document)
    assert hooks == ()
    assert problem in said


def test_no_number_of_seconds_is_too_long(tmp_path: Path) -> None:
    (hook,), *_ = found(tmp_path, {"Stop": [{"hooks": [{"command": "x", "timeout": 10**400}]}]})
    assert hook.timeout == TIMEOUT_S


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "http://127.0.0.1:9"])
async def test_an_address_that_cannot_be_asked_is_named(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("all_proxy", proxy)
    with pytest.raises(ToolFailure, match=r"http://far\.invalid/ cannot be asked"):
        await posted(PostAction("http://far.invalid/", (), frozenset()), b"{}", {})


async def test_an_answer_without_end_is_not_read_to_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(MOST_BYTES + 1))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
        with pytest.raises(ToolFailure, match="answered with more than"):
            await posted(PostAction(url, (), frozenset()), b"{}", {})


async def test_before_there_is_a_session_neither_a_model_nor_a_server_is_asked(tmp_path: Path) -> None:
    hook = Hook("Stop", "", "", 1.0, "yours", tmp_path, "Stop", prompt="May it?")
    with pytest.raises(ToolFailure, match="no model to ask"):
        await verdict_of(hook, b"{}", None)
    with pytest.raises(ToolFailure, match="no servers yet"):
        await used(ServerToolAction("s", "t", "{}"), b"{}", None)


def test_the_fields_of_an_event_are_filled_in_at_any_depth() -> None:
    event = {"a": {"b": "x", "c": [1]}}
    given = ["${a.b}", {"n": ["${a.c}-${a.d}"], "m": 5}]
    assert _filled(given, event) == ["x", {"n": ["[1]-"], "m": 5}]
