"""Runs the tool calls of one step: ask, run, record. Every call gets exactly one result, whatever happens."""

import asyncio
import inspect
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import msgspec

from tui_agent.agent import events
from tui_agent.agent.events import Emit
from tui_agent.agent.extensions import claude
from tui_agent.agent.extensions.agents import RUN_AGENT, RunAgent
from tui_agent.agent.extensions.hook_files import Event
from tui_agent.agent.extensions.hooks import HookAnswer, Hooks
from tui_agent.agent.history.as_events import finished
from tui_agent.agent.history.file_history import FileHistory
from tui_agent.agent.record import Record
from tui_agent.agent.turn.pictures import attach
from tui_agent.context.layers.limits import Cut, Evicted, Uncut
from tui_agent.conversation import entries
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.states import INTERRUPTED, NO_OUTPUT
from tui_agent.conversation.tasks import ASK, UNANSWERED
from tui_agent.conversation.wire import inner_call
from tui_agent.models.usage import UsageTracker
from tui_agent.storage.errors import StorageError
from tui_agent.storage.store import Texts
from tui_agent.system.durable import being_cancelled, in_thread, to_completion
from tui_agent.system.lenient import object_in
from tui_agent.text import error_text
from tui_agent.tools.base import (
    Access,
    Ask,
    CallStopped,
    PermissionAnswer,
    PermissionQuestion,
    Preview,
    SubtaskProgress,
    ToolFailure,
    ToolOutput,
    WorkspaceView,
    bounded_error,
)
from tui_agent.tools.gate.permissions import NobodyToAsk, PermissionGate
from tui_agent.tools.mcp.server_tool import ServerTool
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.schema import expected
from tui_agent.tracing import within

HOOK_CHARS = 100_000
"""Characters of a result that hooks are given."""
LONG_CHARS = 100_000
"""Longer results are cut in a thread: 15 million characters take half a second."""
PARALLEL = 8
"""How many read-only calls of one step run at the same time."""
USERS_TIMEOUT_S = 86_400
"""The time limit of the user's own commands, in seconds; they can stop one at any time."""

DECLINED = "The user declined to start so many agents. Start fewer, or ask what they want."
NOT_APPROVED = "[not done: it needs an approval, and nobody could be asked; go on without it, or say what to allow]"
"""The result for calls of a turn that ended because nobody could answer a question."""
STOPPED = "stopped by the user"

T = TypeVar("T")
Maybe: TypeAlias = Awaitable[T | None] | T | None

BeforeTool: TypeAlias = Callable[[ToolCall], Maybe[ToolCall | str]]
"""Called before a call is judged by the permission gate. A text refuses the call, and tells the model why; another
`ToolCall` changes its arguments; None lets it go on."""
AfterTool: TypeAlias = Callable[[ToolCall, ToolOutput], Maybe[ToolOutput]]
"""Called with the result of a call that ran; may return another one."""
BeforeModel: TypeAlias = Callable[[ModelRequest], Maybe[str]]
"""Called before each step with the request as it stands. A text is added to the conversation for the model; an
exception ends the turn."""

Status: TypeAlias = Literal["ok", "error", "denied", "interrupted", "unanswered"]

_STOPPED = ToolOutput(INTERRUPTED, is_error=True, outcome=entries.Outcome(notes=1))
_NOT_APPROVED = ToolOutput(NOT_APPROVED, is_error=True, outcome=entries.Outcome(notes=1))
_UNANSWERED = ToolOutput(UNANSWERED, outcome=entries.Outcome(notes=1))


class Interceptors(msgspec.Struct, frozen=True):
    """Functions of a host program that are called around tool calls and model calls; each may be ``async``."""

    before_tool: BeforeTool | None = None
    after_tool: AfterTool | None = None
    before_model: BeforeModel | None = None


async def value_of(given: Maybe[T]) -> T | None:
    if inspect.isawaitable(given):
        awaited: T | None = await given
        return awaited
    return given


class CallContext(msgspec.Struct, frozen=True):
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

    def progress(self, text: str, above: int = 0, subtask: SubtaskProgress | None = None) -> None:
        self.emit(events.ToolProgress(call_id=self.call_id, text=valid_text(text), above=above, subtask=subtask))


class Toolbox(msgspec.Struct, eq=False):
    """The tools of a session, behind its permission gate. answering: the tasks of the calls that run, or ran last."""

    _record: Record
    registry: ToolRegistry
    gate: PermissionGate
    _ask: Ask
    _workspace: WorkspaceView
    _texts: Texts
    _files: FileHistory | None
    _hooks: Hooks
    _interceptors: Interceptors
    _deps: object
    _tracker: UsageTracker
    answering: Sequence[asyncio.Future[None]] = ()
    _ended_by_hook: str = ""
    _one_hook: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def left_open(self, call: ToolCall) -> str:
        """The answer to a call that got none before the program ended. Reads files."""
        inner = inner_call(call)
        try:
            tool = self.registry.get(inner.name)
        except ToolFailure:
            return INTERRUPTED
        return tool.left_open(inner.arguments) if isinstance(tool, ServerTool) else INTERRUPTED

    async def run(self, calls: Sequence[ToolCall], emit: Emit) -> None:
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
            most = self._record.engine.settings.agent.max_calls
            declined = await self._declined(calls[:most], emit)
            for call in declined:
                await self._finish(call, "denied", _refusal(DECLINED), tell)
            calls = [call for call in calls if call not in declined]
            waiting: list[PermissionQuestion] = []
            for batch in self._batches(calls[:most]):
                # Once a call waits for the user's answer, run no more calls, but collect the other questions.
                doing = [call for call in batch if not waiting or call.name == ASK]
                self.answering = [asyncio.ensure_future(self._answer(call, tell)) for call in doing]
                waiting += await _all_of(self.answering)
            if waiting:
                raise NobodyToAsk(*waiting)  # noqa: TRY301
            left_out = f"One answer may ask for {most} calls (agent.max_calls); this one was not done. Call it again."
            for call in calls[most:]:
                await self._finish(call, "error", _refusal(left_out), tell)
        except NobodyToAsk as refusal:
            asked = {question.call_id for question in refusal.questions if question.kind != "call"}
            left = [call for call in calls if call.id in asked and call.id in unfinished]
            await to_completion(self._leave(left, "unanswered", _UNANSWERED, tell))
            await to_completion(self._leave(list(unfinished.values()), "interrupted", _NOT_APPROVED, tell))
            raise
        except BaseException:
            await to_completion(self._leave(list(unfinished.values()), "interrupted", _STOPPED, tell))
            raise

    async def _declined(self, calls: Sequence[ToolCall], emit: Emit) -> list[ToolCall]:
        """Before many agents start, tell the user their price; returns the calls they decline. Raises `NobodyToAsk`."""
        agents = [call for call in calls if call.name == RUN_AGENT and call.name in self.registry]
        tool = self.registry.get(RUN_AGENT) if agents and self.gate.mode != "allow" else None
        expected = await asyncio.to_thread(tool.expected, agents) if isinstance(tool, RunAgent) else ""
        if not expected:
            return []
        title, _, text = expected.partition("\n")
        first = agents[0]
        reason = "Each is a conversation of its own, with calls of a model."
        question = PermissionQuestion(first.id, RUN_AGENT, first.arguments, (), Preview(title, text=text), reason)
        answer = await self._asking(emit)(question)
        return [] if answer.allowed else agents

    async def _leave(self, calls: Iterable[ToolCall], status: Status, output: ToolOutput, emit: Emit) -> None:
        for call in calls:
            try:
                await self._finish(call, status, output, emit)
            except StorageError:
                result = ToolResult(call.id, output.text, is_error=output.is_error)
                emit(finished(entries.tool_result(result, stop_reason=_undone(status)), result, call.name))

    async def run_for_user(self, command: str, emit: Emit, keep: Callable[[entries.Message], Awaitable[int]]) -> None:
        """Run a user's own command without asking; `keep` gets its message for the conversation, even if stopped."""
        arguments: dict[str, object] = {"command": command}
        call = ToolCall(f"user-{uuid.uuid4().hex[:12]}", entries.USER_SHELL, _json(arguments))
        emit(events.ToolStarted(call_id=call.id, name=call.name, arguments=call.arguments))
        began = time.monotonic()

        async def finish(status: Status, output: ToolOutput) -> None:
            fitted, duration_ms = await self._fit(call, output), _since(began)
            message = msgspec.structs.replace(
                entries.user_shell(call.id, valid_text(command), fitted.text, is_error=output.is_error),
                summary=valid_text(output.summary),
                outcome=fitted.outcome,
                artifact=fitted.artifact,
                duration_ms=duration_ms,
                stop_reason=_undone(status),
            )
            result = next(block for block in message.blocks if isinstance(block, ToolResult))
            emit(finished(msgspec.structs.replace(message, seq=await keep(message)), result, call.name))

        asking = self._asking(emit)
        try:
            if await self.gate.check_own(command, asking, call.id):
                # The user's own commands are not confined by the sandbox.
                context = self._context(call.id, (Access("run", command, outside=True),), emit, asking)
                timed = _json({**arguments, "timeout": USERS_TIMEOUT_S})
                output = await self.registry.get("run_command").run(timed, context)
            else:
                output = _refusal("You declined it: nothing was run.")
        except ToolFailure as failure:
            output = _refusal(str(failure))
        except NobodyToAsk as unasked:
            output = _refusal(f"Nothing was run. {unasked.question.reason} Look at it, then run it in the app.")
        except asyncio.CancelledError as stop:
            output = stop.output if isinstance(stop, CallStopped) else _STOPPED
            await to_completion(finish("interrupted", msgspec.structs.replace(output, summary=STOPPED)))
            raise
        except Exception as error:
            output = _broke("The command", error)
        await finish("error" if output.is_error else "ok", output)

    async def check_hook(self, line: str, emit: Emit, *, asks: bool) -> bool:
        """Whether a hook's command line may run: see `PermissionGate.check_own`. Raises NobodyToAsk, also where the
        user would have to be asked and `asks` is False.
        """

        async def unasked(question: PermissionQuestion) -> PermissionAnswer:
            raise NobodyToAsk(question)

        # One at a time: what several hooks run first is asked about once.
        async with self._one_hook:
            return await self.gate.check_own(line, self._asking(emit) if asks else unasked, title="Run your hook")

    async def call_for_user(self, name: str, arguments: str, emit: Emit) -> ToolOutput:
        """Run a call for a command of the user's own, through the gate; returns its result, its text cut to what fits.

        Raises `ToolFailure` if it is refused or fails, and `NobodyToAsk`.
        """
        call = ToolCall(f"own-{uuid.uuid4().hex[:12]}", name, arguments)
        tool, asking = self.registry.get(name), self._asking(emit)
        verdict = await self.gate.check(tool, call, asking)
        if not verdict.allowed:
            raise ToolFailure(f"{name} {arguments} was refused: {verdict.reason}")
        output = await tool.run(arguments, self._context(call.id, verdict.accesses, emit, asking))
        if not output.is_error and output.outcome.notes:
            printed = output.text.split("\n")[: -output.outcome.notes]
            output = msgspec.structs.replace(output, text="\n".join(printed) or NO_OUTPUT)
        return msgspec.structs.replace(output, text=(await self._fit(call, output)).text.strip("\n"))

    def own_context(self, emit: Emit) -> CallContext:
        """What a call may use that a hook of the user makes."""
        return self._context(f"own-{uuid.uuid4().hex[:12]}", (), emit, self._asking(emit))

    def _context(self, call_id: str, granted: tuple[Access, ...], emit: Emit, ask: Ask) -> CallContext:
        page_bytes = self._record.engine.page_bytes
        return CallContext(self._workspace, self._texts.folder, call_id, granted, page_bytes, emit, ask, self._deps)

    def _batches(self, calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
        """The calls in groups that may run at once: adjacent ones that only read, or are refused anyway."""
        batch: list[ToolCall] = []
        for call in calls:
            try:
                harmless = self.registry.get(call.name).effect in ("read", "none")
            except ToolFailure:
                harmless = True
            if batch and (not harmless or len(batch) == PARALLEL):
                yield batch
                batch = []
            if harmless:
                batch.append(call)
            else:
                yield [call]
        if batch:
            yield batch

    async def _answer(self, call: ToolCall, emit: Emit) -> None:
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
            with within(self._record.telemetry.call(call.id)):
                status, output = await self._attempt(call, emit, ask)
        except asyncio.CancelledError as stop:
            output = stop.output if isinstance(stop, CallStopped) else _STOPPED
            await self._finish(call, "interrupted", output, emit, _since(began))
            raise
        if status == "error":
            output = bounded_error(output, self._record.engine.settings.output.error_bytes)
        switched = self.gate.mode not in (mode, self._record.view.mode)
        changed = (entries.ModeChanged(mode=self.gate.mode, before=mode),) if switched else ()
        await self._finish(call, status, output, emit, _since(began), changed)

    async def _attempt(self, call: ToolCall, emit: Emit, ask: Ask) -> tuple[Status, ToolOutput]:
        record, around = self._record, self._interceptors
        if call.malformed:
            advice = ", as its definition says."
            if call.name in self.registry:
                advice = f". {expected(self.registry.get(call.name).definition)}"
            problem = f"The arguments of {call.name} were not a JSON object: {call.malformed[:500]}"
            return "error", _refusal(f"{problem}\nNothing was done. Call it again with one JSON object{advice}")
        try:
            tool, asked = self.registry.get(call.name), call
            if around.before_tool is not None:
                instead: ToolCall | str | None = await value_of(around.before_tool(call))
                if isinstance(instead, str):
                    return "error", _refusal(instead)
                call = msgspec.structs.replace(call, arguments=instead.arguments) if instead is not None else call
            intercepted = call
            before = await self._ask_hooks("PreToolUse", call, emit)
            if before.refused:
                return "denied", _refusal(f"A hook of the user refuses this call: {before.refused}")
            if before.arguments:
                call = _changed(call, before)
            while True:
                asking = _HookedAsk(call, ask, self._ask_hooks, self._hooks, emit)
                verdict = await self.gate.check(tool, call, asking, doubted=before.asked, trusted=before.allowed)
                if not asking.changes.arguments:
                    break
                # Changed by the hook that allowed it, the call is judged as what it is now.
                call, before = _changed(call, asking.changes), asking.changes
            record.note("permission", {"call_id": call.id, "allowed": verdict.allowed, "reason": verdict.reason})
            if not verdict.allowed:
                return "denied", _refusal(verdict.advice, verdict.reason)
            if verdict.notice:
                emit(events.Notice(level="warning", title="The rule is not remembered", text=verdict.notice))
            changes: tuple[Access, ...] = ()
            if isinstance(tool, RunAgent) and await asyncio.to_thread(tool.may_change, call.arguments):
                changes = (Access("run", call.name),)
            async with self._keeping(call.id, (*verdict.accesses, *changes), emit):
                output = await tool.run(call.arguments, self._context(call.id, verdict.accesses, emit, ask))
            if not isinstance(output, ToolOutput):
                raise TypeError(f"it gave back {type(output).__name__}, not ToolOutput")  # noqa: TRY301
            if around.after_tool is not None:
                output = await value_of(around.after_tool(intercepted, output)) or output
            if intercepted.arguments != asked.arguments:
                changed = f"[the program changed the arguments of this call to {intercepted.arguments}]"
                output = msgspec.structs.replace(output, text=f"{output.text}\n{changed}")
            output = await self._with_notes(call, output, before, emit)
        except ToolFailure as failure:
            return "error", await self._with_notes(call, _refusal(str(failure)), HookAnswer(), emit)
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

    async def _ask_hooks(self, event: Event, call: ToolCall, emit: Emit, **fields: object) -> HookAnswer:
        names, about = claude.names_of(call.name), object_in(call.arguments)
        target = next((about[key] for key in ("command", "path", "url") if isinstance(about.get(key), str)), "")
        fields = {**claude.call_for_claude(call, self._workspace.root), **fields}
        said = await self._hooks.fire(event, fields, emit, names, str(target))
        self._ended_by_hook = said.ended or self._ended_by_hook
        return said

    def take_end(self) -> str:
        """Why a hook has ended the turn, once; empty if none has."""
        ended, self._ended_by_hook = self._ended_by_hook, ""
        return ended

    async def _with_notes(self, call: ToolCall, output: ToolOutput, before: HookAnswer, emit: Emit) -> ToolOutput:
        """The result with the additions of hooks: a note if they changed the call, and their text for the model."""
        if output.is_error:
            failed = {"error": output.text[:HOOK_CHARS], "is_interrupt": False}
            after = await self._ask_hooks("PostToolUseFailure", call, emit, **failed)
        else:
            response = claude.result_for_claude(call, output, self._workspace.root, HOOK_CHARS)
            after = await self._ask_hooks("PostToolUse", call, emit, tool_response=response)
        notes = [f"[a hook of the user says] {text}" for text in (before.context, after.context) if text]
        if before.arguments:
            notes.insert(0, f"[a hook of the user changed the arguments of this call to {call.arguments}]")
        if not notes:
            return output
        added = "\n".join(notes)
        outcome = output.outcome.with_notes(added.count("\n") + 1)
        return msgspec.structs.replace(output, text=f"{output.text}\n{added}", outcome=outcome)

    @asynccontextmanager
    async def _keeping(self, call_id: str, accesses: tuple[Access, ...], emit: Emit) -> AsyncIterator[None]:
        """Record the files that a call with these accesses changes, so that they can be put back."""
        if self._files is None:
            yield
            return
        async with self._files.watching(call_id, accesses, self._record):
            yield
        for text in self._files.take_news():
            emit(events.Notice(level="info", title="Not all that is changed can be put back", text=text))

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
        emit: Emit,
        duration_ms: int = 0,
        before: Sequence[entries.AnyEntry] = (),
    ) -> None:
        """Append a call's result, after the entries `before`, and announce it."""
        fitted = await self._fit(call, output)
        attached = await attach(output.images, lambda: self._texts.folder)
        notes = [block.text for block in attached.blocks if isinstance(block, Text)]
        shown = "\n".join((fitted.text, *notes))
        result = ToolResult(call.id, shown, is_error=output.is_error, images=attached.images, tools=output.tools)
        answer = entries.tool_result(
            result,
            artifact=fitted.artifact,
            duration_ms=duration_ms,
            summary=valid_text(output.summary),
            diff=valid_text(output.diff),
            stop_reason=_undone(status),
            outcome=fitted.outcome.with_notes(len(notes)),
        )
        if output.cost_usd:
            self._tracker.record(call.name, entries.Usage(), output.cost_usd)
            paid = entries.UnattributedCall(
                model=call.name, usage=entries.Usage(), purpose="tool", cost_usd=output.cost_usd
            )
            before = (*before, paid)
        seq = await self._record.append(*before, answer)
        emit(finished(msgspec.structs.replace(answer, seq=seq), result, call.name))

    async def _fit(self, call: ToolCall, output: ToolOutput) -> "_Fitted":
        """Limit a result to what enters the conversation; a cut result is saved in full before its entry."""
        long = len(output.text) > LONG_CHARS
        raw = await asyncio.to_thread(_whole, output.text) if long else _whole(output.text)
        shorten = partial(self._record.engine.shorten, raw, paged=output.paged)
        shortened = await in_thread(shorten) if long else shorten()
        if isinstance(shortened, Uncut):
            return _Fitted(raw, output.outcome)
        artifact = await self._texts.save(call.id, raw, evicted=isinstance(shortened, Evicted))
        shown = await asyncio.to_thread(shortened.text, artifact.path) if long else shortened.text(artifact.path)
        lines = raw.count("\n") + (not raw.endswith("\n"))
        outcome = msgspec.structs.replace(output.outcome, line_count=max(lines, output.outcome.line_count))
        if isinstance(shortened, Cut):
            outcome = outcome.with_notes(1) if shortened.tail else msgspec.structs.replace(outcome, notes=1)
        return _Fitted(shown, outcome, artifact)


def _whole(text: str) -> str:
    return valid_text(text) if text.strip() else NO_OUTPUT


class _Fitted(msgspec.Struct, frozen=True):
    """The text of a result that enters the conversation, and the file with all of it if that was cut."""

    text: str
    outcome: entries.Outcome
    artifact: entries.Artifact | None = None


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
        await to_completion(asyncio.wait(tasks))
        for task in tasks:
            if not task.cancelled():
                task.exception()  # the store has noted what it could not keep; the stop is what counts
        raise
    errors = [error for task in tasks if (error := task.exception()) is not None]
    for error in errors:
        if not isinstance(error, NobodyToAsk):
            raise error
    return [question for error in errors if isinstance(error, NobodyToAsk) for question in error.questions]


class _HookedAsk:
    """Asks the user's hooks about a call, then the user. `changes`: how the hook that allowed it changed it."""

    def __init__(
        self, call: ToolCall, ask: Ask, ask_hooks: Callable[..., Awaitable[HookAnswer]], hooks: Hooks, emit: Emit
    ) -> None:
        self._call, self._ask, self._ask_hooks, self._hooks, self._emit = call, ask, ask_hooks, hooks, emit
        self.changes = HookAnswer()

    async def __call__(self, question: PermissionQuestion) -> PermissionAnswer:
        said = await self._ask_hooks("PermissionRequest", self._call, self._emit)
        if said.refused:
            return PermissionAnswer(allowed=False, feedback=f"A hook of the user says: {said.refused}")
        if said.allowed:
            self.changes = said if said.arguments else HookAnswer()
            return PermissionAnswer(allowed=True)
        name = claude.names_of(self._call.name)[0]
        self._hooks.notify("permission_prompt", f"tui-agent needs your permission to use {name}", self._emit)
        return await self._ask(question)


def _changed(call: ToolCall, said: HookAnswer) -> ToolCall:
    return msgspec.structs.replace(
        call, arguments=_json(claude.arguments_from_claude(call.name, object_in(said.arguments)))
    )


def _broke(name: str, error: BaseException) -> ToolOutput:
    return _refusal(f"{name} failed inside: {error_text(error)}. Try another way, or tell the user.")


def _undone(status: Status) -> str:
    """Why a call was not carried out, for its result's `stop_reason`; empty if it was."""
    return "" if status in ("ok", "error") else status


def _json(arguments: dict[str, object]) -> str:
    return msgspec.json.encode(arguments).decode()


def _refusal(text: str, summary: str = "") -> ToolOutput:
    return ToolOutput(text, is_error=True, summary=summary)
