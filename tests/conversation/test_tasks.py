"""The task list in force is read from the log, and follows its head."""

from tests.context.talks import Talk
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import Cleared, HeadMoved, Message, Summarized, tool_result
from tui_agent.conversation.tasks import TodoItem, TodoList, newest_todo
from tui_agent.conversation.view import View
from tui_agent.system.lenient import decoded


def listed(talk: Talk, *items: str, failed: bool = False) -> int:
    """A call with pending items; its number."""
    given = [{"text": text, "state": "pending"} for text in items]
    return talk.tool("Noted.", "todo", failed=failed, items=given)


def texts(view: View) -> list[str]:
    return [item.text for item in newest_todo(view.log).items]


def test_the_newest_call_that_was_carried_out_counts() -> None:
    talk = Talk()
    assert newest_todo(talk.view.log) == TodoList(())
    listed(talk, "one")
    listed(talk, "one", "two")
    listed(talk, "refused", failed=True)
    talk.tool("else", "read_file", path="a")
    _, call = talk.call("todo", items=[{"text": "not answered yet", "state": "done"}])
    assert texts(talk.view) == ["one", "two"]
    talk.add(tool_result(ToolResult(call, "Noted.")))
    assert texts(talk.view) == ["not answered yet"]
    listed(talk)
    assert texts(talk.view) == []


def test_of_two_calls_in_one_answer_the_last_counts_whatever_came_back_first() -> None:
    talk = Talk()
    arguments = '{"items": [{"text": "list %d", "state": "done"}]}'
    talk.add(Message(role="assistant", blocks=tuple(ToolCall(f"x{n}", "todo", arguments % n) for n in (1, 2))))
    for call_id in ("x2", "x1"):
        talk.add(tool_result(ToolResult(call_id, "Noted.")))
    assert texts(talk.view) == ["list 2"]


def test_it_stays_when_a_summary_covers_the_call_and_its_result_is_cleared() -> None:
    talk = Talk()
    talk.ask("go")
    step = listed(talk, "one", "two")
    talk.say("done")
    talk.add(Cleared(results=(step + 1,), texts=("[cleared]",)))
    talk.add(Summarized(first=2, last=len(talk.view.log) - 1, text="[Previous conversation summary]"))
    assert "one" not in talk.shown
    assert texts(talk.view) == ["one", "two"]


def test_it_follows_the_head_back_and_forth() -> None:
    talk = Talk()
    listed(talk, "old")
    place = len(talk.view.log)
    listed(talk, "new")
    tip = len(talk.view.log)
    talk.add(HeadMoved(to=place, reason="rewind"))
    assert texts(talk.view) == ["old"]
    listed(talk, "another branch")
    assert texts(talk.view) == ["another branch"]
    talk.add(HeadMoved(to=tip, reason="switch"))
    assert texts(talk.view) == ["new"]
    talk.add(HeadMoved(to=0, reason="rewind"))
    assert texts(talk.view) == []


def test_an_id_that_is_used_again_names_the_newer_call() -> None:
    talk = Talk()
    listed(talk, "answered")
    talk.calls = 0
    talk.call("todo", items=[{"text": "not answered", "state": "pending"}])
    assert texts(talk.view) == ["answered"]
    talk.calls = 0
    talk.tool("text", "read_file", path="a")
    assert texts(talk.view) == ["answered"]


def test_what_comes_first_and_how_far_it_is() -> None:
    todo = TodoList((TodoItem("a", "done"), TodoItem("b", "pending"), TodoItem("c\nd", "in_progress")))
    assert todo.progress == "1/3"
    assert todo.current == TodoItem("c\nd", "in_progress")
    assert [item.line for item in todo.items] == ["[x] a", "[ ] b", "[>] c d"]
    assert TodoList(todo.items[:2]).current == TodoItem("b", "pending")
    assert TodoList(todo.items[:1]).current is None


def test_arguments_that_hold_no_list() -> None:
    for arguments in ("", "{}", "[]", "{", '{"items": 3}', '{"items": [{"text": "a"}]}', '{"items": ["\ud800"]}'):
        assert decoded(arguments, TodoList) is None
    more = '{"items": [{"text": "a", "state": "done", "more": 1}]}'
    assert decoded(more, TodoList) == TodoList((TodoItem("a", "done"),))
