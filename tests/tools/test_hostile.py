"""Every tool with arguments and in places as hostile as they come: it answers or refuses, and says so in valid text."""

import asyncio
import json
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, closing
from functools import reduce
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.tools.support import Call, call
from tests.tools.test_refusals import registry
from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.recalled import RecallHits
from tui_agent.tools.agentic import agentic_tools
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion, SubtaskProgress, Tool, ToolFailure, ToolOutput
from tui_agent.tools.functions import tool
from tui_agent.tools.gate.permissions import NobodyToAsk, PermissionGate
from tui_agent.tools.gate.remembered import RememberedRules
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.recall import Recall
from tui_agent.tools.schema import Json
from tui_agent.tools.subtasks import SubtaskResult, SubtaskSpec

PATIENCE_S = 60
BYTE = "\udcff"
"""How Python writes the byte 0xff of a name that is not UTF-8; a model sees U+FFFD."""


class Answering:
    """Subtasks that answer at once."""

    async def run(
        self, spec: SubtaskSpec, progress: Callable[[SubtaskProgress], None], call_id: str = ""
    ) -> SubtaskResult:
        progress(SubtaskProgress("model", spec.title))
        return SubtaskResult("id", spec.prompt, "model", Usage(), None, 1)


async def find_nothing(query: str, limit: int) -> RecallHits:
    return RecallHits((), 0)


def repeat(text: str, times: int = 1, flag: bool = False, items: list[str] | None = None) -> object:
    """Repeat a text."""
    return {"text": text * (times % 3), "flag": flag, "items": items}


def every_tool(folder: Path) -> list[Tool]:
    plain = list(registry(folder))
    return [*plain, *agentic_tools(Answering(), plain), Recall(find_nothing), tool(repeat)]


NAMES = [one.definition.name for one in every_tool(Path("nowhere"))]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose name is not UTF-8, with one of everything in it."""
    root = tmp_path_factory.mktemp("hostile") / f"pr{BYTE}ject"
    (root / "src" / "deep").mkdir(parents=True)
    (root / f"d{BYTE}").mkdir()
    (root / f"d{BYTE}" / "in.py").write_text("TODO: this\n")
    (root / f"caf{BYTE}.txt").write_text("TODO: that\n")
    for name in ("a.txt", "new\nline", "-f"):
        (root / name).write_text("a line\nanother TODO")
    (root / "binary").write_bytes(bytes(range(256)) * 10)
    (root / "large").write_bytes(b"y" * 1_000_000)
    (root / "utf16").write_bytes("a\u00e9\n".encode("utf-16"))
    (root / "picture").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (root / "empty").touch()
    (root / "locked").touch(0o000)
    os.mkfifo(root / "pipe")
    for name, target in {"circle": "circle", "zero": "/dev/zero", "out": "/etc", "up": ".."}.items():
        (root / name).symlink_to(target)
    with closing(socket.socket(socket.AF_UNIX)) as bound:
        with chdir(root):  # its address has 107 bytes at most
            bound.bind("socket")
        yield root


TEXTS = [
    *("", "\0", "a\0b", "\ud800", "x\udfffy", "~", "~/", "~nobody/x", "\\\\?\\C:\\x", "C:\\a", "..", "../..", "."),
    *("/dev/zero", "/dev/full", "/dev/null", "/dev/tty", "/dev/fd/0", "/dev/stdin", "/proc/self/mem", "/sys/kernel"),
    *("/proc/self/environ", "/proc/self/fd/0", "/proc/1/root", "//", "a.txt", "a.txt/", "a.txt/x", "src/deep/../.."),
    *("src", "binary", "large", "utf16", "picture", "empty", "locked", "pipe", "socket", "circle", "zero", "up/x"),
    *("caf\ufffd.txt", "d\ufffd", "d\ufffd/in.py", "d\ufffd/new/x", "new\nline", "new\\nline", "-f", "--help", "-"),
    *("x" * 300, "x/" * 3000, "y" * 1_000_000, "\u202eabc", "\U0001f600", "e\u0301", "\ufeffa", "null", "1e5"),
    *("*", "**", "[", "{", "{a,b", "!", "!*", "\\", "(", "(?<=a)", "a{99999999}"),
    *("(a+)+$", "[^\\n]*\\n", "$(x)", "`x`"),
    *("http://[::1", "https://a:99999/", "http://0x7f.1/", "http://x" + "y" * 9000, "ftp://x", "http://u:p@localhost/"),
    *("https://\u212a.com", "https://xn--/", "http://\u0130.com", "https://" + "a" * 300, "http://1.2.3.4.5"),
    *("memory", "a-b", "A B", "TODO", "a line", "another"),
]
NUMBERS = [0, 1, -1, 2, 5, -100, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, 1.5, 1e308, -1e308]
ODD: list[object] = [None, True, [], {}, [1], {"a": 1}, "x", 5, [[[]]], "5"]
COMMANDS = [
    *("true", "exit 3", "kill -9 $$", "pwd", "cat caf*", " ", "a\0b", "\ud800", "x" * 200_000, "printf '\\377\\033['"),
    *("head -c 100000 /dev/zero", "(sleep 0.1; echo late) & echo now", "cat < pipe & true", "ls -la; false"),
]
RAW = [
    *("", "[", "null", "{}", "[1]", "\ud800", '"x"', '{"path":' * 3000, '{"a":' + "[" * 100_000, '{"path":1e999}'),
    *('{"path":"\\ud800"}', '{"path":"a","path":"b"}', "9" * 10_000, '{"offset":' + "9" * 5000 + "}"),
    *(json.dumps({str(number): 1 for number in range(1000)}), json.dumps({"x" * 500_000: 1}), "\ufeff{}"),
]


def value(name: str, schema: dict[str, Json]) -> "st.SearchStrategy[object]":
    """Mostly what the schema wants, in its most hostile form."""
    kinds: dict[Json, st.SearchStrategy[object]] = {
        "integer": st.sampled_from(NUMBERS),
        "boolean": st.sampled_from([True, False, "true", "yes", 0, 2]),
        "array": st.lists(st.sampled_from(TEXTS), max_size=4),
    }
    fitting = kinds.get(schema.get("type"), st.sampled_from(TEXTS))
    if name == "command":
        return st.sampled_from(COMMANDS)
    if name in {"timeout", "wait"}:
        return st.sampled_from([1, "1", 0, -1, 10**30])
    choices = schema.get("enum")
    if isinstance(choices, list):
        fitting = st.sampled_from(choices)
    return st.one_of(fitting, fitting, fitting, fitting, st.sampled_from(ODD))


def arguments(one: Tool) -> "st.SearchStrategy[str]":
    properties = json.loads(one.definition.schema)["properties"]
    whole = st.fixed_dictionaries(
        {}, optional={name: value(name, schema) for name, schema in properties.items() if name != "background"}
    )
    odd = st.builds(lambda given, name: {**given, name: 1}, whole, st.sampled_from(TEXTS))
    return st.one_of(whole.map(json.dumps), whole.map(json.dumps), odd.map(json.dumps), st.sampled_from(RAW))


def check(output: ToolOutput) -> None:
    for text in (output.text, output.summary, output.diff):
        text.encode()


def stays_near(target: str, root: Path) -> bool:
    """Whether a call may be done: writing, or reading a whole tree, not all over the machine."""
    return target.startswith(str(root.parent)) and target != str(root.parent)


@pytest.mark.parametrize("name", NAMES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=examples(15))
@given(data=st.data())
async def test_any_arguments_are_answered_or_refused(place: Path, name: str, data: st.DataObject) -> None:
    one = next(one for one in every_tool(place.parent / "home") if one.definition.name == name)
    workspace, text = Workspace(place), data.draw(arguments(one))
    try:
        accesses = one.access(text, workspace)
        preview = one.preview(text, workspace)
        for shown in (preview.title, preview.command, preview.diff, preview.text):
            shown.encode()
        reads = name in {"grep", "glob"} or one.effect == "write"
        if name == "fetch_url" or (reads and not all(stays_near(access.target, place) for access in accesses)):
            return
        context = Call(workspace, accesses, place.parent / "session")
        async with asyncio.timeout(PATIENCE_S):
            check(await one.run(text, context))
        "".join(context.seen).encode()
    except NobodyToAsk:
        assert name in {"ask_user", "submit_plan"}
    except ToolFailure as failure:
        told = str(failure).encode()
        if len(told) > 20_000:
            pytest.fail(f"{len(told):,} bytes: {told[:100]!r}")


FICKLE = ("a", "b", "a/c", "d/e/f")


def churn(root: Path, ended: threading.Event) -> None:
    """Put something else in the place of each name, again and again."""
    random = Random(1)
    while not ended.is_set():
        path = root / random.choice(FICKLE)
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            match random.randrange(7):
                case 0:
                    path.write_text("line\n" * 10_000)
                case 1:
                    path.write_text("line")
                case 2:
                    path.mkdir()
                case 3:
                    path.symlink_to("/etc/hostname")
                case 4:
                    path.symlink_to("b")
                case 5:
                    path.write_bytes(b"\x89PNG\r\n\x1a\nxx")
        except OSError:
            continue


FILE_CALLS: list[tuple[str, dict[str, object]]] = [
    ("read_file", {"offset": 1}),
    ("read_file", {"offset": -1, "chars": 4}),
    ("list_dir", {}),
    ("write_file", {"content": "line\n" * 3}),
    ("edit_file", {"old": "line", "new": "lime", "replace_all": True}),
    ("glob", {"pattern": "*"}),
    ("grep", {"pattern": "li"}),
]


async def test_files_that_come_and_go_meanwhile(tmp_path: Path) -> None:
    root, random, ended = tmp_path / "root", Random(2), threading.Event()
    root.mkdir()
    workspace, tools = Workspace(root), registry(tmp_path)
    thread = threading.Thread(target=churn, args=(root, ended))

    async def attempt() -> None:
        name, given = random.choice(FILE_CALLS)
        one, text = tools.get(name), json.dumps({**given, "path": random.choice([*FICKLE, "d", "."])})
        try:
            accesses = one.access(text, workspace)
            one.preview(text, workspace)
            check(await one.run(text, Call(workspace, accesses, tmp_path / "session")))
        except ToolFailure as failure:
            str(failure).encode()

    thread.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(30):
                await asyncio.gather(*(attempt() for _ in range(4)))
    finally:
        ended.set()
        thread.join()


async def test_a_folder_whose_name_is_not_utf_8_is_worked_in(tmp_path: Path) -> None:
    root = tmp_path / f"pr{BYTE}ject"
    (root / f"d{BYTE}").mkdir(parents=True)
    (root / f"caf{BYTE}.txt").write_text("TODO: that\n")
    (root / f"d{BYTE}" / "in.py").write_text("TODO: this\n")
    tools, workspace = registry(tmp_path), Workspace(root)

    async def told(name: str, **given: object) -> str:
        output = await call(tools.get(name), workspace, **given)
        check(output)
        return output.text

    assert await told("list_dir") == "d\ufffd/\ncaf\ufffd.txt  11 B"
    assert (await told("read_file", path="caf\ufffd.txt")).startswith("1\tTODO: that\n")
    assert (await told("read_file", path=f"{tmp_path}/pr\ufffdject/d\ufffd/in.py")).startswith("1\tTODO: this\n")
    assert await told("glob", pattern="*.py") == "d\ufffd/in.py"
    assert await told("glob", pattern="in*", path="d\ufffd") == "d\ufffd/in.py"
    assert await told("grep", pattern="TODO") == "caf\ufffd.txt\n1:TODO: that\nd\ufffd/in.py\n1:TODO: this"
    assert await told("grep", pattern="TODO", path="caf\ufffd.txt") == "caf\ufffd.txt\n1:TODO: that"
    assert await told("edit_file", path="caf\ufffd.txt", old="that", new="it")
    assert (root / f"caf{BYTE}.txt").read_text() == "TODO: it\n"
    assert (await told("write_file", path="d\ufffd/new/x.txt", content="x")).startswith("Created d\ufffd/new/x.txt")
    assert (root / f"d{BYTE}" / "new" / "x.txt").read_text() == "x"
    assert not (root / "d\ufffd").exists()
    assert (await told("run_command", command="pwd; cat caf*")).startswith(
        f"{tmp_path}/pr\ufffdject\nTODO: it\n[exit code 0"
    )
    assert "exit code 0" in await told("run_command", command="true", background=True)
    with pytest.raises(ToolFailure) as failure:
        await told("read_file", path="nothing")
    str(failure.value).encode()


async def test_what_was_allowed_in_such_a_folder_is_remembered(tmp_path: Path) -> None:
    root, file = tmp_path / f"pr{BYTE}ject", tmp_path / f"h{BYTE}me" / "permissions.json"
    (root / f"d{BYTE}").mkdir(parents=True)
    questions: list[PermissionQuestion] = []

    async def always(question: PermissionQuestion) -> PermissionAnswer:
        questions.append(question)
        return PermissionAnswer(allowed=True, always=True)

    for name, wanted in (
        ("write_file", {"path": "d\ufffd/x", "content": ""}),
        ("run_command", {"command": "ls"}),
        ("read_file", {"path": f"{tmp_path}/h\ufffdme/notes/x"}),
    ):
        one, asked = registry(tmp_path).get(name), len(questions)
        for _ in range(2):
            gate = PermissionGate("ask", Workspace(root), remembered=RememberedRules(file, root))
            assert (await gate.check(one, ToolCall("c", name, json.dumps(wanted)), always)).allowed
        assert len(questions) == asked + 1
        question = questions[-1]
        for text in (question.preview.title, question.preview.text, question.preview.diff, question.reason):
            text.encode()


def test_arguments_nested_without_end_are_refused(tmp_path: Path) -> None:
    deep = reduce(lambda inner, _: f'{{"path":{inner}}}', range(5000), "1")
    # From 3.13 on, Python reads it.
    with pytest.raises(ToolFailure, match=r"not valid JSON|does not fit"):
        registry(tmp_path).get("read_file").access(deep, Workspace(tmp_path))
