"""What a server saw and did, kept in memory and, when a file is given, as one JSON line each."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class RecordedRequest:
    """``time`` is seconds since the epoch; ``json`` is None when the body is not a JSON object."""

    number: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    json: dict[str, Any] | None
    time: float


@dataclass(frozen=True)
class Answer:
    """How request ``number`` was answered. ``completed``: the client was sent the whole of a good answer."""

    number: int
    status: int
    outcome: Literal["completed", "refused", "fault", "client_gone"]
    detail: str = ""
    usage: dict[str, int] = field(default_factory=dict)


@dataclass
class Record:
    """The growing record of one server; ``path`` gets a flushed line per fact."""

    path: Path | None = None
    requests: list[RecordedRequest] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    dropped_thinking: list[str] = field(default_factory=list)

    def request(self, method: str, path: str, headers: dict[str, str], body: bytes) -> RecordedRequest:
        value: object = None
        with contextlib.suppress(ValueError):
            value = json.loads(body)
        parsed = value if isinstance(value, dict) else None
        request = RecordedRequest(len(self.requests), method, path, headers, body, parsed, time.time())
        self.requests.append(request)
        fact = {"number": request.number, "method": method, "path": path, "headers": headers, "time": request.time}
        self._write("request", {**fact, "body": base64.b64encode(body).decode(), "json": parsed})
        return request

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)
        self._write("answer", asdict(answer))

    def violation(self, text: str) -> None:
        self.violations.append(text)
        self._write("violation", {"text": text})

    def dropped(self, text: str) -> None:
        self.dropped_thinking.append(text)
        self._write("dropped_thinking", {"text": text})

    def _write(self, kind: str, fact: dict[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps({"type": kind, **fact}) + "\n")


def read_record(path: Path) -> Record:
    """Read a record file back; a line that is still being written is left out."""
    record = Record()
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if not line.endswith("\n"):
            break
        fact = json.loads(line)
        match fact.pop("type"):
            case "request":
                record.requests.append(RecordedRequest(**{**fact, "body": base64.b64decode(fact["body"])}))
            case "answer":
                record.answers.append(Answer(**fact))
            case "violation":
                record.violations.append(fact["text"])
            case "dropped_thinking":
                record.dropped_thinking.append(fact["text"])
    return record
