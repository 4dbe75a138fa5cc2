"""Many tasks, each in a git worktree and a process of its own: `tui-agent batch TASKS.jsonl` (docs/batch.md).

What is done stands in a ledger beside the results, so a batch that was stopped goes on where it was, and what failed is
tried again.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias

import msgspec

from tui_agent.arguments import ExitCode, UsageError
from tui_agent.storage.ledger import Ledger
from tui_agent.system.durable import write_file
from tui_agent.text import counted, expanded, money_text, one_line
from tui_agent.worktrees import Worktree, WorktreeError, open_worktree, patch_of, remove_worktree

LEDGER: Final = "TUI_AGENT_LEDGER"
"""The variable that tells a task's process where the ledger is."""
SHARED: Final = "shared_ceiling"
LOOK_S: Final = 0.5
MAX_OUTPUT: Final = 64 * 1024 * 1024
"""Bytes of a task's answer."""

Format: TypeAlias = Literal["results", "swebench"]


class BatchTask(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the tasks. folder: relative to that of the file, by default the current one; ref: where the worktree
    begins; max_usd: what it may cost alone; schema: of a structured answer, itself or a file's path. instance_id,
    problem_statement and base_commit, as SWE-bench names them, stand for id, prompt and ref.
    """

    id: str = ""
    prompt: str = ""
    folder: str = ""
    ref: str = ""
    model: str = ""
    max_usd: float | None = None
    schema: dict[str, Any] | str | None = None
    instance_id: str = ""
    problem_statement: str = ""
    base_commit: str = ""

    @property
    def name(self) -> str:
        return self.id or self.instance_id

    @property
    def words(self) -> str:
        return self.prompt or self.problem_statement


class BatchOptions(msgspec.Struct, frozen=True):
    """How a batch is run. words: options that each task's process gets besides."""

    tasks: Path
    results: Path
    jobs: int = 2
    max_usd: float | None = None
    form: Format = "results"
    words: Sequence[str] = ()


def read_tasks(path: Path) -> list[BatchTask]:
    """The tasks in a file of JSON Lines. Raises `UsageError` that names the line."""
    tasks: list[BatchTask] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"batch: {path} cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            task = msgspec.json.decode(line, type=BatchTask)
        except msgspec.DecodeError as error:
            raise UsageError(f"batch: line {number} of {path} is no task: {error}") from None
        if not task.words.strip():
            raise UsageError(f"batch: line {number} of {path} has no prompt")
        tasks.append(task if task.name else msgspec.structs.replace(task, id=str(number)))
    names = [task.name for task in tasks]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"batch: two tasks of {path} are called {twice}")
    return tasks


class Batch:
    """One run of a batch. `show` is told of every change."""

    def __init__(self, options: BatchOptions, tasks: Sequence[BatchTask], show: Callable[["Batch"], None]) -> None:
        self.options, self.tasks, self._show = options, tasks, show
        self.ledger = Ledger(options.results.with_name(f"{options.results.name}.state"))
        self.ledger.set_ceiling(options.max_usd)
        self.running: dict[str, float] = {}
        """The tasks that run, and since when."""
        keys = set(map(_key, tasks))
        self.results = {
            key: text
            for key, text in self.ledger.results().items()
            if key in keys and not msgspec.json.decode(text)["error"]
        }
        self.over = False
        """Whether no further task is begun: the ceiling is reached, or the user stopped it."""
        self._processes: set[asyncio.subprocess.Process] = set()
        self._worktrees = asyncio.Lock()
        """Held while one is added or removed: git fails on another one that is half made."""

    @property
    def done(self) -> list[dict[str, Any]]:
        """The results there are, in the order of the tasks."""
        found = (self.results.get(_key(task)) for task in self.tasks)
        return [msgspec.json.decode(text) for text in found if text is not None]

    async def run(self) -> None:
        """Run what is not done yet; stopped by `stop`."""
        waiting = iter([task for task in self.tasks if _key(task) not in self.results])
        self._write()

        async def work() -> None:
            for task in waiting:
                if self.over:
                    return
                await self._do(task)

        await asyncio.gather(*(work() for _ in range(self.options.jobs)))

    def stop(self) -> None:
        """Begin no further task, and end those that run."""
        self.over = True
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.terminate()

    async def _do(self, task: BatchTask) -> None:
        began = time.monotonic()
        self.running[task.name] = began
        self._show(self)
        worktree: Worktree | None = None
        try:
            async with self._worktrees:
                worktree = await asyncio.to_thread(self._worktree, task)
            result = await self._run(task, worktree)
            result["patch"] = await asyncio.to_thread(patch_of, worktree)
        except (WorktreeError, OSError) as error:
            result = _failed(task, "worktree", one_line(str(error), 500))
        finally:
            del self.running[task.name]
            if worktree is not None:
                async with self._worktrees:
                    with suppress(WorktreeError):
                        await asyncio.to_thread(remove_worktree, worktree)
        result["duration_s"] = round(time.monotonic() - began, 3)
        kind = (result.get("error") or {}).get("kind")
        self.over = self.over or kind == SHARED
        if not (kind == SHARED or (self.over and result["exit_code"])):
            self.results[_key(task)] = text = msgspec.json.encode(result).decode()
            await asyncio.to_thread(self.ledger.finish, _key(task), text)
            self._write()
        self._show(self)

    def _worktree(self, task: BatchTask) -> Worktree:
        start = (self.options.tasks.parent / expanded(task.folder)).resolve() if task.folder else Path.cwd()
        name, ref = f"batch-{_key(task)[:12]}", task.ref or task.base_commit or "HEAD"
        found = open_worktree(start, name, ref)
        if not found.new:  # a run that was killed left it
            remove_worktree(found)
            found = open_worktree(start, name, ref)
        return found

    async def _run(self, task: BatchTask, worktree: Worktree) -> dict[str, Any]:
        """Run the task's process to its end; the result, without its patch."""
        with TemporaryDirectory() as place:
            words = await asyncio.to_thread(self._words, task, Path(place))
            process = await asyncio.create_subprocess_exec(
                # -P: a module of this name in the worktree is not ours.
                *(sys.executable, "-P", "-m", "tui_agent", *words),
                cwd=worktree.folder,
                env={**os.environ, LEDGER: str(self.ledger.path.resolve())},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_OUTPUT,
            )
            self._processes.add(process)
            try:
                if self.over:
                    process.terminate()
                output, errors = await process.communicate(task.words.encode())
            except BaseException:
                with suppress(ProcessLookupError):
                    process.kill()
                raise
            finally:
                self._processes.discard(process)
        return _result(task, process.returncode or 0, output, errors)

    def _words(self, task: BatchTask, place: Path) -> list[str]:
        """What the task's process is started with; `place`: for a file of its schema."""
        words = ["-p", "--output-format", "json", *self.options.words]
        if task.model:
            words += ["--model", task.model]
        if task.max_usd is not None:
            words += ["--set", f"agent.max_session_cost_usd={task.max_usd}"]
        if isinstance(task.schema, str):
            words += ["--json-schema", str((self.options.tasks.parent / task.schema).resolve())]
        elif task.schema is not None:
            schema = place / "schema.json"
            schema.write_bytes(msgspec.json.encode(task.schema))
            words += ["--json-schema", str(schema)]
        return words

    def _write(self) -> None:
        """Write the file of results, as a whole."""
        done = self.done
        if self.options.form == "swebench":
            done = [
                {
                    "instance_id": each["id"],
                    "model_name_or_path": f"tui-agent/{each['model'] or 'unknown'}",
                    "model_patch": each["patch"],
                }
                for each in done
            ]
        write_file(self.options.results, b"".join(msgspec.json.encode(each) + b"\n" for each in done))


def _key(task: BatchTask) -> str:
    return sha256(msgspec.json.encode(task)).hexdigest()


def _failed(task: BatchTask, kind: str, message: str, code: int = 1) -> dict[str, Any]:
    error = {"kind": kind, "message": message, "retryable": False}
    return {
        "id": task.name, "answer": "", "structured": None, "patch": "", "model": "", "usage": None, "cost_usd": None,
        "session": "", "error": error, "exit_code": code,
    }  # fmt: skip


def _result(task: BatchTask, code: int, output: bytes, errors: bytes) -> dict[str, Any]:
    try:
        result = msgspec.json.decode(output.strip().rpartition(b"\n")[2])
        fields: Mapping[str, Any] = result if isinstance(result, dict) else {}
    except msgspec.DecodeError:
        fields = {}
    if not fields:
        said = one_line(errors.decode(errors="replace"), 500) or f"it ended with {code}"
        return _failed(task, "process", said, code or 1)
    error = fields.get("error")
    if error is None and code:
        question = (fields.get("question") or {}).get("text", "")
        error = {"kind": "approval" if question else "process", "message": question, "retryable": False}
    return {
        "id": task.name,
        "answer": fields.get("result", ""),
        "structured": fields.get("structured_result"),
        "patch": "",
        "model": next(iter(fields.get("models") or ()), ""),
        "usage": fields.get("usage"),
        "cost_usd": fields.get("cost_usd"),
        "session": fields.get("session_id", ""),
        "error": error,
        "exit_code": code,
    }


def run(options: BatchOptions) -> int:
    """Run a batch to its end, with a board on standard error. Raises `UsageError`."""
    tasks = read_tasks(options.tasks)
    return asyncio.run(_run(options, tasks))


async def _run(options: BatchOptions, tasks: Sequence[BatchTask]) -> int:
    with BatchDisplay() as show:
        batch = Batch(options, tasks, show)
        loop = asyncio.get_running_loop()
        stopped: list[int] = []

        def stop(number: int) -> None:
            stopped.append(number)
            batch.stop()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number)
        running = asyncio.create_task(batch.run())
        while not running.done():
            await asyncio.wait({running}, timeout=LOOK_S)
            show(batch)
        await running
    failed = sum(bool(each["error"]) for each in batch.done)
    left = len(tasks) - len(batch.done)
    spent = money_text(batch.ledger.money().spent)
    summary = f"{counted(len(batch.done), 'task')} done, {failed} of them failed; {spent}. Results: {options.results}"
    if left:
        why = "stopped" if stopped else "the ceiling of all is reached"
        summary += f". {left} not done ({why}): the same command goes on with them."
    sys.stderr.write(f"{summary}\n")
    if stopped:
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if left or failed else ExitCode.DONE


class BatchDisplay:
    """A context that shows a batch: live on a terminal, else a line for each task that is done."""

    def __enter__(self) -> Callable[[Batch], None]:
        self._printed: set[str] = set()
        self._live: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _show(self, batch: Batch) -> None:
        if self._live is not None:
            self._live.update(_table(batch), refresh=True)
            return
        for each in batch.done:
            if each["id"] not in self._printed:
                self._printed.add(each["id"])
                sys.stderr.write(f"{_line(each)}\n")


def _line(result: Mapping[str, Any]) -> str:
    error = result["error"]
    how = f"failed: {one_line(str(error['message']), 200)}" if error else "done"
    cost = money_text(result["cost_usd"]) if result["cost_usd"] is not None else "$?"
    return f"{one_line(str(result['id']), 60)}: {how}, {cost}, {result['duration_s']:.0f} s"


def _table(batch: Batch) -> object:
    from rich.table import Table
    from rich.text import Text

    done, money, now = batch.done, batch.ledger.money(), time.monotonic()
    failed = sum(bool(each["error"]) for each in done)
    of = f" of {money_text(money.ceiling)}" if money.ceiling is not None else ""
    waiting = len(batch.tasks) - len(done) - len(batch.running)
    table = Table.grid(padding=(0, 2))
    table.add_row(
        f"running {len(batch.running)}", f"waiting {waiting}", f"done {len(done)}", f"failed {failed}",
        f"{money_text(money.spent)}{of}",
    )  # fmt: skip
    for name, began in batch.running.items():
        table.add_row(Text(one_line(name, 40)), f"{now - began:.0f} s")
    return table


def die_with_parent(environ: Mapping[str, str]) -> Path | None:
    """If this is a task's process: end with the batch, however that ends; the path of its ledger."""
    if not (path := environ.get(LEDGER)):
        return None
    if sys.platform == "linux":
        from tui_agent.tools.sandbox import kernel

        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
    return Path(path)
