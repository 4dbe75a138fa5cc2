"""Hooks: the user's own programs that are run on events of a session and can influence it.

Input and output are the JSON of Claude Code's hooks (https://code.claude.com/docs/en/hooks), so that those work here.
If a hook fails, the user is told, with its name, and the session goes on without it.
"""

import asyncio
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from tui_agent.agent import events
from tui_agent.agent.extensions.files import CLAUDE_NAMES, MOST_BYTES, Shelf, Source, contents, state
from tui_agent.conversation.blocks import valid_text
from tui_agent.programs import with_search_path
from tui_agent.regular import read_at_most
from tui_agent.text import error_text
from tui_agent.tools.base import ToolFailure

FILE: Final = "hooks.json"

Event: TypeAlias = Literal[
    "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PreCompact", "PostCompact", "Stop"
]
EVENTS: Final[dict[Event, str]] = {
    "SessionStart": "before the first turn; its output goes to the model",
    "UserPromptSubmit": "before your message is added; may refuse it, or tell the model more",
    "PreToolUse": "before a tool call; may refuse it, have you asked about it, or change its arguments",
    "PostToolUse": "after a tool call; may tell the model more",
    "PreCompact": "before a summary is written",
    "PostCompact": "after a summary was entered",
    "Stop": "before a turn ends; may make it go on",
}
"""What each event is about."""

TIMEOUT_S: Final = 60.0
MOST_TIMEOUT_S: Final = 600.0
MOST_TOLD: Final = 10_000
"""The most characters of a hook's answer that reach the model."""
MOST_STOPS: Final = 5
"""How often in a row hooks may keep a turn from ending."""
BLOCKED: Final = 2
"""The exit code with which a hook refuses; the reason is on standard error."""

_TELLING: Final = frozenset(("SessionStart", "UserPromptSubmit"))
"""Events for which plain-text output goes to the model."""

_MODES: Final = {"plan": "plan", "ask": "default", "auto": "acceptEdits", "allow": "bypassPermissions"}

_CALL_PYTHON: Final = (
    "import importlib, json, sys; module, _, name = sys.argv[1].partition(':'); "
    "said = getattr(importlib.import_module(module), name)(json.load(sys.stdin)); "
    "print(json.dumps(said) if said is not None else '')"
)

Emit = Callable[[events.AgentEvent], None]


class HookBlocked(Exception):
    """A hook refused the user's prompt; the message is its reason."""


class Hook(NamedTuple):
    """One hook: a command line, run for tools whose names match `matcher` (empty: all)."""

    event: Event
    command: str
    matcher: str
    timeout: float
    source: Source
    file: Path
    name: str

    def wants(self, event: Event, subject: str) -> bool:
        """Whether to run it for this event; `subject`: the tool's name if the event is about a call."""
        if self.event != event:
            return False
        if self.matcher in {"", "*"} or not subject:
            return True
        names = (subject, CLAUDE_NAMES.get(subject, subject))
        return any(re.fullmatch(self.matcher, name) is not None for name in names)


class Found(NamedTuple):
    """All hooks, and the problems of their files."""

    hooks: tuple[Hook, ...] = ()
    problems: tuple[str, ...] = ()


class Say(NamedTuple):
    """The combined answer of an event's hooks.

    refused, asked: reasons to refuse or to ask the user; empty: none. told: text for the model. arguments: a
    replacement for those of the call.
    """

    refused: str = ""
    asked: str = ""
    told: str = ""
    arguments: str = ""


class Facts(NamedTuple):
    """Facts on the session that every hook is given."""

    session: str
    record: Path
    folder: Path
    project: Path
    mode: Callable[[], str]
    resumed: bool


class Hooks:
    """The hooks of one session. Changed files are read again at the beginning of a turn."""

    def __init__(
        self,
        shelves: Sequence[Shelf] = (),
        facts: Facts | None = None,
        heard: frozenset[Event] = frozenset(get_args(Event)),
    ) -> None:
        """Without `shelves` and `facts` there are none."""
        self._shelves = tuple(shelves)
        self._facts = facts
        self._heard = heard
        self._state: tuple[object, ...] | None = None
        self._found = Found()
        self._begun = False

    def of_calls(self) -> "Hooks":
        """The hooks for a subtask: only those on calls."""
        return Hooks(self._shelves, self._facts, frozenset(("PreToolUse", "PostToolUse")))

    def look(self) -> Found:
        """The present hooks. Reads files: call it in a thread."""
        seen = tuple(state(shelf.folder / FILE) for shelf in self._shelves)
        if seen != self._state:
            self._found, self._state = _read(self._shelves), seen
        return self._found

    async def begin_turn(self, emit: Emit) -> Say:
        """Reload changed files; at the first turn, run the hooks for the start of the session."""
        if self._facts is None:
            return Say()
        before = self._found.problems
        found = await asyncio.to_thread(self.look)
        for problem in found.problems if found.problems != before else ():
            emit(events.Notice(level="warning", title="A hook cannot be used", text=problem))
        if self._begun:
            return Say()
        self._begun = True
        source = "resume" if self._facts.resumed else "startup"
        return await self.fire("SessionStart", {"source": source}, emit)

    async def fire(self, event: Event, told: Mapping[str, object], emit: Emit, subject: str = "") -> Say:
        """Run the hooks of an event in parallel. Never raises: failures are reported with the hook's name."""
        facts = self._facts
        if event not in self._heard or facts is None:
            return Say()
        if self._state is None:
            await asyncio.to_thread(self.look)
        wanted = [hook for hook in self._found.hooks if hook.wants(event, subject)]
        if not wanted:
            return Say()
        payload: dict[str, object] = {
            "session_id": facts.session,
            "transcript_path": str(facts.record),
            "cwd": str(facts.folder),
            "permission_mode": _MODES.get(facts.mode(), "default"),
            "hook_event_name": event,
            **told,
        }
        data = msgspec.json.encode(payload)
        answers = await asyncio.gather(*(_answer(hook, data, facts, emit) for hook in wanted))
        return Say(
            refused="\n".join(answer.refused for answer in answers if answer.refused),
            asked="\n".join(answer.asked for answer in answers if answer.asked),
            told="\n".join(answer.told for answer in answers if answer.told)[:MOST_TOLD],
            arguments=next((answer.arguments for answer in reversed(answers) if answer.arguments), ""),
        )


async def _answer(hook: Hook, data: bytes, facts: Facts, emit: Emit) -> Say:
    def failed(why: str) -> Say:
        hint = f"everything goes on without it; it is in {hook.file}"
        emit(events.Notice(level="warning", title=f"A hook failed: {hook.name}", text=why, hint=hint))
        return Say()

    try:
        exit_code, output, errors = await _run(hook, data, facts)
    except TimeoutError:
        return failed(f"It was ended after {hook.timeout:g} s.")
    except (OSError, ValueError, ToolFailure) as error:
        return failed(f"It could not be run: {error_text(error, 300)}")
    if exit_code == BLOCKED:
        reason = errors.strip() or f"The hook {hook.name} refuses it."
        return Say(told=reason) if hook.event == "PostToolUse" else Say(refused=reason[:MOST_TOLD])
    if exit_code:
        return failed(f"It ended with exit code {exit_code}. {errors.strip()[:500]}".strip())
    text = output.strip()
    if not text.startswith("{"):
        if hook.event in _TELLING:
            return Say(told=text)
        return failed(f"What it printed is not JSON: {text[:200]}") if text else Say()
    try:
        said = _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return failed(f"What it printed cannot be read ({error}): {text[:200]}")
    if said.system_message:
        emit(events.Notice(level="info", title=hook.name, text=said.system_message[:MOST_TOLD]))
    return _understood(said, hook)


async def _run(hook: Hook, data: bytes, facts: Facts) -> tuple[int, str, str]:
    """Run a hook outside the sandbox, with `data` on its standard input; returns its exit code, output and errors.

    Ends every process it started. Raises TimeoutError if it took too long, and OSError, ValueError or ToolFailure if it
    cannot be run.
    """
    # Imported here, because few sessions have hooks.
    from tui_agent.tools.sandbox.launcher import Request
    from tui_agent.tools.sandbox.sandbox import ready
    from tui_agent.tools.shell.environment import child_environment
    from tui_agent.tools.shell.processes import RunningCommand
    from tui_agent.tools.shell.run_command import shell

    place = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="tui-agent-hook-")
    try:
        given, errors = Path(place.name, "input.json"), Path(place.name, "errors.txt")
        await asyncio.to_thread(given.write_bytes, data)
        environment = with_search_path(child_environment(os.environ)) | {
            "TUI_AGENT_HOOK": place.name,
            "TUI_AGENT_PROJECT": str(facts.project),
            "CLAUDE_PROJECT_DIR": str(facts.project),
        }
        line = f'exec <"$TUI_AGENT_HOOK/{given.name}" 2>"$TUI_AGENT_HOOK/{errors.name}"\n{hook.command}'
        request = Request([shell(), "-c", line], str(facts.folder), environment)
        output = bytearray()

        def take(piece: bytes) -> None:
            output.extend(piece[: MOST_BYTES - len(output)])

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
        await asyncio.to_thread(place.cleanup)


class _Specific(msgspec.Struct, frozen=True, rename="camel"):
    permission_decision: Literal["", "allow", "deny", "ask", "defer"] = ""
    permission_decision_reason: str = ""
    updated_input: dict[str, object] | None = None
    additional_context: str = ""


class _Said(msgspec.Struct, frozen=True, rename="camel"):
    goes_on: bool = msgspec.field(default=True, name="continue")
    stop_reason: str = ""
    decision: str = ""
    reason: str = ""
    system_message: str = ""
    hook_specific_output: _Specific = _Specific()


_decoder = msgspec.json.Decoder(_Said)


def _understood(said: _Said, hook: Hook) -> Say:
    """Interpret a hook's answer. "allow" has no effect: the gate decides regardless."""
    specific = said.hook_specific_output
    reason = specific.permission_decision_reason or said.reason or said.stop_reason or f"The hook {hook.name} says so."
    told = valid_text(specific.additional_context)
    refuses = said.decision in {"block", "deny"} or specific.permission_decision == "deny" or not said.goes_on
    if refuses and hook.event == "Stop" and not said.goes_on:
        # "continue: false" asks to stop the turn, and on this event it stops anyway.
        return Say(told=told)
    if refuses and hook.event == "PostToolUse":
        return Say(told="\n".join(filter(None, (valid_text(reason), told))))
    changed = specific.updated_input
    return Say(
        refused=valid_text(reason)[:MOST_TOLD] if refuses else "",
        asked=valid_text(reason)[:MOST_TOLD] if specific.permission_decision == "ask" else "",
        told=told,
        arguments=json.dumps(changed, ensure_ascii=False) if changed is not None else "",
    )


def _read(shelves: Sequence[Shelf]) -> Found:
    hooks: list[Hook] = []
    problems: list[str] = []
    for shelf in shelves:
        path = shelf.folder / FILE
        try:
            if (data := contents(shelf, path)) is None:
                continue
            document = json.loads(data)
        except (ToolFailure, OSError, ValueError, RecursionError) as error:
            problems.append(f"{path} cannot be read: {error_text(error, 200)}")
            continue
        for found in _hooks_in(document, shelf, path):
            if isinstance(found, Hook):
                hooks.append(found)
            else:
                problems.append(f"{path}: {found}")
    return Found(tuple(hooks), tuple(problems))


def _hooks_in(document: object, shelf: Shelf, path: Path) -> Iterator[Hook | str]:
    """The hooks of a file, and a sentence for each invalid part."""
    named = document.get("hooks", document) if isinstance(document, dict) else None
    if not isinstance(named, dict):
        yield "it has no object that lists hooks by event."
        return
    for name, groups in named.items():
        event = next((known for known in EVENTS if known == name), None)
        if event is None or not isinstance(groups, list):
            yield f"{name!r} is not an event, or has no list; the events are {', '.join(EVENTS)}."
            continue
        for group in groups:
            listed = group.get("hooks") if isinstance(group, dict) else None
            if not isinstance(group, dict) or not isinstance(listed, list):
                yield f"{event}: every entry needs a list of `hooks`."
                continue
            matcher = group.get("matcher") or ""
            try:
                re.compile(matcher)
            except (re.error, TypeError):
                yield f"{event}: the matcher {matcher!r} is not a regular expression."
                continue
            for given in listed:
                hook = _hook(event, given, matcher, shelf, path) if isinstance(given, dict) else None
                yield hook or (
                    f"{event}: a hook is a `command`, or of the type `python` a `call` like module:function, and its "
                    f"`timeout` is at most {MOST_TIMEOUT_S:g} s."
                )


def _hook(event: Event, given: Mapping[str, object], matcher: str, shelf: Shelf, path: Path) -> Hook | None:
    """The hook that an object describes; None if it is none."""
    kind, timeout = given.get("type", "command"), given.get("timeout", TIMEOUT_S)
    line = given.get("command") if kind == "command" else given.get("call") if kind == "python" else None
    if not isinstance(line, str) or not isinstance(timeout, int | float) or not 0 < timeout <= MOST_TIMEOUT_S:
        return None
    command = line.strip()
    if kind == "python":
        if not re.fullmatch(r"[\w.]+:\w+", line):
            return None
        command = shlex.join((sys.executable, "-c", _CALL_PYTHON, line))
    name = f"{event}, {line[:80]}"
    return Hook(event, command, matcher, float(timeout), shelf.source, path, name) if command else None
