"""The record of a session as people read it: a line for every kind of event, of any body."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.arguments import UsageError
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    HeadMoved,
    Message,
    Queued,
    Recorded,
    Summarized,
    Usage,
    tool_result,
    user_message,
)
from tui_agent.conversation.log import Log
from tui_agent.reports.trace import KINDS, event_line, summary_of, trace_lines, trace_page
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import create_session
from tui_agent.storage.trace import TraceEvent, events_of
from tui_agent.text import clean

SAID = (
    (user_message("what is\nthis"), ["user: what is this"]),
    (
        Message(
            role="assistant",
            blocks=(Reasoning("hm"), Text("this"), ToolCall("1", "read_file", '{"path": "a.py"}')),
            model="m",
            usage=Usage(12_345, 8_000, 0, 50),
            cost_usd=0.0042,
            duration_ms=1500,
            stop_reason="max_tokens",
        ),
        ["assistant (max_tokens): this", "hm", "read_file a.py", "m: 12k in (8.0k cached), 50 out, $0.0042, 1.5 s"],
    ),
    (tool_result(ToolResult("1", "no", is_error=True), duration_ms=20), ["failed, 2 characters, 20 ms: no"]),
    (
        Summarized(first=1, last=2, text="x", before=90_000, after=1200, reason="the window is full"),
        ["summarized · 90k → 1.2k tokens · the window is full"],
    ),
    (Queued(blocks=(Text("and the tests"),)), ["queued for the next step: and the tests"]),
    (HeadMoved(to=1, reason="rewind"), ["head moved · rewind · to entry 1"]),
)
OWN = (
    ("permission", {"call_id": "1", "allowed": False, "reason": "no rule"}, "refused: no rule"),
    ("cache_miss", {"text": "the prefix changed"}, "the prefix changed"),
    ("alert", {"signal": "loop", "text": "in circles", "action": "warn"}, "loop: in circles (warn)"),
    ("error", {"kind": "internal", "traceback": "Traceback\n  x\nValueError: y\n"}, "internal: ValueError: y"),
    ("trace_gap", {"reason": "its anchor is missing"}, "its anchor is missing"),
    ("session", {"version": "1", "python": "3.11", "cwd": "/x"}, "tui-agent 1, Python 3.11, in /x"),
    ("context", {"seq": 3, "questions": 5}, "seq=3  questions=5"),
)


@pytest.mark.parametrize(("entry", "lines"), SAID)
def test_what_the_log_holds_is_said_in_a_few_words(entry: Message, lines: list[str]) -> None:
    events = [TraceEvent(1, 0.0, event.kind, event.body) for event in events_of(entry)]
    assert [event_line(event).partition("  ")[2].split("  ", 1)[1].lstrip() for event in events] == lines


@pytest.mark.parametrize(("kind", "body", "said"), OWN)
def test_what_the_record_alone_knows_is_said_in_a_few_words(kind: str, body: dict[str, object], said: str) -> None:
    assert summary_of(kind, body) == said


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = "entry kind role text stop_reason images name arguments cost_usd duration_ms purpose tools before after to"


@given(
    st.sampled_from((*KINDS, "of a later version")),
    st.dictionaries(st.sampled_from(NAMES.split()), json_values) | json_values,
    st.floats(),
)
def test_any_event_is_one_line_without_escapes(kind: str, body: object, time: float) -> None:
    line = event_line(TraceEvent(1, time, kind, json.dumps(body)))
    assert "\n" not in line
    assert clean(line) == line


async def record(home: Path) -> Path:
    """A session with two messages and a refused permission in its record."""
    folder = create_session(home)
    store = await LogStore.open(folder)
    log = Log()
    for entry in (
        user_message("hello"),
        Message(role="assistant", blocks=(Text("good day"),)),
        Recorded(kind="permission", body='{"call_id":"1","allowed":false,"reason":"<b>no rule</b>"}'),
        Recorded(kind="permission", body='{"call_id":"2","allowed":true,"reason":"fine"}'),
    ):
        log.append(log.stamp(entry, 1_800_000_000.0))
    await store.append(list(log))
    await store.close()
    return folder


@pytest.fixture
def session(tmp_path: Path) -> str:
    return asyncio.run(record(tmp_path)).name


def test_lines_can_be_chosen_by_kind_and_be_json(tmp_path: Path, session: str) -> None:
    chosen = list(trace_lines(tmp_path, session, kinds=["message"]))
    assert [line.split("  ")[-1].strip() for line in chosen] == ["user: hello", "assistant: good day"]
    raw = [json.loads(line) for line in trace_lines(tmp_path, session, kinds=["message", "permission"], as_json=True)]
    assert [event["body"].get("text") for event in raw if event["kind"] == "message"] == ["hello", "good day"]
    assert len(raw) == 4
    with pytest.raises(UsageError, match="no kind 'messages'; there are session, message"):
        list(trace_lines(tmp_path, session, kinds=["messages"]))


def test_a_followed_record_goes_on_with_what_is_added(tmp_path: Path, session: str) -> None:
    followed = trace_lines(tmp_path, session, kinds=["alert"], follow=True)

    async def add() -> None:
        store = await LogStore.open(tmp_path / "sessions" / session)
        alert = Recorded(kind="alert", body='{"signal":"loop","text":"x","action":"warn"}')
        await store.append([Log(await store.load()).stamp(alert, 1_800_000_000.0)])
        await store.close()

    adding = threading.Thread(target=lambda: asyncio.run(add()))
    adding.start()
    assert next(followed).endswith("loop: x (warn)")
    adding.join()


def test_the_page_has_the_conversation_and_what_was_refused(tmp_path: Path, session: str) -> None:
    page = "".join(trace_page(tmp_path, session))
    assert "good day" in page
    assert "permission: refused: &lt;b&gt;no rule&lt;/b&gt;" in page
    assert "fine" not in page
