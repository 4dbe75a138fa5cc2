"""A collector for OTLP over HTTP on 127.0.0.1, which decodes what it gets with the protocol's own definitions."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from typing_extensions import override

KINDS: dict[str, Any] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Receiver:
    """What came: spans by name in the order of their start, and metrics by name."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.raw = b""
        self.resources: list[dict[str, Any]] = []
        self.spans: list[dict[str, Any]] = []
        self.metrics: dict[str, dict[str, Any]] = {}

    def take(self, path: str, body: bytes) -> None:
        self.raw += body
        message = KINDS[path].FromString(body)
        decoded = MessageToDict(message)
        for each in decoded.get("resourceSpans", []):
            self.resources.append(attributes(each["resource"]))
            for scope in each["scopeSpans"]:
                self.spans += scope["spans"]
        for each in decoded.get("resourceMetrics", []):
            for scope in each["scopeMetrics"]:
                self.metrics |= {metric["name"]: metric for metric in scope["metrics"]}
        self.spans.sort(key=lambda span: int(span["startTimeUnixNano"]))

    def named(self, start: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"].startswith(start)]


def attributes(of: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a span or resource, each as its one value."""
    found: dict[str, Any] = {}
    for each in of.get("attributes", []):
        ((kind, value),) = each["value"].items()
        found[each["key"]] = int(value) if kind == "intValue" else value
    return found


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                receiver.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    lock = threading.Lock()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
