"""The real command, in a process of its own, with a home and a project of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.starter import STARTER, Started
from tests.servers.coding_task import make_coding_workspace
from tests.servers.recording import RecordedRequest

ROOT = Path(__file__).resolve().parents[2]
MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.1-pro-preview"}
WITH_LOCAL = {**MODELS, "ollama": "ollama:qwen3:8b"}
KEYS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GEMINI_BASE_URL",
    "OLLAMA_HOST",
)
NOT_AS_INSTALLED = ("PYTHONDONTWRITEBYTECODE",)
"""An installed program has its byte code."""


@dataclass
class Program:
    """`tui-agent` as a user has it: `home` holds its state, `project` is the folder it is started in."""

    home: Path
    project: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    package: Path = ROOT

    @classmethod
    def in_folder(cls, folder: Path, environ: Mapping[str, str] | None = None) -> "Program":
        (folder / "home").mkdir()
        return cls(folder / "home", make_coding_workspace(folder / "project"), environ or {})

    @property
    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name not in (*KEYS, *NOT_AS_INSTALLED)}
        return {
            **own,
            "TUI_AGENT_HOME": str(self.home),
            "PYTHONPATH": str(self.package),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            **self.environ,
        }

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "tui_agent"]

    def start(self, *arguments: str) -> Started:
        """Start it in a session of its own; forked, as in `run`."""
        return STARTER.start(arguments, folder=self.project, environ=self.environment)

    def run(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run it to its end, in a process that is forked where all is imported already (`STARTER`)."""
        return STARTER.run(arguments, folder=self.project, environ=self.environment, stdin=stdin or "", timeout=timeout)

    def ask(self, *arguments: str) -> dict[str, Any]:
        """Run one turn and return the JSON object it prints."""
        done = self.run(*arguments, "--output-format", "json")
        if not done.stdout.strip():
            raise AssertionError(f"exit {done.returncode}: {done.stderr}")
        answer: dict[str, Any] = json.loads(done.stdout)
        answer["exit"] = done.returncode
        answer["stderr"] = done.stderr
        return answer


def without_cache_marks(value: Any) -> Any:
    """A request's JSON without its cache breakpoints."""
    if isinstance(value, dict):
        return {key: without_cache_marks(inner) for key, inner in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [without_cache_marks(inner) for inner in value]
    return value


def events_of(lines: str | Sequence[str]) -> list[dict[str, Any]]:
    """The events of a `stream-json` output; a last line that was cut off is left out."""
    found = []
    for line in lines.splitlines() if isinstance(lines, str) else lines:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found


def asked(requests: Sequence[RecordedRequest]) -> list[RecordedRequest]:
    """The requests that asked for an answer."""
    ways = ("/messages", "streamGenerate", "/api/chat")
    return [request for request in requests if any(way in request.path for way in ways)]
