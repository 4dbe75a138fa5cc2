"""Sending signals by OTLP/HTTP with OpenTelemetry's SDK, which the ``OTEL_*`` variables configure.

The SDK is imported and used in threads of its own. A collector that cannot be reached delays nothing but the end of
the program, by at most `FLUSH_S`; what it did not get is lost.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final

from msgspec import structs

from tui_agent.telemetry import names
from tui_agent.telemetry.spans import Attributes, MetricValue, Signal, Span
from tui_agent.tracing import SpanContext
from tui_agent.version import __version__

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.sdk.trace.sampling import Sampler

FLUSH_S: Final = 3.0
"""Seconds that the end of the program may take for what is not sent yet."""
BATCH: Final = 256
"""Spans of an old session that are sent in one request."""
NANO: Final = 1_000_000_000
SCOPE: Final = "tui_agent"


class OtlpExporter:
    """Sends signals from a thread of its own.

    `processors` and `readers` make what takes the spans and the metrics, by default what the variables say.
    """

    def __init__(
        self,
        processors: "Callable[[], list[SpanProcessor]] | None" = None,
        readers: "Callable[[], list[MetricReader]] | None" = None,
    ) -> None:
        self._processors, self._readers = processors or _span_processors, readers or _metric_readers
        self._signals: SimpleQueue[Signal | None] = SimpleQueue()
        self._sdk: _Sdk | None = None
        self._thread = Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def send(self, signal: Signal) -> None:
        self._signals.put(signal)

    def as_sent(self, span: SpanContext) -> SpanContext:
        """The span with the flags that it is sent with, as far as that is known by now."""
        return span if self._sdk is None or self._sdk.samples(span) else structs.replace(span, flags=0)

    def close(self) -> None:
        """Send what is left, for at most `FLUSH_S` seconds."""
        self._signals.put(None)
        self._thread.join(FLUSH_S)

    def _run(self) -> None:
        _be_quiet()
        self._sdk = sdk = _Sdk(self._processors(), self._readers())
        while (signal := self._signals.get()) is not None:
            sdk.take(signal)
        sdk.close()


class _Sdk:
    """OpenTelemetry's SDK: spans to processors, values to instruments."""

    def __init__(self, processors: "list[SpanProcessor]", readers: "list[MetricReader]") -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider

        self._resource = _resource()
        # Only asked which sampler the variables name: the spans have ended when they come here.
        self._sampler: Sampler = TracerProvider(resource=self._resource, shutdown_on_exit=False).sampler
        self._processors = processors
        self._meters = MeterProvider(readers, resource=self._resource, shutdown_on_exit=False)
        meter = self._meters.get_meter(SCOPE, __version__)
        self._measure: dict[str, Callable[[float, Attributes], None]] = {}
        for name, unit, description, bounds in names.METRICS:
            self._measure[name] = (
                meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=bounds).record
                if bounds
                else meter.create_counter(name, unit, description).add
            )

    def samples(self, span: SpanContext, remote: SpanContext | None = None) -> bool:
        """Whether the spans of this trace are sent."""
        from opentelemetry import trace
        from opentelemetry.sdk.trace.sampling import Decision

        if not span.flags:
            return False
        above = trace.set_span_in_context(trace.NonRecordingSpan(_context(remote, remote=True))) if remote else None
        decision = self._sampler.should_sample(above, span.trace, SCOPE).decision
        return decision is Decision.RECORD_AND_SAMPLE

    def take(self, signal: Signal) -> None:
        if isinstance(signal, MetricValue):
            self._measure[signal.metric.name](signal.value, signal.attributes)
        elif self.samples(signal.here, signal.remote):
            span = readable(signal, self._resource)
            for processor in self._processors:
                processor.on_end(span)

    def close(self) -> None:
        for processor in self._processors:
            processor.shutdown()
        self._meters.shutdown()


def send_spans(spans: Iterable[Span]) -> tuple[int, bool]:
    """Send the spans of an old session now: how many, and whether the collector took them all."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    _be_quiet()
    exporter, resource, sent = OTLPSpanExporter(), _resource(), 0
    try:
        for batch in _batches(spans):
            if exporter.export([readable(span, resource) for span in batch]) is not SpanExportResult.SUCCESS:
                return sent, False
            sent += len(batch)
        return sent, True
    finally:
        exporter.shutdown()


def endpoint() -> str:
    """Where spans are sent, as the variables say."""
    base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip() or "http://localhost:4318"
    return os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip() or f"{base.rstrip('/')}/v1/traces"


def readable(span: Span, resource: "Resource") -> "ReadableSpan":
    """A span as the SDK has it."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanKind, Status, StatusCode

    attributes = {**span.attributes, **({names.ERROR: span.error} if span.error else {})}
    above = structs.replace(span.here, span=span.parent)
    return ReadableSpan(
        span.name,
        _context(span.here),
        _context(above, remote=span.remote is not None) if span.parent else None,
        resource,
        attributes,
        [Event(each.name, each.attributes, int(each.time * NANO)) for each in span.moments],
        kind=SpanKind.CLIENT if span.outward else SpanKind.INTERNAL,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=int(span.start * NANO),
        end_time=int(span.end * NANO),
        instrumentation_scope=InstrumentationScope(SCOPE, __version__),
    )


def _context(span: SpanContext, *, remote: bool = False) -> "trace.SpanContext":
    from opentelemetry import trace

    return trace.SpanContext(span.trace, span.span, is_remote=remote, trace_flags=trace.TraceFlags(span.flags))


def _resource() -> "Resource":
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource

    ours = Resource({SERVICE_NAME: names.AGENT, SERVICE_VERSION: __version__})
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    given = Resource.create()
    return ours.merge(given) if named else given.merge(ours)


def _sent(signal: str) -> bool:
    """Whether the variables have this signal sent."""
    return os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip() in ("", "otlp")


def _span_processors() -> "list[SpanProcessor]":
    if not _sent("TRACES"):
        return []
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return [BatchSpanProcessor(OTLPSpanExporter())]


def _metric_readers() -> "list[MetricReader]":
    if not _sent("METRICS"):
        return []
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return [PeriodicExportingMetricReader(OTLPMetricExporter())]


def _be_quiet() -> None:
    """Keep the SDK from writing its errors into the terminal."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def _batches(spans: Iterable[Span]) -> Iterator[list[Span]]:
    batch: list[Span] = []
    for span in spans:
        batch.append(span)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
