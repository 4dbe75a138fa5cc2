"""`--fork` and the commands for branches, in processes of their own."""

import re
from pathlib import Path

from tests.agent.test_wire import pieces
from tests.e2e.program import MODELS, Program
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import ParsedRequest, Step
from tests.servers.server import ProtocolServer


def answering(request: ParsedRequest) -> Step:
    return Step(reasoning="I think.", text=f"Answer to: {request.prompt[-40:]}")


def requests(server: ProtocolServer) -> list[list[bytes]]:
    return [pieces(request.json) for request in server.model_requests if request.json]


def branches(program: Program) -> list[tuple[bool, int]]:
    """Whether it is the present one, and where it ends."""
    told = program.run("-c", "-p", "/tree")
    assert told.returncode == 0, told.stderr
    return [(mark == "*", int(tip)) for mark, tip in re.findall(r"^([ *]) +(\d+)  ", told.stdout, re.MULTILINE)]


def test_a_forked_session_goes_on_leaves_the_other_branch_and_takes_messages_back(tmp_path: Path) -> None:
    with in_thread(GeminiServer(answering)) as server:
        program = Program.in_folder(tmp_path, server.environment)
        first = program.ask("-p", "one", "--model", MODELS["gemini"])
        program.ask("-c", "-p", "two")
        forked = program.ask("-r", first["session_id"], "--fork", "-p", "three, elsewhere")
        assert (forked["exit"], forked["session_id"]) == (0, first["session_id"])
        one, two, three = requests(server)
        assert two[: len(one)] == one
        assert three[: len(two)] == two
        (present, _), (other, tip) = branches(program)
        assert (present, other) == (True, False)
        back = program.run("-c", "-p", f"/tree {tip}")
        assert back.returncode == 0
        assert program.ask("-c", "-p", "four, as if nothing had been")["exit"] == 0
        four = requests(server)[-1]
        assert four[: len(two)] == two
        assert "elsewhere" not in str(four)
        listed = program.run("-c", "-p", "/rewind")
        number = re.search(r"(\d+)[^\n]*four", listed.stdout + listed.stderr)
        assert number is not None, listed
        taken = program.run("-c", "-p", f"/rewind {number[1]}")
        assert taken.returncode == 0
        assert "four" in taken.stdout
        assert program.ask("-c", "-p", "four and a half")["exit"] == 0
        again = requests(server)[-1]
        assert again[:-1] == four[:-1]
        assert "four and a half" in str(again[-1])
        assert server.violations == []
