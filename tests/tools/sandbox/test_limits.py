"""What a rule forbids to read or change, no command does: in the sandbox it is hidden or read-only."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from tests.tools.sandbox.test_ways_out import Outside, kinds, outside
from tests.tools.support import Call
from tui_agent.conversation.blocks import ToolCall
from tui_agent.tools.base import Access, PermissionAnswer, PermissionQuestion
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.rules import Rule
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox.guarded import MAX_LIMITED, Finder
from tui_agent.tools.sandbox.sandbox import Sandbox, SandboxMechanism
from tui_agent.tools.search.finding import Grep
from tui_agent.tools.shell.run_command import RunCommand

__all__ = ["outside"]

RULES = ("read_file(.env)", "read_file(keys/*)", "read_file(*.pem)", "edit_file(done/*)", "write_file(fixed.txt)")
LIMITS = tuple(map(Rule.read, RULES))


def place_files(project: Path) -> None:
    (project / "sub").mkdir()
    (project / "done").mkdir()
    (project / "keys" / "deep").mkdir(parents=True)
    for name in (".env", "sub/.env", "keys/deep/id", "sub/a.pem"):
        (project / name).write_text("SECRET\n")
    for name in ("other.txt", "fixed.txt", "sub/fixed.txt", "done/old.sql"):
        (project / name).write_text("other\n")


class Place:
    def __init__(self, outside: Outside, kind: str) -> None:
        self.project, self.session = outside.project, outside.state / "session"
        place_files(self.project)
        mechanism = SandboxMechanism(kind, "")  # type: ignore[arg-type]
        self.sandbox = Sandbox("auto", outside.places, limits=LIMITS, offered=mechanism)
        self.tool = RunCommand(sandbox=self.sandbox)

    async def run(self, line: str, **more: object) -> str:
        workspace = Workspace(self.project)
        arguments = json.dumps({"command": line, **more})
        granted = self.tool.access(arguments, workspace)
        return (await self.tool.run(arguments, Call(workspace, granted, self.session))).text


@pytest.fixture(params=[kind for kind in kinds() if kind == "namespaces"])
async def place(outside: Outside, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    found = Place(outside, request.param)
    yield found
    found.sandbox.close()


HIDDEN = (
    "cat .env",
    "cat sub/.env",
    "cat keys/deep/id",
    "grep -r '' .",
    "mkdir n; mv sub/.env n; cat n/.env; mv n moved; cat moved/.env sub/a.pem",
    "mv .env shown; cat shown",
    "ln .env shown; cat shown; ln -s sub/a.pem l; cat l",
    "cp -r . /tmp/copy; grep -r '' /tmp/copy",
    "python3 -c \"print(open('.env').read())\"",
    "tar cf - . | tar xOf -",
)


async def test_it_is_hidden_and_all_else_goes_on(place: Place) -> None:
    assert place.sandbox.isolates
    for line in HIDDEN:
        text = await place.run(f"{line} 2>&1; echo done")
        assert "SECRET" not in text, line
        assert "done" in text
        assert ("a rule of the user hides" in text) == any(name in line for name in (".env", ".pem", "keys")), line
        assert [(place.project / name).read_text() for name in (".env", "sub/.env")] == ["SECRET\n"] * 2
    assert "other" in await place.run("cat other.txt; echo new > made.txt; mkdir -p a/b; rm -r a; cat made.txt")
    text = await place.run("cat .env; cat sub/a.pem", reads=[".env"])  # what the user allowed to read
    assert text.count("SECRET") == 1
    assert "/project/sub/a.pem. If" in text
    assert "/project/.env" not in text
    await place.run("echo kept > later.txt")
    (place.project / "later").mkdir()
    (place.project / "later" / ".env").write_text("SECRET\n")
    assert "SECRET" not in await place.run("cat later/.env")


async def test_what_may_not_be_changed_is_read_only(place: Place) -> None:
    before = {path: path.read_bytes() for path in place.project.rglob("*") if path.is_file()}
    for line in (
        "echo x > fixed.txt",
        "rm fixed.txt",
        "mv sub other",
        "sed -i s/o/x/ done/old.sql",
        "touch done/new.sql",
        "rm -r done",
    ):
        text = await place.run(f"cat fixed.txt sub/fixed.txt done/old.sql && {line}")
        assert text.count("other") >= 3, line
        assert "Read-only" in text or "busy" in text, line
        assert "a rule of the user keeps these from being changed" in text, line
        assert {path: path.read_bytes() for path in place.project.rglob("*") if path.is_file()} == before, line


@pytest.mark.skipif("namespaces" not in kinds(), reason="no namespaces here")
async def test_where_nothing_may_be_changed_nothing_is_made_and_git_commits(outside: Outside) -> None:
    limits = (Rule.read("edit_file(*)"),)
    sandbox = Sandbox("auto", outside.places, limits=limits, offered=SandboxMechanism("namespaces", ""))
    tool, workspace = RunCommand(sandbox=sandbox), Workspace(outside.project)
    try:
        for line, told in (
            ("echo x > new.txt", "Read-only"),
            (
                "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m empty && git log --format=%s -1",
                "empty",
            ),
        ):
            arguments = json.dumps({"command": line})
            context = Call(workspace, tool.access(arguments, workspace), outside.state / "session")
            assert told in (await tool.run(arguments, context)).text
    finally:
        sandbox.close()


async def test_a_rule_about_all_files_leaves_git_at_work(outside: Outside) -> None:
    place_files(outside.project)
    found = Finder(outside.home, (), lambda path: "read").look([outside.project])
    assert (outside.project / ".git").is_dir()
    assert not [path for path in found.limited if "/.git/" in f"{path}/"]
    assert str(outside.project / "sub") in found.limited
    assert str(outside.project / "sub/.env") not in found.limited


@pytest.mark.skipif("namespaces" not in kinds(), reason="no namespaces here")
async def test_it_is_hidden_where_commands_may_only_read(outside: Outside) -> None:
    place_files(outside.project)
    added = outside.outside / "added"
    added.mkdir()
    (added / ".env").write_text("SECRET\n")
    (added / "plain.txt").write_text("plain\n")
    below, above = outside.project / "below", outside.project
    below.mkdir()
    places = structs.replace(outside.places, folders=(below,), shown=(above, added), added=(added,))
    sandbox = Sandbox("auto", places, limits=LIMITS, offered=SandboxMechanism("namespaces", ""))
    try:
        workspace = Workspace(below)
        arguments = json.dumps({"command": f"cat ../.env ../sub/a.pem ../other.txt {added}/.env {added}/plain.txt"})
        context = Call(workspace, (Access("run", ""),), outside.state / "session")
        text = (await RunCommand(sandbox=sandbox).run(arguments, context)).text
    finally:
        sandbox.close()
    assert "other" in text
    assert "plain" in text
    assert "SECRET" not in text


async def test_more_than_can_be_hidden_is_asked_about(place: Place) -> None:
    for number in range(MAX_LIMITED):
        (place.project / f"{number}.pem").write_text("SECRET\n")
    await place.run("true")
    assert not place.sandbox.isolates


def test_landlock_alone_cannot_hide_so_commands_are_asked_about(outside: Outside) -> None:
    mechanism = SandboxMechanism("landlock", "")
    assert not Sandbox("auto", outside.places, limits=LIMITS, offered=mechanism).isolates
    assert Sandbox("auto", outside.places, limits=LIMITS[3:], offered=mechanism).isolates


async def never(question: PermissionQuestion) -> PermissionAnswer:
    raise AssertionError(question.reason)


async def test_without_a_sandbox_it_is_refused(tmp_path: Path) -> None:
    place_files(tmp_path)
    (tmp_path / "link").symlink_to("sub/a.pem")
    for line, rule in (
        ("cat .env", RULES[0]),
        ("cd sub && head -1 .env", RULES[0]),
        ("cd sub/../keys/deep && head -1 id", RULES[1]),
        ("ls && cat other.txt sub/../.env", RULES[0]),
        ("cat keys/deep/id", RULES[1]),
        ("wc -l sub/*", RULES[0]),
        ("cat link", RULES[2]),
        ("cat other.txt", ""),
        ("cat .envrc", ""),
        ("echo .env.sample", ""),
    ):
        for mode in ("auto", "allow"):
            gate = PermissionGate(mode, Workspace(tmp_path), deny=RULES)
            call = ToolCall("1", "run_command", json.dumps({"command": line}))
            verdict = await gate.check(RunCommand(), call, never)
            assert (verdict.allowed, verdict.rule) == (not rule, rule), line


async def test_an_ask_rule_asks(outside: Outside) -> None:
    asked: list[str] = []

    async def no(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question.reason)
        return PermissionAnswer(allowed=False)

    place_files(outside.project)
    gate = PermissionGate("auto", Workspace(outside.project), ask=RULES[:1])
    tool = RunCommand(sandbox=Sandbox("auto", outside.places, offered=SandboxMechanism("namespaces", "")))
    assert [rule.text for rule in gate.limits] == [RULES[0]]
    for given in ({"command": "cat .env"}, {"command": "ls", "reads": [".env"]}, {"command": "cat other.txt"}):
        await gate.check(tool, ToolCall("1", "run_command", json.dumps(given)), no)
    assert asked == [f"The rule {RULES[0]} asks about it."] * 2


async def test_a_path_that_a_command_asks_to_read_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other/.env"
    for folder in (other.parent, tmp_path / "project"):
        folder.mkdir()
    other.write_text("SECRET\n")
    gate = PermissionGate("auto", Workspace(tmp_path / "project"), deny=RULES)
    arguments = json.dumps({"command": f"cat {other}", "reads": [str(other)]})
    verdict = await gate.check(RunCommand(), ToolCall("1", "run_command", arguments), never)
    assert (verdict.allowed, verdict.rule) == (False, RULES[0])


async def test_what_may_not_be_read_is_not_searched(tmp_path: Path) -> None:
    place_files(tmp_path)
    workspace = Workspace(tmp_path)
    gate = PermissionGate("auto", workspace, deny=RULES)
    tool, zero, one = Grep(gate.limits), RULES[0], RULES[1]
    for path, rule in {".env": zero, "sub/.env": zero, "keys": one, "keys/deep": one, "sub": "", ".": ""}.items():
        arguments = json.dumps({"pattern": "SECRET|other", "path": path})
        verdict = await gate.check(tool, ToolCall("1", "grep", arguments), never)
        assert (verdict.allowed, verdict.rule) == (not rule, rule), path
        if verdict.allowed:
            text = (await tool.run(arguments, Call(workspace, verdict.accesses, tmp_path))).text
            assert "SECRET" not in text
            assert "sub/fixed.txt" in text
            arguments = json.dumps({"pattern": "SECRET", "path": path})
            nothing = (await tool.run(arguments, Call(workspace, verdict.accesses, tmp_path))).text
            assert "a rule of the user" in nothing
