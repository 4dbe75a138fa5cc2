"""The telemetry of a conversation: follows its log, and hands what it makes of it to an exporter."""

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final, Protocol

from tui_agent.conversation.entries import AnyEntry
from tui_agent.settings import Settings
from tui_agent.telemetry.spans import Signal, Spans
from tui_agent.tracing import SpanContext, current, inherited

_ENDPOINTS: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
MISSING: Final = "OpenTelemetry is not installed: pip install 'tui-agent[otel]'"


class Exporter(Protocol):
    """What takes signals; neither waits."""

    def send(self, signal: Signal) -> None: ...

    def as_sent(self, span: SpanContext) -> SpanContext:
        """The span with the flags that it is sent with."""
        ...


class Telemetry:
    """Follows one conversation; without an exporter it does nothing. It never raises and never waits."""

    def __init__(self, spans: Spans | None = None, exporter: Exporter | None = None) -> None:
        self._spans, self._exporter = spans, exporter

    def appended(self, entries: Sequence[AnyEntry]) -> None:
        if self._spans is not None and self._exporter is not None:
            for entry in entries:
                for signal in self._spans.take(entry):
                    self._exporter.send(signal)

    def turn_ended(self, stop_reason: str) -> None:
        if self._spans is not None and self._exporter is not None:
            for signal in self._spans.end_turn(time.time(), stop_reason):
                self._exporter.send(signal)

    def call(self, call_id: str) -> SpanContext | None:
        """The span of a tool call, for what it starts."""
        here = self._spans.call(call_id) if self._spans is not None else None
        return self._exporter.as_sent(here) if here is not None and self._exporter is not None else None

    def of_subtask(self, session: str, agent: str) -> "Telemetry":
        """The telemetry of a subtask of the tool call that is being made."""
        if self._spans is None:
            return self
        return Telemetry(Spans(session, parent=current(), agent=agent, content=self._spans.content), self._exporter)


def wanted(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Whether to send telemetry, if OpenTelemetry is installed."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or settings.telemetry.enabled == "off":
        return False
    return settings.telemetry.enabled == "on" or any(environ.get(name, "").strip() for name in _ENDPOINTS)


def installed() -> bool:
    """Whether the extra is installed. Imports nothing of it."""
    try:
        return all(find_spec(f"opentelemetry.{name}") for name in ("sdk", "exporter.otlp.proto.http"))
    except ModuleNotFoundError:
        return False


def problem(settings: Settings, environ: Mapping[str, str]) -> str:
    """Why telemetry that is wanted cannot be sent, as a sentence; empty if it can, or nobody asked for it by name."""
    if not installed():
        return f"{MISSING}." if settings.telemetry.enabled == "on" else ""
    protocol = environ.get(_PROTOCOL, "").strip() or "http/protobuf"
    return f"{_PROTOCOL} is {protocol}; only http/protobuf is spoken." if protocol != "http/protobuf" else ""


def captures(settings: Settings, environ: Mapping[str, str]) -> bool:
    """Whether what was said is sent, too."""
    said = environ.get(_CAPTURE, "").strip().lower()
    return settings.telemetry.content or said in ("true", "span_only", "span_and_event")


def spans_for(session: str, settings: Settings, environ: Mapping[str, str]) -> Spans:
    """Makes the spans of a session."""
    return Spans(session, parent=inherited(environ), content=captures(settings, environ))
