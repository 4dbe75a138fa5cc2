"""The gate: modes, rules, remembered answers, and questions to the user."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tools.gate.shell_lines import by_command, table
from tui_agent.conversation.blocks import ToolCall, ToolDefinition
from tui_agent.settings.trust import MAX_RULE
from tui_agent.tools.base import (
    Access,
    Effect,
    PermissionAnswer,
    PermissionQuestion,
    Preview,
    ToolContext,
    ToolFailure,
    ToolOutput,
    WorkspaceView,
)
from tui_agent.tools.files.editing import EditFile
from tui_agent.tools.gate.permissions import Mode, NobodyToAsk, PermissionGate
from tui_agent.tools.gate.remembered import RememberedError, RememberedRules
from tui_agent.tools.gate.rules import Rule, RuleError
from tui_agent.tools.gate.workspace import Workspace, access_to
from tui_agent.tools.shell.run_command import RunCommand


class PathTool:
    """A tool that touches one path (or URL)."""

    def __init__(self, name: str, effect: Effect) -> None:
        self.definition = ToolDefinition(name, "", "{}")
        self.effect: Effect = effect

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        target = json.loads(arguments).get("path")
        if target is None:
            raise ToolFailure("the argument `path` is missing")
        if self.effect in {"network", "none"}:
            return (Access(self.effect, target, inside=False),)
        return (access_to(workspace, target, self.effect),)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview(title="Do it", text=arguments)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return ToolOutput(text="")


READ, WRITE, FETCH, NOTE, SHELL = (
    PathTool("read_file", "read"),
    PathTool("edit_file", "write"),
    PathTool("fetch_url", "network"),
    PathTool("note", "none"),
    RunCommand(),
)
URL = "https://docs.python.org/3/library/re.html"


class Person:
    """Answers questions and keeps them."""

    def __init__(self, allowed: bool = True, *, always: bool = False, feedback: str = "") -> None:
        self.answer = PermissionAnswer(allowed, always, feedback)
        self.questions: list[PermissionQuestion] = []

    async def __call__(self, question: PermissionQuestion) -> PermissionAnswer:
        self.questions.append(question)
        return self.answer


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git/config").write_text("[core]\n\trepositoryformatversion = 0\n")
    return Workspace(root, read_roots=[tmp_path / "session"])


def call(target: str, key: str = "path") -> ToolCall:
    return ToolCall("c1", "x", json.dumps({key: target}))


def run(command: str) -> ToolCall:
    return call(command, "command")


async def outcome(gate: PermissionGate, tool: PathTool | RunCommand, of: ToolCall) -> str:
    person = Person(allowed=True)
    verdict = await gate.check(tool, of, person)
    if person.questions:
        return "ask"
    return "pass" if verdict.allowed else "deny"


CASES: dict[str, tuple[PathTool | RunCommand, ToolCall]] = {
    "read inside": (READ, call("src/a.py")),
    "read outside": (READ, call("/etc/hosts")),
    "write inside": (WRITE, call("src/a.py")),
    "write outside": (WRITE, call("/etc/hosts")),
    "write guarded": (WRITE, call(".git/config")),
    "write instructions": (WRITE, call("AGENTS.md")),
    "run": (SHELL, run("make")),
    "look": (SHELL, run("ls")),
    "fetch": (FETCH, call(URL)),
    "nothing": (NOTE, call("x")),
}


@pytest.mark.parametrize(
    ("mode", "asked", "denied"),
    [
        ("ask", "read outside, write inside, write outside, write guarded, write instructions, run, look, fetch", ""),
        ("auto", "read outside, write outside, write guarded, write instructions, run, fetch", ""),
        ("allow", "", ""),
        ("plan", "read outside", "write inside, write outside, write guarded, write instructions, run, look, fetch"),
    ],
)
async def test_modes(workspace: Workspace, tmp_path: Path, mode: Mode, asked: str, denied: str) -> None:
    gate = PermissionGate(mode, workspace)
    told = {case: await outcome(gate, *CASES[case]) for case in CASES}
    expected = dict.fromkeys(asked.split(", "), "ask") | dict.fromkeys(denied.split(", "), "deny")
    assert told == {case: expected.get(case, "pass") for case in CASES}
    # What the session owns is read without a question.
    assert await outcome(gate, READ, call(str(tmp_path / "session/raw/x.log"))) == "pass"


async def test_plan_mode_says_what_to_do_instead(workspace: Workspace) -> None:
    gate = PermissionGate("plan", workspace, allow=["run_command", "edit_file"])
    assert "plan mode" in (await gate.check(SHELL, run("ls"), Person())).advice
    gate.mode = "auto"
    assert (await gate.check(SHELL, run("make"), Person())).allowed


async def test_an_allow_rule_covers_every_command_of_a_line(workspace: Workspace) -> None:
    gate = PermissionGate("ask", workspace, allow=["run_command(git status *)", "run_command(cat *)"])
    for expected in ("pass", "ask"):
        lines = table(f"status: {expected}")
        assert [line for line in lines if await outcome(gate, SHELL, run(line)) != expected] == []


@pytest.mark.parametrize("expected", ["pass", "ask"])
async def test_what_the_star_of_a_rule_does_not_stand_for(workspace: Workspace, tmp_path: Path, expected: str) -> None:
    (tmp_path / "beside").mkdir()
    (workspace.root / "src/out").symlink_to(tmp_path / "beside")
    for rule, lines in by_command(f"star: {expected}").items():
        gate = PermissionGate("ask", workspace, allow=[f"run_command({rule})"])
        assert [line for line in lines if await outcome(gate, SHELL, run(line)) != expected] == [], rule


async def test_a_cd_is_followed(workspace: Workspace, tmp_path: Path) -> None:
    (workspace.root / "src/out").symlink_to(tmp_path)
    (workspace.root / "src/deep").mkdir()
    (tmp_path / "x").touch()
    gate = PermissionGate("auto", workspace)
    passing = ("cd src && cat a.py ../a.py", "cd src && cd deep && cat x | head", f"cd {workspace.root}/src && ls")
    for line in passing:
        assert await outcome(gate, SHELL, run(line)) == "pass", line
    asked = (
        *(
            "cd src && cat ../../a.py",
            "cd src && cat out/x",
            "cat src/o*/x",
            "cat [s]rc/o[u]t/[x]",
            "cat src/o[u]t/[x]",
        ),
        *("cd src/out && cat x", "cd - && cat x", "cd && cat x", "cd src/out/../.. && cat a", "cd src/../src && ls"),
        *("cd src; cat x", "cd src || cat x", "ls | cd src && cat ../x", "cd src && ls; cat ../x", "cd nowhere && ls"),
        *("cd src", "cd ~ && ls", "cd 'src/*' && ls"),
    )
    for line in asked:
        assert await outcome(gate, SHELL, run(line)) == ("pass" if line == "cd src" else "ask"), line


async def test_nobody_is_asked_about_an_edit_that_cannot_work(workspace: Workspace, tmp_path: Path) -> None:
    def edit(path: Path) -> ToolCall:
        return ToolCall("1", "edit_file", json.dumps({"path": str(path), "old": "nowhere", "new": "x"}))

    (workspace.root / "src/a.py").write_text("a = 1\n")
    person, gate = Person(), PermissionGate("ask", workspace)
    with pytest.raises(ToolFailure, match="not in the file"):
        await gate.check(EditFile(), edit(workspace.root / "src/a.py"), person)
    assert person.questions == []
    # What the failure quotes of a file outside is for the user to give away, and so is what a rule keeps to itself.
    (tmp_path / "beside.txt").write_text("secret")
    await gate.check(EditFile(), edit(tmp_path / "beside.txt"), person)
    careful = PermissionGate("ask", workspace, ask=["read_file(src/*)"])
    await careful.check(EditFile(), edit(workspace.root / "src/a.py"), person)
    assert len(person.questions) == 2


async def test_the_user_is_told_what_a_rule_does_not_stand_for(workspace: Workspace) -> None:
    gate = PermissionGate("auto", workspace, allow=["run_command(git diff *)"])
    person = Person()
    await gate.check(SHELL, run("git diff --output=x"), person)
    assert person.questions[0].reason == "It runs a command, and `--output=x` is not known to be harmless."


ALWAYS: list[tuple[Mode, str, list[str]]] = [
    ("ask", "git diff --stat", ["git diff *"]),
    ("ask", "ls src; cat a && wc -l a", ["ls *", "cat *", "wc *"]),
    ("ask", "cd src && ls", ["cd *", "ls *"]),
    ("auto", "git diff --output=x", ["git diff --output=x"]),
    ("auto", "cat /etc/hosts", ["cat /etc/hosts"]),
    ("auto", "ls src; cat /etc/hosts", ["cat /etc/hosts"]),
    ("auto", "git add a.py && git commit -m 'a (b)'", ["git add *", "git commit *"]),
    ("auto", "pytest -q", ["pytest -q"]),
    ("auto", "rm -rf 'a b' src/*.o", ["rm -rf 'a b' src/*.o"]),
    *(("auto", line, []) for line in ("cat $X", "cat < /etc/hosts", "find . -exec rm {} +", "cd /etc && cat hosts")),
    *(("auto", line, []) for line in ("$X", "X=1 make", "ls > /etc/x", "curl x | sh", "> f")),
]


async def test_always_offers_what_would_let_it_through_and_nothing_where_no_rule_could(
    workspace: Workspace, tmp_path: Path
) -> None:
    for number, (mode, command, rules) in enumerate(ALWAYS):
        store = RememberedRules(tmp_path / f"{number}.json", workspace.root)
        gate = PermissionGate(mode, workspace, remembered=store)
        person = Person(always=True)
        assert (await gate.check(SHELL, run(command), person)).allowed
        assert [rule.pattern for rule in store.rules] == rules, command
        assert len(person.questions[0].rules) == len(rules)
        assert await outcome(gate, SHELL, run(command)) == ("pass" if rules else "ask"), command


async def test_a_deny_rule_holds_in_every_mode(workspace: Workspace) -> None:
    gate = PermissionGate("allow", workspace, allow=["run_command"], deny=["run_command(rm *)"])
    for line in table("denied"):
        verdict = await gate.check(SHELL, run(line), Person())
        assert not verdict.allowed, line
        assert verdict.advice
        assert verdict.reason


async def test_a_deny_rule_leaves_the_rest_alone(workspace: Workspace) -> None:
    gate = PermissionGate("allow", workspace, deny=["run_command(git push *)", "edit_file(*.env)"])
    for tool, of, expected in (
        (SHELL, run("git status && ls src/*.py"), "pass"),
        (SHELL, run("grep 'git push' a && make"), "pass"),
        (SHELL, run("git $X"), "deny"),
        (WRITE, call("src/a.py"), "pass"),
        (WRITE, call("src/x.env"), "deny"),
        (WRITE, call("/srv/.env"), "deny"),
    ):
        assert await outcome(gate, tool, of) == expected, of.arguments


async def test_deny_is_stronger_than_ask_and_ask_than_allow(workspace: Workspace) -> None:
    gate = PermissionGate(
        "auto", workspace, allow=["*"], ask=["edit_file(src/*)", "run_command(git *)"], deny=["fetch_url"]
    )
    assert await outcome(gate, FETCH, call(URL)) == "deny"
    assert await outcome(gate, WRITE, call("src/a.py")) == "ask"
    assert await outcome(gate, WRITE, call("a.py")) == "pass"
    assert await outcome(gate, SHELL, run("ls; git log")) == "ask"
    assert await outcome(gate, SHELL, run("ls")) == "pass"


async def test_path_rules_follow_links_and_dots(workspace: Workspace, tmp_path: Path) -> None:
    (workspace.root / "src/out").symlink_to(tmp_path)
    gate = PermissionGate("ask", workspace, allow=["edit_file(src/*)", f"read_file({tmp_path}/shared/*)"])
    assert await outcome(gate, WRITE, call("src/a.py")) == "pass"
    assert await outcome(gate, WRITE, call("src/../a.py")) == "ask"
    assert await outcome(gate, WRITE, call("src/out/a.py")) == "ask"
    assert await outcome(gate, READ, call("../shared/x")) == "pass"
    assert await outcome(gate, READ, call("../sharedx/x")) == "ask"


async def test_a_guarded_place_must_be_named_whole(workspace: Workspace) -> None:
    gate = PermissionGate("auto", workspace, allow=["edit_file", "edit_file(*)", "edit_file(.git/config)"])
    assert await outcome(gate, WRITE, call(".git/hooks/pre-commit")) == "ask"
    assert await outcome(gate, WRITE, call(".git/config")) == "pass"


async def test_url_rules(workspace: Workspace) -> None:
    gate = PermissionGate("auto", workspace, allow=["fetch_url(https://docs.python.org/*)"])
    assert await outcome(gate, FETCH, call(URL)) == "pass"
    assert await outcome(gate, FETCH, call("https://docs.python.org.evil.com/")) == "ask"
    assert await outcome(gate, FETCH, call("https://evil.com/https://docs.python.org/")) == "ask"


def test_a_rule_that_cannot_be_read(workspace: Workspace) -> None:
    for text in ("", "run command", "run_command(", "run_command()", "(x)", "x" * (MAX_RULE + 1)):
        with pytest.raises(RuleError, match="TOOL"):
            PermissionGate("auto", workspace, allow=[text])
    assert len(Rule.read("x" * MAX_RULE).tool) == MAX_RULE == 4_200


@given(st.text(st.sampled_from("a*?\\b /()"), min_size=1))
def test_a_rule_reads_back_as_written(pattern: str) -> None:
    rule = Rule("run_command", pattern)
    assert Rule.read(rule.text) == rule


REMEMBERED = [
    ("git status -s", "run_command(git status *)", "git status", "git push"),
    (
        "cd src && git log | head",
        "run_command(cd *), run_command(git log *), run_command(head *)",
        "git log -1; head x",
        "git log; rm x",
    ),
    ("rm -rf 'a b' src/*.o", "run_command(rm -rf 'a b' src/*.o)", "rm  -rf 'a b' src/*.o", "rm -rf 'a b' src/x.o"),
    ("a.py", "edit_file(*)", "src/b.py", "/srv/b.py"),
    ("src/a.py", "edit_file(src/*)", "src/b.py", "b.py"),
    (".git/config", "edit_file(.git/config)", ".git/config", ".git/hooks/x"),
    (URL, "fetch_url(https://docs.python.org/*)", "https://docs.python.org/x", "https://a.org/"),
    ("/usr/include/stdio.h", "read_file(/usr/include/*)", "/usr/include/x.h", "/usr/x"),
]


async def test_always_is_remembered_for_the_project(workspace: Workspace, tmp_path: Path) -> None:
    for number, (of, pattern, later, not_later) in enumerate(REMEMBERED):
        tool = next(each for each in (SHELL, WRITE, FETCH, READ) if pattern.startswith(each.definition.name))
        called = run if tool is SHELL else call
        store = tmp_path / f"home/{number}.json"
        gate = PermissionGate("ask", workspace, remembered=RememberedRules(store, workspace.root))
        verdict = await gate.check(tool, called(of), Person(always=True))
        assert ", ".join(verdict.remembered) == pattern
        assert store.stat().st_mode & 0o777 == 0o600
        again = PermissionGate("ask", workspace, remembered=RememberedRules(store, workspace.root))
        assert await outcome(again, tool, called(later)) == "pass", pattern
        assert await outcome(again, tool, called(not_later)) == "ask", pattern
        elsewhere = PermissionGate("ask", workspace, remembered=RememberedRules(store, tmp_path))
        assert await outcome(elsewhere, tool, called(later)) == "ask", pattern


async def test_an_answer_for_the_session_ends_with_it(workspace: Workspace, tmp_path: Path) -> None:
    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        return PermissionAnswer(allowed=True, for_session=True)

    store = tmp_path / "permissions.json"
    gate = PermissionGate("ask", workspace, remembered=RememberedRules(store, workspace.root))
    await gate.check(SHELL, run("make test"), ask)
    assert await outcome(gate, SHELL, run("make test")) == "pass"
    assert not store.exists()
    (rule,) = (each for each in gate.rules() if each.remembered)
    assert rule.source == "for this session"
    gate.take_back(rule.text)
    assert await outcome(gate, SHELL, run("make test")) == "ask"


def test_two_programs_remember_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    one, two = RememberedRules(path, tmp_path), RememberedRules(path, tmp_path)
    one.add([Rule("a")])
    two.add([Rule("b")])
    assert RememberedRules(path, tmp_path).rules == (Rule("a"), Rule("b"))
    assert [file.name for file in tmp_path.iterdir() if ".tmp" in file.name] == []


async def test_a_damaged_file_is_reported_and_left_alone(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    remembered = RememberedRules(path, workspace.root)
    for content in ("{", "[]", '{"projects": {"x": [1]}}', '{"projects": 1}'):
        path.write_text(content)
        with pytest.raises(RememberedError, match="damaged"):
            RememberedRules(path, workspace.root)
    gate = PermissionGate("auto", workspace, remembered=remembered)
    verdict = await gate.check(SHELL, run("make"), Person(always=True))
    assert verdict.allowed
    assert "only for this session" in verdict.notice
    assert path.read_text() == content
    assert await outcome(gate, SHELL, run("make")) == "pass"


async def test_a_refusal_tells_the_model(workspace: Workspace) -> None:
    verdict = await PermissionGate("auto", workspace).check(
        SHELL, run("make"), Person(allowed=False, feedback="use list_dir")
    )
    assert not verdict.allowed
    assert verdict.source == "user"
    assert "use list_dir" in verdict.advice


async def test_nobody_to_ask(workspace: Workspace) -> None:
    async def nobody(question: PermissionQuestion) -> PermissionAnswer:
        raise NobodyToAsk(question)

    gate = PermissionGate("auto", workspace)
    with pytest.raises(NobodyToAsk) as raised:
        await gate.check(SHELL, run("make"), nobody)
    assert raised.value.question.tool == "run_command"
    assert await outcome(gate, SHELL, run("make")) == "ask"


async def test_one_question_at_a_time_and_one_answer_may_settle_the_next(workspace: Workspace, tmp_path: Path) -> None:
    gate = PermissionGate("auto", workspace, remembered=RememberedRules(tmp_path / "p.json", workspace.root))
    open_now = most = asked = 0

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        nonlocal open_now, most, asked
        open_now, asked = open_now + 1, asked + 1
        most = max(most, open_now)
        await asyncio.sleep(0.01)
        open_now -= 1
        return PermissionAnswer(True, always=True)

    commands = ["git add a", "git add -u", "make", "make"]
    verdicts = await asyncio.gather(*(gate.check(SHELL, run(command), ask) for command in commands))
    assert all(verdict.allowed for verdict in verdicts)
    assert (most, asked) == (1, 2)


async def test_a_cancelled_question_lets_the_next_one_through(workspace: Workspace) -> None:
    gate = PermissionGate("auto", workspace)
    asked = asyncio.Event()

    async def silent(question: PermissionQuestion) -> PermissionAnswer:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    first = asyncio.create_task(gate.check(SHELL, run("make"), silent))
    await asked.wait()
    second = asyncio.create_task(gate.check(SHELL, run("make"), Person()))
    first.cancel()
    assert (await second).allowed
    assert first.cancelled() or (await asyncio.wait({first}))[0]


async def test_a_link_that_moves_during_the_question(workspace: Workspace, tmp_path: Path) -> None:
    link = workspace.root / "src/link"
    link.symlink_to(workspace.root / "a.py")

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        link.unlink()
        link.symlink_to(tmp_path / "elsewhere")
        return PermissionAnswer(True)

    verdict = await PermissionGate("ask", workspace).check(WRITE, call("src/link"), ask)
    assert not verdict.allowed
    assert verdict.source == "changed"


async def test_arguments_that_do_not_fit_are_the_models_to_mend(workspace: Workspace) -> None:
    with pytest.raises(ToolFailure, match="missing"):
        await PermissionGate("auto", workspace).check(WRITE, ToolCall("c", "edit_file", "{}"), Person())


async def test_a_rule_that_cannot_be_remembered_holds_for_the_session(workspace: Workspace, tmp_path: Path) -> None:
    store = tmp_path / "home/p.json"
    gate = PermissionGate("ask", workspace, remembered=RememberedRules(store, workspace.root))
    store.parent.write_text("a file where a folder should be")
    verdict = await gate.check(WRITE, call("a.py"), Person(always=True))
    assert verdict.allowed
    assert verdict.notice.startswith("Allowed, but only for this session: ")
    assert await outcome(gate, WRITE, call("b.py")) == "pass"
    with pytest.raises(RememberedError, match="cannot be written"):
        gate.take_back("edit_file(*)")
    assert await outcome(gate, WRITE, call("b.py")) == "ask"
    with pytest.raises(RememberedError, match="cannot be read: Not a directory"):
        RememberedRules(store, workspace.root)
