"""Spans and metrics of real sessions, by OpenTelemetry's own SDK: in memory, and over OTLP/HTTP to a collector."""

import base64
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agent.talking import say, talking
from tests.e2e.program import MODELS, Program
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, ParsedRequest, Step
from tui_agent.settings import load_settings
from tui_agent.telemetry import names
from tui_agent.telemetry.spans import Spans
from tui_agent.telemetry.telemetry import captures, wanted

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed")

from tests.telemetry.receiver import Receiver, attributes, receiving
from tui_agent.telemetry.otlp import OtlpExporter

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "The word of the user is xylophone."


def delegating(request: ParsedRequest) -> Step:
    """A command that shows its variables, then a subtask, then the answer."""
    if "on behalf of another agent" in request.system:
        return Step(text="It subtracts.")
    steps = (
        Step(
            calls=(Call("run_command", {"command": "echo trace=$TRACEPARENT"}),),
            fault=Fault(kind="rate_limited", retry_after=0.1),
        ),
        Step(calls=(Call("agentic_research", {"question": "What does add do?"}),)),
    )
    return steps[request.position] if request.position < len(steps) else Step(text="There is a bug.")


def ids(span: dict[str, Any]) -> tuple[str, str, str]:
    decoded = (base64.b64decode(span.get(key, "")).hex() for key in ("traceId", "spanId", "parentSpanId"))
    trace, here, parent = decoded
    return trace, here, parent


def one(receiver: Receiver, name: str) -> dict[str, Any]:
    (span,) = receiver.named(name)
    return span


def test_a_session_is_sent_as_spans_and_metrics_and_once_more_from_its_log(tmp_path: Path) -> None:
    with in_thread(AnthropicServer(delegating)) as server, receiving() as receiver:
        sending = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_RESOURCE_ATTRIBUTES": "team=a"}
        program = Program.in_folder(tmp_path, {**server.environment, **sending, "TRACEPARENT": PARENT})
        answer = program.ask("-p", SECRET, "--model", MODELS["anthropic"], "--ask", "allow")
        assert (answer["exit"], server.violations) == (0, [])
        turn, command = one(receiver, "invoke_agent tui-agent"), one(receiver, "execute_tool run_command")
        research, subtask = (
            one(receiver, "execute_tool agentic_research"),
            one(receiver, "invoke_agent agentic_research"),
        )
        first, second, last = (call for call in receiver.named("chat") if ids(call)[2] == ids(turn)[1])
        assert ids(turn)[::2] == (PARENT[3:35], PARENT[36:52])
        assert {ids(span)[0] for span in receiver.spans} == {PARENT[3:35]}
        assert (ids(command)[2], ids(research)[2]) == (ids(first)[1], ids(second)[1])
        assert ids(subtask)[2] == ids(research)[1]
        assert [ids(call)[2] for call in receiver.named("chat claude-haiku")] == [ids(subtask)[1]]
        assert f"trace=00-{PARENT[3:35]}-{ids(command)[1]}-01" in str(server.model_requests[-1].body)
        told = attributes(turn)
        assert told["gen_ai.conversation.id"] == answer["session_id"]
        assert told["tui_agent.cost.usd"] < answer["cost_usd"]  # the subtask has a span of its own
        assert told["gen_ai.usage.input_tokens"] == sum(
            attributes(call)["gen_ai.usage.input_tokens"] for call in (first, second, last)
        )
        assert [event["name"] for event in turn["events"]] == ["tui_agent.wait"]
        assert (receiver.resources[0]["service.name"], receiver.resources[0]["team"]) == ("tui-agent", "a")
        dollars = receiver.metrics["tui_agent.cost"]["sum"]["dataPoints"]
        assert sum(point["asDouble"] for point in dollars) == pytest.approx(answer["cost_usd"])
        assert {metric.name for metric in names.METRICS} == set(receiver.metrics)
        assert b"xylophone" not in receiver.raw
        assert b"There is a bug" not in receiver.raw
        assert server.api_key.encode() not in receiver.raw
        live = list(receiver.spans)

    with receiving() as receiver:
        program.environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "TUI_AGENT__TELEMETRY__CONTENT": "true"}
        done = program.run("trace", answer["session_id"], "--otlp")
        assert (done.returncode, done.stderr) == (0, "")
    assert sorted(span["name"] for span in receiver.spans) == sorted(span["name"] for span in live)
    assert ids(one(receiver, "execute_tool run_command"))[1] == ids(command)[1]
    assert one(receiver, "chat claude-haiku")["startTimeUnixNano"] == next(
        span["startTimeUnixNano"] for span in live if span["name"].startswith("chat claude-haiku")
    )
    assert b"xylophone" in receiver.raw

    program.environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    refused = program.run("trace", answer["session_id"], "--otlp")
    assert refused.returncode == 2
    assert receiver.url in refused.stderr


async def test_a_compaction_is_a_span_of_its_own_with_the_call_that_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    async with talking(tmp_path, {"compaction.keep_recent": "1"}) as session:
        for number in range(3):
            await say(session, f"read calc.py and tell me {number}")
        await session.agent.compact()
        entries = list(session.agent.engine.view.log.entries())
    memory, reader = InMemorySpanExporter(), InMemoryMetricReader()
    exporter = OtlpExporter(lambda: [SimpleSpanProcessor(memory)], lambda: [reader])
    follower = Spans("a session")
    for entry in entries:
        for signal in follower.take(entry, live=False):
            exporter.send(signal)
    exporter.close()
    spans = {span.name: span for span in memory.get_finished_spans()}
    step = spans["compact_context summary"]
    assert step.parent is None
    assert step.attributes["tui_agent.context.tokens.after"] < step.attributes["tui_agent.context.tokens.before"]
    (writing,) = [span for span in memory.get_finished_spans() if span.parent and span.parent == step.context]
    assert writing.attributes["tui_agent.call.purpose"] == "summary"
    assert step.start_time <= writing.start_time < writing.end_time <= step.end_time
    assert spans["invoke_agent tui-agent"].status.is_ok


def test_a_collector_that_does_not_answer_delays_only_the_end_and_a_missing_one_not_even_that(tmp_path: Path) -> None:
    with socket.socket() as silent, in_thread(AnthropicServer(lambda _: Step(text="Hello."))) as server:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        program = Program.in_folder(tmp_path, {**server.environment, "OTEL_EXPORTER_OTLP_ENDPOINT": url})
        answer = program.ask("-p", "hello", "--model", MODELS["anthropic"])
    assert (answer["exit"], answer["result"], answer["stderr"]) == (0, "Hello.", "")


def test_nothing_is_imported_unless_it_is_wanted(tmp_path: Path) -> None:
    told = "print([name for name in sys.modules if 'opentelemetry' in name])"
    code = f"import sys; from tui_agent.cli import main; main(sys.argv[1:]); {told}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    more = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}
    done = subprocess.run(
        [sys.executable, "-c", code, "-p", "hello", "--model", "offline"],
        cwd=tmp_path,
        env={**environ, "TUI_AGENT_HOME": str(tmp_path / "home"), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("environ", "setting", "sends", "content"),
    [
        ({}, "auto", False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "auto", True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, "off", False, False),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}, "on", True, True),
        ({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "false"}, "on", True, False),
    ],
)
def test_when_it_is_sent(environ: dict[str, str], setting: str, sends: bool, content: bool, tmp_path: Path) -> None:
    settings = load_settings(tmp_path, None, environ={}, overrides={"telemetry.enabled": setting})
    assert (wanted(settings, environ), captures(settings, environ)) == (sends, content)
