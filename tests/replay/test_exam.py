"""The exam: questions that only the session answers, asked under each policy, scored by rule, within the budget."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.starter import STARTER
from tests.replay.recordings import answer, call, result, script_of, user
from tests.replay.sessions import write_session
from tests.servers.anthropic import AnthropicServer
from tests.servers.openai_chat import ChatServer
from tests.servers.running import in_thread
from tests.servers.script import ParsedRequest, Step
from tests.servers.server import ProtocolServer
from tui_agent.replay.questions import GAP, Question, questions, score

WINDOW = 40_000
POLICIES = ("none", "balanced", "summary-85")


def reads_what_it_is_given(request: ParsedRequest) -> Step:
    """Fills a gap with what stands there in the conversation that it is given; knows nothing else."""
    if "Summarise" in request.system:
        return Step(text=" ".join(dict.fromkeys(re.findall(r"\b[a-z]{4,}\b", request.prompt)))[:2_000])
    line = next((each for each in request.prompt.splitlines() if GAP in each), "")
    wanted = "(.+)".join(map(re.escape, line.split(GAP)))
    given = "\n".join(str(message["content"]) for message in request.body["messages"][:-1])
    found = re.search(wanted, given.replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'")) if line else None
    return Step(text=f"`{found[1]}`" if found else "unknown")


@pytest.fixture(params=[AnthropicServer, pytest.param(ChatServer, marks=pytest.mark.soak)])
def server(request: pytest.FixtureRequest) -> Iterator[ProtocolServer]:
    with in_thread(request.param(reads_what_it_is_given)) as server:
        yield server


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_session(tmp_path_factory.mktemp("exam") / "s.jsonl", seed=1, calls=30, size=1.5)


def examine(session: Path, server: ProtocolServer, *options: str) -> subprocess.CompletedProcess[str]:
    model = next(iter(server.models))
    named = [word for name in POLICIES for word in ("--policy", name)]
    environ = {**os.environ, **server.environment, "TUI_AGENT_HOME": str(session.parent / "home")}
    provider = "anthropic" if isinstance(server, AnthropicServer) else "openai"
    command = ["exam", str(session), "--model", f"{provider}:{model}", "--window", str(WINDOW), *named, *options]
    return STARTER.run(command, folder=session.parent, environ=environ, stdin="", timeout=120)


def test_each_policy_knows_what_is_in_its_window(session: Path, server: ProtocolServer) -> None:
    done = examine(session, server, "--questions", "6", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    of = {each["policy"]: each for each in told["policies"]}
    assert set(of) == {*POLICIES, "(no session)"}
    gaps = sum(GAP in each["text"] for each in told["questions"])
    assert of["none"]["right"] == gaps >= 2
    assert of["(no session)"]["unknown"] == 6
    assert of["summary-85"]["right"] < gaps
    assert all(each["answer"] not in each["text"] for each in told["questions"])
    asks = [each for each in server.model_requests if "Summarise this part" not in str(each.body)]
    assert len(asks) - 6 * 4 in (0, 1)  # one may be a parameter that the server refuses
    assert len(server.model_requests) - len(asks) >= 2
    assert [each for each in server.violations if "max_tokens" not in each] == []


def test_it_shows_questions_and_budget_and_asks_nothing_unasked(session: Path) -> None:
    with in_thread(AnthropicServer(reads_what_it_is_given)) as server:
        shown = examine(session, server, "--dry-run", "--questions", "3")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "3 questions under 3 policies" in shown.stdout
        unasked = examine(session, server, "--questions", "3")
        assert (unasked.returncode, unasked.stdout) == (2, "")
        assert "3 questions under 3 policies" in unasked.stderr
        assert "--yes" in unasked.stderr
        assert server.requests == []


def test_it_stops_before_it_costs_more_than_was_said(session: Path) -> None:
    with in_thread(AnthropicServer(lambda request: Step(text="unknown", input_tokens=5_000_000))) as server:
        done = examine(session, server, "--questions", "4", "--yes")
        assert done.returncode == 1
        assert "costs more than was planned" in done.stderr
        assert "were spent" in done.stderr
        assert len(server.model_requests) < 8


def test_only_what_has_one_answer_is_asked(tmp_path: Path) -> None:
    script = script_of(
        tmp_path / "s.jsonl",
        user("Der Dienst lauscht auf Port 8443, nicht auf dem alten."),
        user("请把超时时间设置为三十秒然后使用 conf/server.toml 文件。"),
        answer("Ich lese.", call("c0", "read_file", path="conf/server.toml")),
        result("c0", "1\tlisten_address = 10.0.0.17 # for all\n2\tthis is in two, x_y\nretries = 120 for each"),
        answer("Und.", call("c1", "read_file", path="conf/other.toml"), call("c2", "bash", command="make check-all")),
        result("c1", "this is in two, x_y\nretries = 190 for each"),
        result("c2", "FAILED test_login_form.py after a while"),
        answer("Am Ende: 417 Tests bestanden, mehr ist nicht zu tun."),
        user("Danke."),
        answer("The newest answer, with 9,000 in it, is in every window."),
    )
    found = {(each.about, each.line, each.answer) for each in questions(script)}
    assert ("said", "Der Dienst lauscht auf Port 8443, nicht auf dem alten.", "8443") in found
    assert ("said", "请把超时时间设置为三十秒然后使用 conf/server.toml 文件。", "conf/server.toml") in found
    assert ("reported", "listen_address = 10.0.0.17 # for all", "10.0.0.17") in found
    assert ("file", "listen_address = 10.0.0.17 # for all", "conf/server.toml") in found
    assert ("command", "FAILED test_login_form.py after a while", "make check-all") in found
    assert ("concluded", "Am Ende: 417 Tests bestanden, mehr ist nicht zu tun.", "417") in found
    assert not any("retries" in line and about == "reported" for about, line, _ in found)
    assert not any("newest" in line for _, line, _ in found)
    assert not any("in two" in line and about == "file" for about, line, _ in found)


@pytest.mark.parametrize(
    ("about", "wanted", "reply", "expected"),
    [
        ("said", "8443", "8443", "right"),
        ("said", "8443", "It is `8443`.", "right"),
        ("said", "8443", "18443", "wrong"),
        ("said", "8443", "8443.5", "wrong"),
        ("said", "8443", "unknown", "unknown"),
        ("said", "8443", "", "unknown"),
        ("said", "8443", "8443 " + "or 9000 " * 30, "wrong"),
        ("file", "src/app/main.go", "main.go", "right"),
        ("file", "src/app/main.go", "/home/me/src/app/main.go", "right"),
        ("file", "src/app/main.go", "src/other/main.go", "wrong"),
        ("command", "make  check", "make check", "right"),
    ],
)
def test_answers_are_scored_by_rule(about: str, wanted: str, reply: str, expected: str) -> None:
    assert score(Question(about, "", wanted, "", 0), reply) == expected  # type: ignore[arg-type]
