"""What other agents bring: `.claude/` of a project, `~/.claude` and `~/.agents`."""

import json
from pathlib import Path

import pytest

from tests.agent.talking import Person, of, results, say, talking
from tui_agent.agent import events
from tui_agent.agent.commands.table import run_command
from tui_agent.agent.extensions.agents import own_agents
from tui_agent.agent.extensions.claude import rules_of
from tui_agent.agent.extensions.files import ExtensionFolder
from tui_agent.conversation.view import View
from tui_agent.settings.brought import brought


def fill(folder: Path, mark: str) -> None:
    """A folder as Claude Code has it."""
    for name, text in (
        ("commands/say.md", f"say {mark}"),
        ("agents/helper.md", f'---\ndescription: helps {mark}\ntools: [Read, "Grep"]\n---\nHelp.'),
        ("output-styles/brief.md", f"---\ndescription: brief {mark}\n---\nBe brief."),
        (f"skills/{mark}/SKILL.md", f"---\nname: {mark}\ndescription: skill {mark}\n---\nDo."),
    ):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    refuse = {"type": "command", "command": f"echo {mark} >&2; exit 2"}
    settings = {
        "permissions": {"allow": ["Bash(ls:*)"]},
        "hooks": {"PreToolUse": [{"matcher": "LS", "hooks": [refuse]}]},
    }
    (folder / "settings.json").write_text(json.dumps(settings))


def shown_prefix(view: View) -> str:
    """The system prompt."""
    return view.prefix.system if view.prefix is not None else ""


async def test_what_claude_code_has_is_used_once_the_project_is_trusted(tmp_path: Path) -> None:
    async with talking(tmp_path):
        pass
    fill(tmp_path / "project/.claude", "project")
    for trusted, status in ((False, False), (True, True)):
        async with talking(tmp_path, trusted=trusted, user_home=tmp_path / "user") as session:
            await say(session, "list .")
            listed = await session.agent.own_commands.listed()
            view, answers = session.agent.engine.view, results(session)
        assert (answers[0].text == "A hook of the user refuses this call: project") == status
        assert all((mark in listed) == status for mark in ("/say", "helps project", "brief project"))
        assert ("skill project" in shown_prefix(view)) == status


async def test_the_users_own_folders_are_used_after_ours(tmp_path: Path) -> None:
    user = tmp_path / "user"
    fill(user / ".claude", "claude")
    (user / ".agents/commands").mkdir(parents=True)
    (user / ".agents/commands/say.md").write_text("say agents")
    async with talking(tmp_path, user_home=user) as session:
        commands = {prompt.name: prompt.text for prompt in await session.agent.own_commands.all()}
        await say(session, "list .")
        assert "skill claude" in shown_prefix(session.agent.engine.view)
    assert commands["say"] == "say agents"
    async with talking(tmp_path, {"session.other_folders": "false"}, user_home=user) as session:
        assert not await session.agent.own_commands.all()


def test_the_trust_question_names_what_the_folder_brings(tmp_path: Path) -> None:
    fill(tmp_path / ".claude", "project")
    names = [each.name for each in brought(tmp_path)]
    assert names == [f".claude/{name}" for name in ("settings.json", "agents", "commands", "output-styles", "skills")]


async def test_a_plugin_is_used_where_it_lies(tmp_path: Path) -> None:
    plugin = tmp_path / "plugins/Review"
    fill(plugin, "plugin")
    (plugin / "hooks").mkdir()
    refuse = {"type": "command", "command": "echo $CLAUDE_PLUGIN_ROOT >&2; exit 2"}
    (plugin / "hooks/hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [refuse]}]}}))
    async with talking(tmp_path, {"session.plugins": [str(plugin)]}) as session:
        await say(session, "list .")
        view = session.agent.engine.view
        names = {prompt.name for prompt in await session.agent.own_commands.all()}
        answers = results(session)
    assert names == {"review:say", "review:plugin"}
    assert answers[0].text == f"A hook of the user refuses this call: {plugin}"
    assert "review:helper" in shown_prefix(view)


async def test_a_plugin_is_called_as_it_calls_itself_and_a_skill_with_a_title_as_its_folder(tmp_path: Path) -> None:
    plugin = tmp_path / "plugins/review-main"
    for place, name in (("skills/look-twice", "Looking Twice"), ("texts/short", "short")):
        (plugin / place).mkdir(parents=True)
        (plugin / place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Looks.\n---\nLook.")
    (plugin / ".claude-plugin").mkdir()
    (plugin / ".claude-plugin/plugin.json").write_text(json.dumps({"name": "Review", "skills": "./texts"}))
    async with talking(tmp_path, {"session.plugins": [str(plugin)]}) as session:
        prompts = await session.agent.own_commands.all()
        await say(session, "list .")
        told = shown_prefix(session.agent.engine.view)
    assert {prompt.name for prompt in prompts} == {"review:look-twice", "review:short"}
    assert "Looking Twice" in told
    assert f"{plugin}/texts/short/SKILL.md" in told


async def test_a_skill_says_who_may_use_it(tmp_path: Path) -> None:
    keys = {"both": "license: MIT", "mine": "disable-model-invocation: true", "its": "user-invocable: false"}
    for name, key in keys.items():
        path = tmp_path / "home/skills" / name / "SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"---\nname: {name}\ndescription: what {name} does\n{key}\n---\nDo $ARGUMENTS.")
    async with talking(tmp_path) as session:
        await say(session, "think")
        system = shown_prefix(session.agent.engine.view)
        commands = {prompt.name: prompt for prompt in await session.agent.own_commands.all()}
        text = await session.agent.own_commands.expand(commands["mine"], "this")
    assert [name in system for name in ("what both does", "what mine does", "what its does")] == [True, False, True]
    assert set(commands) == {"both", "mine"}
    assert text.endswith("Do this.")


async def test_a_block_of_commands_is_run(tmp_path: Path) -> None:
    path = tmp_path / "home/commands/two.md"
    path.parent.mkdir(parents=True)
    path.write_text("Before.\n\n```!\necho one\necho $1\n```\nAfter.")
    async with talking(tmp_path, {"permissions.mode": "allow"}) as session:
        [prompt] = await session.agent.own_commands.all()
        text = await session.agent.own_commands.expand(prompt, "two")
    assert "one\ntwo" in text
    assert text.startswith("Before.")
    assert text.endswith("After.")


async def test_what_a_front_matter_of_claude_code_has_and_nothing_uses_is_said(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "agents").mkdir(parents=True)
    (home / "agents/careful.md").write_text(
        "---\ndescription: Does it.\npermissionMode: plan\nmemory: user\nmaxTurns: 400\n---\nDo it."
    )
    async with talking(tmp_path) as session:
        listed = (await session.agent.own_commands.listed()).splitlines()
    said = {line.split()[0]: " ".join(line.split()[1:]) for line in listed if line.startswith("  ")}
    assert said["careful"] == "(permissionMode, memory in its front matter: nothing here uses that) Does it. (yours)"
    [agent] = own_agents((ExtensionFolder(home, "yours"),))
    assert (agent.problem, agent.steps) == ("", 100)


@pytest.mark.parametrize("trusted", [True, False])
async def test_what_a_projects_claude_folder_refuses_is_refused(tmp_path: Path, trusted: bool) -> None:
    claude = tmp_path / "project/.claude"
    claude.mkdir(parents=True)
    (tmp_path / "project/calc.py").write_text("x = 1\n")
    (tmp_path / "project/private").mkdir()
    (tmp_path / "project/private/key").write_text("K")
    rules = {
        "allow": ["Bash(touch:*)"],
        "deny": ["Read(/private/**)", "Bash(echo no:*)", "TodoWrite", "Bash(", 7],
        "ask": ["Edit(./calc.py)"],
    }
    (claude / "settings.json").write_text(json.dumps({"permissions": rules}))
    (claude / "settings.local.json").write_text(json.dumps({"permissions": {"deny": ["LS"]}}))
    person = Person(allowed=False)
    calls = 'read private/key, run `echo no`, list ., write "x" to made.txt, write "x" to calc.py, read calc.py'
    async with talking(tmp_path, {"permissions.mode": "auto"}, trusted=trusted, ask=person) as session:
        told = await say(session, calls)
        notices = [notice.text for notice in session.notices if notice.title == "A rule does not count"]
    status = [event.status for event in of(events.ToolFinished, told)]
    assert status == ["denied", "denied", "denied", "ok", "denied", "ok"]
    assert person.tools == ["write_file"]
    assert notices == [f"{claude / 'settings.json'}: permissions.deny: Bash(: it is not a rule"]


async def test_what_the_users_claude_folder_refuses_is_refused(tmp_path: Path) -> None:
    user = tmp_path / "user"
    (user / ".claude").mkdir(parents=True)
    rules = {
        "allow": ["Bash(touch:*)"],
        "deny": ["Read(.env)", "Bash(echo no:*)", "Read(/memory/**)", "Read(//)x"],
        "ask": ["Edit(**/calc.py)"],
    }
    (user / ".claude/settings.json").write_text("// mine\n" + json.dumps({"permissions": rules}))
    (user / ".claude/memory").mkdir()
    for path in (tmp_path / "project/lib/.env", user / ".claude/memory/a", tmp_path / "project/calc.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("K")
    person = Person(allowed=False)
    calls = 'read lib/.env, find K in lib/.env, run `echo no`, write "x" to made.txt, write "x" to calc.py'
    async with talking(tmp_path, {"permissions.mode": "auto"}, user_home=user, ask=person) as session:
        told = await say(session, calls)
        notices = [notice.text for notice in session.notices if notice.title == "A rule does not count"]
        listed = (await run_command(session.agent, "/permissions")).text
    status = [event.status for event in of(events.ToolFinished, told)]
    assert status == ["denied", "denied", "denied", "ok", "denied"]
    assert person.tools == ["write_file"]
    assert notices == [f"{user / '.claude/settings.json'}: permissions.deny: Read(//)x: it is not a rule"]
    assert "read_file(~/.claude/memory/*)" in listed
    assert "touch" not in listed


PATHS = {
    "Read(.env)": [".env", "*/.env"],
    "Read(./.env)": [".env"],
    "Read(**/.env)": [".env", "*/.env"],
    "Read(.env.*)": [".env.*", "*/.env.*"],
    "Read(*.pem)": ["*.pem"],
    "Read(secrets/**)": ["secrets/*"],
    "Read(**/secrets/**)": ["secrets/*", "*/secrets/*"],
    "Read(build/)": ["build/*", "*/build/*"],
    "Read(build)": ["build", "build/*", "*/build", "*/build/*"],
    "Read(src/**/*.key)": ["src/*.key", "src/*/*.key"],
    "Read(//etc/shadow)": ["/etc/shadow", "/etc/shadow/*"],
    "Read(~/.ssh/**)": ["~/.ssh/*"],
    "Read(**)": ["*"],
    "Read": [""],
}


@pytest.mark.parametrize("text", PATHS)
def test_paths_are_refused_as_git_ignores_them(text: str) -> None:
    rules = rules_of(text, "deny")
    assert [rule.pattern for rule in rules if rule.tool == "read_file"] == PATHS[text]
    assert {rule.tool for rule in (*rules, *rules_of(text, "allow"))} == {"read_file"}


async def test_hooks_of_claude_code_get_the_variables_of_its_settings(tmp_path: Path) -> None:
    claude, told = tmp_path / "project/.claude", tmp_path / "told"
    claude.mkdir(parents=True)
    command = {"type": "command", "command": f'echo "$TRACE $LEVEL ${{NUMBER-}}" >> {told}'}
    hooks = {"PreToolUse": [{"hooks": [command]}]}
    (claude / "settings.json").write_text(
        json.dumps({"hooks": hooks, "env": {"TRACE": "no", "LEVEL": "2", "NUMBER": 3}})
    )
    (claude / "settings.local.json").write_text(json.dumps({"env": {"TRACE": "yes", "not a name": "x"}}))
    async with talking(tmp_path, trusted=True) as session:
        await say(session, "list .")
    assert told.read_text() == "yes 2 \n"
    by_name = {each.name: each.details for each in brought(tmp_path / "project")}
    assert 'sets for hooks: LEVEL = "2"' in by_name[".claude/settings.json"]
    assert 'sets for hooks: TRACE = "yes"' in by_name[".claude/settings.local.json"]
