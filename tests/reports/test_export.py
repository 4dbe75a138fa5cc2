"""A session as a file: all that was said is in each form, nothing in it is taken for markup, and JSON reads back."""

import json
import re
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tests.reports.test_pages import stamped
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Message, ModelSwitched, Prefix, Summarized, user_message
from tui_agent.reports.export import ENDINGS, export, file_name, markdown

WORDS = "find ``` and </details> <script>x</script> \x1b[31m"


def entries() -> list[AnyEntry]:
    return stamped(
        [
            user_message(WORDS),
            Message(
                role="assistant",
                model="m",
                blocks=(Reasoning("thinking"), Text("I look."), ToolCall("c1", "grep", '{"pattern": "x"}')),
            ),
            Message(role="user", kind="tool_result", blocks=(ToolResult("c1", WORDS),), diff="-a\n+b"),
            Summarized(first=1, last=3, text="what was done", reason="it was due", before=100, after=10),
        ]
    )


def test_markdown_holds_all_of_it_and_no_markup_of_others() -> None:
    text = "".join(markdown("session x", entries()))
    held = ("thinking", "I look.", '{"pattern": "x"}', "<summary>Search x</summary>", "-a\n+b", "what was done", "100")
    assert [each for each in (*held, "it was due") if each not in text] == []
    assert "\x1b" not in text
    assert "````\nfind ```" in text
    assert text.count("<details>") == text.count("\n</details>\n")
    assert text.startswith("# find ```")


def test_a_call_stands_with_its_result_and_the_first_model_is_no_event() -> None:
    call, result = (entries()[place] for place in (1, 2))
    text = "".join(
        markdown("x", stamped([ModelSwitched(model="m"), user_message("hi"), call, ModelSwitched(model="n")]))
    )
    assert "Search x · no result" in text
    assert text.count("From here on") == 1
    told = "".join(markdown("x", stamped([user_message("hi"), call, user_message("later"), result])))
    assert told.index("Search x") < told.index("-a\n+b") < told.index("later")
    assert "Result of a call" in "".join(markdown("x", stamped([result])))


def test_a_file_is_named_by_its_day_and_its_first_words_and_begins_with_what_was_said() -> None:
    told = stamped([Prefix(system="You are", tools=()), user_message("Add tax: to the till, in 3 steps & more!")])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-add-tax-to-the-till-in", file_name(told))
    text = "".join(markdown("session x", told))
    assert text.index("## You") < text.index("You are")
    assert file_name([]) == "session"


async def test_a_real_session_becomes_a_file_that_only_its_user_reads(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        await say(session, 'write "kept words" to made.txt')
        log = tuple(session.agent.engine.view.log)
        for ending in ENDINGS:
            path = tmp_path / f"out{ending}"
            assert export(path, session.id, log) == path.stat().st_size
            assert "kept words" in path.read_text()
            assert path.stat().st_mode & 0o077 == 0
        assert len(json.loads((tmp_path / "out.json").read_text())["entries"]) == len(log)


def test_another_ending_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in \.md, \.html or \.json"):
        export(tmp_path / "out.txt", "x", entries())
    assert list(tmp_path.iterdir()) == []
