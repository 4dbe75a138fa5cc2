"""`tui-agent plugin` with real git repositories, as its user has it."""

import json
import subprocess
from pathlib import Path

import pytest

from tui_agent.cli import main


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "Next")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three plugins, of which two are here; what is in it tries to lead out of it and to run something."""
    inner, folder = tmp_path / "inner", tmp_path / "Tool.Kit"
    for each in (inner, folder):
        each.mkdir()
        git(each, "init", "-q")
    write(inner / "file", "of another repository")
    commit(inner)
    listed = [
        {"name": "checks", "source": "./plugins/checks", "description": "Checks \x1b[2Jthings"},
        {"name": "more", "source": "./plugins/more"},
        {"name": "far", "source": {"source": "github", "repo": "someone/far"}},
        {"name": "out", "source": "../inner"},
    ]
    write(folder / ".claude-plugin" / "marketplace.json", json.dumps({"plugins": listed}))
    checks = folder / "plugins" / "checks"
    write(checks / ".mcp.json", json.dumps({"notes": {"command": "${CLAUDE_PLUGIN_ROOT}/notes", "args": ["-q"]}}))
    write(checks / "agents" / "judge.md", "---\nname: judge\ndescription: Judges a change\n---\nJudge it.")
    write(checks / "extra.md", "---\nname: extra\ndescription: Looks elsewhere\n---\nLook.")
    named = ["./extra.md", "./agents", "../../../secret/SKILL.md"]
    write(checks / ".claude-plugin" / "plugin.json", json.dumps({"name": "checks", "agents": named}))
    write(checks / "commands" / "check.md", "Check this.")
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": "${CLAUDE_PLUGIN_ROOT}/check.sh"}]}
    write(checks / "hooks" / "hooks.json", json.dumps({"hooks": {"PreToolUse": [hook]}}))
    write(checks / "check.sh", "exit 0")
    write(tmp_path / "secret" / "SKILL.md", "---\nname: secret\ndescription: Not in it\n---\nNo.")
    (checks / "skills").mkdir()
    (checks / "skills" / "led-out").symlink_to(tmp_path / "secret")
    write(folder / "plugins" / "more" / "commands" / "other.md", "Another.")
    git(folder, "submodule", "--quiet", "add", inner.as_uri(), "plugins/more/inner")
    commit(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUI_AGENT_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def on(home: Path) -> list[str]:
    file = home / "config.json"
    return json.loads(file.read_text())["session"]["plugins"] if file.exists() else []


def test_what_each_adds_is_shown_and_nothing_is_on_before_the_user_agreed(
    repository: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugin", "add", "../Tool.Kit"]) == 0
    said = capsys.readouterr().out
    for words in (
        "checks: Checks ",
        "  commands: check\n  agents: extra, judge\n",
        "  hook on PreToolUse (Bash) runs, unconfined: ${CLAUDE_PLUGIN_ROOT}/check.sh\n",
        "  server notes runs: ${CLAUDE_PLUGIN_ROOT}/notes -q\n  adds about ",
        "far: \n  is in another repository: someone/far",
        "3 plugins. To turn some on: tui-agent plugin add ../Tool.Kit NAME …",
    ):
        assert words in said
    assert not {"\x1b", "secret", "out:"} & {each for each in ("\x1b", "secret", "out:") if each in said}
    assert main(["plugin", "add", "../Tool.Kit", "checks"]) == 0
    assert "Nothing was turned on" in capsys.readouterr().out, "nobody can be asked"
    assert (on(home), list((home / "plugins").iterdir())) == ([], [])
    assert main(["plugin", "add", "../Tool.Kit", "far", "--yes"]) == 2
    assert "add someone/far" in capsys.readouterr().err


def test_a_plugin_is_used_from_a_copy_updated_and_removed(
    repository: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plugin", "add", repository.as_uri(), "checks", "more", "--yes"]) == 0
    copy = home / "plugins" / "tool.kit"
    assert on(home) == [str(copy / "plugins" / "checks"), str(copy / "plugins" / "more")]
    assert not (copy / ".git").exists()
    capsys.readouterr()
    assert main(["mcp", "list"]) == 0
    assert f"plugin_checks_notes: CLAUDE_PLUGIN_ROOT=… CLAUDE_PLUGIN_DATA=… {copy}/plugins/checks/notes -q - on" in (
        capsys.readouterr().out
    )
    assert not (copy / "plugins" / "checks" / "skills" / "led-out").is_dir(), "a link is text here"
    assert list((copy / "plugins" / "more" / "inner").iterdir()) == [], "no submodule"
    assert main(["plugin", "update"]) == 0
    assert "is up to date" in capsys.readouterr().out
    write(repository / "plugins" / "checks" / "check.sh", "rm -r ~")
    git(repository, "rm", "-rqf", "plugins/more")
    commit(repository)
    for yes in ((), ("--yes",)):
        assert main(["plugin", "update", "checks", *yes]) == 0
        said = capsys.readouterr().out
        assert "checks: 1 file changed: check.sh" in said
        assert "+ more: is no longer there" in said
        assert (copy / "plugins" / "checks" / "check.sh").read_text() == ("rm -r ~" if yes else "exit 0")
    assert on(home) == [str(copy / "plugins" / "checks")]
    assert main(["plugin", "remove", "checks"]) == 0
    assert (on(home), list((home / "plugins").iterdir())) == ([], [])


def test_plugins_that_share_a_folder_have_what_the_list_gives_each(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "shared"
    for name in ("pdf", "art", "hidden"):
        write(folder / "skills" / name / "SKILL.md", f"---\nname: {name}\ndescription: About {name}.\n---\nDo it.")
    write(folder / "skills/pdf/scripts/run.py", "print(1)")
    write(folder / "other/one.md", "Do one thing.")
    write(folder / ".claude-plugin/picked/papers/skills/art/SKILL.md", "not from the list")
    listed = [
        {"name": "papers", "source": "./", "description": "Papers.", "strict": False, "skills": ["./skills/pdf"]},
        {"name": "arts", "source": "./", "skills": ["./skills/art", "../../x"], "commands": ["./other/one.md"]},
    ]
    write(folder / ".claude-plugin/marketplace.json", json.dumps({"plugins": listed}))
    git(folder, "init", "-q")
    commit(folder)
    assert main(["plugin", "add", folder.as_uri(), "papers", "arts", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "papers: Papers.\n  skills: pdf\n" in said
    assert "  commands: one\n  skills: art\n" in said
    papers, arts = map(Path, on(home))
    assert (papers / "skills/pdf/scripts/run.py").is_file()
    assert [path.name for path in (arts / "skills").iterdir()] == ["art"]
    assert main(["plugin", "list"]) == 0
    assert "papers: Papers.\n  skills: pdf\n" in capsys.readouterr().out
    write(folder / "skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Of PDFs.\n---\nDo it.")
    commit(folder)
    assert main(["plugin", "update", "--yes"]) == 0
    assert "papers: 1 file changed: skills/pdf/SKILL.md" in capsys.readouterr().out
    assert "Of PDFs." in (papers / "skills/pdf/SKILL.md").read_text()


def test_a_folder_that_is_no_repository_is_copied_and_renewed(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tool-kit (1)"
    about = {
        "name": "Tool-Kit",
        "hooks": ["./config/more.json", {"Stop": [{"hooks": [{"type": "command", "command": "./inside.sh"}]}]}],
        "skills": ["./texts/", "./single"],
        "mcpServers": {"notes": {"command": "notes"}},
    }
    write(folder / ".claude-plugin/plugin.json", json.dumps(about))
    more = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./more.sh"}]}]}}
    write(folder / "config/more.json", json.dumps(more))
    for place in ("texts/letters", "single", "near/it"):
        write(folder / place / "SKILL.md", f"---\nname: {Path(place).name}\ndescription: About it.\n---\nDo it.")
    hooks = "hooks:\n  PreToolUse:\n    - matcher: LS\n      hooks: [{type: command, command: ./front.sh}]\n"
    write(folder / "commands/check.md", f"---\n{hooks}---\nCheck this.")
    write(tmp_path / "secret.md", "not of the plugin")
    (folder / "commands/secret.md").symlink_to(tmp_path / "secret.md")

    assert main(["plugin", "add", str(folder), "--yes"]) == 0
    said = capsys.readouterr().out
    assert "  commands: check\n  skills: letters, single\n" in said
    assert (
        "  hook on PreToolUse (Bash) runs, unconfined: ./more.sh\n  hook on Stop runs, unconfined: ./inside.sh\n"
        "  hook on PreToolUse (LS) once check is used runs, unconfined: ./front.sh\n" in said
    )
    (copy,) = map(Path, on(home))
    assert copy == home / "plugins" / "tool-kit--1"
    assert not (copy / "commands/secret.md").exists(), "no link"
    assert main(["mcp", "list"]) == 0
    assert "plugin_Tool-Kit_notes: " in capsys.readouterr().out
    assert main(["plugin", "update"]) == 0
    assert "is up to date" in capsys.readouterr().out
    write(folder / "commands/check.md", "Check that.")
    assert main(["plugin", "update", "Tool-Kit", "--yes"]) == 0
    assert "Tool-Kit: 1 file changed: commands/check.md" in capsys.readouterr().out
    assert (copy / "commands/check.md").read_text() == "Check that."
    assert main(["plugin", "remove", "Tool-Kit"]) == 0
    assert (on(home), list((home / "plugins").iterdir())) == ([], [])


def test_what_a_marketplace_file_alone_has_is_named(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = [
        {
            "name": "speech",
            "source": "./speech",
            "mcpServers": {"notes": {"command": "notes"}},
            "lspServers": {"speech": {"command": "speech-server"}},
        }
    ]
    write(tmp_path / "kit/.claude-plugin/marketplace.json", json.dumps({"plugins": listed}))
    write(tmp_path / "kit/speech/README.md", "Speech.")
    assert main(["plugin", "add", "../kit"]) == 0
    said = capsys.readouterr().out
    assert "  not used: mcpServers, which the marketplace file names\n  not used: language servers: those " in said


def test_a_folder_without_a_plugin_or_a_branch_is_refused(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "photos/one.md", "Nothing.")
    write(tmp_path / "kit/commands/check.md", "Check this.")
    assert main(["plugin", "add", "../photos"]) == 2
    assert "there is no plugin" in capsys.readouterr().err
    assert main(["plugin", "add", "../kit", "--ref", "next"]) == 2
    assert "kit is no git repository, so there is no next in it" in capsys.readouterr().err
    assert list((home / "plugins").iterdir()) == []


def test_other_addresses_are_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for source in ("http://a.example/x", "git://a.example/x", "ext::sh -c true", "--upload-pack=x", "no"):
        assert main(["plugin", "add", "--", source]) == 2
        assert "no https, ssh or file address" in capsys.readouterr().err
