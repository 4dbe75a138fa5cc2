"""What a call that cannot be done answers: the model is told what it may do instead, the user why."""

from pathlib import Path

import pytest

from tests.agent.serving import OPUS, Serve
from tests.agent.talking import of, say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.agent.turn.guards import CostCeilingReached, StoppedByUser, not_done
from tui_agent.agent.turn.hints import HINTS, IN_TEXT
from tui_agent.models import base
from tui_agent.models.base import ModelError


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step(calls=(Call("read_fil", {"path": "calc.py"}),)), "There is no tool read_fil. Did you mean read_file?"),
        (Step(calls=(Call("xyzzy"),)), "There are: agentic_fetch_url, agentic_grep, "),
        (
            Step(calls=(Call("read_file", {"pth": "calc.py"}),)),
            "did you mean `path`? Also, the argument",
        ),
        (Step(calls=(Call("read_file", {"path": "clac.py"}),)), "calc.py"),
        (Step(calls=(Call("agentic_read_file", {"path": "calc.py"}),)), "Expected: agentic_read_file(path: string, "),
        (Step(calls=(Call("fetch_url", {"url": "http://10.0.0.1/"}),)), "go on without it, or ask them"),
        (
            Step(calls=(Call("read_file", {"path": "calc.py"}),), fault=Fault(kind="malformed_args")),
            "Call it again with one JSON object",
        ),
    ],
)
async def test_a_call_that_cannot_be_done_says_what_can(step: Step, words: str, tmp_path: Path, serve: Serve) -> None:
    def script(request: ParsedRequest) -> Step:
        return Step(text="Well.") if request.position else step

    server = serve(AnthropicServer(script))
    async with talking(tmp_path, OPUS) as session:
        seen = await say(session, "Read calc.py.")
    told = server.model_requests[-1].body.decode()
    (result,) = of(events.ToolFinished, seen)
    assert result.status == "error"
    assert words in result.text
    assert '"is_error":true' in told.replace(" ", "")


def test_every_way_a_turn_can_fail_has_a_word_on_what_to_do_next() -> None:
    kinds = {
        error.kind
        for error in (*vars(base).values(), CostCeilingReached, StoppedByUser)
        if isinstance(error, type) and issubclass(error, ModelError)
    }
    assert len(kinds) > 8
    assert {kind for kind in kinds if not HINTS.get(kind)} == set()
    # Without a screen nothing is said of one.
    said = " ".join(({**HINTS, **IN_TEXT}).values())
    assert not any(words in said for words in ("/model", "/key", "the message again"))


def test_calls_that_a_guard_left_undone_say_what_may_be_done() -> None:
    assert "call again" in not_done(CostCeilingReached("Too dear.", "turn"))
    assert "do something else" in not_done(StoppedByUser("Stopped.", ""))
    assert "they said: use grep" in not_done(StoppedByUser("Stopped.", "use grep"))
