"""Hooks in the front matter of skills, commands and agents run while these are used, and only then."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.extensions.test_hooks import failed_hooks
from tests.agent.serving import OPUS, is_subtask
from tests.agent.talking import of, results, say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.agent.extensions.files import ExtensionFolder
from tui_agent.arguments import Arguments
from tui_agent.session import Session
from tui_agent.session_parts import workspace_of
from tui_agent.settings import Settings

REFUSES = """hooks:
  PreToolUse:
    - matcher: "LS"
      hooks:
        - type: command
          command: "echo 'not now' >&2; exit 2"
"""


def notes(folder: Path, event: str, **more: str) -> str:
    """A front matter's hook that notes each run in a file."""
    added = "".join(f"          {key}: {value}\n" for key, value in more.items())
    return f"""hooks:
  {event}:
    - hooks:
        - type: command
          command: echo "{event} $CLAUDE_SKILL_DIR" >>{folder}/ran
{added}"""


def ran(folder: Path) -> list[str]:
    return (folder / "ran").read_text().splitlines() if (folder / "ran").exists() else []


def written(path: Path, front: str, text: str = "Be careful.") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\ndescription: It is one.\n{front}---\n{text}\n")


async def use(session: Session, name: str) -> None:
    prompt = await session.agent.own_commands.named(name)
    assert prompt is not None
    await say(session, await session.agent.own_commands.expand(prompt, ""))


def last(session: Session) -> str:
    return results(session)[-1].text


@pytest.mark.parametrize("path", ["commands/careful.md", "skills/careful/SKILL.md"])
async def test_the_hooks_of_what_the_user_calls_run_from_then_on(tmp_path: Path, path: str) -> None:
    written(tmp_path / "home" / path, REFUSES)
    async with talking(tmp_path) as session:
        await say(session, "list .")
        assert "calc.py" in last(session)
        await use(session, "careful")
        for _ in range(2):
            await say(session, "list .")
            assert last(session) == "A hook of the user refuses this call: not now"
        listed = await session.agent.own_commands.listed()
    assert "(once careful is used) echo 'not now' >&2; exit 2 (yours)" in listed
    assert "/careful                  It is one. (yours)" in listed
    async with talking(tmp_path) as session:
        await say(session, "list .")
        assert "calc.py" in last(session)


async def test_a_model_that_reads_a_skill_uses_it_and_its_folder_is_told(tmp_path: Path) -> None:
    skill = tmp_path / "home/skills/careful"
    written(skill / "SKILL.md", notes(tmp_path, "PostToolUse"))
    written(tmp_path / "home/skills/other/SKILL.md", REFUSES)
    async with talking(tmp_path) as session:
        await say(session, f"list ., read {skill}/SKILL.md, list .")
    assert ran(tmp_path) == [f"PostToolUse {skill}"] * 2


async def test_what_was_used_is_used_in_the_resumed_session(tmp_path: Path) -> None:
    skill = tmp_path / "home/skills/careful"
    written(skill / "SKILL.md", notes(tmp_path, "PostToolUse"))
    written(tmp_path / "home/commands/strict.md", REFUSES)
    async with talking(tmp_path) as session:
        await say(session, f"read {skill}/SKILL.md")
        prompt = await session.agent.own_commands.named("strict")
        assert prompt is not None
        text = await session.agent.own_commands.expand(prompt, "")
        async for _ in session.agent.run(text, typed="/strict"):
            pass
    async with talking(tmp_path, resume=session.id) as session:
        await say(session, "list ., read calc.py")
        assert "not now" in results(session)[-2].text
    assert ran(tmp_path) == [f"PostToolUse {skill}"] * 2


async def test_a_hook_that_is_to_run_once_does_once_it_has_worked(tmp_path: Path) -> None:
    written(tmp_path / "home/commands/ship.md", notes(tmp_path, "PreToolUse", once="true"))
    fails = f"""hooks:
  PreToolUse:
    - hooks:
        - type: command
          command: echo again >>{tmp_path}/ran; exit 1
          once: true
"""
    written(tmp_path / "home/commands/other.md", fails)
    async with talking(tmp_path) as session:
        await use(session, "ship")
        await say(session, "list ., list .")
        assert ran(tmp_path) == ["PreToolUse "]
        await use(session, "other")
        told = await say(session, "list ., list .")
    assert len(failed_hooks(told)) == 2
    assert ran(tmp_path) == ["PreToolUse ", "again", "again"]


def inside(*calls: Call) -> Callable[[ParsedRequest], Step]:
    """The session lists the folder before and after it has an agent make these calls."""
    listing, agent = Call("list_dir", {"path": "."}), Call("run_agent", {"agent": "reviewer", "task": "Look."})

    def step(request: ParsedRequest) -> Step:
        if is_subtask(request):
            return Step(calls=calls) if request.position == 0 else Step(text="Seen.")
        steps = (Step(calls=(listing,)), Step(calls=(agent,)), Step(calls=(listing,)), Step(text="Done."))
        return steps[request.position]

    return step


async def test_an_agents_hooks_run_in_its_subtasks_alone(server: AnthropicServer, tmp_path: Path) -> None:
    written(tmp_path / "home/agents/reviewer.md", REFUSES + notes(tmp_path, "Stop").removeprefix("hooks:\n"))
    written(tmp_path / "home/agents/other.md", notes(tmp_path, "PreToolUse"))
    server.script = inside(Call("list_dir", {"path": "."}))
    async with talking(tmp_path, OPUS) as session:
        told = await say(session, "Have it reviewed.")
        first, _agent, second = results(session)
        listed = await session.agent.own_commands.listed()
    assert "calc.py" in first.text
    assert "calc.py" in second.text
    assert any("not now" in request.body.decode() for request in server.model_requests)
    assert ran(tmp_path) == ["Stop "], "at the end of the subtask, and not of the turn"
    assert "(in subtasks of the agent reviewer) echo 'not now'" in listed
    assert isinstance(told[-1], events.TurnFinished)


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_projects_hooks_need_trust_and_new_ones_wait_for_it(tmp_path: Path, trusted: bool) -> None:
    claude = tmp_path / "project/.claude"
    async with talking(tmp_path):
        pass
    written(claude / "commands/first.md", notes(tmp_path, "PreToolUse"))
    async with talking(tmp_path, trusted=trusted) as session:
        if trusted:
            await use(session, "first")
        await say(session, "list .")
        assert ran(tmp_path) == ["PreToolUse "] * trusted
        written(claude / "skills/second/SKILL.md", REFUSES)
        written(claude / "commands/first.md", notes(tmp_path, "PostToolUse"))
        if trusted:
            await use(session, "second")
        told = await say(session, f"read {claude}/skills/second/SKILL.md, list .")
        warned = [event.text for event in of(events.Notice, told)]
    assert "calc.py" in last(session)
    assert ran(tmp_path) == ["PreToolUse "] * trusted
    assert all("is new since the session was opened" in text for text in warned)


async def test_what_a_plugin_in_the_project_gains_waits_for_trust(tmp_path: Path) -> None:
    async with talking(tmp_path):
        pass
    plugin = tmp_path / "project/plugin"
    written(plugin / "commands/first.md", notes(tmp_path, "PreToolUse"))
    async with talking(tmp_path, {"session.plugins": ["plugin"]}, trusted=True) as session:
        written(plugin / "commands/second.md", REFUSES)
        for name in ("plugin:first", "plugin:second"):
            await use(session, name)
        await say(session, "list .")
    assert "calc.py" in last(session)
    assert ran(tmp_path) == ["PreToolUse "]


def test_what_they_run_in_the_project_is_guarded(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("tools/check.sh", "shared/careful/check.sh"):
        (project / name).parent.mkdir(parents=True)
        (project / name).write_text("exit 0\n")
    # A skill may be a link to a folder of another name.
    (project / ".claude/skills").mkdir(parents=True)
    (project / ".claude/skills/careful").symlink_to("../../shared/careful")
    refusal = "echo 'not now' >&2; exit 2"
    written(project / "shared/careful/SKILL.md", REFUSES.replace(refusal, "bash ${CLAUDE_SKILL_DIR}/check.sh"))
    written(project / ".claude/commands/ship.md", REFUSES.replace(refusal, "bash ./tools/check.sh"))
    claude = ExtensionFolder(project / ".claude", "project", within=project, kind="claude")
    arguments = Arguments(folder=project, home=tmp_path / "home", project=project, trusted=True)
    guarded = workspace_of(Settings(), arguments, (claude,), ()).guarded
    assert {project / "tools/check.sh", project / "shared/careful/check.sh"} <= set(guarded)


async def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    written(tmp_path / "home/commands/ship.md", "hooks:\n  Stop: *anchor\n")
    written(tmp_path / "home/skills/look/SKILL.md", "hooks:\n  Stopp: []\n  TeammateIdle: []\n")
    async with talking(tmp_path) as session:
        told = await say(session, "list .")
        listed = await session.agent.own_commands.listed()
    [notice, other] = of(events.Notice, told)
    assert "'Stopp' is not an event" in notice.text + other.text
    assert "its hooks cannot be read: anchors, aliases and tags of YAML are not read here" in notice.text + other.text
    assert "TeammateIdle in " in listed
