"""Hooks: the user's own programs that are run on events of a session and can influence it.

Input and output are the JSON of Claude Code's hooks (https://code.claude.com/docs/en/hooks), so that those work here.
If a hook fails, the user is told, with its name, and the session goes on without it.
"""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, get_args

import msgspec
from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.events import Emit
from tui_agent.agent.extensions.claude import HookTranscript
from tui_agent.agent.extensions.files import MOST_BYTES, ExtensionFolder, is_there
from tui_agent.agent.extensions.hook_calls import HookConnections, posted, used, verdict_of
from tui_agent.agent.extensions.hook_files import Event, FoundHooks, Hook, hooks_signature, read_hooks
from tui_agent.conversation.blocks import ToolCall, valid_text
from tui_agent.conversation.entries import AnyEntry, Message
from tui_agent.regex import regex
from tui_agent.settings.brought import PLUGIN_DATA
from tui_agent.system.durable import make_private_folder
from tui_agent.system.lenient import object_in
from tui_agent.system.programs import with_search_path
from tui_agent.system.regular import read_at_most
from tui_agent.text import clean, error_text
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.rules import READ
from tui_agent.tools.notes.skills import SKILL_FILE, signature_of

MAX_CONTEXT_CHARS: Final = 10_000
"""The most characters of a hook's answer that reach the model."""
MOST_STOPS: Final = 5
"""How often in a row hooks may keep a turn from ending."""
BLOCKED: Final = 2
"""The exit code with which a hook refuses; the reason is on standard error."""

_OUTPUT_TO_MODEL: Final = frozenset(("SessionStart", "UserPromptSubmit", "SubagentStart", "PreCompact"))
"""Events for which plain-text output goes to the model."""
_DONE: Final = frozenset(("PostToolUse", "PostToolUseFailure"))
"""Events after which nothing can be refused any more: a refusal is text for the model."""
_NO_REFUSAL: Final = frozenset(
    (
        *("SessionStart", "SessionEnd", "Notification", "SubagentStart", "PostCompact"),
        *("FileChanged", "WorktreeRemove"),
    )
)
"""Events on which nothing can be refused: a refusal is text for the user."""
_OF_SUBTASKS: Final[frozenset[Event]] = frozenset(
    (
        *("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure", "Notification"),
        *("SubagentStart", "SubagentStop"),
    )
)

_MODES: Final = {"plan": "plan", "ask": "default", "auto": "acceptEdits", "allow": "bypassPermissions"}

_NOBODY_ASKED: Final = frozenset(("Notification", "SessionEnd"))
"""Events on which the user is not asked whether a hook may run: it is about another question, or they are leaving."""
_STOPS: Final = frozenset(("Stop", "SubagentStop"))
_ENDS_TURN: Final = frozenset(("PreToolUse", "PostToolUse"))
"""Events on which a refusal by a prompt ends the turn, unless its hook says ``continueOnBlock``."""
_WATCH_S: Final = 1.0
"""Seconds between two looks at the files that hooks wait for."""


class HookBlocked(Exception):
    """A hook refused the user's prompt, or ended the turn; the message is its reason."""


class HookAnswer(msgspec.Struct, frozen=True):
    """The combined answer of an event's hooks.

    refused, asked, allowed: reasons to refuse, to ask the user or to go on without asking; empty: none. context: text
    for the model. arguments: a replacement for those of the call, as JSON text. ended: why the turn is to end.
    worktree: the folder that a hook has made. watched: files to watch from now on; None: no change. failed: it could
    not be run or understood.
    """

    refused: str = ""
    asked: str = ""
    allowed: str = ""
    context: str = ""
    arguments: str = ""
    ended: str = ""
    worktree: str = ""
    watched: tuple[str, ...] | None = None
    failed: bool = False


class Subtask(msgspec.Struct, frozen=True):
    """The subtask whose hooks these are: its id, and the name of its agent or tool. agent: that of the user's agent;
    empty: it has none.
    """

    id: str
    kind: str
    agent: str = ""


class SessionFacts(msgspec.Struct, frozen=True):
    """Facts on the session that every hook is given. transcript: None if the conversation is not kept on disk; that of
    the session also in a subtask, whose own is `agent_transcript`.
    """

    session: str
    folder: Path
    project: Path
    home: Path
    mode: Callable[[], str]
    model: Callable[[], str]
    resumed: bool
    transcript: HookTranscript | None = None
    subtask: Subtask | None = None
    agent_transcript: HookTranscript | None = None


class Hooks:
    """The hooks of one session. Changed files are read again at the beginning of a turn; what a project's files gained
    since the first time waits for the user's trust, which opens the session anew.

    `ways` lead to the models and servers of the session; they are set by the agent whose hooks these are.
    """

    ways: HookConnections | None = None

    def __init__(self, extensions: Sequence[ExtensionFolder] = (), facts: SessionFacts | None = None) -> None:
        """Without `extensions` and `facts` there are none."""
        self._extensions = tuple(extensions)
        self._facts = facts
        self._heard = frozenset(get_args(Event)) if facts is None or facts.subtask is None else _OF_SUBTASKS
        self._state: tuple[object, ...] | None = None
        self._found = FoundHooks()
        self._reported: tuple[str, ...] = ()
        """The problems that the user has seen."""
        self._trusted: frozenset[Hook] | None = None
        """The project's hooks that were there at first; None: not read yet."""
        self._starts = "resume" if facts is not None and facts.resumed else "startup"
        self._begun = False
        self._unawaited: set[asyncio.Task[object]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._watched: tuple[str, ...] = ()
        """The files to watch that hooks have named in their answers."""
        self._used: list[Path] = []
        """The files of skills and commands that have been used."""
        self._done: set[Hook] = set()
        """The hooks that run only once, and have."""
        self._emit: Emit = lambda _: None
        """Where the running or the last turn is told of."""

    def of_subtask(self, subtask: Subtask, transcript: HookTranscript | None) -> "Hooks":
        """The hooks for a subtask: those on its calls, its beginning and its end."""
        if (facts := self._facts) is not None:
            facts = structs.replace(facts, subtask=subtask, agent_transcript=transcript)
        hooks = Hooks(self._extensions, facts)
        hooks.ways, hooks._trusted = self.ways, self._trusted
        hooks._found, hooks._state = self._found, self._state
        hooks._used, hooks._done = [*self._used], self._done
        return hooks

    def use(self, file: Path) -> None:
        """From now on the hooks in the front matter of this file run, if it is that of a skill or command; a subtask's
        use ends with it.
        """
        if file not in self._used and any(each.file == file for each in self._found.scoped if each.kind != "agent"):
            self._used.append(file)

    def resume(self, entries: Iterable[AnyEntry]) -> None:
        """Use again what these entries of a session's log say was used. Reads files: call it in a thread."""
        named = {f"/{each.name}": each.file for each in self._found.scoped if each.kind != "agent"}
        if not named or self._facts is None:
            return
        for entry in entries:
            if not isinstance(entry, Message):
                continue
            if file := named.get(entry.typed.partition(" ")[0]):
                self.use(file)
            for call in entry.blocks:
                if isinstance(call, ToolCall) and call.name == READ and SKILL_FILE in call.arguments:
                    path = object_in(call.arguments).get("path")
                    self._take_in_reading({"file_path": str(Path(self._facts.folder, str(path)))})

    def look(self) -> FoundHooks:
        """The present hooks. Reads files: call it in a thread."""
        seen = hooks_signature(self._extensions)
        if seen != self._state:
            self._found, self._state = self._without_new(read_hooks(self._extensions)), seen
        return self._found

    def _without_new(self, found: FoundHooks) -> FoundHooks:
        """What was found, without the hooks that the project has gained since the first time."""
        theirs = dict.fromkeys(filter(self._is_projects, found.every()))
        if self._trusted is None:
            self._trusted = frozenset(theirs)
        new = [hook for hook in theirs if hook not in self._trusted]
        why = "is new since the session was opened: /trust lets it run."
        return found._replace(
            hooks=tuple(hook for hook in found.hooks if hook not in new),
            problems=(*found.problems, *(f"{hook.file}: {hook.name} {why}" for hook in new)),
            scoped=tuple(
                each._replace(hooks=tuple(hook for hook in each.hooks if hook not in new)) for each in found.scoped
            ),
        )

    def _is_projects(self, hook: Hook) -> bool:
        """Whether a hook is in a file of the project, also in a plugin there, where commands may write."""
        project = self._facts.project if self._facts is not None else None
        inside = hook.root is not None and project is not None and hook.root.resolve().is_relative_to(project.resolve())
        return hook.source == "project" or inside

    def _present(self) -> Iterator[Hook]:
        """The hooks that run now: those that always do, and those of what is used.

        As in Claude Code, an agent's for the end of a turn are for the end of its subtask.
        """
        yield from self._found.hooks
        agent = self._facts.subtask.agent if self._facts is not None and self._facts.subtask is not None else ""
        for scoped in self._found.scoped:
            if scoped.kind == "agent" and scoped.name == agent:
                yield from (
                    structs.replace(hook, event="SubagentStop") if hook.event == "Stop" else hook
                    for hook in scoped.hooks
                )
            elif scoped.kind != "agent" and scoped.file in self._used:
                yield from (hook for hook in scoped.hooks if hook not in self._done)

    async def begin_turn(self, emit: Emit) -> HookAnswer:
        """Reload changed files; at the first turn, run the hooks for the start of the session."""
        if self._facts is None:
            return HookAnswer()
        before, found = self._reported, await asyncio.to_thread(self.look)
        self._reported, self._emit = found.problems, emit
        for problem in found.problems if found.problems != before else ():
            emit(events.Notice(level="warning", title="A hook cannot be used", text=problem))
        said = await self.begin_step(emit)
        if self._watching is None and self._facts.subtask is None and self._files():
            self._watching = asyncio.create_task(self._watch(), name="files that hooks wait for")
        return said

    async def begin_step(self, emit: Emit) -> HookAnswer:
        """Run the hooks for the start of the session or subtask, if they have not been, and again after a summary."""
        facts = self._facts
        if facts is None or not self._starts:
            return HookAnswer()
        source, self._starts, self._begun = self._starts, "", True
        if facts.subtask is not None:
            return await self.fire("SubagentStart", {}, emit, (facts.subtask.kind,))
        return await self.fire("SessionStart", {"source": source, "model": facts.model()}, emit, (source,))

    async def summarised(self, text: str, trigger: str, emit: Emit) -> None:
        """A summary was entered, which was written because of `trigger`."""
        self._starts = "compact" if self._facts is not None and self._facts.subtask is None else ""
        await self.fire("PostCompact", {"trigger": trigger, "compact_summary": text}, emit, (trigger,))

    async def may_end(self, fields: Mapping[str, object], emit: Emit) -> HookAnswer:
        """Run the hooks for the end of a turn, or of the subtask."""
        event: Event = "Stop" if self._facts is None or self._facts.subtask is None else "SubagentStop"
        return await self.fire(event, fields, emit)

    async def close(self, reason: str = "other") -> None:
        """Run the hooks for the end of the session if it had a turn, and wait for those nobody has waited for."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._begun and self._facts is not None and self._facts.subtask is None:
            await self.fire("SessionEnd", {"reason": reason}, lambda _: None, (reason,))
        if self._unawaited:
            _, late = await asyncio.wait(self._unawaited, timeout=_LAST_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _files(self) -> dict[Path, tuple[object, ...]]:
        """The states of the files that hooks wait for. Reads them: call it in a thread."""
        facts = self._facts
        matchers = [hook.matcher for hook in self._present() if hook.event == "FileChanged"]
        if facts is None or not matchers:
            return {}
        names = [name.strip() for matcher in matchers for name in matcher.split("|") if name.strip()]
        return {
            path: signature_of(path) for path in (*(facts.folder / name for name in names), *map(Path, self._watched))
        }

    async def _watch(self) -> None:
        """Run the hooks for files that have changed, until cancelled."""
        seen = await asyncio.to_thread(self._files)
        while True:
            await asyncio.sleep(_WATCH_S)
            found = await asyncio.to_thread(self._files)
            for path, now in found.items():
                before = seen.get(path, now)
                if now != before:
                    was, there = map(is_there, (before, now))
                    what = "change" if was and there else "add" if there else "unlink"
                    fields = {"file_path": str(path), "event": what}
                    said = await self.fire("FileChanged", fields, self._emit, (path.name,))
                    self._watched = self._watched if said.watched is None else said.watched
            seen = found

    def notify(self, kind: str, message: str, emit: Emit) -> None:
        """Run the hooks for a notification, without waiting for them."""
        if self._facts is not None and any(hook.event == "Notification" for hook in self._present()):
            fields = {"message": message, "title": "tui-agent", "notification_type": kind}
            self._run_unawaited(self.fire("Notification", fields, emit, (kind,)))

    async def fire(
        self, event: Event, fields: Mapping[str, object], emit: Emit, subjects: Sequence[str] = (), about: str = ""
    ) -> HookAnswer:
        """Run the hooks of an event in parallel. Never raises: failures are reported with the hook's name.

        subjects, about: see `Hook.wants`.
        """
        facts = self._facts
        if event not in self._heard or facts is None:
            return HookAnswer()
        if self._state is None:
            await asyncio.to_thread(self.look)
        if event == "PostToolUse" and self._found.scoped and fields.get("native_tool_name") == "read_file":
            await asyncio.to_thread(self._take_in_reading, fields.get("tool_input"))
        wanted = [hook for hook in self._present() if hook.wants(event, subjects, about)]
        if not wanted:
            return HookAnswer()
        data = msgspec.json.encode(await self._payload(event, fields, facts, emit))
        answers = await asyncio.gather(*(self._answer(hook, data, facts, emit) for hook in wanted))
        for hook, answer in zip(wanted, answers, strict=True):
            if hook.once and not (answer.failed or answer.refused or answer.ended):
                self._done.add(hook)
        return HookAnswer(
            refused=_joined(answer.refused for answer in answers),
            asked=_joined(answer.asked for answer in answers),
            allowed=_joined(answer.allowed for answer in answers),
            context=_joined(answer.context for answer in answers)[:MAX_CONTEXT_CHARS],
            arguments=next((answer.arguments for answer in reversed(answers) if answer.arguments), ""),
            ended=_joined(answer.ended for answer in answers),
            worktree=next((answer.worktree for answer in answers if answer.worktree), ""),
            watched=next((answer.watched for answer in answers if answer.watched is not None), None),
        )

    def _take_in_reading(self, given: object) -> None:
        """A model uses a skill by reading its file."""
        file = given.get("file_path") if isinstance(given, dict) else None
        if isinstance(file, str) and Path(file).name == SKILL_FILE:
            self.use(Path(os.path.realpath(file)))

    async def _payload(
        self, event: Event, fields: Mapping[str, object], facts: SessionFacts, emit: Emit
    ) -> dict[str, object]:
        transcript, own, subtask = facts.transcript, facts.agent_transcript, facts.subtask
        for each in filter(None, (transcript, own)):
            try:
                await each.update()
            except OSError as error:
                why = f"{each.file} could not be written: {error_text(error)}"
                emit(events.Notice(level="warning", title="Hooks do not see the newest messages", text=why))
        of_subtask: dict[str, object] = {}
        if subtask is not None:
            of_subtask = {"agent_id": subtask.id, "agent_type": subtask.kind}
            if own is not None:
                of_subtask["agent_transcript_path"] = str(own.file)
        return {
            "session_id": facts.session,
            "transcript_path": str(transcript.file) if transcript is not None else "",
            "cwd": str(facts.folder),
            "permission_mode": _MODES.get(facts.mode(), "default"),
            "hook_event_name": event,
            **of_subtask,
            **fields,
        }

    async def _answer(self, hook: Hook, data: bytes, facts: SessionFacts, emit: Emit) -> HookAnswer:
        """A hook's answer; an empty one at once if nothing waits for it, also where it says so in its first line."""
        late = asyncio.get_running_loop().create_future()
        running = asyncio.ensure_future(_answer(hook, data, facts, self.ways, emit, late))
        if not hook.waits:
            late.set_result(None)
        try:
            await asyncio.wait((running, late), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            running.cancel()
            await asyncio.wait((running,))
            raise
        if not late.done():
            return running.result()
        self._run_unawaited(running)
        return HookAnswer()

    def _run_unawaited(self, work: Awaitable[HookAnswer]) -> None:
        task: asyncio.Task[object] = asyncio.ensure_future(work)
        self._unawaited.add(task)
        task.add_done_callback(self._unawaited.discard)


_LAST_S: Final = 5.0
"""How long closing a session waits for hooks that nobody has waited for."""
_LATE_BYTES: Final = 4_096
_LATE: Final = regex(r'\s*\{\s*"async"\s*:\s*true\b[^\n]*\}\s*(?:\n|$)')
"""The first line of a hook that goes on while nothing waits for it. What it prints after that counts for nothing."""


def _joined(texts: Iterable[str]) -> str:
    return "\n".join(filter(None, texts))


async def _answer(
    hook: Hook, data: bytes, facts: SessionFacts, ways: HookConnections | None, emit: Emit, late: "asyncio.Future[None]"
) -> HookAnswer:
    """late: set once the hook says that nothing should wait for it."""

    def failed(why: str) -> HookAnswer:
        if hook.event == "WorktreeCreate":
            return HookAnswer(refused=f"{hook.name}: {why}")
        hint = f"everything goes on without it; it is in {hook.file}"
        emit(events.Notice(level="warning", title=f"A hook failed: {hook.name}", text=why, hint=hint))
        return HookAnswer(failed=True)

    if ways is not None and hook.command and (why := await _kept_from_running(hook, facts, ways)):
        return failed(why)
    try:
        if hook.prompt:
            async with asyncio.timeout(hook.timeout):
                return await _judged(hook, data, ways, emit)
        exit_code, errors = 0, ""
        async with asyncio.timeout(hook.timeout):
            if hook.post is not None:
                output = await posted(hook.post, data, _environment_of(hook))
            elif hook.use is not None:
                output = await used(hook.use, data, ways)
            else:
                exit_code, output, errors = await _run(hook, data, facts, late)
    except TimeoutError:
        return failed(f"It was ended after {hook.timeout:g} s.")
    except (OSError, ValueError, ToolFailure) as error:
        return failed(f"It could not be run: {error_text(error, 300)}")
    text = output.strip()
    if _LATE.match(text):
        return HookAnswer()
    if hook.event == "WorktreeCreate" and hook.post is None:
        folder = next((line.strip() for line in reversed(clean(text).splitlines()) if line.strip()), "")
        if exit_code or not folder:
            return failed(errors.strip()[:500] or f"It ended with exit code {exit_code} and named no folder.")
        return HookAnswer(worktree=folder)
    said, wrong = None, ""
    if text.startswith("{"):
        # JSON counts whatever the exit code is, but for a refusal, which it cannot take back.
        try:
            said = _decoder.decode(text)
        except msgspec.ValidationError as error:
            wrong = f"What it printed cannot be used ({error}): {text[:200]}"
        except (msgspec.DecodeError, RecursionError):
            wrong = f"What it printed cannot be read: {text[:200]}" if exit_code == 0 else ""
    if said is not None and said.system_message:
        emit(events.Notice(level="info", title=hook.name, text=said.system_message[:MAX_CONTEXT_CHARS]))
    answer = _interpreted(said, hook, emit) if said is not None else HookAnswer()
    if hook.event == "WorktreeCreate" and not (answer.worktree or answer.refused):
        return failed(wrong or "It named no folder.")
    if exit_code == BLOCKED:
        if answer.refused or answer.ended:
            return answer
        refusal = _refusing(hook, errors.strip() or f"The hook {hook.name} refuses it.", emit)
        return structs.replace(refusal, context=_joined((refusal.context, answer.context)))
    if said is not None:
        return answer
    if wrong:
        return failed(wrong)
    if exit_code:
        return failed(f"It ended with exit code {exit_code}. {errors.strip()[:500]}".strip())
    # Of other events, what a hook prints is for whoever runs it by hand.
    return HookAnswer(context=valid_text(text)) if hook.event in _OUTPUT_TO_MODEL else answer


async def _kept_from_running(hook: Hook, facts: SessionFacts, ways: HookConnections) -> str:
    """Why its command line is not to run now, since what it runs first has changed; empty: it may run."""
    from tui_agent.tools.gate.permissions import NobodyToAsk
    from tui_agent.tools.gate.read_first import with_project

    try:
        if await ways.may_run(with_project(hook.line, facts.project), hook.event not in _NOBODY_ASKED):
            return ""
    except NobodyToAsk as unasked:
        return f"It was not run. {unasked.question.reason} Run it once in the app, after !, to allow that."
    return "You declined it: it was not run."


def _refusing(hook: Hook, reason: str, emit: Emit) -> HookAnswer:
    reason = valid_text(reason)[:MAX_CONTEXT_CHARS]
    if hook.event in _DONE:
        return HookAnswer(context=reason)
    if hook.event in _NO_REFUSAL:
        emit(events.Notice(level="warning", title=hook.name, text=reason))
        return HookAnswer()
    return HookAnswer(refused=reason)


async def _judged(hook: Hook, data: bytes, ways: HookConnections | None, emit: Emit) -> HookAnswer:
    """What a model says to a hook's prompt. Raises as `verdict_of` does."""
    verdict = await verdict_of(hook, data, ways)
    possible = hook.looks or not verdict.impossible
    if verdict.ok or hook.event == "PermissionRequest" or (not possible and hook.event in _STOPS):
        return HookAnswer()
    reason = verdict.reason or f"The hook {hook.name} refuses it."
    ends = hook.event in _ENDS_TURN and not hook.goes_on
    return structs.replace(_refusing(hook, reason, emit), ended=reason if ends else "")


def _environment_of(hook: Hook) -> dict[str, str]:
    """The user's own hooks get the whole environment, those of others none of its secrets."""
    from tui_agent.tools.environment import child_environment  # few sessions have hooks

    environment = dict(os.environ) if hook.source == "yours" else child_environment(os.environ)
    return environment | dict(hook.variables)


async def _run(hook: Hook, data: bytes, facts: SessionFacts, late: "asyncio.Future[None]") -> tuple[int, str, str]:
    """Run a hook outside the sandbox, with `data` on its standard input; returns its exit code, output and errors.

    Ends every process it started. Raises TimeoutError if it took too long, and OSError, ValueError or ToolFailure if it
    cannot be run.
    """
    # Imported here, because few sessions have hooks.
    from tui_agent.system.temporary import LockedFolder
    from tui_agent.tools.sandbox.launcher import Request
    from tui_agent.tools.sandbox.sandbox import ready
    from tui_agent.tools.shell.processes import RunningCommand
    from tui_agent.tools.shell.run_command import shell

    place = await asyncio.to_thread(LockedFolder, "hook-")
    try:
        given, errors = place.files / "input.json", place.files / "errors.txt"
        await asyncio.to_thread(given.write_bytes, data)
        environment = with_search_path(_environment_of(hook)) | {
            "TUI_AGENT_HOOK": str(place.files),
            "TUI_AGENT_PROJECT": str(facts.project),
            "CLAUDE_PROJECT_DIR": str(facts.project),
            # Claude Code calls a skill's own folder by both names.
            **({"CLAUDE_SKILL_DIR": str(hook.skill), "CLAUDE_PLUGIN_ROOT": str(hook.skill)} if hook.skill else {}),
            **(await asyncio.to_thread(_places_of, hook.root, facts.home) if hook.root is not None else {}),
            **({"CLAUDE_ENV_FILE": str(place.files / "variables.sh")} if hook.event == "SessionStart" else {}),
        }
        line = f'exec <"$TUI_AGENT_HOOK/{given.name}" 2>"$TUI_AGENT_HOOK/{errors.name}"\n{hook.command}'
        request = Request([shell(), "-c", line], str(facts.folder), environment)
        output = bytearray()

        def take(piece: bytes) -> None:
            output.extend(piece[: MOST_BYTES - len(output)])
            if not late.done() and len(output) <= _LATE_BYTES and _LATE.match(output.decode(errors="replace")):
                late.set_result(None)

        await ready(request)
        running = RunningCommand(request, on_output=take)
        await running.started()
        try:
            async with asyncio.timeout(hook.timeout):
                ended = await running.ended()
        except BaseException:
            await running.stop()
            raise
        running.kill()

        def beginning() -> str:
            with suppress(OSError), errors.open("rb") as stream:
                return read_at_most(stream, MOST_BYTES).decode(errors="replace")
            return ""

        return ended.exit_code, output.decode(errors="replace"), await asyncio.to_thread(beginning)
    finally:
        await asyncio.to_thread(place.remove)


def _places_of(plugin: Path, home: Path) -> dict[str, str]:
    """Where a plugin is, and where it keeps what outlasts its updates."""
    data = home / PLUGIN_DATA / plugin.name
    with suppress(OSError):
        make_private_folder(data)
    return {"CLAUDE_PLUGIN_ROOT": str(plugin), "CLAUDE_PLUGIN_DATA": str(data)}


class _Decision(msgspec.Struct, frozen=True, rename="camel"):
    behavior: str | None = None
    message: str | None = None
    interrupt: bool | None = None
    updated_input: dict[str, object] | None = None


class _Specific(msgspec.Struct, frozen=True, rename="camel"):
    permission_decision: str | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, object] | None = None
    additional_context: str | None = None
    watch_paths: tuple[str, ...] | None = None
    worktree_path: str = ""
    decision: _Decision | None = None


class _Output(msgspec.Struct, frozen=True, rename="camel"):
    goes_on: bool | None = msgspec.field(default=None, name="continue")
    stop_reason: str | None = None
    decision: str | None = None
    reason: str | None = None
    system_message: str | None = None
    hook_specific_output: _Specific | None = None


_decoder = msgspec.json.Decoder(_Output)
_NOTHING: Final = _Specific()


def _interpreted(said: _Output, hook: Hook, emit: Emit) -> HookAnswer:
    specific = said.hook_specific_output or _NOTHING
    asked = specific.decision or _Decision()
    decision = asked.behavior or specific.permission_decision or said.decision
    reason = asked.message or specific.permission_decision_reason or said.reason or said.system_message
    reason = reason or f"The hook {hook.name} says so."
    context = valid_text(specific.additional_context or "")
    ended = ""
    if said.goes_on is False or asked.interrupt:
        ended = valid_text(said.stop_reason or reason)[:MAX_CONTEXT_CHARS]
        if hook.event in _STOPS:
            # On these events the turn ends anyway, and nothing keeps it.
            return HookAnswer(context=context, ended=ended)
    if decision in ("block", "deny"):
        refusal = _refusing(hook, reason, emit)
        return structs.replace(refusal, context=_joined((refusal.context, context)), ended=ended)
    changed = asked.updated_input if asked.updated_input is not None else specific.updated_input
    return HookAnswer(
        asked=valid_text(reason)[:MAX_CONTEXT_CHARS] if decision == "ask" else "",
        allowed=valid_text(reason)[:MAX_CONTEXT_CHARS] if decision in ("allow", "approve") else "",
        context=context,
        arguments=json.dumps(changed, ensure_ascii=False) if changed is not None else "",
        ended=ended,
        watched=specific.watch_paths,
        worktree=specific.worktree_path,
    )
