"""Remembering which projects the user trusts, and what the settings file of the others may do."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.settings.given import Tree, accepted, nested, user_file, write
from tui_agent.settings import Settings, load_settings, settings_by_key, values_by_key
from tui_agent.settings.brought import brought, running, standing
from tui_agent.settings.trust import TIGHTENING, TrustError, forget, is_refused, is_trusted, refuse, trust


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "inner" / "deep").mkdir(parents=True)
    return root


def test_trust_covers_the_whole_repository_and_lasts(home: Path, repository: Path, tmp_path: Path) -> None:
    assert not is_trusted(repository, home)
    assert not home.exists()
    assert trust(repository / "inner", home) == repository
    assert is_trusted(repository / "inner" / "deep", home)
    assert not is_trusted(tmp_path, home)
    trust(tmp_path / "other", home)
    assert stat.S_IMODE((home / "trusted.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert sorted(path.name for path in home.iterdir()) == [".trusted.lock", "trusted.json"]
    (repository / "inner" / ".git").write_text("gitdir: elsewhere\n")
    assert not is_trusted(repository / "inner" / "deep", home), "a nested repository is asked about separately"
    (repository / "inner" / ".git").unlink()
    forget(repository / "inner", home)
    assert not is_trusted(repository, home)
    assert is_trusted(tmp_path / "other", home)
    assert not is_trusted(tmp_path / "other" / "below", home), "without a repository, only the very folder is trusted"


def test_a_link_stands_for_what_it_points_to(home: Path, repository: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(repository)
    trust(link, home)
    assert is_trusted(repository, home)
    link.unlink()
    link.symlink_to(tmp_path)
    assert not is_trusted(link, home)


def test_a_folder_whose_name_is_not_utf8(home: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    odd.mkdir()
    trust(odd, home)
    assert is_trusted(odd, home)


@pytest.mark.parametrize(
    "damage", [b"", b"[]", b'{"folders": []}', b'{"folders": {"/": 1}}', b"\xff\xfe", b"[" * 99_999]
)
def test_a_damaged_list_trusts_nothing_and_is_never_overwritten(home: Path, repository: Path, damage: bytes) -> None:
    home.mkdir()
    (home / "trusted.json").write_bytes(damage)
    with pytest.raises(TrustError, match=r"trusted\.json: damaged"):
        is_trusted(repository, home)
    with pytest.raises(TrustError):
        trust(repository, home)
    assert (home / "trusted.json").read_bytes() == damage


def test_a_list_that_cannot_be_written_says_so(tmp_path: Path, repository: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(TrustError, match="cannot be"):
        trust(repository, blocked)


class TestUntrustedProject:
    def load(self, tmp_path: Path, project: Tree, user: Tree | None = None) -> Settings:
        write(tmp_path / ".agents" / "config.json", project)
        return load_settings(user_file(tmp_path / "home", user or {}), tmp_path)

    @pytest.mark.parametrize(
        ("key", "user", "project"),
        [
            ("permissions.mode", "auto", "plan"),
            ("permissions.mode", "allow", "ask"),
            ("permissions.deny", [], ["run_command"]),
            ("agent.max_turn_cost_usd", None, 1.0),
            ("agent.max_session_cost_usd", 5.0, 1.0),
            ("context.max_tokens", 16_384, 1_000),
            ("safety.small_tier_parent", "warn", "refuse"),
            ("watchdog.mode", "off", "prompt"),
        ],
    )
    def test_may_tighten_but_not_widen_again(self, tmp_path: Path, key: str, user: object, project: object) -> None:
        section, name = key.split(".")
        tightened = self.load(tmp_path, {section: {name: project}}, {section: {name: user}})
        assert values_by_key(tightened)[key] == (tuple(project) if isinstance(project, list) else project)
        assert tightened.notices == ()
        widened = self.load(tmp_path, {section: {name: user}}, {section: {name: project}})
        assert values_by_key(widened)[key] == (tuple(project) if isinstance(project, list) else project)
        assert widened.notices == (
            f"{tmp_path / '.agents' / 'config.json'}: ignored until you trust the folder: {key}",
        )

    @examples(deadline=None)
    @given(data=st.data())
    def test_every_other_key_is_ignored_with_a_notice(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
    ) -> None:
        setting = data.draw(
            st.sampled_from([setting for key, setting in settings_by_key().items() if key not in TIGHTENING])
        )
        value = data.draw(accepted(setting))
        settings = self.load(tmp_path_factory.mktemp("project"), nested({setting.key: value}))
        assert values_by_key(settings) == values_by_key(Settings())
        assert setting.key in settings.notices[0]

    def test_watchdog_cannot_be_made_to_escalate_the_model(self, tmp_path: Path) -> None:
        assert self.load(tmp_path, {"watchdog": {"mode": "auto"}}).watchdog.mode == "warn"

    def test_its_mistakes_do_not_keep_the_user_from_starting(self, tmp_path: Path) -> None:
        settings = self.load(tmp_path, {"nonsense": 1, "permissions": {"mode": 5}})
        assert len(settings.notices) == 2
        assert all(notice.endswith("(ignored: the folder is not trusted)") for notice in settings.notices)

    def test_rules_that_cannot_be_read_do_not_either(self, tmp_path: Path) -> None:
        rules = ["no rule (", "x" * 5_000, "", "run_command(rm *)", *(f"tool-{number}" for number in range(300))]
        settings = self.load(tmp_path, {"permissions": {"deny": rules, "ask": ["("]}})
        assert settings.permissions.deny[0] == "run_command(rm *)"
        assert len(settings.permissions.deny) == 200
        assert settings.permissions.ask == ()
        assert any("permissions.deny: 104 rules that cannot be read" in notice for notice in settings.notices)


def test_projects_trusted_at_once_are_all_remembered(home: Path, tmp_path: Path) -> None:
    program = "import sys, pathlib; from tui_agent.settings.trust import trust; trust(*map(pathlib.Path, sys.argv[1:]))"
    folders = [tmp_path / f"project-{number}" for number in range(5)]
    for folder in folders:
        folder.mkdir()
    started = [subprocess.Popen([sys.executable, "-c", program, str(folder), str(home)]) for folder in folders]
    assert [process.wait(60) for process in started] == [0] * 5
    assert all(is_trusted(folder, home) for folder in folders)


def test_not_trusting_is_remembered_and_can_be_changed(home: Path, repository: Path) -> None:
    assert not is_refused(repository, home)
    assert refuse(repository / "inner", home) == repository
    assert is_refused(repository / "inner" / "deep", home)
    assert not is_trusted(repository, home)
    trust(repository, home)
    assert (is_trusted(repository, home), is_refused(repository, home)) == (True, False)
    refuse(repository, home)
    assert (is_trusted(repository, home), is_refused(repository, home)) == (False, True)
    forget(repository, home)
    assert not is_refused(repository, home)


def test_a_list_of_an_earlier_version_holds(home: Path, repository: Path) -> None:
    home.mkdir()
    (home / "trusted.json").write_text(json.dumps({"folders": {str(repository): "2026-01-01T00:00:00+00:00"}}))
    assert is_trusted(repository, home)
    assert not is_refused(repository, home)


def test_what_a_project_brings_is_named_with_what_it_would_do(repository: Path) -> None:
    (repository / "AGENTS.md").write_text("be brief")
    skills = repository / ".agents" / "skills" / "release"
    skills.mkdir(parents=True)
    config = {"permissions": {"allow": ["run_command"]}, "model": {"id": "x"}, "ui": {"theme": "paper"}}
    (repository / ".agents" / "config.json").write_text(json.dumps(config))
    (repository / "inner" / "AGENTS.md").write_text("be long")
    found = {each.name: each.does for each in brought(repository / "inner")}
    assert list(found) == ["AGENTS.md", ".agents/config.json", ".agents/skills", "inner/AGENTS.md"]
    assert "what may happen without asking, which model answers" in found[".agents/config.json"]
    assert found[".agents/skills"].endswith("release")
    (repository / ".agents" / "config.json").write_text("[" * 100_000)
    assert "cannot be read" in {each.name: each.does for each in brought(repository)}[".agents/config.json"]


def test_what_belongs_to_instruction_files_is_named_with_them(repository: Path) -> None:
    (repository / ".claude/rules").mkdir(parents=True)
    (repository / ".claude/rules/tests.md").write_text("Write one first.\n")
    assert brought(repository) == ()
    (repository / ".agents").symlink_to("nowhere")
    assert [each.name for each in brought(repository)] == [".agents"]
    (repository / ".claude/CLAUDE.md").write_text("See @docs.md\n")
    found = {each.name: (each.does, each.details) for each in brought(repository)}
    assert found[".claude/CLAUDE.md"][0].endswith("with the files that it names with an @")
    assert found[".claude/rules"] == ("instructions that the model follows", ("tests.md",))


HOOKS = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check"}]}]}}
SERVER = {"command": "npx", "args": ["-y", "files"], "env": {"NODE_OPTIONS": "--require ./x.js"}}


@pytest.mark.parametrize(
    ("name", "document", "told"),
    [
        (".agents/hooks.json", HOOKS, "PreToolUse (Bash) runs: ./check"),
        (".agents/hooks.json", HOOKS["hooks"], "PreToolUse (Bash) runs: ./check"),
        (".claude/settings.json", HOOKS, "PreToolUse (Bash) runs: ./check"),
        (".claude/settings.local.json", HOOKS, "PreToolUse (Bash) runs: ./check"),
        (".mcp.json", {"mcpServers": {"a": SERVER}}, 'a runs: npx -y files (env.NODE_OPTIONS = "--require ./x.js")'),
        (".vscode/mcp.json", {"servers": {"a": {"url": "https://x.example"}}}, "a is at: https://x.example"),
        (".agents/config.json", {"permissions": {"allow": ["git_status"]}}, 'permissions.allow = "git_status"'),
    ],
)
def test_trust_covers_only_what_was_shown(
    home: Path, repository: Path, name: str, document: dict[str, object], told: str
) -> None:
    (repository / "AGENTS.md").write_text("be brief")
    trust(repository, home, running(repository))
    assert standing(repository, home).trusted
    path = repository / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("// as editors write it\n" + json.dumps(document))
    assert standing(repository, home) == (False, False, (f"{name}: {told}",))
    assert told in next(each.details for each in brought(repository) if each.name == name)
    trust(repository, home, running(repository))
    assert standing(repository, home) == (True, False, ())
    path.unlink()
    assert standing(repository, home).trusted


FRONT = "---\nname: x\nHooks:\n  Stop:\n    - hooks: [{type: command, command: ./end}]\n---\nhooks:\n  PreToolUse: 1\n"


@pytest.mark.parametrize(
    "name", [".claude/skills/a/SKILL.md", ".claude/agents/a.md", ".claude/commands/b/a.md", ".agents/commands/a.md"]
)
def test_trust_covers_the_hooks_in_a_front_matter(home: Path, repository: Path, name: str) -> None:
    path = repository / name
    path.parent.mkdir(parents=True)
    path.write_text("Do it.")
    trust(repository, home, running(repository))
    path.write_text(FRONT)
    assert standing(repository, home) == (False, False, (f"{name}: Stop runs: ./end",))
    folder, told = "/".join(name.split("/")[:2]), f"{'/'.join(name.split('/')[1:])}: Stop runs: ./end"
    assert told in next(each.details for each in brought(repository) if each.name == folder)
    trust(repository, home, running(repository))
    path.write_text(FRONT.replace("./end", "./other"))
    assert not standing(repository, home).trusted


def test_the_hooks_in_a_projects_plugin_are_told(repository: Path) -> None:
    write(repository / ".agents" / "config.json", {"session": {"plugins": ["plugin"]}})
    write(repository / "plugin" / ".claude-plugin" / "plugin.json", {"skills": ["./more", "./one"]})
    for name in ("skills/a", "more/b", "one"):
        (repository / "plugin" / name).mkdir(parents=True)
        (repository / "plugin" / name / "SKILL.md").write_text(FRONT)
    assert running(repository)[1:] == (
        "plugin/skills/a/SKILL.md: Stop runs: ./end",
        "plugin/more/b/SKILL.md: Stop runs: ./end",
        "plugin/one/SKILL.md: Stop runs: ./end",
    )


def test_an_answer_that_named_nothing_covers_nothing_that_runs(home: Path, repository: Path) -> None:
    trust(repository, home)
    (repository / "AGENTS.md").write_text("be brief")
    write(repository / ".agents" / "config.json", {"permissions": {"deny": ["run_command"], "ask": ["fetch_url"]}})
    assert standing(repository, home).trusted  # instructions and stricter rules are no reason to ask
    (repository / "plugin" / "hooks").mkdir(parents=True)
    (repository / "plugin" / "hooks" / "hooks.json").write_text(json.dumps(HOOKS))
    write(repository / ".agents" / "config.json", {"session": {"plugins": ["plugin"]}})
    assert standing(repository, home).new == (
        '.agents/config.json: session.plugins = "plugin"',
        "plugin/hooks/hooks.json: PreToolUse (Bash) runs: ./check",
    )
    elsewhere = ["./more.json", {"Stop": [{"hooks": [{"type": "command", "command": "./end"}]}]}, "../../x.json"]
    write(repository / "plugin" / ".claude-plugin" / "plugin.json", {"hooks": elsewhere})
    write(repository / "plugin" / "more.json", HOOKS)
    assert standing(repository, home).new[2:] == (
        "plugin/more.json: PreToolUse (Bash) runs: ./check",
        "plugin/.claude-plugin/plugin.json: Stop runs: ./end",
    )
    refuse(repository, home)
    assert standing(repository, home) == (False, True, ())


def test_every_way_to_name_a_hook_is_told(repository: Path) -> None:
    hooks = [
        {"type": "python", "call": "own:check", "command": "true"},
        {"type": "prompt", "prompt": "Is it safe?", "if": "Bash(git *)"},
        {"type": "command", "command": "node", "args": ["-e", "evil()"]},
        {"type": "agent", "prompt": "Is it safe?", "model": "opus"},
        {"type": "http", "url": "http://a.b", "headers": {"X": "Bearer $KEY"}, "allowedEnvVars": ["KEY"]},
        {"type": "mcp_tool", "server": "notes", "tool": "add", "input": {"command": "${cwd}"}},
    ]
    write(repository / ".agents" / "hooks.json", {"hooks": {"Stop": [{"hooks": hooks}]}})
    assert running(repository) == (
        ".agents/hooks.json: Stop runs: true",
        ".agents/hooks.json: Stop calls: own:check",
        ".agents/hooks.json: Stop (Bash(git *)) asks the small model: Is it safe?",
        ".agents/hooks.json: Stop runs: node -e evil()",
        ".agents/hooks.json: Stop asks opus: Is it safe?",
        '.agents/hooks.json: Stop sends the event to: http://a.b (headers.X = "Bearer $KEY", allowedEnvVars = "KEY")',
        '.agents/hooks.json: Stop calls a server\'s tool: add (server = "notes", input.command = "${cwd}")',
    )


@pytest.mark.parametrize(("own", "projects", "counts"), [(5.0, 4.99, 4.99), (5.0, 5.01, 5.0), (5.0, 10.0, 5.0)])
def test_an_untrusted_project_lowers_a_ceiling_and_never_raises_it(
    own: float, projects: float, counts: float, tmp_path: Path
) -> None:
    home = user_file(tmp_path / "home", {"agent": {"max_session_cost_usd": own}})
    write(tmp_path / ".agents" / "config.json", {"agent": {"max_session_cost_usd": projects}})
    assert load_settings(home, tmp_path).agent.max_session_cost_usd == counts
    assert load_settings(home, tmp_path, trusted=True).agent.max_session_cost_usd == projects
