"""Hooks over real programs: what they are told, what they may say, and that a bad one is named and costs nothing."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tui_agent.agent import events
from tui_agent.agent.events import AgentEvent
from tui_agent.conversation.blocks import Text, ToolResult
from tui_agent.conversation.entries import Message
from tui_agent.session import Session
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion


def hook(folder: Path, *commands: str, event: str = "PreToolUse", matcher: str = "", timeout: float = 30) -> None:
    """Add hooks to the file in `folder`."""
    path = folder / "hooks.json"
    folder.mkdir(parents=True, exist_ok=True)
    found = json.loads(path.read_text())["hooks"] if path.exists() else {}
    listed = [{"type": "command", "command": command, "timeout": timeout} for command in commands]
    found.setdefault(event, []).append({"matcher": matcher, "hooks": listed})
    path.write_text(json.dumps({"hooks": found}))


def printing(**said: object) -> str:
    return f"echo '{json.dumps(said)}'"


def specific(**said: object) -> str:
    return printing(hookSpecificOutput=said)


def results(session: Session) -> list[ToolResult]:
    blocks = (block for message in session.agent.engine.view.messages() for block in message.blocks)
    return [block for block in blocks if isinstance(block, ToolResult)]


def notices(session: Session) -> list[str]:
    path = session.agent.engine.view.log.path()
    messages = (entry for entry in path if isinstance(entry, Message) and entry.kind == "hook")
    return [block.text for message in messages for block in message.blocks if isinstance(block, Text)]


def failed_hooks(told: Sequence[AgentEvent]) -> list[events.Notice]:
    return [event for event in told if isinstance(event, events.Notice) and event.title.startswith("A hook failed")]


@pytest.mark.parametrize(
    "command",
    [
        "echo 'not here' >&2; exit 2",
        specific(permissionDecision="deny", permissionDecisionReason="not here"),
        printing(decision="block", reason="not here"),
    ],
)
async def test_a_hook_refuses_a_call(tmp_path: Path, command: str) -> None:
    hook(tmp_path / "home", command, matcher="Write|Edit")
    async with talking(tmp_path, {"permissions.mode": "allow"}) as session:
        told = await say(session, 'write "x" to made.txt, list .')
        first, second = results(session)
    assert first.text == "A hook of the user refuses this call: not here"
    assert not second.is_error
    assert [event.status for event in told if isinstance(event, events.ToolFinished)] == ["denied", "ok"]
    assert not (tmp_path / "project/made.txt").exists()


async def test_changed_arguments_pass_the_gate_like_any(tmp_path: Path) -> None:
    asked: list[PermissionQuestion] = []

    async def no(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question)
        return PermissionAnswer(allowed=False)

    hook(tmp_path / "home", specific(updatedInput={"path": "/etc/hostname"}), matcher="read_file")
    hook(tmp_path / "home", specific(updatedInput={"path": "."}, permissionDecision="allow"), matcher="list_dir")
    async with talking(tmp_path, ask=no) as session:
        await say(session, "read calc.py, list tests")
        refused, listed = results(session)
    assert [json.loads(question.arguments)["path"] for question in asked] == ["/etc/hostname"]
    assert "declined" in refused.text
    assert "calc.py" in listed.text
    assert listed.text.endswith('[a hook of the user changed the arguments of this call to {"path": "."}]')


async def test_a_hook_has_a_call_asked_about(tmp_path: Path) -> None:
    asked: list[str] = []

    async def yes(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question.reason)
        return PermissionAnswer(allowed=True)

    doubt = specific(permissionDecision="ask", permissionDecisionReason="Sure?")
    hook(tmp_path / "home", doubt, matcher="list_dir")
    async with talking(tmp_path, ask=yes) as session:
        await say(session, "list .")
        assert not results(session)[0].is_error
    assert asked == ["Sure?"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sleep 900 & sleep 900", "ended after 1 s"),
        ("echo '{oh'", "cannot be read"),
        (specific(updatedInput=["no object"]), "cannot be read"),
        ("echo plain words", "not JSON"),
        ("head -c 3000000 /dev/zero", "not JSON"),
        ("echo broken >&2; exit 1", "exit code 1. broken"),
        ("/nowhere/at-all", "exit code 127"),
        ("kill -9 $$", "exit code -9"),
    ],
)
async def test_a_bad_hook_is_named_and_costs_nothing(tmp_path: Path, command: str, why: str) -> None:
    hook(tmp_path / "home", command, timeout=1 if "sleep" in command else 60)
    began = time.monotonic()
    async with talking(tmp_path) as session:
        told = await say(session, "list .")
        assert not results(session)[0].is_error
    [failure] = failed_hooks(told)
    assert command[:20] in failure.title
    assert why in failure.text
    assert isinstance(told[-1], events.TurnFinished)
    assert told[-1].stop_reason == "end_turn"
    # Nothing that it left holds the end up.
    assert time.monotonic() - began < 300


async def test_hooks_hear_of_the_session_and_tell_the_model(tmp_path: Path) -> None:
    home, heard = tmp_path / "home", tmp_path / "heard"
    keep = f"tee -a {heard} >/dev/null; echo >> {heard}"
    for event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"):
        hook(home, keep, event=event)
    hook(home, "echo milk", event="SessionStart")
    hook(home, specific(additionalContext="eggs"), event="UserPromptSubmit")
    hook(home, specific(additionalContext="bread"), event="PostToolUse")
    async with talking(tmp_path) as session:
        await say(session, "list .")
        await say(session, "think about it")
        said = [f"[a hook of the user says] {what}" for what in ("milk", "eggs", "eggs")]
        assert notices(session) == said
        assert results(session)[0].text.endswith("[a hook of the user says] bread")
        told = [json.loads(line) for line in heard.read_text().splitlines() if line]
        names = [each["hook_event_name"] for each in told]
        turn = ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]
        assert names == ["SessionStart", *turn, "UserPromptSubmit", "Stop"]
        assert {each["session_id"] for each in told} == {session.id}
        assert (told[1]["prompt"], told[2]["tool_name"]) == ("list .", "list_dir")
        assert told[2]["tool_input"] == {"path": "."}
        assert "calc.py" in told[3]["tool_response"]["text"]
        assert told[0]["source"] == "startup"


async def test_a_hook_refuses_the_users_words(tmp_path: Path) -> None:
    hook(tmp_path / "home", "grep -q secret && { echo 'a secret' >&2; exit 2; }; exit 0", event="UserPromptSubmit")
    async with talking(tmp_path) as session:
        told = await say(session, "read the secret")
        assert [event.kind for event in told if isinstance(event, events.TurnFailed)] == ["hook"]
        assert not session.agent.branches.prompts()
        await say(session, "list .")
        assert [prompt.text for prompt in session.agent.branches.prompts()] == ["list ."]


async def test_a_hook_has_a_turn_go_on_within_bounds(tmp_path: Path) -> None:
    hook(tmp_path / "home", printing(decision="block", reason="list ."), event="Stop")
    async with talking(tmp_path) as session:
        told = await say(session, "think about it")
        assert isinstance(told[-1], events.TurnFinished)
        assert told[-1].steps >= 6
        assert len(notices(session)) == 5


async def test_hooks_hear_of_a_summary(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    for event in ("PreCompact", "PostCompact"):
        hook(tmp_path / "home", f"echo {event} >> {heard}", event=event)
    async with talking(tmp_path) as session:
        for _ in range(3):
            await say(session, "read calc.py")
        assert not (await session.agent.compact()).error
    assert heard.read_text().split() == ["PreCompact", "PostCompact"]


async def test_python_a_projects_hooks_and_what_cannot_be_read(tmp_path: Path) -> None:
    project = tmp_path / "project"
    call = [{"hooks": [{"type": "python", "call": "own_hooks:before"}]}]
    document = {"hooks": {"PreToolUse": call, "Nonsense": [], "Stop": [{"matcher": "(", "hooks": []}]}}
    async with talking(tmp_path):
        pass
    (project / "own_hooks.py").write_text(
        "def before(told):\n    return {'decision': 'block', 'reason': told['tool_name']}\n"
    )
    (project / ".agents").mkdir()
    (project / ".agents/hooks.json").write_text(json.dumps(document))
    async with talking(tmp_path) as session:
        await say(session, "list .")
        assert not results(session)[0].is_error
    async with talking(tmp_path, trusted=True) as session:
        told = await say(session, "list .")
        assert results(session)[0].text == "A hook of the user refuses this call: list_dir"
        problems = [event.text for event in told if isinstance(event, events.Notice)]
        assert any("'Nonsense' is not an event" in problem for problem in problems)
        assert any("not a regular expression" in problem for problem in problems)
        listed = await session.agent.own_commands.listed()
        assert "own_hooks:before" in listed
        assert "(the project's)" in listed
        # A file that is written anew counts from the next turn on.
        (project / ".agents/hooks.json").write_text("{}")
        await say(session, "list .")
        assert not results(session)[-1].is_error


async def test_a_subtasks_calls_are_heard_of(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    for event in ("SessionStart", "UserPromptSubmit", "PreToolUse"):
        hook(tmp_path / "home", f"echo {event} >> {heard}", event=event, matcher="read_file")
    async with talking(tmp_path) as session:
        await say(session, "ask calc.py what does it do?")
    # The session and its prompt once; then the subtask's reading.
    assert heard.read_text().split() == ["SessionStart", "UserPromptSubmit", "PreToolUse"]
