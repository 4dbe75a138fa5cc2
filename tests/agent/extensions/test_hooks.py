"""Hooks over real programs: what they are told, what they may say, and that a bad one is named and costs nothing."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec import structs

from tests.agent.serving import OPUS
from tests.agent.talking import Person, goes_on, of, results, say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, ParsedRequest, Step
from tests.tools.mcp.connecting import faulty
from tui_agent.agent import events
from tui_agent.agent.events import AgentEvent
from tui_agent.agent.extensions.claude import arguments_for_claude, arguments_from_claude
from tui_agent.agent.extensions.files import ExtensionFolder
from tui_agent.agent.extensions.hook_files import Hook, read_hooks
from tui_agent.context.compaction.draft import Draft
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Message
from tui_agent.session import Session
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tools.gate.permissions import NobodyToAsk
from tui_agent.tools.gate.read_first import scripts_in
from tui_agent.tools.gate.workspace import Workspace


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


def notices(session: Session) -> list[str]:
    path = session.agent.engine.view.log.path()
    messages = (entry for entry in path if isinstance(entry, Message) and entry.kind == "hook")
    return [block.text for message in messages for block in message.blocks if isinstance(block, Text)]


def failed_hooks(told: Sequence[AgentEvent]) -> list[events.Notice]:
    return [event for event in of(events.Notice, told) if event.title.startswith("A hook failed")]


READING = Call("read_file", {"path": "calc.py"})
DENIES = {"permissionDecision": "deny", "permissionDecisionReason": "not here"}


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo 'not here' >&2; exit 2", "not here"),
        (specific(**DENIES), "not here"),
        (f"{specific(**DENIES)}; exit 1", "not here"),
        (printing(decision="block", reason="not here"), "not here"),
        (f"{printing(decision='block', reason='by JSON')}; echo on standard error >&2; exit 2", "by JSON"),
        (f"{specific(permissionDecision='allow')}; echo on standard error >&2; exit 2", "on standard error"),
        (f"{printing(systemMessage='only said')}; exit 1", ""),
    ],
)
async def test_a_hook_refuses_a_call_by_its_exit_code_or_by_what_it_prints(
    tmp_path: Path, command: str, why: str
) -> None:
    hook(tmp_path / "home", command, matcher="Write|Edit")
    async with talking(tmp_path, {"permissions.mode": "allow"}) as session:
        told = await say(session, 'write "x" to made.txt, list .')
        first, second = results(session)
    assert not second.is_error
    assert failed_hooks(told) == []
    assert [event.status for event in of(events.ToolFinished, told)] == ["denied" if why else "ok", "ok"]
    assert (tmp_path / "project/made.txt").exists() == (not why)
    assert not why or first.text == f"A hook of the user refuses this call: {why}"


async def test_changed_arguments_pass_the_gate_like_any(tmp_path: Path) -> None:
    person = Person(allowed=False)
    hook(tmp_path / "home", specific(updatedInput={"path": "/etc/hostname"}), matcher="read_file")
    hook(tmp_path / "home", specific(updatedInput={"path": "."}, permissionDecision="allow"), matcher="list_dir")
    async with talking(tmp_path, ask=person) as session:
        await say(session, "read calc.py, list tests")
        refused, listed = results(session)
    assert [json.loads(question.arguments)["path"] for question in person.asked] == ["/etc/hostname"]
    assert "declined" in refused.text
    assert "calc.py" in listed.text
    assert listed.text.endswith('[a hook of the user changed the arguments of this call to {"path":"."}]')


async def test_a_hook_has_a_call_asked_about(tmp_path: Path) -> None:
    person = Person()
    doubt = specific(permissionDecision="ask", permissionDecisionReason="Sure?")
    hook(tmp_path / "home", doubt, matcher="list_dir")
    async with talking(tmp_path, ask=person) as session:
        await say(session, "list .")
        assert not results(session)[0].is_error
    assert [question.reason for question in person.asked] == ["Sure?"]


BAD = {
    "sleep 900 & sleep 900": "ended after 1 s",
    "echo '{oh'": "cannot be read",
    specific(updatedInput=["no object"]): "cannot be used",
    "echo '{'; head -c 3000000 /dev/zero": "cannot be read",
    "echo broken >&2; exit 1": "exit code 1. broken",
    "/nowhere/at-all": "exit code 127",
    "kill -9 $$": "exit code -9",
}


async def test_bad_hooks_are_named_and_cost_nothing(tmp_path: Path) -> None:
    for command in BAD:
        hook(tmp_path / "home", command, timeout=1 if "sleep" in command else 60)
    began = time.monotonic()
    async with talking(tmp_path) as session:
        failed = failed_hooks(await goes_on(session, "list ."))
        assert not results(session)[0].is_error
    assert len(failed) == len(BAD)
    for command, why in BAD.items():
        assert [why in each.text for each in failed if command[:20] in each.title] == [True], command
    # Nothing that they left holds the end up.
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
        assert (told[1]["prompt"], told[2]["tool_name"]) == ("list .", "LS")
        assert (told[2]["native_tool_name"], told[2]["native_tool_input"]) == ("list_dir", {"path": "."})
        assert "calc.py" in told[3]["tool_response"]["text"]
        assert told[0]["source"] == "startup"


async def test_a_hook_refuses_the_users_words(tmp_path: Path) -> None:
    hook(tmp_path / "home", "grep -q secret && { echo 'a secret' >&2; exit 2; }; exit 0", event="UserPromptSubmit")
    async with talking(tmp_path) as session:
        told = await say(session, "read the secret")
        assert [event.kind for event in told if isinstance(event, events.TurnFailed)] == ["hook"]
        assert not session.agent.branches.prompts()
        # What is sent meanwhile is taken back alike, and nothing is asked because of it.
        told, sent = [], 0
        async for event in session.agent.run("think about it"):
            told.append(event)
            if isinstance(event, events.TextDelta) and not sent:
                sent = await session.agent.queue("the secret again")
        assert [event.text for event in told if isinstance(event, events.UserMessage)] == ["think about it"]
        assert [event.text for event in of(events.Notice, told)] == ["a secret"]
        assert len([event for event in told if isinstance(event, events.AssistantMessage)]) == 1
        assert session.agent.turns.queued() == ()
        assert [prompt.text for prompt in session.agent.branches.prompts()] == ["think about it"]


async def test_a_hook_has_a_turn_go_on_within_bounds(tmp_path: Path) -> None:
    hook(tmp_path / "home", printing(decision="block", reason="list ."), event="Stop")
    async with talking(tmp_path) as session:
        told = await say(session, "think about it")
        assert isinstance(told[-1], events.TurnFinished)
        assert told[-1].steps >= 6
        assert len(notices(session)) == 5


async def test_python_a_projects_hooks_and_what_cannot_be_read(tmp_path: Path) -> None:
    project = tmp_path / "project"
    call = [{"hooks": [{"type": "python", "call": "own_hooks:before"}]}]
    document = {"hooks": {"PreToolUse": call, "Nonsense": [], "Stop": [{"matcher": "(", "hooks": []}]}}
    async with talking(tmp_path):
        pass
    (project / "own_hooks.py").write_text(
        "def before(told):\n    return {'decision': 'block', 'reason': told['native_tool_name']}\n"
    )
    (project / ".agents").mkdir()
    (project / ".agents/hooks.json").write_text(json.dumps(document))
    async with talking(tmp_path) as session:
        await say(session, "list .")
        assert not results(session)[0].is_error
    async with talking(tmp_path, trusted=True) as session:
        told = await say(session, "list .")
        assert results(session)[0].text == "A hook of the user refuses this call: list_dir"
        problems = [event.text for event in of(events.Notice, told)]
        assert any("'Nonsense' is not an event" in problem for problem in problems)
        assert any("not a regular expression" in problem for problem in problems)
        listed = await session.agent.own_commands.listed()
        assert "own_hooks:before" in listed
        assert "(the project's)" in listed
        # A file that is written anew counts from the next turn on.
        (project / ".agents/hooks.json").write_text("{}")
        await say(session, "list .")
        assert not results(session)[-1].is_error


def test_the_module_of_a_python_hook_is_one_of_the_projects_scripts_of_hooks(tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "hooks.py").touch()
    document = {"hooks": {"Stop": [{"hooks": [{"type": "python", "call": "team.hooks:last"}]}]}}
    (tmp_path / "hooks.json").write_text(json.dumps(document))
    (hook,) = read_hooks([ExtensionFolder(tmp_path, "yours")]).every()
    assert scripts_in([hook.line], Workspace(tmp_path), tmp_path) == [tmp_path / "team" / "hooks.py"]


async def test_a_hook_that_a_project_gains_during_a_session_waits_for_trust(tmp_path: Path) -> None:
    own = tmp_path / "project" / ".agents"
    hook(own, "true")
    async with talking(tmp_path, trusted=True) as session:
        await say(session, "list .")
        hook(own, "exit 2")
        told = await say(session, "list .")
        assert [result.is_error for result in results(session)] == [False, False]
        problems = [event.text for event in of(events.Notice, told)]
        assert [problem.rpartition(": ")[2] for problem in problems] == ["/trust lets it run."]
    async with talking(tmp_path, trusted=True) as session:
        await say(session, "list .")
        assert results(session)[0].is_error


def lines_of(file: str) -> list[dict[str, Any]]:
    """The lines of a transcript."""
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


async def test_calls_are_told_of_in_the_names_of_claude_code(tmp_path: Path) -> None:
    file, project = tmp_path / "told", str(tmp_path / "project")
    for event in ("PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop"):
        hook(tmp_path / "home", f"printf '%s\\n' \"$(cat)\" >> {file}", event=event)
    calls = 'run `echo hi`, read calc.py, write "x" to made.txt, replace "def add" with "def" in calc.py, run `exit 3`'
    async with talking(tmp_path, {"permissions.mode": "allow"}) as session:
        await say(session, calls)
    told: dict[str, list[dict[str, Any]]] = {}
    for each in map(json.loads, filter(None, file.read_text().splitlines())):
        told.setdefault(each["hook_event_name"], []).append(each)
    expected: list[tuple[str, dict[str, str]]] = [
        ("Bash", {"command": "echo hi"}),
        ("Read", {"file_path": f"{project}/calc.py"}),
        ("Write", {"file_path": f"{project}/made.txt", "content": "x"}),
        ("Edit", {"file_path": f"{project}/calc.py", "old_string": "def add"}),
        ("Bash", {"command": "exit 3"}),
    ]
    inputs = [(each["tool_name"], each["tool_input"]) for each in told["PreToolUse"]]
    assert sorted(name for name, _ in inputs) == sorted(name for name, _ in expected)
    for name, given in expected:
        assert any(name == called and given.items() <= told_of.items() for called, told_of in inputs)
    response = next(each["tool_response"] for each in told["PostToolUse"] if each["tool_name"] == "Bash")
    assert (response["stdout"].strip(), response["interrupted"]) == ("hi", False)
    assert len(told["PostToolUse"]) == 4
    [failed] = told["PostToolUseFailure"]
    assert (failed["tool_name"], failed["is_interrupt"]) == ("Bash", False)
    assert "3" in failed["error"]
    # The transcript is a session of Claude Code, as hooks search it; its newest was written when the turn ended.
    transcript = told["Stop"][-1]["transcript_path"]
    assert await asyncio.to_thread(lambda: '"role":"assistant"' in Path(transcript).read_text())
    lines = lines_of(transcript)
    blocks = [block for line in lines if line["type"] == "assistant" for block in line["message"]["content"]]
    called = [block["input"].get("command") for block in blocks if block["type"] == "tool_use"]
    assert (called[0], called[-1]) == ("echo hi", "exit 3")
    assert lines[0]["message"]["content"] == calls
    assert [line["parentUuid"] for line in lines[1:]] == [line["uuid"] for line in lines[:-1]]
    async with talking(tmp_path / "again", resume=transcript) as session:
        assert results(session)[0].text.strip().startswith("hi")


async def test_matchers_and_changes_are_those_of_claude_code(tmp_path: Path) -> None:
    matching, others = ("Bash", "Edit|Bash", "B.*", "run_command"), ("bash", "Bas")
    for number, matcher in enumerate((*matching, *others)):
        hook(tmp_path / "home", f"echo {number} >> {tmp_path}/heard", matcher=matcher)
    instead = specific(updatedInput={"command": "echo other", "description": "d", "timeout": 5000})
    hook(tmp_path / "home", instead, matcher="Bash")
    async with talking(tmp_path, {"permissions.mode": "allow"}) as session:
        await say(session, "run `echo hi`")
        assert "other" in results(session)[0].text
        assert '"timeout":5}' in results(session)[0].text
    assert sorted((tmp_path / "heard").read_text().split()) == [str(number) for number in range(len(matching))]


def test_a_hook_for_edits_sees_every_text_of_several_edits(tmp_path: Path) -> None:
    one, two = {"old": "a = 1", "new": "a = 2"}, {"old": "b", "new": "secret", "replace_all": True}
    told = arguments_for_claude("edit_file", {"path": "calc.py", "edits": [one]}, tmp_path)
    assert told == {"file_path": str(tmp_path / "calc.py"), "old_string": "a = 1", "new_string": "a = 2"}
    assert arguments_from_claude("edit_file", told) == {"path": str(tmp_path / "calc.py"), **one}
    several = {"path": str(tmp_path / "calc.py"), "edits": [one, two]}
    told = arguments_for_claude("edit_file", several, tmp_path)
    assert (told["old_string"], told["new_string"], told["replace_all"]) == ("a = 1\nb", "a = 2\nsecret", True)
    assert arguments_from_claude("edit_file", told) == several


async def test_the_transcript_follows_the_conversation_back(tmp_path: Path) -> None:
    told = tmp_path / "told"
    hook(tmp_path / "home", f"cat > {told}", event="Stop")
    async with talking(tmp_path) as session:
        await say(session, "list .")
        await say(session, "think about it")
        await session.agent.branches.rewind(session.agent.branches.prompts()[-1].seq)
        await say(session, "list tests")
    said = [line["message"]["content"] for line in lines_of(json.loads(told.read_text())["transcript_path"])]
    assert "list ." in said
    assert "list tests" in said
    assert "think about it" not in said


async def test_a_hook_answers_a_question(tmp_path: Path) -> None:
    person = Person(allowed=False)
    other = {"behavior": "allow", "updatedInput": {"file_path": "b.txt", "content": "y"}}
    for matcher, decision in (
        ("Edit", {"behavior": "allow"}),
        ("Bash", {"behavior": "deny", "message": "never"}),
        ("Write", other),
    ):
        said = printing(hookSpecificOutput={"decision": decision})
        hook(tmp_path / "home", said, event="PermissionRequest", matcher=matcher)
    async with talking(tmp_path, {"permissions.mode": "ask"}, ask=person) as session:
        await say(session, 'replace "def add" with "def plus" in calc.py, run `touch x`')
        await say(session, 'write "x" to a.txt')
        edited, refused, _ = results(session)
    assert not edited.is_error
    assert "never" in refused.text
    assert not (tmp_path / "project/x").exists()
    assert not (tmp_path / "project/a.txt").exists()
    assert (tmp_path / "project/b.txt").read_text() == "y"
    assert not person.asked


async def test_a_hook_that_allows_a_call_spares_the_question_unless_a_rule_asks(tmp_path: Path) -> None:
    person, asking = Person(), {"permissions.mode": "ask"}
    hook(tmp_path / "home", specific(permissionDecision="allow", permissionDecisionReason="fine"))
    for given, asked in ((asking, []), ({**asking, "permissions.ask": "write_file"}, ["write_file"])):
        async with talking(tmp_path, given, ask=person) as session:
            await say(session, 'write "x" to a.txt')
        assert person.tools == asked
    async with talking(tmp_path, {"permissions.mode": "plan"}, ask=person) as session:
        await say(session, 'write "x" to c.txt')
    assert not (tmp_path / "project/c.txt").exists()


async def test_a_question_is_a_notification(tmp_path: Path) -> None:
    file = tmp_path / "told"
    hook(tmp_path / "home", f"cat > {file}", event="Notification", matcher="permission_prompt")
    async with talking(tmp_path, {"permissions.mode": "ask"}) as session:
        await say(session, 'write "x" to a.txt')
    told = json.loads(file.read_text())
    assert told["notification_type"] == "permission_prompt"
    assert "Write" in told["message"]


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
async def test_a_hook_ends_the_turn(tmp_path: Path, event: str) -> None:
    hook(tmp_path / "home", printing(**{"continue": False, "stopReason": "enough"}), event=event)
    async with talking(tmp_path) as session:
        told = await say(session, "list .")
        [failed] = [each for each in told if isinstance(each, events.TurnFailed)]
        assert (failed.kind, failed.message) == ("hook", "A hook ended the turn: enough")
        assert len(results(session)) == 1


async def test_a_hook_prevents_a_summary_or_says_what_to_keep(tmp_path: Path) -> None:
    home = tmp_path / "home"
    hook(home, "echo not now >&2; exit 2", event="PreCompact", matcher="manual")
    async with talking(tmp_path) as session:
        for _ in range(3):
            await say(session, "read calc.py")
        assert "a hook of the user prevents it: not now" in (await session.agent.compact()).error
        (home / "hooks.json").unlink()
        hook(home, "echo the name of the function", event="PreCompact")
        hook(home, "echo again", event="SessionStart", matcher="compact")
        hook(home, f"touch {tmp_path}/after", event="PostCompact")
        await say(session, "think about it")
        draft = await session.agent.context.draft()
        assert isinstance(draft, Draft)
        assert draft.plan.subject == "the name of the function"
        assert not (await session.agent.context.accept(draft)).error
        await say(session, "think about it")
        assert notices(session) == ["[a hook of the user says] again"]
    assert (tmp_path / "after").exists()


async def test_hooks_of_a_subtask_and_of_the_end_of_the_session(tmp_path: Path) -> None:
    told = tmp_path / "told"
    once = ("SessionStart", "UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop", "SessionEnd")
    for event in (*once, "PreToolUse"):
        matcher = "read_file" * (event == "PreToolUse")
        hook(tmp_path / "home", f"cat >> {told}; echo >> {told}", event=event, matcher=matcher)
    async with talking(tmp_path) as session:
        await say(session, "ask calc.py what does it do?")
    seen = {each["hook_event_name"]: each for each in map(json.loads, filter(None, told.read_text().splitlines()))}
    # The session and its prompt once; in the subtask its reading.
    assert list(seen) == [*once[:3], "PreToolUse", *once[3:]]
    assert len([line for line in told.read_text().splitlines() if line]) == 7
    assert seen["SubagentStart"]["agent_type"] == "agentic_read_file"
    assert any(line["type"] == "assistant" for line in lines_of(seen["SubagentStop"]["agent_transcript_path"]))
    assert len({each["transcript_path"] for each in list(seen.values())[2:]}) == 1
    assert "ask calc.py" in lines_of(seen["SubagentStop"]["transcript_path"])[0]["message"]["content"]
    assert seen["SessionEnd"]["reason"] == "other"


async def test_a_hook_that_is_not_waited_for(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    late = {"type": "command", "command": f'sleep 0.2; echo \'{{"decision": "block"}}\'; touch {mark}', "async": True}
    listed(tmp_path / "home", PreToolUse=late)
    async with talking(tmp_path) as session:
        await say(session, "list .")
        assert not results(session)[0].is_error
    assert mark.exists()


async def test_a_hook_that_says_itself_that_nothing_waits_for_it(tmp_path: Path) -> None:
    mark, answered = tmp_path / "mark", tmp_path / "answered"
    wait = f"while [ ! -e {answered} ]; do sleep 0.05; done"
    first = 'echo \'{"async": true, "asyncTimeout": 180000}\''
    hook(tmp_path / "home", f"{first}; {wait}; echo '{{\"metrics\": {{}}}}'; touch {mark}", event="UserPromptSubmit")
    async with talking(tmp_path) as session:
        said = await say(session, "list .")
        assert not results(session)[0].is_error
        assert not mark.exists()
        answered.touch()
    assert mark.exists()
    assert not failed_hooks(said)


def test_events_outside_the_section_of_claude_code_are_named(tmp_path: Path) -> None:
    event = {"hooks": [{"type": "command", "command": "true"}]}
    (tmp_path / "settings.json").write_text(json.dumps({"PreToolUse": [event], "Setup": [event], "env": {}}))
    found = read_hooks((ExtensionFolder(tmp_path, "yours", kind="claude"),))
    assert found.hooks == ()
    assert found.problems == (f"{tmp_path / 'settings.json'}: PreToolUse, Setup: not read outside a section `hooks`.",)


async def test_a_prompt_is_judged_by_the_small_model(server: AnthropicServer, tmp_path: Path) -> None:
    """A hook of the type `prompt` on a call and on the end of a turn, over the wire of a real provider."""
    asked: list[str] = []
    verdicts = {"tool_name": {"ok": False, "reason": "calc.py is off limits."}, "stop_hook_active": {"ok": True}}

    def answer(request: ParsedRequest) -> Step:
        if "May this be read?" in request.prompt or "Is all done?" in request.prompt:
            asked.append(request.model)
            kind = "tool_name" if "May this be read?" in request.prompt else "stop_hook_active"
            assert kind in request.prompt, "the event is part of the question"
            return Step(text=f"Here it is: {json.dumps(verdicts[kind])}")
        return (Step(calls=(READING,)), Step(text="I may not."))[request.position]

    server.script = answer
    judge = {"type": "prompt", "prompt": "May this be read? $ARGUMENTS"}
    last = {"type": "prompt", "prompt": "Is all done?", "model": "frontier"}
    listed(tmp_path / "home", PreToolUse={**judge, "continueOnBlock": True}, Stop=last)
    async with talking(tmp_path, OPUS) as session:
        told = await say(session, "read it")
    assert not failed_hooks(told)
    (ended,) = of(events.ToolFinished, told)
    assert (ended.status, "calc.py is off limits." in ended.text) == ("denied", True)
    assert ["haiku" in asked[0], *asked[1:]] == [True, OPUS["model.id"]]
    # As in Claude Code, a refusal ends the turn unless the hook says `continueOnBlock`.
    listed(tmp_path / "home", PreToolUse=judge)
    async with talking(tmp_path, OPUS) as session:
        told = await say(session, "read it")
    assert "off limits." in str(told[-2])
    assert len(of(events.ToolFinished, told)) == 1


async def test_a_program_and_its_arguments_get_the_places_without_a_shell(tmp_path: Path) -> None:
    plugin = tmp_path / "my plugin"
    (plugin / "hooks").mkdir(parents=True)
    (plugin / ".claude-plugin").mkdir()
    (plugin / ".claude-plugin" / "plugin.json").write_text('{"name": "mine"}')
    script = plugin / "keep.sh"
    script.write_text('#!/bin/sh\nprintf "%s|" "$@" >> "$CLAUDE_PLUGIN_DATA/kept"\n')
    script.chmod(0o755)
    listed = {
        "type": "command",
        "command": "${CLAUDE_PLUGIN_ROOT}/keep.sh",
        "args": ["${CLAUDE_PROJECT_DIR}/x y", "it's $HOME", ""],
    }
    (plugin / "hooks" / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [listed]}]}}))
    async with talking(tmp_path, {"session.plugins": [str(plugin)]}) as session:
        told = await say(session, "list .")
    assert not failed_hooks(told)
    kept = tmp_path / "home" / "plugin-data" / "my plugin" / "kept"
    assert kept.read_text() == f"{tmp_path / 'project'}/x y|it's $HOME||"


@pytest.mark.parametrize(
    ("rule", "line", "runs"),
    [
        ("Bash(git *)", "FOO=bar git push", True),
        ("Bash(git *)", "npm test && git push", True),
        ("Bash(git:*)", "git", True),
        ("Bash(rm *)", "echo $(rm -rf /)", True),
        ("Bash(rm *)", "echo $(date)", False),
        ("Bash(git *)", "gitk", False),
        ("Edit(*.ts)", "git", False),
    ],
)
def test_a_rule_of_a_hook_sees_each_command_of_a_line(rule: str, line: str, runs: bool) -> None:
    wanted = Hook("PreToolUse", "true", "", 1, "yours", Path("x"), "x", only_if=rule)
    assert wanted.wants("PreToolUse", ("Bash", "run_command"), line) is runs
    assert not structs.replace(wanted, event="Stop").wants("Stop", (), "")


async def test_the_same_hook_in_two_files_runs_once(tmp_path: Path) -> None:
    for folder in (tmp_path / "home", tmp_path / "project" / ".agents"):
        hook(folder, f"echo >> {tmp_path}/ran")
    async with talking(tmp_path) as session:
        await say(session, "list .")
    assert (tmp_path / "ran").read_text() == "\n"


def test_a_matcher_of_files_is_a_list_of_names(tmp_path: Path) -> None:
    ours = ExtensionFolder(tmp_path, "yours", None, "own", "")
    hook(tmp_path, "true", event="FileChanged", matcher=".env|a+b.csv")
    (found,), problems, _, _ = read_hooks((ours,))
    assert not problems
    assert found.wants("FileChanged", (".env",))
    assert found.wants("FileChanged", ("a+b.csv",))
    assert not found.wants("FileChanged", ("xenv",))
    hook(tmp_path, "true", event="FileChanged", matcher="*.config.ts")
    assert "is not a list of file names" in read_hooks((ours,)).problems[0]


def listed(folder: Path, **hooks: dict[str, Any]) -> None:
    """One hook for an event, as it stands in the file."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {event: [{"hooks": [each]}] for event, each in hooks.items()}
    (folder / "hooks.json").write_text(json.dumps({"hooks": given}))


async def test_an_address_is_told_of_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses by what it says alone; what it cannot say costs nothing but a warning."""
    asked: list[tuple[dict[str, str], dict[str, Any]]] = []
    answers = [
        (200, json.dumps({"hookSpecificOutput": DENIES}), True, ""),
        (200, "", False, ""),
        (200, "no", False, "no JSON object"),
        (500, json.dumps({"decision": "block", "reason": "not here"}), False, "the status 500"),
    ]

    async def answered(request: web.Request) -> web.Response:
        asked.append((dict(request.headers), await request.json()))
        return web.Response(status=answers[len(asked) - 1][0], text=answers[len(asked) - 1][1])

    monkeypatch.setenv("HOOK_TOKEN", "t1")
    monkeypatch.setenv("HOOK_OTHER", "t2")
    app = web.Application()
    app.router.add_post("/hook", answered)
    async with TestServer(app) as server:
        headers = {"Authorization": "Bearer $HOOK_TOKEN", "X-Other": "${HOOK_OTHER}."}
        post = {"type": "http", "url": str(server.make_url("/hook")), "headers": headers}
        listed(tmp_path / "home", PreToolUse={**post, "allowedEnvVars": ["HOOK_TOKEN"]})
        async with talking(tmp_path) as session:
            for _, _, denied, failure in answers:
                told = await say(session, "list .")
                assert results(session)[-1].is_error == denied
                assert [failure in each.text for each in failed_hooks(told)] == [True] * bool(failure)
    assert len(asked) == len(answers)
    for got, event in asked:
        assert (got["Authorization"], got["X-Other"]) == ("Bearer t1", ".")
        assert (event["hook_event_name"], event["native_tool_name"]) == ("PreToolUse", "list_dir")


async def test_a_hook_calls_a_tool_of_a_server(tmp_path: Path) -> None:
    """With fields of the event; only of a server that runs, and what it says counts like the output of a command."""
    text = '{"hookSpecificOutput": {"additionalContext": "seen ${tool_input.file_path}"}}'
    use = {"type": "mcp_tool", "server": "test", "tool": "echo", "input": {"text": text}}
    listed(tmp_path / "home", PostToolUse=use)
    async with talking(tmp_path, {"mcp.servers": {"test": msgspec.to_builtins(faulty())}}) as session:
        told = await say(session, "read calc.py")
        assert "the server test is not running" in failed_hooks(told)[0].text
        servers = session.offered.servers
        await servers.learn()
        assert not failed_hooks(await say(session, "read calc.py"))
        assert f"seen {tmp_path / 'project/calc.py'}" in "\n".join([*notices(session), results(session)[-1].text])


async def test_a_hooks_subtask_looks_before_it_decides(server: AnthropicServer, tmp_path: Path) -> None:
    """Its own calls meet no hook, and its refusal is told to the model, whose turn goes on."""
    looked: list[str] = []

    def answer(request: ParsedRequest) -> Step:
        if "May this be read?" in request.prompt:
            assert set(request.tools) == {"read_file", "grep", "glob", "list_dir"}
            looked.extend(request.results)
            step = Step(calls=(Call("read_file", {"path": "calc.py"}),)), Step(text='{"ok": false, "reason": "Odd."}')
            return step[request.position]
        return (Step(calls=(Call("read_file", {"path": "calc.py"}),)), Step(text="I may not."))[request.position]

    listed(tmp_path / "home", PreToolUse={"type": "agent", "prompt": "May this be read?"})
    server.script = answer
    async with talking(tmp_path, OPUS) as session:
        told = await say(session, "read it")
        assert not failed_hooks(told)
        assert results(session)[0].text == "A hook of the user refuses this call: Odd."
    assert "def " in looked[0]
    assert server.violations == []


async def test_a_file_that_changes_is_told_of(tmp_path: Path) -> None:
    named, any_file, project = tmp_path / "named", tmp_path / "any", tmp_path / "project"
    named.mkdir()
    any_file.mkdir()
    watching = specific(watchPaths=[str(tmp_path / "other")])
    hook(tmp_path / "home", f"cat > {named}/$$; {watching}", event="FileChanged", matcher="data.csv|new.txt")
    hook(tmp_path / "home", f"cat > {any_file}/$$", event="FileChanged")

    def told(path: Path) -> list[str]:
        texts = [file.read_text() for folder in (named, any_file) for file in folder.iterdir()]
        found = [json.loads(text) for text in texts if text]
        return [each["event"] for each in found if each["file_path"] == str(path)]

    project.mkdir()
    (project / "data.csv").write_text("1")
    async with talking(tmp_path) as session:
        await say(session, "list .")
        changes = (("data.csv", "change"), ("new.txt", "add"), ("data.csv", "unlink"), ("../other", "add"))
        for file, wanted in changes:
            path = (project / file).resolve()
            if wanted == "unlink":
                path.unlink()
            else:
                path.write_text(f"more {file}")
            async with asyncio.timeout(60):
                while wanted not in told(path):  # noqa: ASYNC110 (another process writes it)
                    await asyncio.sleep(0.05)


def until_it_says(file: Path, text: str) -> None:
    """Wait until a file has this content."""
    end = time.monotonic() + 60
    while not (file.exists() and file.read_text() == text):
        assert time.monotonic() < end
        time.sleep(0.01)


LINT = "all:\n\t@echo {}\n"


@pytest.mark.parametrize("yes", [True, False])
async def test_what_a_hook_runs_first_is_asked_about_once_it_has_changed(tmp_path: Path, yes: bool) -> None:
    asked: list[PermissionQuestion] = []

    async def answer(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question)
        return PermissionAnswer(allowed=yes or question.preview.title != "Run your hook")

    hook(tmp_path / "home", f'cd "$CLAUDE_PROJECT_DIR" && make >> {tmp_path}/ran', event="PostToolUse")
    makefile = tmp_path / "project/Makefile"
    makefile.parent.mkdir()
    makefile.write_text(LINT.format("first"))
    async with talking(tmp_path, ask=answer) as session:
        await say(session, "list .")
        assert asked == []
        told = await say(session, "run sed -i s/first/second/ Makefile")
        await say(session, "list .")
    questions = [question for question in asked if question.preview.title == "Run your hook"]
    assert len(questions) == (1 if yes else 2)
    (change,) = questions[0].preview.changes
    assert change.title.startswith("Makefile")
    assert "+\t@echo second" in change.diff
    assert (tmp_path / "ran").read_text().split() == (["first", "second", "second"] if yes else ["first"])
    assert [event.text for event in failed_hooks(told)] == ([] if yes else ["You declined it: it was not run."])


@pytest.mark.parametrize("event", ["PostToolUse", "Notification"])
async def test_where_nobody_is_asked_a_hook_whose_files_have_changed_is_not_run(tmp_path: Path, event: str) -> None:
    async def answer(question: PermissionQuestion) -> PermissionAnswer:
        if question.preview.title == "Run your hook":
            raise NobodyToAsk(question)
        return PermissionAnswer(allowed=True)

    ran, makefile = tmp_path / "ran", tmp_path / "project/Makefile"
    hook(tmp_path / "home", f"make >> {ran}", event=event)
    makefile.parent.mkdir()
    makefile.write_text(LINT.format("first"))
    async with talking(tmp_path, {"permissions.mode": "ask"}, ask=answer) as session:
        await say(session, "run true")
        # Nothing in the session waits for a notification.
        await asyncio.to_thread(until_it_says, ran, "first\n")
        makefile.write_text(LINT.format("second"))
        told = await say(session, "run true")
    assert ran.read_text() == "first\n"
    assert {notice.text.partition(" Run it")[0] for notice in failed_hooks(told)} == {
        "It was not run. What it runs was changed since you last allowed it: Makefile."
    }
