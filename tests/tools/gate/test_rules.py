"""Rules, what was remembered by older versions, and running in and outside a sandbox."""

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.tools.gate.shell_lines import table
from tests.tools.gate.test_permissions import READ, SHELL, WRITE, Person, call, outcome, run
from tests.tools.support import Call
from tui_agent.conversation.blocks import ToolCall
from tui_agent.tools.base import Access, Change, PermissionAnswer, PermissionQuestion, ToolFailure, WorkspaceView
from tui_agent.tools.gate.patterns import matches
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.remembered import RememberedRules
from tui_agent.tools.gate.rules import (
    OUTSIDE,
    UNRECORDED,
    Rule,
    allowing,
    catching,
    catching_line,
    catching_path,
    hides_commands,
)
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.shell.run_command import RunCommand


class Confining:
    """A sandbox as the gate sees it."""

    held: tuple[Change, ...] = ()

    def __init__(self, isolates: bool = True) -> None:
        self.isolates = isolates

    def accept_held(self, accepted: Sequence[Change]) -> None:
        self.held = tuple(each for each in self.held if each not in accepted)


class Keeping:
    """A history of files as the gate sees it."""

    def __init__(self, gap: str = "") -> None:
        self._gap = gap

    async def gap(self) -> str:
        return self._gap

    def earlier(self, path: Path) -> bytes | None:
        return None


class Outside(RunCommand):
    """Commands, in a session that has a sandbox to leave."""

    @override
    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        return (Access("run", json.loads(arguments)["command"], outside=True),)


PROJECT = {
    "Makefile": "include rules.mk\ntest:\n\tsh tools/gen.sh\n\t@python tools/gen.py\n"
    "\tnpm test && check\n\t$(MAKE) -C lib\n",
    "lib/own.c": "",
    "pkg/__main__.py": "",
    "node_modules/x.js": "",
    "rules.mk": "X = 1\n",
    "package.json": '{"scripts": {"test": "true"}}\n',
    "conftest.py": "",
    "tools/gen.sh": "true\n",
    "tools/gen.py": "print()\n",
    "own.c": "int main;\n",
    ".venv/bin/mytool": "#!/bin/sh\ntrue\n",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "work/src").mkdir(parents=True)
    return Workspace(tmp_path / "work", guarded=[tmp_path / "home"])


def store(tmp_path: Path, workspace: Workspace, entries: list[object]) -> RememberedRules:
    path = tmp_path / "home/permissions.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"projects": {str(workspace.root): entries}}))
    return RememberedRules(path, workspace.root)


def test_no_pattern_takes_long() -> None:
    wild = ("*a" * 14 + "b", "*a*" * 300 + "b", "?*" * 500 + "b", "*" * 2_000 + "b", "\\*a?" * 500, "a" * 4_000)
    for pattern in wild:
        began = time.thread_time()
        assert not matches(pattern, "a" * 20_000)
        assert time.thread_time() - began < 0.2, pattern[:20]


def test_a_hundred_times_the_rules_take_few_times_the_time() -> None:
    rules = [Rule.read(f"read_file(a*{number}*b)") for number in range(500)]

    def seconds(number: int) -> float:
        began = time.thread_time()
        assert not any(catching_path(rules[:number], f"/p/src/file{at}.py", "/p") for at in range(300))
        return time.thread_time() - began

    seconds(5), seconds(500)  # patterns are compiled once
    assert seconds(500) < 40 * seconds(5)


def test_patterns() -> None:
    found = {"a*b": "ab aXbXb", "*ab": "aab", "*??b": "xxb", "a\\*": "a*", "a\\": "a\\", "*a*a*": "aa"}
    not_found = {"a*b": "a", "a*ab": "ab", "*??b": "xb", "a\\*": "ab", "a*a": "a"}
    assert [each for each in found if not all(matches(each, text) for text in found[each].split())] == []
    assert [each for each in not_found if matches(each, not_found[each])] == []
    assert matches("*", "")
    assert not matches("*?", "")
    assert matches("x*\n*y", "x\n\ny")


def test_a_rule_that_is_too_wide_allows_nothing() -> None:
    for name, idle in (("idle", True), ("not idle", False)):
        rules = [Rule(tool, pattern) for tool in ("run_command", "outside") for pattern in table(name)]
        assert [rule.text for rule in rules if rule.is_idle is not idle] == []


def test_what_a_rule_allows_is_said() -> None:
    told = [
        (Rule("run_command"), "every command"),
        (Rule("run_command", "git log *"), "git log with anything that is known to be harmless"),
        (Rule("run_command", "make test"), "the command make test"),
        (Rule("run_command", "make test", "/p"), "the command make test in /p"),
        (Rule("run_command", "*"), "nothing: * is too wide"),
        (Rule("run_command", "a > b"), "nothing: a > b is too wide"),
        (Rule("outside", "git log *"), "outside the sandbox: git log with anything that is known to be harmless"),
        (Rule("unrecorded"), "every command in the sandbox, although what it changes here cannot be undone"),
        (Rule("edit_file"), "every edit, also outside this project"),
        (Rule("write_file", "*"), "every write in this project"),
        (Rule("edit_file", "src/*"), "every edit in src/"),
        (Rule("read_file", "a.txt"), "every read of a.txt"),
        (Rule("fetch_url"), "every call of fetch_url"),
        (Rule("fetch_url", "https://a/*"), "fetch_url(https://a/*)"),
        (Rule("mcp__s__*"), "every call of mcp__s__*"),
    ]
    assert [(rule, rule.said) for rule, _ in told] == told


def test_what_an_older_version_remembered_is_used_where_it_is_not_too_wide(
    workspace: Workspace, tmp_path: Path
) -> None:
    old: list[object] = [
        "run_command(git diff *)",
        "run_command(rm \\*.o)",
        "run_command(te*)",
        "run_command(env *)",
        "edit_file(src/*)",
    ]
    old += [{"rule": "run_command(make test)", "allows": ["make test"], "asks": ["make test x"]}]
    remembered = store(tmp_path, workspace, [*old, "run_command(FOO=1 make)", "no rule ("])
    assert [rule.text for rule in remembered.rules] == [
        "run_command(git diff *)",
        "run_command(rm \\*.o)",
        "edit_file(src/*)",
        "run_command(make test)",
    ]
    assert remembered.dropped == ("run_command(te*)", "run_command(env *)", "run_command(FOO=1 make)", "no rule (")
    assert "run_command(te*)" in remembered.notice
    assert "\n" not in remembered.notice
    remembered.remove("run_command(te*)")
    assert list(remembered.dropped) == ["run_command(env *)", "run_command(FOO=1 make)", "no rule ("]
    remembered.remove("edit_file(src/*)")
    assert "edit_file(src/*)" not in [rule.text for rule in remembered.rules]
    remembered.add([Rule("run_command", "make")])
    again = RememberedRules(tmp_path / "home/permissions.json", workspace.root)
    assert [rule.text for rule in again.rules] == [*(rule.text for rule in remembered.rules[:3]), "run_command(make)"]
    assert again.dropped == remembered.dropped
    for count in (5, 6):
        wide = [f"run_command({letter}*)" for letter in "abcdef"[:count]]
        named = store(tmp_path, workspace, [*wide]).notice.partition("wide: ")[2].partition(". ")[0]
        assert named == ", ".join(wide[:5]) + ", …" * (count > 5)


async def test_every_edit_in_this_project_means_just_that(workspace: Workspace, tmp_path: Path) -> None:
    gate = PermissionGate("ask", workspace, allow=["edit_file(*)", "read_file(src/*)"])
    assert await outcome(gate, WRITE, call("src/a.py")) == "pass"
    assert await outcome(gate, WRITE, call(str(tmp_path / "x"))) == "ask"
    assert await outcome(gate, WRITE, call(".bashrc")) == "ask"
    assert await outcome(gate, READ, call("/srv/src/x")) == "ask"
    assert Rule.read("edit_file(*)").said == "every edit in this project"


async def test_the_programs_own_files_are_asked_about(workspace: Workspace, tmp_path: Path) -> None:
    home_as_project = Workspace(tmp_path, guarded=[tmp_path / "home"])
    gate = PermissionGate("auto", home_as_project)
    for path in (
        "home/permissions.json",
        "home/config.json",
        ".bashrc",
        ".ssh/authorized_keys",
        ".husky/x",
        ".mcp.json",
    ):
        assert await outcome(gate, WRITE, call(path)) == "ask", path
    assert await outcome(PermissionGate("allow", home_as_project), WRITE, call(".bashrc")) == "pass"


async def test_a_taken_back_rule_is_asked_again(workspace: Workspace, tmp_path: Path) -> None:
    remembered = RememberedRules(tmp_path / "p.json", workspace.root)
    gate = PermissionGate("auto", workspace, deny=["fetch_url"], remembered=remembered)
    await gate.check(SHELL, run("make"), Person(always=True))
    assert await outcome(gate, SHELL, run("make")) == "pass"
    assert [(rule.text, rule.remembered) for rule in gate.rules()] == [
        ("run_command(make)", True),
        ("fetch_url", False),
    ]
    gate.take_back("run_command(make)")
    assert await outcome(gate, SHELL, run("make")) == "ask"
    assert RememberedRules(tmp_path / "p.json", workspace.root).rules == ()


def test_a_rule_that_refuses_is_never_said_to_be_too_wide(workspace: Workspace) -> None:
    texts = ["run_command(rm *)", "run_command(git push)", "run_command", "read_file(.env)"]
    gate = PermissionGate("auto", workspace, allow=texts[:1], deny=texts)
    assert [(rule.kind, rule.said) for rule in gate.rules()] == [
        ("allow", "nothing: rm * is too wide"),
        ("deny", "the command rm with any arguments"),
        ("deny", "the command git push"),
        ("deny", "every command"),
        ("deny", "every read of .env"),
    ]


# In and outside a sandbox


async def test_what_the_sandbox_stopped_may_run_outside_once(workspace: Workspace, tmp_path: Path) -> None:
    remembered = RememberedRules(tmp_path / "p.json", workspace.root)
    gate = PermissionGate("auto", workspace, remembered=remembered, confinement=Confining(), history=Keeping())
    person = Person()
    verdict = await gate.check(SHELL, run("git push origin main"), person, stopped="it has no network.")
    assert verdict.allowed
    assert verdict.accesses == (Access("run", "git push origin main", outside=True),)
    (question,) = person.questions
    assert question.outside
    assert question.reason == "The sandbox stopped it: it has no network."
    assert question.rules == ("outside the sandbox: the command git push origin main",)
    again = await gate.check(SHELL, run("git push origin main"), person)
    assert again.accesses[0].outside is False


async def test_what_the_sandbox_stopped_may_always_run_outside(workspace: Workspace, tmp_path: Path) -> None:
    remembered = RememberedRules(tmp_path / "p.json", workspace.root)
    gate = PermissionGate("auto", workspace, remembered=remembered, confinement=Confining())
    await gate.check(SHELL, run("git push origin main"), Person(always=True), stopped="it has no network.")
    assert [rule.text for rule in remembered.rules] == ["outside(git push origin main)"]
    person = Person(allowed=False)
    verdict = await gate.check(SHELL, run("git push origin main"), person)
    assert verdict.allowed
    assert verdict.accesses[0].outside
    assert not (await gate.check(SHELL, run("git push origin main; ls"), person)).allowed
    assert not (await gate.check(SHELL, run("git push origin x"), person, stopped="no network")).allowed


async def test_a_rule_for_the_inside_lets_nothing_out(workspace: Workspace, tmp_path: Path) -> None:
    gate = PermissionGate("auto", workspace, allow=["run_command", "run_command(git push x)"], confinement=Confining())
    person = Person(allowed=False)
    assert not (await gate.check(SHELL, run("git push x"), person, stopped="no network")).allowed
    verdict = await gate.check(SHELL, run("git push x"), person)
    assert verdict.allowed
    assert not verdict.accesses[0].outside


async def test_with_no_sandbox_nothing_says_outside(workspace: Workspace) -> None:
    gate = PermissionGate("auto", workspace, allow=["outside(make)"])
    assert await outcome(gate, SHELL, run("make")) == "ask"
    verdict = await gate.check(SHELL, run("ls"), Person())
    assert not verdict.accesses[0].outside


async def test_plan_mode_runs_commands_only_where_they_can_write_nothing(workspace: Workspace) -> None:
    assert await outcome(PermissionGate("plan", workspace), SHELL, run("ls")) == "deny"
    gate = PermissionGate("plan", workspace, allow=["outside(make)"], confinement=Confining())
    for line in ("ls src && cat src/a.py", "make", "ls $(make)", "git add x"):
        assert await outcome(gate, SHELL, run(line)) == "pass", line
    leaving = ToolCall("c1", "x", json.dumps({"command": "make", "outside": True}))
    assert (await gate.check(Outside(), leaving, Person())).allowed is False
    assert await outcome(PermissionGate("plan", workspace, confinement=Confining(False)), SHELL, run("ls")) == "deny"


LINES = ("make", "ls $(make)", "git commit -m x", "cat <<E > x\n$X\nE", "for f in *; do python $f; done", "rm -rf .")


async def test_in_a_full_sandbox_no_command_is_asked_about(workspace: Workspace) -> None:
    gate = PermissionGate("auto", workspace, confinement=Confining(), history=Keeping())
    assert gate.runs_confined
    for line in LINES:
        assert await outcome(gate, SHELL, run(line)) == "pass", line
    gate.mode = "ask"
    for line in (*LINES, "ls"):
        assert await outcome(gate, SHELL, run(line)) == "ask", line


async def test_without_a_full_sandbox_or_history_only_known_commands_run(workspace: Workspace) -> None:
    gates: list[dict[str, Any]] = [
        {"confinement": Confining(False), "history": Keeping()},
        {"confinement": Confining()},
        {"history": Keeping()},
        {"confinement": Confining(), "history": Keeping(), "unasked": "known"},
    ]
    for gate in gates:
        made = PermissionGate("auto", workspace, **gate)
        assert not made.runs_confined
        assert await outcome(made, SHELL, run("ls")) == "pass"
        assert [line for line in LINES if await outcome(made, SHELL, run(line)) != "ask"] == [], gate


async def test_what_cannot_be_undone_is_said_beforehand(workspace: Workspace, tmp_path: Path) -> None:
    remembered = RememberedRules(tmp_path / "p.json", workspace.root)
    keeping = Keeping("The project has more than 20,000 files.")
    gate = PermissionGate("auto", workspace, confinement=Confining(), history=keeping, remembered=remembered)
    assert await outcome(gate, SHELL, run("ls")) == "pass"
    person = Person()
    await gate.check(SHELL, run("make $X"), person)
    assert [question.reason for question in person.questions] == ["The project has more than 20,000 files."]
    await gate.check(SHELL, run("make $X"), Person(always=True))
    assert await outcome(gate, SHELL, run("rm -rf $Y")) == "pass"
    assert [rule.text for rule in remembered.rules] == ["unrecorded"]
    gate.take_back("unrecorded")
    assert await outcome(gate, SHELL, run("make $X")) == "ask"


async def test_a_deny_rule_holds_in_a_sandbox(workspace: Workspace) -> None:
    gate = PermissionGate("auto", workspace, deny=["run_command(wc *)"], confinement=Confining(), history=Keeping())
    assert await outcome(gate, SHELL, run("wc -l a")) == "deny"
    assert await outcome(gate, SHELL, run('for f in a; do wc -l "$f"; done')) == "deny"
    assert await outcome(gate, SHELL, run("ls")) == "pass"


def test_rules_that_let_nothing_through_are_told_at_once(workspace: Workspace) -> None:
    rules = ["run_command(env *)", "run_command(a $X)", "run_command(make *)", "outside(npm *)", "run_command(ls *)"]
    (notice,) = PermissionGate("auto", workspace, allow=rules).notices
    assert notice.startswith("run_command(env *), run_command(a $X), run_command(make *), outside(npm *): ")


# What an exact rule is bound to


async def test_an_exact_rule_is_bound_to_its_folder(workspace: Workspace, tmp_path: Path) -> None:
    (workspace.root / "src/deep").mkdir()
    gate = PermissionGate("auto", workspace, allow=["run_command(make test)"])
    assert await outcome(gate, SHELL, run("make test")) == "pass"
    for line in ("cd src && make test", "cd src && cd deep && make test", "cd src && ls && make test"):
        assert await outcome(gate, SHELL, run(line)) == "ask", line
    remembered = RememberedRules(tmp_path / "p.json", workspace.root)
    gate = PermissionGate("auto", workspace, remembered=remembered)
    person = Person(always=True)
    await gate.check(SHELL, run("cd src && make test"), person)
    assert person.questions[0].rules == ("the command make test in src",)
    again = PermissionGate("auto", workspace, remembered=RememberedRules(tmp_path / "p.json", workspace.root))
    assert await outcome(again, SHELL, run("cd src && make test")) == "pass"
    assert await outcome(again, SHELL, run("make test")) == "ask"
    below = PermissionGate("auto", Workspace(workspace.root / "src"), remembered=remembered)
    assert await outcome(below, SHELL, run("make test")) == "pass"


@pytest.mark.parametrize(
    ("line", "file", "text"),
    [
        ("make test", "Makefile", "test:\n\tevil\n"),
        ("make test", "GNUmakefile", "test:\n\tevil\n"),
        ("make test", "rules.mk", "test:\n\tevil\n"),
        ("make test", "tools/gen.sh", "evil\n"),
        ("npm test", "package.json", "{}"),
        ("python tools/gen.py", "tools/gen.py", "evil()\n"),
        ("./tools/gen.sh", "tools/gen.sh", "evil\n"),
        ("pytest -q", "conftest.py", "evil()\n"),
        ("mytool --check", ".venv/bin/mytool", "#!/bin/sh\nevil\n"),
        ("mytool --check", ".venv/bin/mytool", "\0" * 300_000),
        ("make test", "lib/Makefile", "all:\n\tevil\n"),
        ("make test", "package.json", "{}"),
        ("make test", "tools/json.py", "evil()\n"),
        ("make test", "node_modules/.bin/check", "evil\n"),
        ("npx check", "node_modules/.bin/check", "evil\n"),
        ("python -m pkg", "pkg/__init__.py", "evil()\n"),
        ("python -m pkg", "asyncio/__init__.py", "evil()\n"),
        ("uvx a-server", "uv.toml", "index-url = 'evil'\n"),
        ("some-builder", "Vagrantfile", "evil\n"),
    ],
)
async def test_an_exact_rule_is_bound_to_what_it_runs_first(
    line: str, file: str, text: str, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = workspace.root
    for name, content in PROJECT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
        (root / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}/.venv/bin:/usr/bin:/bin")

    def gate() -> PermissionGate:
        rules = RememberedRules(tmp_path / "p.json", root)
        return PermissionGate("auto", workspace, remembered=rules, approved=tmp_path / "approved")

    await gate().check(SHELL, run(line), Person(always=True))
    assert await outcome(gate(), SHELL, run(line)) == "pass"
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text)
    (root / file).chmod(0o755)
    (root / "own.c").write_text("the project's own code")
    person, same = Person(), gate()
    assert (await same.check(SHELL, run(line), person)).allowed
    (question,) = person.questions
    assert question.reason == f"What it runs was changed since you last allowed it: {file}."
    (change,) = question.preview.changes
    assert change.title.startswith(file)
    assert ("evil" in change.diff) == ("evil" in text)
    assert question.rules == ()
    assert await outcome(same, SHELL, run(line)) == "pass"
    assert await outcome(gate(), SHELL, run(line)) == "pass"


async def test_what_a_line_outside_would_run_is_shown_with_it(workspace: Workspace, tmp_path: Path) -> None:
    gate = PermissionGate("auto", workspace, confinement=Confining(), history=Keeping(), approved=tmp_path / "a")
    (workspace.root / "Makefile").write_text("test:\n\tevil\n")
    person = Person()
    await gate.check(SHELL, run("make $X"), person, stopped="no network")
    (change,) = person.questions[0].preview.changes
    assert change.title == "Makefile is new or was changed"
    assert "+\tevil" in change.diff
    await gate.check(SHELL, run("make $X"), person, stopped="no network")
    assert person.questions[1].preview.changes == ()


async def test_what_commands_left_to_git_is_named_once_before_a_line_runs_outside(workspace: Workspace) -> None:
    sandbox, person = Confining(), Person()
    sandbox.held = (Change(".envrc is another one in the index", ""),)
    gate = PermissionGate("auto", workspace, allow=["outside(git stash pop)"], confinement=sandbox, history=Keeping())
    assert (await gate.check(SHELL, run("git stash pop"), Person(allowed=False))).allowed is False
    assert await gate.check_own("cd src && make test", person)  # which may run git
    assert [question.preview.changes[0].title for question in person.questions] == [
        ".envrc is another one in the index"
    ]
    assert (await gate.check(SHELL, run("git stash pop"), Person(allowed=False))).allowed


async def test_the_users_own_command_is_asked_about_only_if_what_it_runs_has_changed(workspace: Workspace) -> None:
    gate, person = PermissionGate("auto", workspace), Person(allowed=False)
    assert await gate.check_own("make test", person)
    (workspace.root / "Makefile").write_text("test:\n\tevil\n")
    assert not await gate.check_own("make test", person)
    (question,) = person.questions
    assert question.reason == "What it runs was changed since you last allowed it: Makefile."
    assert "+\tevil" in question.preview.changes[0].diff
    assert await gate.check_own("make test", Person())
    assert await gate.check_own("make test", person)
    assert await gate.check_own("ls | sort", person)
    told: list[str] = []

    async def meanwhile(question: PermissionQuestion) -> PermissionAnswer:
        told.append(question.preview.changes[0].diff)
        (workspace.root / "Makefile").write_text("test:\n\tworse\n")
        return PermissionAnswer(allowed=True)

    (workspace.root / "Makefile").write_text("test:\n\tbad\n")
    assert await gate.check_own("make test", meanwhile)
    assert ["worse" in diff for diff in told] == [False, True]

    async def nobody(question: PermissionQuestion) -> PermissionAnswer:
        raise AssertionError

    (workspace.root / "Makefile").write_text("test:\n\tother\n")
    assert await PermissionGate("allow", workspace).check_own("make test", nobody)


async def test_what_changes_between_the_last_look_and_the_start_keeps_a_line_from_running(
    workspace: Workspace, tmp_path: Path
) -> None:
    gate = PermissionGate("auto", workspace, allow=["run_command(make test)"])
    shell, makefile = RunCommand(changed=gate.changed_since), workspace.root / "Makefile"
    for number, line in enumerate(("make test", "make test", "X=1 make test", "make own")):
        call = run(line)
        makefile.write_text("test own:\n\ttrue\n" if line == "make test" else f"test own:\n\techo {number}\n")
        own = line == "make own"
        assert await gate.check_own(line, Person()) if own else (await gate.check(shell, call, Person())).allowed
        if number:
            makefile.write_text("test own:\n\ttouch ran\n")
            with pytest.raises(ToolFailure, match=r"Nothing was run\. What it runs was changed .*: Makefile"):
                await shell.run(call.arguments, Call(workspace, (), tmp_path))
        else:
            assert "[exit code 0" in (await shell.run(call.arguments, Call(workspace, (), tmp_path))).text
    assert not (workspace.root / "ran").exists()


async def test_hooks_and_programs_on_the_search_path_are_what_runs_first(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = workspace.root
    for words in ("init -q", "config core.hooksPath hooks"):
        process = await asyncio.create_subprocess_exec("git", "-C", root, *words.split())
        assert await process.wait() == 0
    for name, text in (("hooks/pre-commit", "sh tools/check.sh\n"), ("tools/check.sh", "true\n"), (".venv/bin/x", "")):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
    monkeypatch.setenv("PATH", f"{root}/.venv/bin:/usr/bin:/bin")

    async def titles(line: str, *, allowed: bool = True) -> list[str]:
        # A gate of a later start each time.
        person = Person(allowed=allowed)
        await PermissionGate("auto", workspace, approved=tmp_path / "approved").check_own(line, person)
        return [change.title for question in person.questions for change in question.preview.changes]

    assert await titles("git commit -m x") == []
    (root / "tools" / "check.sh").write_text("evil\n")
    (root / ".venv" / "bin" / "gcc").write_text("evil\n")
    told = ["tools/check.sh has changed since", ".venv/bin was changed"]
    assert await titles("git commit -m x", allowed=False) == told
    assert await titles("git commit -m x") == told
    assert await titles("git commit -m x") == []
    assert await titles("make") == []
    (root / ".venv" / "bin" / "x").write_text("evil\n")
    assert await titles("make") == [".venv/bin was changed"]
    (root / "Makefile").write_text("evil\n")
    assert await titles("make", allowed=False) == ["Makefile is new or was changed"]
    assert await titles("make") == ["Makefile is new or was changed"]


async def test_what_changes_while_the_question_is_open_is_not_run(workspace: Workspace) -> None:
    (workspace.root / "Makefile").write_text("test:\n\ttrue\n")

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        (workspace.root / "Makefile").write_text("test:\n\tevil\n")
        return PermissionAnswer(True)

    verdict = await PermissionGate("auto", workspace).check(SHELL, run("make test"), ask)
    assert (verdict.allowed, verdict.source) == (False, "changed")


CATCHING = [
    ("rm -rf", "rm -rf", True),
    ("rm -rf", "rm -rf build", False),  # exactly these words
    ("rm -rf *", "rm -rf build", True),
    ("rm -rf *", "rm -rf", True),
    ("rm -rf *", "rm -r build", False),
    ("rm -rf", "xargs rm -rf build", True),  # what runs inside of another program may get more words
    ("rm -rf", "find . -exec /bin/rm -rf {} +", True),
    ("rm", "sh -c 'cd /; rm x'", True),
    ("rm", "git commit -m 'rm of old files'", False),  # git is known here to run nothing
    ("rm", "echo rm", False),
    ("rm", "git frob 'rm x'", True),
    ("rm", "/bin/rm x", False),
    ("rm *", "/bin/rm x", True),
    ("r? *", "rm x", True),
    ("*", "ls", True),
    ("", "ls", True),
    ("rm *", "ls $(rm x)", True),  # the line cannot be read, and it mentions it
    ("rm *", "ls $(cat x)", False),
    ("rm *", "ls $(cat firm)", False),  # another word that ends so
    ("git push *", "git status $(x)", False),  # one of its words alone
    ("git push", "xargs echo git", False),
    ("a | b", " a | b ", True),
    (" ", "ls", False),
    (" * ", "ls -l", True),
    ("fir* *", "ls $(cat firm)", True),
]


def test_what_a_deny_rule_catches() -> None:
    for pattern, line, caught in CATCHING:
        rule = Rule("run_command", pattern)
        assert catching_line([rule], line) == (rule if caught else None), (pattern, line)


def test_a_rule_reaches_what_it_names_and_no_guarded_file_otherwise(workspace: Workspace) -> None:
    secret = Access("read", str(workspace.root / ".env"))
    caught = {name: catching([Rule("read_file", name)], secret, workspace) for name in (".env", "/.env", "env")}
    assert [name for name, rule in caught.items() if rule] == [".env", "/.env"]
    domain = [Rule("network", "https://x.example/*")]
    for address in ("https://x.example/", "http://x.example/", "https://x.example:8443/", "http://x.example:80/a:1"):
        assert catching(domain, Access("network", address), workspace) == domain[0]
    for address in ("http://x.example/", "https://x.example:8443/"):
        assert allowing(domain, Access("network", address), workspace) is None
    assert catching(domain, Access("network", "https://y.example/https://x.example/"), workspace) is None
    guarded = Access("write", str(workspace.root / ".bashrc"), guarded=True)
    rules = (Rule("write_file"), Rule("write_file", "*"), Rule("write_file", ".bashrc"))
    assert allowing(rules, guarded, workspace) == rules[2]
    assert not any(Rule(name).names(name) for name in (OUTSIDE, UNRECORDED))


def test_which_lines_hide_commands() -> None:
    for line, why in {"xargs ls": "`xargs`", "/usr/bin/env ls": "`/usr/bin/env`", "timeout 5 ls": "", "ls": ""}.items():
        assert hides_commands(line) == (why and f"{why} runs what its arguments say")
    assert hides_commands("ls $(cat x)")
