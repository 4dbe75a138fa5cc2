"""Rules and their proofs, what was remembered by older versions, and running outside a sandbox."""

import json
import time
from pathlib import Path

import pytest

from tests.tools.gate.test_permissions import READ, SHELL, WRITE, Person, call, outcome, run
from tui_agent.tools.base import Access
from tui_agent.tools.gate.patterns import matches
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.remembered import RememberedRules
from tui_agent.tools.gate.rules import Rule, RuleError, holds, proof_of, stands_for
from tui_agent.tools.gate.workspace import Workspace


class Confining:
    """A sandbox as the gate sees it."""

    def __init__(self, isolates: bool = True) -> None:
        self.isolates = isolates


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "work/src").mkdir(parents=True)
    return Workspace(tmp_path / "work", guarded=[tmp_path / "home"])


def store(tmp_path: Path, workspace: Workspace, entries: list[object]) -> RememberedRules:
    path = tmp_path / "home/permissions.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"projects": {str(workspace.root): entries}}))
    return RememberedRules(path, workspace.root)


@pytest.mark.parametrize(
    "pattern", ["*a" * 14 + "b", "*a*" * 300 + "b", "?*" * 500 + "b", "*" * 2_000 + "b", "\\*a?" * 500, "a" * 4_000]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.thread_time()
    assert not matches(pattern, "a" * 20_000)
    assert time.thread_time() - began < 0.2


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a*b", "ab", True),
        ("a*b", "aXbXb", True),
        ("a*b", "a", False),
        ("*ab", "aab", True),
        ("a*ab", "ab", False),
        ("*?", "", False),
        ("*??b", "xxb", True),
        ("*??b", "xb", False),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("a\\", "a\\", True),
        ("*", "", True),
        ("a*a", "a", False),
        ("*a*a*", "aa", True),
        ("x*\n*y", "x\n\ny", True),
    ],
)
def test_patterns(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "run_command(git diff *)",
            "run_command(make test)",
            "run_command(rm -rf 'a b' src/*.o)",
            "run_command(ls *)",
        ),
        *(
            "outside(git push origin main)",
            "edit_file(*)",
            "edit_file(src/*)",
            "read_file(/usr/include/*)",
            "fetch_url",
        ),
        *("fetch_url(https://docs.python.org/*)", "edit_file(.git/config)", "run_command(echo *)", "read_file(~/x/*)"),
    ],
)
def test_a_rule_stands_up_to_its_own_proof(text: str) -> None:
    rule = Rule.read(text)
    proof = proof_of(rule)
    assert holds(rule, proof)
    assert not rule.pattern or (proof.allows and proof.asks)


@pytest.mark.parametrize(
    ("text", "not_meant"),
    [
        ("run_command(git diff *)", "git diff --output=x"),
        ("run_command(git diff *)", "git diff $(x)"),
        ("run_command(make test)", "make test x"),
        ("run_command(make test)", "make test; x"),
        ("run_command(make *)", "makex"),
        ("edit_file(*)", "/etc/hosts"),
        ("edit_file(src/*)", "/elsewhere/src/x"),
        ("fetch_url(https://a.org/*)", "https://a.org.evil/"),
    ],
)
def test_what_a_rule_does_not_stand_for(text: str, not_meant: str) -> None:
    assert not stands_for(Rule.read(text), not_meant)


@pytest.mark.parametrize("text", ["run_command(*)", "run_command(ls; rm x)", "run_command($X *)", "outside(a > b)"])
def test_a_rule_for_commands_without_a_proof(text: str) -> None:
    with pytest.raises(RuleError):
        proof_of(Rule.read(text))


def test_what_an_older_version_remembered_is_used_where_it_can_be_proven(workspace: Workspace, tmp_path: Path) -> None:
    old = [
        "run_command(git diff *)",
        "run_command(rm \\*.o)",
        "run_command(te*)",
        "run_command(env *)",
        "edit_file(src/*)",
    ]
    remembered = store(tmp_path, workspace, [*old, "run_command(FOO=1 make)", "no rule ("])
    assert [rule.text for rule in remembered.rules] == [
        "run_command(git diff *)",
        "run_command(rm \\*.o)",
        "edit_file(src/*)",
    ]
    assert remembered.dropped == ("run_command(te*)", "run_command(env *)", "run_command(FOO=1 make)", "no rule (")
    assert "run_command(te*)" in remembered.notice
    assert "\n" not in remembered.notice
    remembered.remove("run_command(te*)")
    remembered.add([Rule("run_command", "make")])
    again = RememberedRules(tmp_path / "home/permissions.json", workspace.root)
    assert [rule.text for rule in again.rules] == [*(rule.text for rule in remembered.rules[:3]), "run_command(make)"]
    assert again.dropped == ("run_command(env *)", "run_command(FOO=1 make)", "no rule (")


@pytest.mark.parametrize(
    "entry",
    [
        {"rule": "run_command(make)", "allows": ["make x"], "asks": []},
        {"rule": "run_command(git diff *)", "allows": ["git diff"], "asks": ["git diff --stat"]},
        {"rule": "run_command(git diff *)", "allows": ["git diff --output=x"]},
    ],
)
def test_a_remembered_rule_that_fails_its_proof_is_not_used(
    entry: dict[str, object], workspace: Workspace, tmp_path: Path
) -> None:
    remembered = store(tmp_path, workspace, [entry])
    assert remembered.rules == ()
    assert remembered.dropped == (entry["rule"],)


def test_what_is_remembered_carries_its_proof(workspace: Workspace, tmp_path: Path) -> None:
    remembered = RememberedRules(tmp_path / "p.json", workspace.root)
    remembered.add([Rule("run_command", "git diff *")])
    (kept,) = json.loads((tmp_path / "p.json").read_text())["projects"][str(workspace.root)]
    assert kept["allows"] == ["git diff"]
    assert "git diff && x" in kept["asks"]


async def test_every_edit_in_this_project_means_just_that(workspace: Workspace, tmp_path: Path) -> None:
    gate = PermissionGate("ask", workspace, allow=["edit_file(*)", "read_file(src/*)"])
    assert await outcome(gate, WRITE, call("src/a.py")) == "pass"
    assert await outcome(gate, WRITE, call(str(tmp_path / "x"))) == "ask"
    assert await outcome(gate, WRITE, call(".bashrc")) == "ask"
    assert await outcome(gate, READ, call("/srv/src/x")) == "ask"
    assert Rule.read("edit_file(*)").said == "every edit in this project"


async def test_a_file_of_commands_is_guarded_where_a_rule_runs_it(workspace: Workspace, tmp_path: Path) -> None:
    remembered = RememberedRules(tmp_path / "p.json", workspace.root)
    gate = PermissionGate("auto", workspace, remembered=remembered)
    assert await outcome(gate, WRITE, call("Makefile")) == "pass"
    remembered.add([Rule("run_command", "make test")])
    assert await outcome(gate, WRITE, call("Makefile")) == "ask"
    assert await outcome(gate, WRITE, call("sub/makefile")) == "ask"
    assert await outcome(gate, WRITE, call("package.json")) == "pass"
    remembered.add([Rule("run_command", "./src/build.sh"), Rule("run_command", "python -u src/gen.py")])
    assert await outcome(gate, WRITE, call("src/build.sh")) == "ask"
    assert await outcome(gate, WRITE, call("src/gen.py")) == "ask"
    assert await outcome(gate, WRITE, call("build.sh")) == "pass"


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


# In and outside a sandbox


async def test_what_the_sandbox_stopped_may_run_outside_once(workspace: Workspace, tmp_path: Path) -> None:
    remembered = RememberedRules(tmp_path / "p.json", workspace.root)
    gate = PermissionGate("auto", workspace, remembered=remembered, confinement=Confining())
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
    gate = PermissionGate("auto", workspace, allow=["run_command", "run_command(git push *)"], confinement=Confining())
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


async def test_plan_mode_looks_only_where_the_kernel_holds_it(workspace: Workspace) -> None:
    assert await outcome(PermissionGate("plan", workspace), SHELL, run("ls")) == "deny"
    gate = PermissionGate("plan", workspace, allow=["run_command(make *)"], confinement=Confining())
    assert await outcome(gate, SHELL, run("ls src && cat src/a.py")) == "pass"
    for line in ("make", "ls $(make)", "git add x", "sed -i 1d x", "cat /etc/hosts"):
        assert await outcome(gate, SHELL, run(line)) == "deny", line


async def test_a_deny_rule_holds_in_a_sandbox(workspace: Workspace) -> None:
    gate = PermissionGate("auto", workspace, deny=["run_command(wc *)"], confinement=Confining())
    assert await outcome(gate, SHELL, run("wc -l a")) == "deny"
    assert await outcome(gate, SHELL, run('for f in a; do wc -l "$f"; done')) == "deny"
    assert await outcome(gate, SHELL, run("ls")) == "pass"


def test_rules_that_let_nothing_through_are_told(workspace: Workspace) -> None:
    gate = PermissionGate("auto", workspace, allow=["run_command(env *)", "run_command(a $X)", "run_command(make *)"])
    assert len(gate.notices) == 2
    assert "run_command(env *)" in gate.notices[0]
