"""Replaying many recordings on every core, or on any `concurrent.futures.Executor`.

One task is one recording on one model at one window, under all policies that its results do not have yet. Results are
appended to a file of JSON lines as they come, each with the content's hash, policy, model, window and version. So a
stopped run goes on where it was, the same content is never replayed twice, and what several shards wrote can be put
together with `cat`. A result has figures only: nothing that was said, and no name or path.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from glob import glob
from hashlib import sha256
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import IO, Final, NamedTuple, TypeAlias

import msgspec

from tui_agent.replay.billing import WRITING_SPEED
from tui_agent.replay.forecast import error_of
from tui_agent.replay.recorded import AS_RECORDED
from tui_agent.replay.replaying import OWN, Replay
from tui_agent.settings import POLICIES, Settings
from tui_agent.storage.log import LOG_NAME
from tui_agent.storage.recordings.reading import FOLDERS, SUFFIX, opened, read_recording
from tui_agent.storage.recordings.recording import UnreadableRecording
from tui_agent.storage.sessions import find_session
from tui_agent.system.lenient import decoded
from tui_agent.text import expanded
from tui_agent.tools.own_process import in_own_process
from tui_agent.version import __version__

OWN_SESSIONS: Final = "tui-agent"
KINDS: Final = ("*.jsonl", f"*.jsonl{SUFFIX}", "*.json", LOG_NAME)
"""The files in a folder that may be recordings."""
AHEAD: Final = 4
"""Tasks that are handed to an executor at once, for each of its workers."""
HASH_CHARS: Final = 32

Key: TypeAlias = tuple[str, str, str, int, str]


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recording's figures under one policy. Costs are in USD, times in seconds, all else in tokens or counts.

    `recording` is the hash of its content; `model` and `window` are as asked (`OWN`, 0: the recording's, the model's),
    `on` and `tokens` what they were. `problem` says why there are no figures. `survived` has for each kind of thing
    what was needed, and of it what was in view; `errors` how far off the prediction of the recorded usage was.
    """

    recording: str
    policy: str
    model: str
    window: int
    version: str
    problem: str = ""
    format: str = ""
    on: str = ""
    tokens: int = 0
    calls: int = 0
    cost_usd: float = 0.0
    summary_cost_usd: float = 0.0
    fetch_cost_usd: float = 0.0
    compactions: int = 0
    clearings: int = 0
    read_again: int = 0
    waits: int = 0
    wait_s: float = 0.0
    calls_over_window: int = 0
    needed: int = 0
    in_view: int = 0
    verbatim: int = 0
    depth: float = 0.0
    survived: dict[str, tuple[int, int]] = {}
    errors: dict[str, float] = {}

    @property
    def verbatim_share(self) -> float:
        """The share of what was needed that was in view where it was said; 1 if nothing was needed."""
        return self.verbatim / self.needed if self.needed else 1.0

    @property
    def key(self) -> Key:
        """What no second result has."""
        return self.recording, self.policy, self.model, self.window, self.version


class ReplayTask(msgspec.Struct, frozen=True):
    """A recording on one model at one window, under these policies."""

    path: str
    recording: str
    policies: tuple[str, ...]
    model: str
    window: int
    version: str
    settings: Settings


class RecordingFile(NamedTuple):
    """A recording: its file or folder, and the hash of its content."""

    path: Path
    hash: str


@cache
def _code() -> bytes:
    """A hash of the code that a replay runs."""
    package, found = Path(__file__).parents[1], sha256()
    for folder in ("context", "conversation", "models", "replay", "storage"):
        for file in sorted((package / folder).rglob("*.py")):
            found.update(file.read_bytes())
    return found.digest()


def version_of(settings: Settings) -> str:
    """The version of what replays: of the program, and a hash of its code and the settings that matter to it."""
    matter = (
        settings.model.id,
        settings.models,
        settings.context,
        settings.output,
        settings.clearing,
        settings.digests,
        settings.compaction,
        settings.checkpoints,
        settings.agentic,
    )
    return f"{__version__}+{sha256(_code() + msgspec.json.encode(matter, order='sorted')).hexdigest()[:8]}"


def find(named: Sequence[str], agents: Sequence[str], home: Path) -> list[RecordingFile]:
    """The recordings in these files, folders, globs and sessions, and of these agents: largest first, each once.

    Raises `UnreadableRecording` if one of them names nothing.
    """
    paths: dict[Path, None] = {}
    for name in named:
        for path in _matches(name) or [_session(name, home)]:
            found_in = [path]
            if path.is_dir():
                log = path / LOG_NAME
                found_in = [log] if log.is_file() else sorted(each for kind in KINDS for each in path.rglob(kind))
            paths.update(dict.fromkeys(found_in))
    for agent in agents:
        for pattern in [str(home / "sessions" / "*" / LOG_NAME)] if agent == OWN_SESSIONS else FOLDERS[agent]:
            paths.update(dict.fromkeys(_matches(pattern)))
    found = {hash_of(path): path for path in reversed(paths) if path.is_file()}
    return [
        RecordingFile(path, content)
        for content, path in sorted(found.items(), key=lambda each: -each[1].stat().st_size)
    ]


def _matches(pattern: str) -> list[Path]:
    return [Path(each) for each in sorted(glob(str(expanded(pattern)), recursive=True))]  # noqa: PTH207


def _session(name: str, home: Path) -> Path:
    import asyncio

    from tui_agent.storage.errors import StorageError

    try:
        return asyncio.run(find_session(home, name)) / LOG_NAME
    except StorageError as error:
        raise UnreadableRecording(f"{name} is no file, folder or session. {error.message}") from error


def hash_of(path: Path) -> str:
    """The hash of a recording's content, whether it is compressed or not; of a session's log, with what is not yet
    merged into it.
    """
    digest = sha256()
    for part in (path, path.with_name(f"{path.name}-wal")):
        if part.is_file():
            with _as_said(part) as file:
                while data := file.read(1 << 20):
                    digest.update(data)
    return digest.hexdigest()[:HASH_CHARS]


def _as_said(path: Path) -> IO[bytes]:
    """A file's text, or its bytes if they cannot be unpacked, which is said where it is replayed."""
    try:
        return opened(path)
    except UnreadableRecording:
        return path.open("rb")


class Results:
    """The file of results. A line that a kill cut off is left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known: dict[Key, Result] = {}
        data = path.read_bytes() if path.exists() else b""
        self._torn = bool(data) and not data.endswith(b"\n")
        for line in data.splitlines():
            if (result := decoded(line, Result)) is not None:
                self.known[result.key] = result

    def write(self, results: Iterable[Result]) -> None:
        lines = b""
        for result in results:
            self.known[result.key] = result
            lines += msgspec.json.encode(result) + b"\n"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write((b"\n" if self._torn else b"") + lines)
        self._torn = False


def tasks(
    found: Iterable[RecordingFile],
    known: Mapping[Key, Result],
    settings: Settings,
    *,
    names: Sequence[str],
    models: Sequence[str] = (OWN,),
    windows: Sequence[int] = (0,),
) -> Iterator[ReplayTask]:
    version = version_of(settings)
    for path, content in found:
        for model in models:
            for window in windows:
                left = tuple(name for name in names if (content, name, model, window, version) not in known)
                if left:
                    yield ReplayTask(str(path), content, left, model, window, version, settings)


def replayed(task: ReplayTask) -> list[Result]:
    """The results of a task. What cannot be replayed has results that say so, so that it is not tried again."""

    def nothing(policy: str, problem: str) -> Result:
        model, window, version = task.model, task.window, task.version
        return Result(
            recording=task.recording, policy=policy, model=model, window=window, version=version, problem=problem
        )

    problem = "not readable"
    try:
        replay = Replay(read_recording(task.path, Path(task.path).parent), task.settings)
        problem = "prices not known"
        profile = replay.profile(task.model)
    except UnreadableRecording:
        return [nothing(policy, problem) for policy in task.policies]
    results: list[Result] = []
    for policy in task.policies:
        if policy == AS_RECORDED and not replay.tells_requests:
            results.append(nothing(policy, "no usage recorded"))
            continue
        (outcome,) = replay.run([policy], profile, task.window)
        bill, evidence = outcome.bill, outcome.evidence
        accuracy = replay.accuracies.get((outcome.model, outcome.window)) if policy == AS_RECORDED else None
        errors: dict[str, float] = {}
        if accuracy is not None:
            one, other = accuracy.predicted, accuracy.recorded
            errors = {
                "cost": error_of(*accuracy.costs),
                "sent": error_of(one.input_tokens, other.input_tokens),
                "read": error_of(one.cache_read_tokens, other.cache_read_tokens),
            }
            if accuracy.rest is not None:
                errors["rest"] = error_of(*accuracy.rest.costs)
        results.append(
            msgspec.structs.replace(
                nothing(policy, ""),
                format=replay.recording.format,
                on=outcome.model,
                tokens=outcome.window,
                calls=len(replay.script.calls),
                cost_usd=bill.total,
                summary_cost_usd=bill.summary_cost_usd,
                fetch_cost_usd=bill.fetch_cost_usd,
                compactions=outcome.compactions,
                clearings=outcome.clearings,
                read_again=bill.fetches,
                waits=bill.waits,
                wait_s=bill.waited / WRITING_SPEED,
                calls_over_window=bill.calls_over_window,
                needed=evidence.needed,
                in_view=evidence.in_view,
                verbatim=evidence.depths[0],
                depth=evidence.depth,
                survived=evidence.kinds,
                errors={name: error for name, error in errors.items() if abs(error) != float("inf")},
            )
        )
    return results


def _work(task: bytes) -> bytes:
    """`replayed` as bytes, which any executor can send."""
    return msgspec.json.encode(replayed(msgspec.json.decode(task, type=ReplayTask)))


async def policy_costs(folder: Path, settings: Settings, model: str, *, window: int) -> list[Result]:
    """Replay the session in `folder` under each of `POLICIES` on this model, in a process of its own.

    Slow for a long session: about 3 s per policy for 500 calls; cancelling ends it. Nothing is returned if there is no
    answer yet, or the model's prices are not known. `window` is in tokens.
    """
    task = ReplayTask(str(folder), "", tuple(POLICIES), model, window, "", settings)
    try:
        results = msgspec.json.decode(await in_own_process(__name__, msgspec.json.encode(task)), type=list[Result])
    except (OSError, msgspec.DecodeError):
        return []
    return [each for each in results if not each.problem]


class WorkerDied(Exception):
    """A worker process died. What was done is in the results."""


def run(left: Iterable[ReplayTask], executor: Executor, workers: int) -> Iterator[list[Result]]:
    """The results of tasks, as they come. Few are handed over at a time, so memory does not grow with their number.

    Raises `WorkerDied`.
    """
    waiting: set[Future[bytes]] = set()
    rest = iter(left)
    try:
        while True:
            for task in rest:
                waiting.add(executor.submit(_work, msgspec.json.encode(task)))
                if len(waiting) >= AHEAD * workers:
                    break
            if not waiting:
                return
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield msgspec.json.decode(future.result(), type=list[Result])
    except BrokenProcessPool as error:
        raise WorkerDied(
            "A worker process ended. What was done is kept: the same command goes on from there."
        ) from error
    finally:
        for future in waiting:
            future.cancel()


def end_with_parent() -> None:
    """Let a worker end when the process that started it is killed: it would wait for tasks for ever."""

    def watch() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


@contextmanager
def executor_of(address: str, jobs: int) -> Iterator[tuple[Executor, int]]:
    """The executor at an address such as ``dask://HOST:PORT`` and its workers; without one, processes on this machine.

    The workers of a cluster need this program and the same paths to the recordings. Raises `UnreadableRecording`.
    """
    if not address:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
            yield pool, jobs
        return
    scheme, _, place = address.partition("://")
    if scheme != "dask" or not place:
        raise UnreadableRecording(f"--executor: expected dask://HOST:PORT, got {address}")
    try:
        from distributed import Client
    except ImportError as error:
        raise UnreadableRecording("--executor: Dask is not installed: pip install 'tui-agent[dask]'") from error
    try:
        client = Client(f"tcp://{place}", timeout="10s", set_as_default=False)
    except OSError as error:
        raise UnreadableRecording(f"--executor: no Dask scheduler answers at {place}.") from error
    with client:
        yield client.get_executor(), max(1, len(client.scheduler_info()["workers"]))


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


if __name__ == "__main__":
    sys.stdout.buffer.write(_work(sys.stdin.buffer.read()))
