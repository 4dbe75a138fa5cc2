"""The "Where things are" block: facts that must survive a summary exactly, written by the program without a model.

It has the task list, the files changed since the task began, the newest command that failed and has not succeeded
since, and the commands running in the background. All of it is read from the log, except the running commands, which
the caller passes in. The same log and commands give the same bytes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from posixpath import normpath
from typing import Final, NamedTuple

from tui_agent.context.compaction.extract import CHANGES, PATH_KEYS, arguments_of
from tui_agent.context.counting import estimate
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Checkpointed, Message, Outcome
from tui_agent.conversation.sizes import size_of_text
from tui_agent.conversation.todo import TodoItem, TodoList, newest_todo
from tui_agent.conversation.view import View
from tui_agent.text import one_line

HEADING: Final = "[Where things are] Kept by the program; what is said below is newer."
"""The first line of the block."""

MOST_TOKENS: Final = 600
"""The most estimated tokens of the block."""

_TODO_TOKENS: Final = 240
_FILES_TOKENS: Final = 100
_FAILURE_TOKENS: Final = 140
_RUNNING_TOKENS: Final = 80
_LINE_TOKENS: Final = 55
_LINE_CHARS: Final = 160
_FAILURE_LINES: Final = 3
_RESULT_CHARS: Final = 6_000
"""Characters at the end of a result in which to look for its most informative lines."""

_LOOK: Final = "command_output"
_TELLING: Final = re.compile(
    r"^FAILED\b|^FAIL\b|^--- FAIL|^E {2,}|^\s*File \"|^[\w.]*(?:Error|Exception)\b|\b[Ee]rror(?:\[\w+\])?:"
    r"|\bpanicked at\b|\b\d+ (?:failed|failing|errors?)\b|\bnot found\b|No such file"
)
_FAILED_TESTS: Final = re.compile(
    r"^=* ?\d+ failed\b.* in [\d.]+s|^FAILED \(|^test result: FAILED|^--- FAIL: |^Tests: +\d+ failed", re.MULTILINE
)
"""Matches the final line of failed test runs: after a pipe, the exit code is that of another program."""
_ASKING: Final = frozenset(("grep", "rg", "diff", "cmp", "test", "[", "which", "ls"))
"""Commands whose exit code is an answer rather than a failure."""
_DIFF_NAME: Final = re.compile(r"--- [^\n]*\n\+\+\+ ([^\n]+)")
_FILTER: Final = re.compile(r"(?:\s*2>&1)?(?:\s*\|\s*(?:tail|head|cat)\b[^|;&]*)*$")
"""Matches filters that only shorten a command's output: with and without them it is the same command."""


def where_things_are(view: View, running: Mapping[int, str]) -> str:
    """The block for a conversation, of at most `MOST_TOKENS` tokens; empty if there is nothing to say.

    `running`: the command lines running in the background, by process id. The task is everything since the newest
    checkpoint in force. Reads the whole conversation. Texts from the model and tools are put on one line each, without
    control characters.
    """
    found = _Findings()
    for entry in _since_checkpoint(view):
        found.take(entry)
    parts = [
        _todo_lines(newest_todo(view.log)),
        _listed("Files changed since the task began:", found.changed, _FILES_TOKENS),
        found.failure_lines(),
        _listed(
            "Running in the background:",
            [f"process {pid}: {_quoted(line)}" for pid, line in sorted(running.items(), reverse=True)],
            _RUNNING_TOKENS,
        ),
    ]
    lines = [line for part in parts for line in part]
    return "\n".join((HEADING, *lines)) if lines else ""


def _since_checkpoint(view: View) -> Iterator[AnyEntry]:
    """The entries of the current task, oldest first."""
    counting = (entry for entry, counts in view.context_entries() if counts)
    start = max((entry.last for entry in counting if isinstance(entry, Checkpointed)), default=0)
    return iter(view.log.path().after(start))


class _Failure(NamedTuple):
    """A failed command, and the informative lines of its output."""

    command: str
    lines: tuple[str, ...]


class _Findings:
    """The findings in the entries so far; files and failures newest last."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}
        self._changed: dict[str, None] = {}
        self._failures: dict[str, _Failure] = {}
        self._background: dict[int, str] = {}

    @property
    def changed(self) -> list[str]:
        """The changed files, newest first."""
        return list(reversed(self._changed))

    def failure_lines(self) -> list[str]:
        """Lines on the newest failure that was not followed by a success of the same command."""
        if not self._failures:
            return []
        command, lines = list(self._failures.values())[-1]
        return _fitting([f"Failed and has not succeeded since: {command}"], [f"  {line}" for line in lines])

    def take(self, entry: AnyEntry) -> None:
        if not isinstance(entry, Message):
            return
        for block in entry.blocks:
            match block:
                case ToolCall():
                    self._calls[block.id] = block
                case ToolResult() if block.call_id in self._calls and not entry.stop_reason:
                    self._take_result(self._calls[block.call_id], block, entry)
                case _:
                    pass

    def _take_result(self, call: ToolCall, result: ToolResult, entry: Message) -> None:
        given = arguments_of(call)
        command, process = given.get("command"), given.get("process")
        if isinstance(command, str):
            self._take_run(command, result, entry)
        elif call.name == _LOOK and isinstance(process, int):
            started = self._background.get(process)
            if started is not None and entry.outcome.exit_code is not None:
                self._take_outcome(started, result, entry.outcome)
        elif not result.is_error and (entry.diff or CHANGES.search(call.name)):
            for path in (given[key] for key in PATH_KEYS if key in given):
                if isinstance(path, str) and path.strip():
                    shown = _line(_in_workspace(normpath(path), entry.diff))
                    self._changed.pop(shown, None)
                    self._changed[shown] = None

    def _take_run(self, command: str, result: ToolResult, entry: Message) -> None:
        if entry.outcome.left_running:
            self._background[entry.outcome.left_running] = command
        else:
            self._take_outcome(command, result, entry.outcome)

    def _take_outcome(self, command: str, result: ToolResult, outcome: Outcome) -> None:
        key = " ".join(_FILTER.sub("", command).split())
        if not _failed(command, result):
            self._failures.pop(key, None)
        elif lines := tuple(_said(result.text, outcome)):
            # A search without hits also fails, without output: there is nothing to fix.
            self._failures.pop(key, None)
            self._failures[key] = _Failure(_quoted(command), lines)


def _in_workspace(path: str, diff: str) -> str:
    """The path in the diff of the change, so that a file has one name however the model wrote its path."""
    named = _DIFF_NAME.match(diff)
    return named[1] if named is not None and f"/{path}".endswith(f"/{named[1]}") else path


def _failed(command: str, result: ToolResult) -> bool:
    if result.is_error:
        return next(iter(command.split()), "") not in _ASKING
    hidden = "|" in command or ";" in command
    return hidden and _FAILED_TESTS.search(result.text[-_RESULT_CHARS:]) is not None


def _said(text: str, outcome: Outcome) -> list[str]:
    """The last lines of a result that best explain the failure, and its very last line.

    The program's notes are left out, except that a timeout is why the command failed.
    """
    lines = text[-_RESULT_CHARS:].splitlines()
    notes = max(0, outcome.notes - outcome.timed_out)
    lines = [line for line in lines[: len(lines) - notes] if line.strip()]
    telling = [line for line in lines[:-1] if _TELLING.search(line)][-(_FAILURE_LINES - 1) :]
    return [_line(line) for line in [*telling, *lines[-1:]]]


def _quoted(command: str) -> str:
    return f"`{_line(command)}`"


def _todo_lines(todo: TodoList) -> list[str]:
    """As many items as fit, open ones first, shown in the order of the list."""
    if not todo.items:
        return []
    heading = f"Task list, {todo.done} of {len(todo.items)} done:"
    if todo.current is None:
        return [heading.removesuffix(":")]
    ranked = sorted(enumerate(todo.items), key=lambda each: _rank(each[1], each[0]))
    room = _TODO_TOKENS - _tokens(heading)
    kept: list[int] = []
    for place, item in ranked:
        room -= _tokens(_item_line(item))
        if room < 0:
            break
        kept.append(place)
    lines = [_item_line(todo.items[place]) for place in sorted(kept)]
    left_out = len(todo.items) - len(kept)
    return [heading, *lines, *([_more(left_out)] if left_out else [])]


def _rank(item: TodoItem, place: int) -> tuple[int, int]:
    """The priority of an item: in progress, then open, then most recently done."""
    match item.state:
        case "in_progress":
            return 0, place
        case "pending":
            return 1, place
        case "done":
            return 2, -place


def _item_line(item: TodoItem) -> str:
    return _line(item.line)


def _listed(heading: str, lines: Sequence[str], tokens: int) -> list[str]:
    """As many of the first lines as fit, under a heading."""
    if not lines:
        return []
    room = tokens - _tokens(heading)
    kept: list[str] = []
    for line in lines:
        room -= _tokens(f"- {line}")
        if kept and room < 0:
            break
        kept.append(f"- {line}")
    left_out = len(lines) - len(kept)
    return [heading, *kept, *([_more(left_out)] if left_out else [])]


def _fitting(first: Sequence[str], others: Iterable[str]) -> list[str]:
    """The first lines, and as many of the last of the others as fit."""
    room = _FAILURE_TOKENS - sum(map(_tokens, first))
    kept: list[str] = []
    for line in reversed(list(others)):
        room -= _tokens(line)
        if kept and room < 0:
            break
        kept.append(line)
    return [*first, *reversed(kept)]


def _line(text: str) -> str:
    """A text on one line, cut to about `_LINE_TOKENS` tokens."""
    shown = one_line(text, _LINE_CHARS)
    tokens = _tokens(shown)
    return shown if tokens <= _LINE_TOKENS else one_line(shown, len(shown) * _LINE_TOKENS // tokens)


def _more(count: int) -> str:
    return f"- and {count} more"


def _tokens(line: str) -> int:
    return estimate(size_of_text(f"{line}\n"))
