"""A person at a shell: prompts with data and JSON, how a run ends, and the record of what was done."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.person import BREAK, ENTER, PROMPT, SIZES, Person, at_the_terminal
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, ParsedRequest, Step

SCHEMA: Final = {"type": "object", "properties": {"bugs": {"type": "integer"}}, "required": ["bugs"]}
ADDRESSES: Final = re.compile(r"""(?:src|href|url)\s*[=(]\s*["']?(?!#|data:)[^"'\s>)]+""")
"""What a page would load from elsewhere, or lead to."""


def said(request: ParsedRequest) -> Step:
    if "Count" in request.prompt:
        return Step(text='{"bugs": 2}')
    if "Read" in request.prompt and not request.position:
        return Step(text="I look.", calls=(Call("read_file", {"path": "till.py"}),))
    return Step(text="".join(f"Line {number} of the answer.\n\n" for number in range(40)))


@pytest.fixture
def server() -> Iterator[AnthropicServer]:
    with in_thread(AnthropicServer(said)) as running:
        yield running
    assert running.violations == []


@pytest.mark.soak
@pytest.mark.parametrize("size", SIZES)
def test_a_person_at_a_shell(tmp_path: Path, server: AnthropicServer, size: tuple[int, int]) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    (project / "till.py").write_text("def total(prices):\n    return sum(prices)\n")
    (project / "schema.json").write_text(json.dumps(SCHEMA))
    with at_the_terminal(project, home, size=size, url=server.url, in_shell=True) as person:
        person.terminal.until(lambda: PROMPT in person.terminal.raw.decode())
        _has_no_key(person)
        person.runs(f"export ANTHROPIC_API_KEY={server.api_key}")
        _pipes_data(person, project, server)
        _has_no_use_for_all_of_it(person)
        (project / "AGENTS.md").write_text("Be brief.\n")
        _wants_a_shape(person)
        _looks_back(person, project, home)


def _has_no_key(person: Person) -> None:
    told = person.runs("tui-agent -p hello; echo code $?")
    assert "ANTHROPIC_API_KEY" in told
    assert "code 2" in told
    told = person.runs("tui-agent -p /theme; echo code $?")
    assert "/theme is a command of the full-screen app" in told


def _pipes_data(person: Person, project: Path, server: AnthropicServer) -> None:
    """Several words are one prompt, data goes after it, and JSON has the names that scripts know."""
    told = person.runs("echo DATA | tui-agent -p Read all of this --output-format json > told.json; echo code $?")
    assert told == "code 0\n"
    asked = server.model_requests[0].body.decode()
    assert "Read all of this\\n\\n<standard_input>\\nDATA\\n</standard_input>" in asked
    answer = json.loads((project / "told.json").read_text())
    assert (answer["type"], answer["subtype"], answer["num_turns"]) == ("result", "success", 2)
    assert answer["total_cost_usd"] > 0
    assert answer["result"].startswith("Line 0 ")


def _has_no_use_for_all_of_it(person: Person) -> None:
    assert person.runs("tui-agent -p Talk | head -n 1") == "Line 0 of the answer.\n"


def _wants_a_shape(person: Person) -> None:
    """The result alone on standard output; what a project brings and nobody trusts is named beside it."""
    told = person.runs("tui-agent -p Count the bugs --json-schema schema.json")
    assert '{"bugs": 2}\n' in told
    assert "AGENTS.md" in told
    assert "--trust" in told


def _looks_back(person: Person, project: Path, home: Path) -> None:
    listed = person.runs("tui-agent sessions")
    assert "Read all of" in listed  # and as much more as there is room for
    first = min(folder.name for folder in (home / "sessions").iterdir())
    lines = person.runs(f"tui-agent trace {first}")
    assert "read_file" in lines
    assert "till.py" in lines
    called = person.runs(f"tui-agent trace {first} --kind tool_call").splitlines()
    assert len(called) == 1
    assert all("read_file" in line for line in called)
    events = [json.loads(line) for line in person.runs(f"tui-agent trace {first} --json").splitlines()]
    assert len(events) > len(called)
    person.runs(f"tui-agent trace {first} --html page.html")
    page = (project / "page.html").read_text()
    assert "Line 39 of the answer." in page
    assert not ADDRESSES.findall(re.sub(r"<pre.*?</pre>", "", page, flags=re.DOTALL))
    _follows(person, first)


def _follows(person: Person, session: str) -> None:
    """What is there is printed at once, and Ctrl+C ends it quietly."""
    before = len(person.terminal.raw)
    person.sends(f"tui-agent trace {session} --follow{ENTER}")
    person.terminal.until(lambda: b"Line 0 of the answer" in person.terminal.raw[before:])
    person.sends(BREAK)
    person.terminal.until(lambda: PROMPT.encode() in person.terminal.raw[before:])
    assert b"Traceback" not in person.terminal.raw[before:]
