"""What the gate and the sandbox are together: inside unasked what it allows, outside only with the user's word."""

from pathlib import Path

import pytest

from tests.agent.serving import Serve
from tests.agent.talking import Person, of, say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.settings import GivenValue
from tui_agent.tools.sandbox.sandbox import mechanism

pytestmark = pytest.mark.skipif(mechanism().kind == "none", reason="there is no sandbox here")


async def commands(
    folder: Path, serve: Serve, person: Person, *calls: Call, network: bool = False
) -> list[events.ToolFinished]:
    """What becomes of these calls, one step each, in a session of mode `auto`."""

    def step(request: ParsedRequest) -> Step:
        at = request.position
        return Step(calls=(calls[at],)) if at < len(calls) else Step(text="Done.")

    serve(AnthropicServer(step, windows={"claude-opus-5-5": 200_000}))
    settings: dict[str, GivenValue] = {"model.id": "claude-opus-5-5", "permissions.sandbox": "required"}
    settings["permissions.network"] = network
    async with talking(folder, settings, ask=person) as session:
        told = await say(session, "Run them.")
    return of(events.ToolFinished, told)


def run(line: str, *, outside: bool = False) -> Call:
    return Call("run_command", {"command": line, **({"outside": True} if outside else {})})


async def test_every_line_runs_unasked_inside_and_nothing_leaves(tmp_path: Path, serve: Serve) -> None:
    person = Person(allowed=False)
    lines = [run("cat calc.py | head -2"), run("for f in *.py; do wc -l $f; done"), run("touch made.txt $(true)")]
    done = await commands(tmp_path, serve, person, *lines, run("touch ../left.txt", outside=True))
    assert [each.status for each in done] == ["ok", "ok", "ok", "denied"]
    (question,) = person.asked
    assert "touch ../left.txt" in question.arguments
    assert question.outside
    assert not (tmp_path / "left.txt").exists()


async def test_with_the_network_an_opaque_line_is_asked_about(tmp_path: Path, serve: Serve) -> None:
    person = Person(allowed=False)
    line = run("for f in *.py; do wc -l $f; done")
    (loop,) = await commands(tmp_path, serve, person, line, network=True)
    assert loop.status == "denied"


async def test_outside_is_a_question_of_its_own_and_always_is_a_rule_for_it(tmp_path: Path, serve: Serve) -> None:
    out = tmp_path / "outside"
    out.mkdir()
    line = f"touch {out}/made.txt"
    person = Person(always=True)
    inside, outside = await commands(tmp_path, serve, person, run(line), run(line, outside=True))
    assert (inside.status, outside.status) == ("error", "ok")
    assert (out / "made.txt").exists()
    (question,) = person.asked
    assert question.outside
    assert "outside the sandbox" in question.reason
    (out / "made.txt").unlink()
    # By the rule that was remembered it runs outside at once, and nobody is asked.
    nobody = Person(allowed=False)
    (again,) = await commands(tmp_path, serve, nobody, run(line))
    assert (again.status, nobody.asked) == ("ok", [])
    assert (out / "made.txt").exists()
    (declined,) = await commands(tmp_path, serve, nobody, run(f"touch {out}/other.txt", outside=True))
    assert declined.status == "denied"
    assert not (out / "other.txt").exists()


async def test_a_path_outside_is_shown_once_it_is_allowed_and_always_is_a_rule_for_reading(
    tmp_path: Path, serve: Serve
) -> None:
    out = tmp_path / "outside"
    out.mkdir()
    (out / "data.txt").write_text("some data\n")
    line = Call("run_command", {"command": f"cat {out}/data.txt"})
    with_path = Call("run_command", {"command": f"cat {out}/data.txt", "reads": [str(out / "data.txt")]})
    person = Person(always=True)
    unseen, seen = await commands(tmp_path, serve, person, line, with_path)
    assert (unseen.status, seen.status) == ("error", "ok")
    (question,) = person.asked
    assert "reads outside" in question.reason
    assert str(out / "data.txt") in question.preview.title
    nobody = Person(allowed=False)
    (again,) = await commands(tmp_path, serve, nobody, with_path)
    assert (again.status, nobody.asked) == ("ok", [])


@pytest.mark.skipif(mechanism().kind == "landlock", reason="there is no network at all there")
async def test_a_domain_is_asked_about_in_words_and_what_is_declined_is_told(tmp_path: Path, serve: Serve) -> None:
    fetch = "import urllib.request as u; u.urlopen('https://pypi.org/simple/', timeout=20)"
    person = Person(allowed=False)
    line = f'python3 -c "{fetch}"; python3 -c "{fetch}"'
    (done,) = await commands(tmp_path, serve, person, run(line))
    assert done.status == "error"
    (question,) = person.asked
    assert question.tool == "network"
    assert question.preview.title == "Let it reach the Python package index (pypi.org and files.pythonhosted.org)"
    assert question.preview.command == line
    assert len(question.rules) == 2
