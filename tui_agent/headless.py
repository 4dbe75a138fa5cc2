"""One turn without a screen: events in, text, JSON or JSON lines out."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from contextlib import aclosing

import msgspec

from tui_agent.agent import events
from tui_agent.agent.commands import Reply, is_command, run_command
from tui_agent.agent.pictures import mentioned_pictures, read_pictures, smaller_text
from tui_agent.arguments import Arguments, ExitCode, OutputFormat
from tui_agent.conversation.blocks import Image
from tui_agent.conversation.entries import Usage
from tui_agent.models.catalogue import missing_key
from tui_agent.models.usage import UsageTracker
from tui_agent.session import Session, SessionError, open_session
from tui_agent.settings import Settings
from tui_agent.storage.errors import StorageError
from tui_agent.text import clean, printable
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion
from tui_agent.tools.gate.permissions import NobodyToAsk


class ErrorReport(msgspec.Struct, frozen=True):
    """Why a turn failed."""

    kind: str
    message: str
    retryable: bool


class ContextReport(msgspec.Struct, frozen=True):
    """How full the window is, in tokens, and what was done about it, counted over the session."""

    tokens: int
    window: int
    percent: float
    evicted: int
    cleared: int
    digested: int
    compactions: int
    checkpoints: int


class Report(msgspec.Struct, frozen=True):
    """What `--output-format json` prints: one object. `turns` counts the session's own model calls.

    `usage`, `cost_usd` (null where unknown) and `models` are of all calls, those of subtasks and summaries included;
    the most expensive model comes first.
    """

    session_id: str
    result: str
    is_error: bool
    error: ErrorReport | None
    stop_reason: str
    turns: int
    usage: Usage
    cost_usd: float | None
    models: list[str]
    context: ContextReport
    duration_ms: int


def run(arguments: Arguments, settings: Settings) -> int:
    """Do one turn and print it; the exit code (docs/headless.md, "Exit codes")."""
    return asyncio.run(_run(arguments, settings))


async def _run(arguments: Arguments, settings: Settings) -> int:
    began = time.monotonic()
    try:
        session = await open_session(settings, arguments, _nobody)
    except SessionError as error:
        _say(f"{error.message} {error.hint}".strip())
        return ExitCode.BAD_USAGE
    try:
        missing = missing_key(session.agent.profile.name)
        if missing is not None:
            _say(f"{session.agent.profile.name} needs a key: set {missing}, or choose another model with --model.")
            return ExitCode.BAD_USAGE
        for notice in session.notices:
            _say(" ".join(part for part in (notice.title + ":", notice.text, notice.hint) if part))
        return await _answered(session, arguments, began)
    finally:
        try:
            await session.close()
        except StorageError as error:
            _say(f"{error.message} {error.hint}".strip())


async def _answered(session: Session, arguments: Arguments, began: float) -> int:
    """Do what the prompt asks for, print what came of it, and return the exit code."""
    prompt = arguments.prompt or ""
    outcome = _Outcome(session.agent.tracker)
    if is_command(prompt) and not prompt[:1].isspace():
        await _command(session, arguments, outcome)
    else:
        await _turn(session, arguments, outcome)
    _show(outcome, _report(session, outcome, began), arguments.output_format)
    return outcome.exit_code


async def _turn(session: Session, arguments: Arguments, outcome: "_Outcome") -> None:
    streaming = arguments.output_format == "stream-json"
    _on_signals(session.agent.interrupt)
    if streaming:
        _print_json(
            msgspec.json.encode({"type": "session", "session_id": session.id, "model": session.agent.profile.name})
        )
    images = await _pictures(session, arguments)
    async with aclosing(session.agent.run(arguments.prompt or "", images)) as stream:
        async for event in stream:
            match event:
                case events.TurnFailed():
                    outcome.failure = event
                case events.TurnFinished():
                    outcome.finished = event
                case events.Notice() if not streaming:
                    _say(" ".join(part for part in (event.title + ":", event.text, event.hint) if part))
                case events.Alert() if not streaming:
                    _say(f"watchdog: {event.text}")
                case _:
                    pass
            if streaming:
                _print_json(events.encode(event))


async def _pictures(session: Session, arguments: Arguments) -> tuple[Image, ...]:
    """The pictures that the prompt mentions; what cannot be sent is told."""
    prompt = arguments.prompt or ""
    named = {name: read for _, name, read in mentioned_pictures(prompt, arguments.folder)}
    if not named:
        return ()
    if not session.agent.profile.images:
        _say(f"{session.agent.profile.name} cannot see pictures: only the words are sent.")
        return ()
    found = await asyncio.to_thread(read_pictures, named, session.folder)
    for problem in found.problems:
        _say(f"Not sent as a picture: {problem}")
    if found.smaller:
        _say(f"Sent smaller: {smaller_text(found.smaller)}")
    return found.images


async def _command(session: Session, arguments: Arguments, outcome: "_Outcome") -> None:
    """Do a slash command in place of a turn."""
    tracker = session.agent.tracker
    tracker.start_turn()
    # What the report says of the window needs what the provider tells of the model.
    learn = arguments.output_format != "text"
    doing = asyncio.ensure_future(run_command(session.agent, arguments.prompt or "", learn=learn))
    _on_signals(doing.cancel)
    try:
        reply = await doing
    except StorageError as error:
        reply = Reply(error.message, error.hint, failed=True)
    except asyncio.CancelledError:
        reply = Reply("")
    text = "\n".join(part for part in (reply.title, reply.text) if part)
    if reply.failed:
        outcome.failure = events.TurnFailed(kind="command", message=text, retryable=False)
    outcome.finished = events.TurnFinished(
        stop_reason="interrupted" if doing.cancelled() else "command",
        text="" if reply.failed else text,
        steps=0,
        usage=tracker.turn.usage,
        cost_usd=tracker.turn.known_cost_usd,
        duration_ms=0,
    )


class _Outcome:
    """What the events said so far, and which models were asked meanwhile."""

    def __init__(self, tracker: UsageTracker) -> None:
        self.failure: events.TurnFailed | None = None
        self.finished: events.TurnFinished | None = None
        self._tracker = tracker
        self._before = tracker.by_model()

    @property
    def models(self) -> list[str]:
        """Every model that answered since, the session's most expensive one first."""
        return [name for name, totals in self._tracker.by_model().items() if totals != self._before.get(name)]

    @property
    def exit_code(self) -> int:
        if self.failure is not None:
            return ExitCode.NEEDS_APPROVAL if self.failure.kind == "needs_approval" else ExitCode.FAILED
        return (
            ExitCode.INTERRUPTED
            if self.finished is None or self.finished.stop_reason == "interrupted"
            else ExitCode.DONE
        )


def _report(session: Session, outcome: _Outcome, began: float) -> Report:
    stats, failure, finished = session.agent.context_stats(), outcome.failure, outcome.finished
    return Report(
        session_id=session.id,
        result=finished.text if finished else "",
        is_error=failure is not None,
        error=ErrorReport(failure.kind, failure.message, failure.retryable) if failure else None,
        stop_reason=finished.stop_reason if finished else "interrupted",
        turns=finished.steps if finished else 0,
        usage=finished.usage if finished else Usage(),
        cost_usd=finished.cost_usd if finished else None,
        models=outcome.models,
        context=ContextReport(
            tokens=stats.tokens,
            window=stats.window,
            percent=round(stats.percent, 1),
            evicted=stats.evicted,
            cleared=stats.cleared,
            digested=stats.digested,
            compactions=stats.compactions,
            checkpoints=stats.checkpoints,
        ),
        duration_ms=int(1000 * (time.monotonic() - began)),
    )


def _show(outcome: _Outcome, report: Report, form: OutputFormat) -> None:
    if form == "text":
        if report.result:
            _print(clean(report.result))
    else:
        _print_json(_report_json(report, tagged=form == "stream-json"))
    if outcome.failure is not None:
        _say(f"{outcome.failure.message} {outcome.failure.hint}".strip())


def _report_json(report: Report, *, tagged: bool) -> bytes:
    """The object with every field of its parts, zero or not; `tagged` as an event among others."""
    told: dict[str, object] = {"type": "result"} if tagged else {}
    told |= msgspec.to_builtins(report)
    told["usage"] = msgspec.structs.asdict(report.usage)
    return msgspec.json.encode(told)


def _on_signals(stop: Callable[[], object]) -> None:
    """Stop when the user interrupts, or when the process is told to end: in order, so that the session is closed."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)


async def _nobody(question: PermissionQuestion) -> PermissionAnswer:
    raise NobodyToAsk(question)


def _print_json(line: bytes) -> None:
    """Print JSON so that no terminal that it reaches takes orders from it; it stays the same JSON."""
    _print(printable(line.decode()))


def _print(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")
    sys.stdout.buffer.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"tui-agent: {clean(text)}\n")
    sys.stderr.flush()
