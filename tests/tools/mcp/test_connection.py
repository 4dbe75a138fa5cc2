"""Talking to a server over the official SDK: answers and faults of every kind, and what is left afterwards."""

import asyncio
import json
import math
import os
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from typing_extensions import override

from tests.tools.mcp.connecting import faulty, talking
from tests.tools.support import Call
from tui_agent.conversation.blocks import Image
from tui_agent.settings import ToolServer
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion, SubtaskProgress
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.mcp import connection as mcp_connection
from tui_agent.tools.mcp import process as mcp_process
from tui_agent.tools.mcp.configuration import ServerTimeouts, ServerUnavailable
from tui_agent.tracing import SpanContext, within


async def test_every_kind_of_answer_becomes_an_output(tmp_path: Path) -> None:
    async with talking(faulty(), tmp_path) as talk:
        assert (await talk.call("echo", text="hello")).text == "hello"
        assert (await talk.call("add", a=1, b=2)).text == '{"sum": 3}', "the same is not said twice"
        assert '"city": "Ulm"' in (await talk.call("look", city="Ulm")).text
        (picture,) = (await talk.call("picture")).images
        assert isinstance(picture, Image)
        assert picture.media_type == "image/png"
        assert (await talk.call("escape")).text == "hello red"
        hurt = await talk.call("hurt")
        assert hurt.is_error
        assert hurt.text == "it hurts"
        assert talk.lists[-1].instructions == "Ask me anything."
        assert len((await talk.call("large", size=10_000_000)).text) == 10_000_000
        with pytest.raises(ValueError, match="Unknown tool: nothing"):
            await talk.call("nothing")
        assert (await talk.call("echo", text="on")).text == "on"
        assert len(talk.lists) == 1, "one process for all of it"


async def test_a_server_gets_no_key_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("MINE", "value")
    server = faulty()
    given = ToolServer(command=server.command, args=server.args, env={"GIVEN": "${MINE}", "ELSE": "${NOT_SET:-x}"})
    async with talking(given, tmp_path) as talk:
        names = (await talk.call("variables")).text.split()
        with within(SpanContext(7, 9)):
            assert (await talk.call("echo", text="traceparent")).text == f"00-{7:032x}-{9:016x}-01"
    assert "GIVEN" in names
    assert "ELSE" in names
    assert "ANTHROPIC_API_KEY" not in names
    assert "MINE" not in names


async def test_a_stopped_call_reaches_the_server_which_goes_on(tmp_path: Path) -> None:
    async with talking(faulty(), tmp_path) as talk:
        person = Person(tmp_path)
        call = asyncio.create_task(talk.call("wait", person))
        await person.told.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert person.seen == ["half-hearted (1 of 4)"]
        assert (await talk.call("cancelled")).text == "1"


async def test_what_a_server_asks_is_put_to_the_user_thing_by_thing(tmp_path: Path) -> None:
    async with talking(faulty(), tmp_path) as talk:
        person = Person(tmp_path, "red", "3", "yes", "leave it out")
        given = json.loads((await talk.call("ask", person)).text)
        assert given == {"action": "accept", "content": {"colour": "red", "count": 3, "sure": True}}
        assert [question.choices for question in person.asked] == [
            ("red", "blue"),
            (),
            ("yes", "no"),
            ("a", "leave it out"),
        ]
        assert person.asked[0].preview.text == "The server test asks: Which one?\n\ncolour (1 of 4)"
        for answers in (("red", "many", "some", "few", None), ("red", None)):
            declined = json.loads((await talk.call("ask", Person(tmp_path, *answers))).text)
            assert declined == {"action": "decline"}


async def test_a_call_that_takes_too_long_is_stopped_at_the_server_too(tmp_path: Path) -> None:
    async with talking(faulty(), tmp_path, ServerTimeouts(start=300.0, call=0.5)) as talk:
        with pytest.raises(ServerUnavailable, match=r"did not answer within 0\.5 s"):
            await talk.call("wait")
        while True:
            with suppress(ServerUnavailable):  # on a slow machine this, too, may take longer than that
                assert (await talk.call("cancelled")).text == "1"
                break


async def test_a_server_that_dies_is_named_and_started_again(tmp_path: Path) -> None:
    async with talking(faulty(), tmp_path) as talk:
        # Its output ends before it does.
        ended = r"test ended: (it ended by itself \(exit code 7\)|it closed its output): I have had enough"
        with pytest.raises(ServerUnavailable, match=ended):
            await talk.call("die")
        assert talk.connection.state == "stopped"
        assert (await talk.call("echo", text="again")).text == "again"
        assert "I have had enough" in talk.log.read_text()


@pytest.mark.parametrize("failures", [1, 2])
async def test_a_server_that_does_not_come_up_is_started_a_second_time_and_no_third(
    failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_connection, "BACKOFF_S", 0.0)
    # The exit code is known only if the exit is seen in time, which a busy machine may take long for.
    monkeypatch.setattr(mcp_process, "CLOSING_S", 60.0)
    server, starts = faulty(), tmp_path / "starts"
    line = f'echo >> "{starts}"; test $(wc -l < "{starts}") -gt {failures} && exec "$@"; exit 7'
    slow = ToolServer(command="sh", args=("-c", line, "sh", server.command, *server.args))
    async with talking(slow, tmp_path) as talk:
        if failures == 1:
            assert (await talk.call("echo", text="up")).text == "up"
        else:
            with pytest.raises(ServerUnavailable, match="exit code 7"):
                await talk.call("echo", text="up")
    assert len(starts.read_text().splitlines()) == 2


async def test_the_exit_code_is_told_of_a_server_that_left_a_message_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_connection, "BACKOFF_S", 0.0)
    monkeypatch.setattr(mcp_process, "CLOSING_S", 60.0)
    waits = "import select, sys; select.select([0], [], []); sys.exit(7)"
    async with talking(ToolServer(command=sys.executable, args=("-c", waits)), tmp_path) as talk:
        with pytest.raises(ServerUnavailable, match="exit code 7"):
            await talk.call("echo", text="up")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("dies", "no licence found"),
        ("hangs", "did not start within 2 s"),
        ("floods", "messages in 10 s that nobody asked for"),
        ("endless", "a message of more than 32 MB"),
    ],
)
async def test_a_server_that_cannot_be_used_is_named_with_the_reason(
    fault: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_process, "PERIOD_S", math.inf)  # on a slow machine it takes longer to flood
    async with talking(
        faulty(fault), tmp_path, ServerTimeouts(start=2.0 if fault == "hangs" else 300.0, call=5.0)
    ) as talk:
        with pytest.raises(ServerUnavailable, match="The server test cannot be used") as failure:
            await talk.connection.start()
        assert said in str(failure.value)
        assert talk.connection.state == "failed"
    assert not _left()


async def test_one_bad_definition_does_not_cost_the_others(tmp_path: Path) -> None:
    async with talking(faulty("lies"), tmp_path) as talk:
        await talk.connection.start()
        tools = {tool.name: tool for tool in talk.lists[-1].tools}
        assert {"echo", "odd name/with signs", "either", "wrong", "promise"} <= tools.keys()
        assert len(tools["odd name/with signs"].description) < 3_000
        assert tools["wrong"].schema == tools["either"].schema == tools["deep"].schema == '{"type":"object"}'
        assert '"a":7' in tools["wrong"].description
        assert "anyOf" in tools["either"].description
        assert any(problem.startswith("either: ") for problem in talk.lists[-1].problems)
        assert '"seven"' in (await talk.call("promise")).text, "what it says otherwise than it promised is passed on"


def test_an_answer_that_is_too_deep_to_be_read_is_an_error_at_once() -> None:
    deep = b'{"x":' * 200_000 + b"1" + b"}" * 200_000
    for line in (b'{"jsonrpc": "2.0", "id": 7, "result": ' + deep + b"}", b'{"result": ' + deep + b', "id": 7}'):
        read = mcp_process._read_deep(line)
        assert getattr(read, "id", None) == 7
        assert "too deep" in str(read)
    assert mcp_process._read_deep(deep) is None
    assert mcp_process._read_deep(b'{"id": 7, ') is None


@pytest.mark.parametrize("manner", ["chatty", "early", "old", "new"])
async def test_a_server_with_manners_of_its_own_is_understood(manner: str, tmp_path: Path) -> None:
    async with talking(faulty(manner), tmp_path) as talk:
        assert (await talk.call("echo", text="heard")).text == "heard"
        assert (await talk.call("add", a=1, b=2)).text == '{"sum": 3}'
        await talk.call("grow")
        talk.news.clear()
        await talk.news.wait()
        assert "grown_1" in {tool.name for tool in talk.lists[-1].tools}
        if manner == "chatty":
            assert "Listening" in talk.log.read_text(), "what is no message can be read where its errors are"


async def test_a_flood_of_errors_fills_no_disk_and_stops_nothing(tmp_path: Path) -> None:
    async with talking(faulty("noisy"), tmp_path) as talk:
        assert (await talk.call("echo", text="heard")).text == "heard"
        assert talk.log.stat().st_size <= 5_000_000


async def test_no_process_is_left_not_even_one_that_fled(tmp_path: Path) -> None:
    async with talking(faulty("deaf"), tmp_path) as talk:
        await talk.call("orphan")
        assert _left()
    assert not _left()


async def test_programs_that_are_not_there_are_named(tmp_path: Path) -> None:
    async with talking(ToolServer(command="no-such-program"), tmp_path) as talk:
        with pytest.raises(ServerUnavailable, match="there is no program no-such-program"):
            await talk.connection.start()
    async with talking(ToolServer(command="${NOT_SET}"), tmp_path) as talk:
        with pytest.raises(ServerUnavailable, match="the variable NOT_SET is not set"):
            await talk.connection.start()


class Person(Call):
    """Answers questions in order; None declines."""

    def __init__(self, folder: Path, *answers: str | None) -> None:
        super().__init__(Workspace(folder), (), folder)
        self.told = asyncio.Event()
        self.asked: list[PermissionQuestion] = []
        self._answers = list(answers)

    @override
    def progress(self, text: str, above: int = 0, subtask: SubtaskProgress | None = None) -> None:
        super().progress(text, above)
        self.told.set()

    @override
    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        self.asked.append(question)
        answer = self._answers.pop(0)
        return PermissionAnswer(allowed=answer is not None, choice=answer or "")


def _left() -> list[str]:
    """What servers of this process have left running."""
    found = []
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if ("mcp_stdio" in line or "sleep 600" in line) and process.status() != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found
