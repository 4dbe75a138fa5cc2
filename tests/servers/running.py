"""Running a server outside the test's event loop: in a thread, or as a process that outlives its client.

As a process: ``python -m tests.servers.running anthropic --port 0 --script FILE.json --record FILE.jsonl``. It prints
its URL on the first line and serves until it is terminated. Without ``--script`` it plays the standard coding task.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from tests.servers.coding_task import coding_task_script
from tests.servers.recording import Record, RecordedRequest, read_record
from tests.servers.script import Script
from tests.servers.server import API_KEY, ProtocolServer

ROOT = Path(__file__).resolve().parents[2]
_Server = TypeVar("_Server", bound=ProtocolServer)


@contextlib.contextmanager
def in_thread(server: _Server) -> Iterator[_Server]:
    """Run ``server`` in a thread of its own; yields it once it listens."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    failure: list[BaseException] = []
    stop = asyncio.Event()

    async def run() -> None:
        try:
            await server.start()
        except OSError as error:
            failure.append(error)
            return
        finally:
            started.set()
        await stop.wait()
        await server.stop()

    def target() -> None:
        with contextlib.closing(loop):
            loop.run_until_complete(run())

    thread = threading.Thread(target=target, name=f"{server.name}-server", daemon=True)
    thread.start()
    started.wait()
    if failure:
        raise failure[0]
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


class ServerProcess:
    """A server in a process of its own. ``requests``, ``answers`` and ``violations`` are read from its record file."""

    def __init__(self, process: subprocess.Popen[str], name: str, url: str, record: Path) -> None:
        self._process = process
        self._name = name
        self._record = record
        self.url = url
        self.api_key = API_KEY

    @property
    def environment(self) -> dict[str, str]:
        if self._name == "anthropic":
            return {"ANTHROPIC_API_KEY": self.api_key, "ANTHROPIC_BASE_URL": self.url}
        if self._name == "ollama":
            return {"OLLAMA_HOST": self.url}
        return {"GEMINI_API_KEY": self.api_key, "GOOGLE_GEMINI_BASE_URL": self.url}

    def record(self) -> Record:
        return read_record(self._record)

    @property
    def requests(self) -> list[RecordedRequest]:
        return self.record().requests

    @property
    def violations(self) -> list[str]:
        return self.record().violations

    @property
    def dropped_thinking(self) -> list[str]:
        return self.record().dropped_thinking

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


@contextlib.contextmanager
def in_process(
    name: str, directory: Path, script: Script | None = None, *, windows: dict[str, int] | None = None, port: int = 0
) -> Iterator[ServerProcess]:
    """Start ``tests.servers.<name>`` (``anthropic``, ``gemini`` or ``ollama``); its files go to ``directory``."""
    record = directory / f"{name}-record.jsonl"
    command = [sys.executable, "-m", "tests.servers.running", name, "--port", str(port), "--record", str(record)]
    if script is not None:
        command += ["--script", str(script.save(directory / f"{name}-script.json"))]
    for model, size in (windows or {}).items():
        command += ["--window", f"{model}={size}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip() if process.stdout is not None else ""
        if not url:
            raise RuntimeError(f"the {name} server did not start (exit status {process.wait()})")
        yield ServerProcess(process, name, url, record)
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="a module here, like anthropic")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, help="a JSON file made by Script.save; default: the coding task")
    parser.add_argument("--record", type=Path, help="JSON lines: requests, answers, violations")
    parser.add_argument("--window", action="append", default=[], metavar="MODEL=TOKENS")
    arguments = parser.parse_args()
    script = Script.load(arguments.script) if arguments.script else coding_task_script()
    windows = {model: int(size) for model, _, size in (item.partition("=") for item in arguments.window)}
    found = vars(import_module(f"tests.servers.{arguments.name}")).values()
    (kind,) = (
        each
        for each in found
        if isinstance(each, type)
        and each.__module__.endswith(f".{arguments.name}")
        and issubclass(each, ProtocolServer)
    )
    server = kind(script, windows=windows, port=arguments.port, record=arguments.record)
    asyncio.run(_until_terminated(server))


async def _until_terminated(server: ProtocolServer) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with server:
        print(server.url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    main()
