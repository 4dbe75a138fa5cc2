"""What is told to language servers and read of what they say, without one."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tools.support import call
from tui_agent.settings.schema import DiagnosticsSettings
from tui_agent.tools.base import ToolFailure, ToolOutput
from tui_agent.tools.lsp.client import SETTLING_S, Diagnostic, LanguageServer
from tui_agent.tools.lsp.diagnosing import SHOWN, Checks, _with
from tui_agent.tools.lsp.disk import Disk, _stamps
from tui_agent.tools.lsp.lookups import MOST, Definition, References, Symbols, _listed, _locations, _outline
from tui_agent.tools.lsp.programs import TYPESCRIPT, Program, Project
from tui_agent.tools.lsp.servers import LOOKED_FOR, MAX_BYTES, LanguageServers, _state, _suffixes_in, text_of
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.sandbox import Sandbox, SandboxFolders, SandboxMechanism


def _server(told: list[tuple[str, Any]] | None = None) -> LanguageServer:
    """One that is not started; what it is told is kept in `told`."""
    server = LanguageServer(Program(("srv",), ("python",)), Project(Path("/p"), trusted=True))
    keep = told if told is not None else []
    told_to: Any = SimpleNamespace(protocol=SimpleNamespace(notify=lambda method, given: keep.append((method, given))))
    server._client = told_to
    return server


def test_a_server_is_told_of_texts_once_and_with_rising_numbers() -> None:
    told: list[tuple[str, Any]] = []
    server = _server(told)
    one, two = Path("/p/a.py"), Path("/p/b.pyi")
    for path, text in ((one, "x"), (one, "x"), (two, "y"), (one, "z")):
        server.give(path, text)
    opened, changed = "textDocument/didOpen", "textDocument/didChange"
    a, b = ({"uri": f"file:///p/{name}", "version": number} for name, number in (("a.py", 1), ("b.pyi", 2)))
    assert told == [
        (opened, {"textDocument": {**a, "languageId": "python", "text": "x"}}),
        (opened, {"textDocument": {**b, "languageId": "python", "text": "y"}}),
        (changed, {"textDocument": {**a, "version": 3}, "contentChanges": [{"text": "z"}]}),
    ]
    assert list(server.texts) == [two, one]
    told.clear()
    server.changed({one: 2})
    server.changed({one: 2, Path("/p/c.py"): 3})
    server.saved(one)
    server.forget(2)
    server.forget(1)
    assert told == [
        ("workspace/didChangeWatchedFiles", {"changes": [{"uri": "file:///p/c.py", "type": 3}]}),
        ("textDocument/didSave", {"textDocument": {"uri": "file:///p/a.py"}}),
        ("textDocument/didClose", {"textDocument": {"uri": "file:///p/b.pyi"}}),
    ]
    assert list(server.texts) == [one]


@pytest.mark.parametrize(
    ("version", "taken"), [({"version": 1}, False), ({"version": 2}, True), ({"version": 3}, True), ({}, False)]
)
def test_what_is_said_of_an_earlier_text_is_passed_over(version: dict[str, int], taken: bool) -> None:
    server = _server()
    server.give(Path("/p/a b.py"), "x")
    server.give(Path("/p/a b.py"), "y")
    server._published({"uri": "file:///p/a%20b.py", "diagnostics": [{"message": "m"}], **version})
    assert server._sent == ({Path("/p/a b.py"): [{"message": "m"}]} if taken else {})
    assert server._awaited == (None if taken else Path("/p/a b.py"), 2)
    server._published({"uri": "file:///p/other.py"})
    assert server._sent[Path("/p/other.py")] == []


def test_a_server_registers_and_says_what_it_is_busy_with() -> None:
    server = _server()
    server._registered({"registrations": [{"method": "other"}]})
    assert (server._pulls, server._registering.is_set()) == (False, False)
    server._registered({"registrations": [{"method": "other"}, {"method": "textDocument/diagnostic"}]})
    assert (server._pulls, server._registering.is_set()) == (True, True)
    for kind, busy in (("begin", {"7"}), ("report", {"7"}), ("end", set()), ("end", set())):
        server._progressed({"token": 7, "value": {"kind": kind}})
        assert server._busy == busy
    assert server._configured({"items": [{"section": "ruff"}]}) == [None]


class Answering:
    """A server's side that answers with what it is given, and keeps what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked, self.told = answers, dict[str, Any](), list[str]()

    async def send_request_async(self, method: str, parameters: Any) -> Any:
        self.asked[method] = parameters
        answer = self.answers[method.rpartition("/")[2]]
        return await answer if isinstance(answer, asyncio.Future) else answer

    def notify(self, method: str, parameters: Any) -> None:
        self.told.append(method)


async def test_what_is_agreed_with_a_server(tmp_path: Path) -> None:
    project = Project(tmp_path, trusted=False)
    side = Answering(
        initialize={"capabilities": {"diagnosticProvider": {"interFileDependencies": True}}}, diagnostic=None
    )
    rust = LanguageServer(Program(("rust-analyzer",), ("rust",), waits=True), project)
    told_to: Any = SimpleNamespace(protocol=side)
    child: Any = SimpleNamespace(started=lambda: asyncio.sleep(0))
    rust._client, rust._child, rust._reading = told_to, child, asyncio.create_task(asyncio.sleep(9))
    await rust._agree()
    uri = tmp_path.as_uri()
    assert side.told == ["initialized"]
    asked = side.asked["initialize"]
    assert (asked["processId"], asked["rootUri"]) == (None, uri)
    assert asked["workspaceFolders"] == [{"uri": uri, "name": tmp_path.name}]
    assert asked["initializationOptions"] == project.options(rust.program)
    file = tmp_path / "a.rs"
    assert await rust.problems([file]) == {file: []}  # it is asked, since it says that it answers
    assert side.asked["textDocument/diagnostic"] == {"textDocument": {"uri": file.as_uri()}}
    side.answers["diagnostic"] = {"items": [{"message": "m", "severity": number} for number in (0, 1, 2, 3)]}
    assert [each.is_error for each in (await rust.problems([file]))[file]] == [True, True, False]
    rust._reading.cancel()
    await asyncio.wait([rust._reading])
    side.answers["diagnostic"] = asyncio.get_running_loop().create_future()
    with pytest.raises(RuntimeError, match="rust-analyzer has ended"):
        await rust.ask("textDocument/diagnostic", {})


async def test_who_tells_unasked_is_listened_to_until_it_is_quiet() -> None:
    server, loop = _server(), asyncio.get_running_loop()
    server._reading = asyncio.create_task(asyncio.sleep(60))
    one, two = Path("/p/a.py"), Path("/p/b.py")
    server._progressed({"token": 1, "value": {"kind": "begin"}})
    server.give(one, "x")
    told = [{"message": "m", "severity": 1, "range": {"start": {"line": 4, "character": 2}}}]

    def tell() -> None:
        server._published({"uri": two.as_uri(), "diagnostics": told})
        server._published({"uri": one.as_uri(), "version": 1, "diagnostics": [{"message": "hint", "severity": 3}]})

    # While it is busy, it is waited for, however long it says nothing.
    loop.call_later(SETTLING_S + 0.1, tell)
    loop.call_later(SETTLING_S + 0.1, server._progressed, {"token": 1, "value": {"kind": "end"}})
    began = loop.time()
    found = await server.problems([one])
    assert loop.time() - began > 2 * SETTLING_S
    assert found == {one: [], two: [Diagnostic(two, 5, 3, "m", "srv", True, "srv")]}
    began = loop.time()
    assert await server.problems([two]) == {one: [], two: found[two]}
    assert loop.time() - began < SETTLING_S, "nothing was told since"
    server.give(one, "y")
    server._reading.cancel()
    await asyncio.wait((server._reading,))
    assert await server.problems([one]) == found, "one that has ended is not waited for"


async def test_how_a_server_stands_is_told_in_words() -> None:
    server = _server()
    server._reading = asyncio.create_task(asyncio.sleep(60))

    async def start(error: Exception | None = None) -> LanguageServer:
        if error is not None:
            raise error
        return server

    starting = asyncio.create_task(start())
    assert _state(starting) == "starting"
    await starting
    assert _state(starting) == "running"
    server._reading.cancel()
    await asyncio.wait((server._reading,))
    assert _state(starting) == "has ended"
    failing, stopped = asyncio.create_task(start(FileNotFoundError(2, "No such file"))), asyncio.create_task(start())
    stopped.cancel()
    await asyncio.wait((failing, stopped))
    assert _state(failing).startswith("not started: ")
    assert _state(stopped) == "ended"


async def test_typescript_is_asked_itself(tmp_path: Path) -> None:
    start = {"line": 3, "offset": 5}
    body = [{"startLocation": start, "category": kind, "message": "m", "code": 7} for kind in ("error", "warning")]
    side = Answering(executeCommand={"body": body})
    server = LanguageServer(Program((TYPESCRIPT,), ("typescript",)), Project(tmp_path, trusted=True))
    told_to: Any = SimpleNamespace(protocol=side)
    server._client, server._reading = told_to, asyncio.create_task(asyncio.sleep(9))
    found = (await server.problems([tmp_path / "a.ts"]))[tmp_path / "a.ts"]
    assert [(each.line, each.column, each.is_error, each.source) for each in found] == [
        (3, 5, True, f"{TYPESCRIPT} 7"),
        (3, 5, False, f"{TYPESCRIPT} 7"),
    ] * 2
    words = ["semanticDiagnosticsSync", {"file": (tmp_path / "a.ts").as_uri(), "includeLinePosition": True}]
    assert side.asked["workspace/executeCommand"] == {"command": "typescript.tsserverRequest", "arguments": words}
    server._reading.cancel()


async def test_a_check_that_cannot_run_or_takes_too_long_says_nothing(tmp_path: Path) -> None:
    def request(command: str) -> Request:
        return Request(["/bin/sh", "-c", command], str(tmp_path), {"PATH": "/usr/bin:/bin"})

    slow = Checks(["*=sleep 9"], request, 0.01)
    assert await slow.look(tmp_path / "a.py", "a.py", "x") == []
    checks = Checks(["*=cat {file}; exit 1"], request, 9.0)
    file = tmp_path / "a.py"
    for text, new in (("a.py:1: x", []), ("a.py:9: x\na.py:3: y", ["a.py:3: y"]), ("a.py:9: x\na.py:3: y", [])):
        file.write_text(text)
        assert await checks.look(file, "a.py", text) == new


def test_a_server_may_write_nothing_where_commands_are_confined(tmp_path: Path) -> None:
    places = SandboxFolders(folders=(tmp_path,), project=tmp_path, program=tmp_path, session=tmp_path, home=tmp_path)
    for mechanism, confined in ((SandboxMechanism("landlock", ""), True), (SandboxMechanism("none", ""), False)):
        sandbox = Sandbox("auto", places, offered=mechanism)
        request = LanguageServers(DiagnosticsSettings(), sandbox, tmp_path, trusted=True).shell_request("true")
        assert (request.arguments[-3:], request.confined) == (["/bin/sh", "-c", "true"], confined)
        assert str(tmp_path) not in request.writable


@pytest.mark.parametrize(("count", "shown"), [(1, 1), (SHOWN, 10), (SHOWN + 1, 11)])
def test_ten_new_problems_are_told_with_a_result(count: int, shown: int) -> None:
    output = _with(ToolOutput("Done.", summary="1 line"), [f"problem {number}" for number in range(count)])
    head, *lines = output.text.splitlines()[1:]
    plural = "s" * (count > 1)
    assert head == f"[{count} new problem{plural} since this edit; what was wrong before is left out:]"
    assert (len(lines), lines[-1]) == (shown, "… and 1 more" if count > SHOWN else f"problem {count - 1}")
    assert (output.summary, output.outcome.notes) == (f"1 line · {count} new problem{plural}", shown + 1)
    assert _with(ToolOutput("Done."), []) == ToolOutput("Done.")
    assert _with(ToolOutput("Done."), ["x"], since="the last edit").summary == "1 new problem"


def test_the_first_command_for_a_file_is_run_with_its_path() -> None:
    checks = Checks(["*.py=lint {file}", "src/*=other", "*=all a=b"], lambda _: Request([], "/", {}), 1.0)
    commands = [checks.command(Path("/p") / name, name) for name in ("a b.py", "src/x.c", "x.c")]
    assert commands == ["lint '/p/a b.py'", "other", "all a=b"]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (None, []),
        ({"uri": "file:///p/a%20b.py"}, [("/p/a b.py", 0)]),
        ([{"targetUri": "file:///p/a.py", "targetSelectionRange": {"start": {"line": 3}}}, "odd"], [("/p/a.py", 3)]),
        ([{"uri": "file:///p/a.py", "range": {"start": {"line": 2}}, "targetUri": "file:///x"}], [("/p/a.py", 2)]),
        ([{}], []),
    ],
)
def test_places_are_read_in_both_forms(answer: object, found: list[tuple[str, int]]) -> None:
    assert [(str(path), line) for path, line in _locations(answer)] == found


class Knowing:
    """The servers of a project, which know Python."""

    def __init__(self, answer: object = None) -> None:
        self.answer, self.asked_for = answer, list[tuple[str, Any]]()

    async def asked(self, path: Path) -> Any:
        return self if path.suffix == ".py" else None

    async def ask(self, method: str, parameters: Any) -> Any:
        self.asked_for.append((method, parameters))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("file", "line", "name", "why"),
    [
        ("a.py", 2, "x", "x is not in line 2 of a.py. It stands in lines 1, 3."),
        ("a.py", 0, "x", "x is not in line 0 of a.py. It stands in lines 1, 3."),
        ("a.py", 4, "x", "x is not in line 4 of a.py. It stands in lines 1, 3."),
        ("a.py", 1, "z", "z is not in line 1 of a.py. grep finds where it stands."),
        ("b.txt", 1, "x", "No language server knows b.txt. Use grep."),
        ("empty.py", 1, "x", "empty.py has no text that could be looked at. Use grep."),
    ],
)
async def test_what_cannot_be_looked_up_says_why(file: str, line: int, name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny\n𝄞 = x\n")
    (tmp_path / "b.txt").write_text("x")
    (tmp_path / "empty.py").touch()
    known: Any = Knowing()
    with pytest.raises(ToolFailure) as caught:
        await call(Definition(known), tmp_path, path=file, line=line, name=name)
    assert f"{caught.value.why} {caught.value.instead}" == why


async def test_a_name_is_looked_up_at_its_place_in_units_of_the_protocol(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n𝄞ä = x\n")
    known: Any = Knowing([{"uri": file.as_uri(), "range": {"start": {"line": 0}}}])
    found = await call(References(known), tmp_path, path="a.py", line=2, name="x")
    assert (found.text, found.summary) == ("a.py:1: x = 1", "1 found")
    assert known.asked_for == [
        (
            "textDocument/references",
            {
                "textDocument": {"uri": file.as_uri()},
                "context": {"includeDeclaration": True},
                "position": {"line": 1, "character": 6},
            },
        )
    ]
    known.answer = []
    assert (await call(Definition(known), tmp_path, path="a.py", line=1, name="x")).text == "[It is found nowhere.]"
    assert (await call(Symbols(known), tmp_path, path="a.py")).text == "[It defines nothing.]"
    known.answer = TimeoutError()
    with pytest.raises(ToolFailure, match="cannot say: it did not answer in time"):
        await call(Symbols(known), tmp_path, path="a.py")


def test_what_a_file_defines_is_an_outline() -> None:
    inner = {"name": "f", "kind": 12, "selectionRange": {"start": {"line": 1}}, "location": {"range": {}}}
    outer = {"name": "A\n", "kind": 5, "location": {"range": {"start": {"line": 0}}}, "children": [inner]}
    unknown = {"name": "x", "kind": 27}
    assert list(_outline([outer, unknown, {"name": "t", "kind": 26}], 0)) == [
        "1: class A",
        "  2: function f",
        "1: x",
        "1: type parameter t",
    ]


@pytest.mark.parametrize("count", [MOST, MOST + 1])
def test_fifty_places_are_listed(count: int) -> None:
    output = _listed([f"{number}" for number in range(count)])
    more = ["[1 more]"] if count > MOST else []
    assert output.text.splitlines() == [*map(str, range(50)), *more]
    assert output.summary == f"{count} found"


def test_programs_are_of_the_files_language_and_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyright-langserver", "ruff", "gopls"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    project = Project(tmp_path / "project", trusted=False)

    def names(file: str) -> list[str]:
        return [each.name for alike in project.programs(Path(file)) for each in alike]

    assert [names(file) for file in ("a.py", "a.go", "a.rs", "a.txt")] == [
        ["pyright-langserver", "ruff"],
        ["gopls"],
        [],
        [],
    ]


def test_texts_and_suffixes_are_read_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "most.py").write_bytes(b"x" * MAX_BYTES)
    (tmp_path / "more.py").write_bytes(b"x" * (MAX_BYTES + 1))
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    texts = [text_of(tmp_path / name) for name in ("most.py", "more.py", "none.py", "binary", ".")]
    assert [text if text is None else len(text) for text in texts] == [MAX_BYTES, None, 0, None, None]
    assert _stamps([tmp_path / "none.py", tmp_path / "most.py"]).keys() == {tmp_path / "most.py"}
    for name in ("a/b.go", "a/b/c.rs", ".hidden/d.c", "node_modules/e.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / ".hidden")
    assert _suffixes_in(tmp_path) == {".py", "", ".go"}
    many = tmp_path / "many"
    many.mkdir()
    for number in range(LOOKED_FOR + 1):
        (many / f"a.x{number}").touch()
    assert len(_suffixes_in(many)) == LOOKED_FOR


@pytest.mark.parametrize(
    ("name", "users"), [("a/x.go", "b/c.go"), ("a/__init__.py", "b/c.py"), ("a/d.py", "e.py")], ids=lambda name: name
)
async def test_code_names_a_file_or_the_folder_it_is_in(tmp_path: Path, name: str, users: str) -> None:
    for each, text in (("b/c.go", 'import "x/a"'), ("b/c.py", "import a"), ("e.py", "from d import f"), (name, "")):
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / each).write_text(text)
    path = tmp_path / name
    assert (await Disk(tmp_path).users_of(path, (path.suffix,), 1)) == [tmp_path / users]
