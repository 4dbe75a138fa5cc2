"""Runs the tool calls of one step: ask, run, record. Every call gets exactly one result, whatever happens."""

import asyncio
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.agent import events
from tui_agent.agent.extensions.agents import RUN_AGENT, RunAgent
from tui_agent.agent.extensions.hooks import Hooks, Say
from tui_agent.agent.history.file_history import FileHistory
from tui_agent.agent.record import Record
from tui_agent.agent.turn.interceptors import Interceptors
from tui_agent.agent.turn.pictures import attach
from tui_agent.agent.turn.steps import Emit
from tui_agent.context.counting import estimate
from tui_agent.context.engine import ContextEngine
from tui_agent.context.layers.limits import Cut, Evicted, Whole
from tui_agent.conversation.blocks import Image, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.call_tool import inner_call
from tui_agent.conversation.entries import (
    USER_SHELL,
    AnyEntry,
    Artifact,
    Message,
    ModeChanged,
    Outcome,
    tool_result,
    user_shell,
)
from tui_agent.conversation.plan import ASK, UNANSWERED
from tui_agent.conversation.sizes import size_of_text
from tui_agent.conversation.states import INTERRUPTED, NO_OUTPUT
from tui_agent.durable import being_cancelled, in_thread, to_completion
from tui_agent.storage.errors import StorageError
from tui_agent.storage.store import Texts
from tui_agent.text import error_text
from tui_agent.tools.base import (
    Access,
    Ask,
    PermissionAnswer,
    PermissionQuestion,
    Preview,
    ToolFailure,
    ToolOutput,
    WorkspaceView,
    bounded_error,
)
from tui_agent.tools.gate.permissions import NobodyToAsk, PermissionGate
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.schema import expected

HOOK_CHARS = 100_000
"""Characters of a result that hooks are given."""
BY_A_HOOK = "A hook of the user refuses this call:"
CHANGED_BY_A_HOOK = "[a hook of the user changed the arguments of this call to {arguments}]"

DECLINED = "The user declined to start so many agents. Start fewer, or ask what they want."

LONG_CHARS = 100_000
"""Longer results are cut in a thread: 15 million characters take half a second."""

Expected: TypeAlias = Callable[[Sequence[ToolCall]], str]
"""The notice to show before these agents start; empty: none is needed. Called in a thread."""

PARALLEL = 8
"""How many read-only calls of one step run at the same time."""


NOT_APPROVED = "[not done: it needs an approval, and nobody could be asked; go on without it, or say what to allow]"
"""The result for calls of a turn that ended because nobody could answer a question."""

USERS_TIMEOUT_S = 86_400
"""The time limit of the user's own commands, in seconds; they can stop one at any time."""
STOPPED = "stopped by the user"

Status: TypeAlias = Literal["ok", "error", "denied", "interrupted", "unanswered"]

_STOPPED = ToolOutput(INTERRUPTED, is_error=True, outcome=Outcome(notes=1))
_NOT_APPROVED = ToolOutput(NOT_APPROVED, is_error=True, outcome=Outcome(notes=1))
_UNANSWERED = ToolOutput(UNANSWERED, outcome=Outcome(notes=1))


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a running call has access to; see `tools.base.ToolContext`."""

    workspace: WorkspaceView
    artifacts: Path
    call_id: str
    accesses: tuple[Access, ...]
    page_bytes: int
    emit: Emit
    asker: Ask
    deps: object = None

    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        return await self.asker(question)

    def progress(self, text: str, above: int = 0) -> None:
        self.emit(events.ToolProgress(call_id=self.call_id, text=valid_text(text), above=above))


class Toolbox:
    """The tools of a session, behind its permission gate."""

    def __init__(
        self,
        registry: ToolRegistry,
        gate: PermissionGate,
        ask: Ask,
        workspace: WorkspaceView,
        texts: Texts,
        files: FileHistory | None = None,
        hooks: Hooks | None = None,
        expected: Expected = lambda _: "",
        interceptors: Interceptors = Interceptors(),  # noqa: B008 (immutable)
        deps: object = None,
    ) -> None:
        self._files = files
        self._interceptors = interceptors
        self._deps = deps
        self._hooks = hooks
        self._expected = expected
        self.registry = registry
        self.gate = gate
        self._ask = ask
        self._workspace = workspace
        self._texts = texts

    async def run(self, calls: Sequence[ToolCall], record: Record, emit: Emit) -> None:
        """Run these calls: adjacent read-only ones in parallel, the others one after another.

        Every call that was reported as started is reported as finished and has its result in the log, whatever is
        raised. Raises `NobodyToAsk` if a call needs approval and nobody can give it, and `StorageError`.
        """
        calls = [inner_call(call) for call in calls]
        unfinished = {call.id: call for call in calls}

        def tell(event: events.AgentEvent) -> None:
            if isinstance(event, events.ToolFinished):
                unfinished.pop(event.call_id, None)
            emit(event)

        for call in calls:
            emit(events.ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments))
        try:
            most = record.engine.settings.agent.max_calls
            declined = await self._declined(calls[:most], emit)
            for call in declined:
                await self._finish(call, "denied", _refusal(DECLINED), time.monotonic(), record, tell)
            calls = [call for call in calls if call not in declined]
            waiting: list[PermissionQuestion] = []
            for batch in self._batches(calls[:most]):
                # Once a call waits for the user's answer, run no more calls, but collect the other questions.
                doing = [call for call in batch if not waiting or call.name == ASK]
                waiting += await _all_of([asyncio.ensure_future(self._answer(call, record, tell)) for call in doing])
            if waiting:
                raise NobodyToAsk(*waiting)  # noqa: TRY301
            left_out = f"One answer may ask for {most} calls (agent.max_calls); this one was not done. Call it again."
            for call in calls[most:]:
                output = _refusal(left_out)
                await self._finish(call, "error", output, time.monotonic(), record, tell)
        except NobodyToAsk as refusal:
            asked = {question.call_id for question in refusal.questions if question.kind != "call"}
            left = [call for call in calls if call.id in asked and call.id in unfinished]
            await to_completion(self._leave(left, _UNANSWERED, record, tell, "unanswered"))
            await to_completion(self._leave(unfinished.values(), _NOT_APPROVED, record, tell))
            raise
        except BaseException:
            await to_completion(self._leave(unfinished.values(), _STOPPED, record, tell))
            raise

    async def _declined(self, calls: Sequence[ToolCall], emit: Emit) -> list[ToolCall]:
        """Before many agents start, tell the user their price; returns the calls they decline. Raises `NobodyToAsk`."""
        agents = [call for call in calls if call.name == RUN_AGENT and call.name in self.registry]
        told = await asyncio.to_thread(self._expected, agents) if agents and self.gate.mode != "allow" else ""
        if not told:
            return []
        title, _, text = told.partition("\n")
        first = agents[0]
        reason = "Each is a conversation of its own, with calls of a model."
        question = PermissionQuestion(first.id, RUN_AGENT, first.arguments, (), Preview(title, text=text), reason)
        answer = await self._asking(emit)(question)
        return [] if answer.allowed else agents

    async def _leave(
        self,
        calls: Iterable[ToolCall],
        output: ToolOutput,
        record: Record,
        emit: Emit,
        status: Status = "interrupted",
    ) -> None:
        """Answer calls that will not be run."""
        for call in list(calls):
            try:
                await self._finish(call, status, output, time.monotonic(), record, emit)
            except StorageError:
                emit(_finished(call, status, output, _Fitted(output.text, output.text, output.outcome), 0, 0))

    async def run_for_user(
        self, command: str, engine: ContextEngine, emit: Emit, keep: Callable[[Message], Awaitable[int]]
    ) -> None:
        """Run a user's own command without asking; `keep` gets its message for the conversation, even if stopped."""
        arguments: dict[str, object] = {"command": command}
        call = ToolCall(f"user-{uuid.uuid4().hex[:12]}", USER_SHELL, _json(arguments))
        emit(events.ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments))
        began, shown = time.monotonic(), ""

        def pass_on(event: events.AgentEvent) -> None:
            nonlocal shown
            shown = event.text if isinstance(event, events.ToolProgress) else shown
            emit(event)

        # The user's own commands are not confined by the sandbox.
        granted = (Access("run", command, outside=True),)
        asking = self._asking(pass_on)
        context = CallContext(self._workspace, self._texts.folder, call.id, granted, engine.page_bytes, pass_on, asking)

        async def finish(status: Status, output: ToolOutput) -> None:
            fitted, duration_ms = await self._fit(call, output, engine), _since(began)
            message = msgspec.structs.replace(
                user_shell(call.id, valid_text(command), fitted.text, is_error=output.is_error),
                summary=valid_text(output.summary),
                outcome=fitted.outcome,
                artifact=fitted.artifact,
                duration_ms=duration_ms,
                stop_reason=_undone(status),
            )
            emit(_finished(call, status, output, fitted, await keep(message), duration_ms))

        try:
            if await self.gate.check_own(command, asking, call.id):
                timed = _json({**arguments, "timeout": USERS_TIMEOUT_S})
                output = await self.registry.get("run_command").run(timed, context)
            else:
                output = _refusal("You declined it: nothing was run.")
        except ToolFailure as failure:
            output = _refusal(str(failure))
        except NobodyToAsk as unasked:
            output = _refusal(f"Nothing was run. {unasked.question.reason} Look at it, then run it in the app.")
        except asyncio.CancelledError:
            text = f"{shown.rstrip()}\n[{STOPPED}]".lstrip()
            output = ToolOutput(text, is_error=True, summary=STOPPED, outcome=Outcome(notes=1))
            await to_completion(finish("interrupted", output))
            raise
        except Exception as error:
            output = _broke("The command", error)
        await finish("error" if output.is_error else "ok", output)

    async def call_for_user(self, name: str, arguments: str, engine: ContextEngine, emit: Emit) -> str:
        """Run a call for a command of the user's own, through the gate; returns its result, cut to what fits.

        Raises `ToolFailure` if it is refused or fails, and `NobodyToAsk`.
        """
        call = ToolCall(f"own-{uuid.uuid4().hex[:12]}", name, arguments)
        tool = self.registry.get(name)
        verdict = await self.gate.check(tool, call, self._asking(emit))
        if not verdict.allowed:
            raise ToolFailure(f"{name} {arguments} was refused: {verdict.reason}")
        context = CallContext(
            self._workspace,
            self._texts.folder,
            call.id,
            verdict.accesses,
            engine.page_bytes,
            emit,
            self._asking(emit),
            self._deps,
        )
        output = await tool.run(arguments, context)
        if not output.is_error and output.outcome.notes:
            printed = output.text.split("\n")[: -output.outcome.notes]
            output = msgspec.structs.replace(output, text="\n".join(printed) or NO_OUTPUT)
        return (await self._fit(call, output, engine)).text.strip("\n")

    def _batches(self, calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
        batch: list[ToolCall] = []
        for call in calls:
            if self._is_harmless(call):
                batch.append(call)
                if len(batch) < PARALLEL:
                    continue
            elif batch:
                yield batch
                batch = [call]
            else:
                batch = [call]
            yield batch
            batch = []
        if batch:
            yield batch

    def _is_harmless(self, call: ToolCall) -> bool:
        """Whether it can run in parallel with others: it only reads, or is refused anyway."""
        try:
            return self.registry.get(call.name).effect in ("read", "none")
        except ToolFailure:
            return True

    async def _answer(self, call: ToolCall, record: Record, emit: Emit) -> None:
        began, mode = time.monotonic(), self.gate.mode
        asking = self._asking(emit)

        async def ask(question: PermissionQuestion) -> PermissionAnswer:
            # The time the user takes to answer does not count as time of the call.
            nonlocal began
            asked = time.monotonic()
            try:
                return await asking(question)
            finally:
                began += time.monotonic() - asked

        try:
            status, output = await self._attempt(call, record, emit, ask)
        except asyncio.CancelledError:
            await self._finish(call, "interrupted", _STOPPED, began, record, emit)
            raise
        if status == "error":
            output = bounded_error(output, record.engine.settings.output.error_bytes)
        changed: tuple[AnyEntry, ...] = ()
        if self.gate.mode not in (mode, record.view.mode):
            changed = (ModeChanged(mode=self.gate.mode, before=mode),)
        await self._finish(call, status, output, began, record, emit, changed)

    async def _attempt(self, call: ToolCall, record: Record, emit: Emit, ask: Ask) -> tuple[Status, ToolOutput]:
        if call.malformed:
            return "error", _refusal(self._taught(call))
        try:
            tool = self.registry.get(call.name)
            asked, call = call, await self._interceptors.judged(call)
            intercepted = call
            said = await self._before(call, emit)
            if said.refused:
                return "denied", _refusal(f"{BY_A_HOOK} {said.refused}")
            if said.arguments:
                call = msgspec.structs.replace(call, arguments=said.arguments)
            verdict = await self.gate.check(tool, call, ask, doubted=said.asked)
            record.note("permission", {"call_id": call.id, "allowed": verdict.allowed, "reason": verdict.reason})
            if not verdict.allowed:
                return "denied", _refusal(verdict.advice, verdict.reason)
            if verdict.notice:
                emit(events.Notice(level="warning", title="The rule is not remembered", text=verdict.notice))
            context = CallContext(
                self._workspace,
                self._texts.folder,
                call.id,
                verdict.accesses,
                record.engine.page_bytes,
                emit,
                ask,
                self._deps,
            )
            changes: tuple[Access, ...] = ()
            if isinstance(tool, RunAgent) and await asyncio.to_thread(tool.may_change, call.arguments):
                changes = (Access("run", call.name),)
            async with self._keeping(context, record, changes):
                output = await tool.run(call.arguments, context)
            if not isinstance(output, ToolOutput):
                raise TypeError(f"it gave back {type(output).__name__}, not ToolOutput")  # noqa: TRY301
            output = await self._interceptors.seen(intercepted, asked, output)
            output = await self._after(call, output, said, emit)
        except ToolFailure as failure:
            return "error", _refusal(str(failure))
        except (NobodyToAsk, KeyboardInterrupt, GeneratorExit):
            raise
        except OSError as error:
            reason = error.strerror or error_text(error)
            return "error", _refusal(f"{call.name} failed: {reason}. Try another way, or tell the user.")
        except BaseException as error:
            # A tool may raise anything, also BaseExceptions; that ends neither the program nor the turn.
            if isinstance(error, asyncio.CancelledError) and being_cancelled():
                raise
            record.note("error", {"kind": "tool", "call_id": call.id, "traceback": traceback.format_exc()})
            return "error", _broke(call.name, error)
        return ("error" if output.is_error else "ok"), output

    def _taught(self, call: ToolCall) -> str:
        """The result for a call that could not be parsed: its correct shape."""
        again = "Nothing was done. Call it again with one JSON object"
        if call.name in self.registry:
            advice = f"{again}. {expected(self.registry.get(call.name).definition)}"
        else:
            advice = f"{again}, as its definition says."
        return f"The arguments of {call.name} were not a JSON object: {call.malformed[:500]}\n{advice}"

    async def _before(self, call: ToolCall, emit: Emit) -> Say:
        """Run the user's hooks before a call is judged."""
        if self._hooks is None:
            return Say()
        return await self._hooks.fire("PreToolUse", _told_of(call), emit, call.name)

    async def _after(self, call: ToolCall, output: ToolOutput, before: Say, emit: Emit) -> ToolOutput:
        """The result with the additions of hooks: a note if they changed the call, and their text for the model."""
        if self._hooks is None:
            return output
        answer = {"tool_response": {"text": output.text[:HOOK_CHARS], "is_error": output.is_error}}
        after = await self._hooks.fire("PostToolUse", {**_told_of(call), **answer}, emit, call.name)
        notes = [CHANGED_BY_A_HOOK.format(arguments=call.arguments)] if before.arguments else []
        notes += [f"[a hook of the user says] {told}" for told in (before.told, after.told) if told]
        if not notes:
            return output
        added = "\n".join(notes)
        outcome = output.outcome.with_notes(added.count("\n") + 1)
        return msgspec.structs.replace(output, text=f"{output.text}\n{added}", outcome=outcome)

    @asynccontextmanager
    async def _keeping(self, context: CallContext, record: Record, changes: tuple[Access, ...]) -> AsyncIterator[None]:
        """Record the files that a call changes, so that they can be put back.

        `changes`: the accesses of calls that it makes itself.
        """
        if self._files is None:
            yield
            return
        async with self._files.watching(context.call_id, (*context.accesses, *changes), record):
            yield
        for text in self._files.take_news():
            context.emit(events.Notice(level="info", title="Not all that is changed can be put back", text=text))

    def _asking(self, emit: Emit) -> Ask:
        async def ask(question: PermissionQuestion) -> PermissionAnswer:
            emit(events.PermissionAsked(question=question))
            return await self._ask(question)

        return ask

    async def _finish(
        self,
        call: ToolCall,
        status: Status,
        output: ToolOutput,
        began: float,
        record: Record,
        emit: Emit,
        before: Sequence[AnyEntry] = (),
    ) -> None:
        """Append a call's result, after the entries `before`, and announce it."""
        fitted = await self._fit(call, output, record.engine)
        attached = await attach(output.images, lambda: self._texts.folder)
        notes = [block.text for block in attached.blocks if isinstance(block, Text)]
        images = tuple(block for block in attached.blocks if isinstance(block, Image))
        duration_ms = _since(began)
        shown = "\n".join((fitted.text, *notes))
        result = ToolResult(call.id, shown, is_error=output.is_error, images=images, tools=output.tools)
        answer = tool_result(
            result,
            artifact=fitted.artifact,
            duration_ms=duration_ms,
            summary=valid_text(output.summary),
            diff=valid_text(output.diff),
            stop_reason=_undone(status),
            outcome=fitted.outcome.with_notes(len(notes)),
        )
        seq = await record.append(*before, answer)
        emit(_finished(call, status, output, fitted, seq, duration_ms))

    async def _fit(self, call: ToolCall, output: ToolOutput, engine: ContextEngine) -> "_Fitted":
        """Limit a result to what enters the conversation; a cut result is saved in full before its entry."""
        long = len(output.text) > LONG_CHARS
        raw = await asyncio.to_thread(_whole, output.text) if long else _whole(output.text)
        shorten = partial(engine.shorten, raw, paged=output.paged)
        shortened = await in_thread(shorten) if long else shorten()
        if isinstance(shortened, Whole):
            return _Fitted(raw, raw, output.outcome)
        artifact = await self._texts.save(call.id, raw, evicted=isinstance(shortened, Evicted))
        shown = await asyncio.to_thread(shortened.text, artifact.path) if long else shortened.text(artifact.path)
        outcome = msgspec.structs.replace(output.outcome, line_count=raw.count("\n") + (not raw.endswith("\n")))
        if isinstance(shortened, Cut):
            outcome = outcome.with_notes(1) if shortened.tail else msgspec.structs.replace(outcome, notes=1)
        return _Fitted(raw, shown, outcome, artifact)


def _whole(text: str) -> str:
    return valid_text(text) if text.strip() else NO_OUTPUT


class _Fitted(NamedTuple):
    """A raw result, the text of it that enters the conversation, and the file with all of it if that was cut."""

    raw: str
    text: str
    outcome: Outcome
    artifact: Artifact | None = None


def _finished(
    call: ToolCall, status: Status, output: ToolOutput, fitted: _Fitted, seq: int, duration_ms: int
) -> events.ToolFinished:
    artifact = fitted.artifact
    return events.ToolFinished(
        call_id=call.id,
        name=call.name,
        status="interrupted" if status == "unanswered" else status,
        text=fitted.text,
        size=len(fitted.raw),
        tokens=estimate(size_of_text(fitted.text)),
        duration_ms=duration_ms,
        summary=output.summary,
        diff=output.diff,
        outcome=fitted.outcome,
        seq=seq,
        artifact=artifact.path if artifact else "",
        evicted=artifact is not None and artifact.evicted,
    )


def _since(began: float) -> int:
    """Milliseconds since `began`."""
    return int(1000 * (time.monotonic() - began))


async def _all_of(tasks: Sequence[asyncio.Future[None]]) -> list[PermissionQuestion]:
    """Wait for every task; if cancelled, cancel them all and wait.

    Returns the questions that nobody could answer. Raises the first other error.
    """
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await to_completion(_ended(tasks))
        raise
    errors = [error for task in tasks if (error := task.exception()) is not None]
    for error in errors:
        if not isinstance(error, NobodyToAsk):
            raise error
    return [question for error in errors if isinstance(error, NobodyToAsk) for question in error.questions]


async def _ended(tasks: Sequence[asyncio.Future[None]]) -> None:
    await asyncio.wait(tasks)


def _told_of(call: ToolCall) -> dict[str, object]:
    """The description of a call for hooks."""
    return {"tool_name": call.name, "tool_input": msgspec.Raw(call.arguments.encode()), "tool_use_id": call.id}


def _broke(name: str, error: BaseException) -> ToolOutput:
    return _refusal(f"{name} failed inside: {error_text(error)}. Try another way, or tell the user.")


def _undone(status: Status) -> str:
    """Why a call was not carried out, for its result's `stop_reason`; empty if it was."""
    return "" if status in ("ok", "error") else status


def _json(arguments: dict[str, object]) -> str:
    return msgspec.json.encode(arguments).decode()


def _refusal(text: str, summary: str = "") -> ToolOutput:
    return ToolOutput(text, is_error=True, summary=summary)
