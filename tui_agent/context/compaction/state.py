"""The "Where things are" block: facts that must survive a summary exactly, written by the program without a model.

It has the task list, the files changed since the task began and by how many lines, those read, the newest command that
failed and has not succeeded since, the other commands that were run, those running in the background, and what the user
was asked. All of it is read from the log, except the running commands, which the caller passes in. The same log and
commands give the same bytes.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Final

import msgspec
from typing_extensions import override

from tui_agent.context.compaction.extract import CHANGES, PATH_KEYS, command_of
from tui_agent.context.counting import estimate
from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Checkpointed, Message, Outcome
from tui_agent.conversation.sizes import size_of_text
from tui_agent.conversation.tasks import ASK, TodoList, newest_todo
from tui_agent.conversation.view import View
from tui_agent.regex import regex
from tui_agent.system.lenient import object_in
from tui_agent.text import one_line

HEADING: Final = "[Where things are] Kept by the program; what is said below is newer."
"""The first line of the block."""

RAN: Final = "Commands run in the workspace (exit code 0 where no other is said):"

MOST_TOKENS: Final = 1_300
"""The most estimated tokens of the block."""

_TODO_TOKENS, _FAILURE_TOKENS, _RUNNING_TOKENS, _ASKED_TOKENS = 240, 140, 80, 120
_FILES_TOKENS, _READ_TOKENS, _RAN_TOKENS = 200, 200, 300
WHOLE_FROM: Final = 32_000
"""The window, in tokens, from which on the lists of files and commands have all of their room; in a smaller one they
have as large a share of it.
"""
_LINE_TOKENS: Final = 55
_LINE_CHARS: Final = 160
_FAILURE_LINES: Final = 3
_RESULT_CHARS: Final = 6_000
"""Characters at the end of a result in which to look for its last lines."""

_LOOK: Final = "command_output"
_ASKING: Final = frozenset(("grep", "rg", "diff", "cmp", "test", "[", "which", "ls"))
"""Commands whose exit code is an answer rather than a failure."""
_HUNK_LINE: Final = regex(r"^(?:\+(?!\+\+ )|-(?!-- ))", re.MULTILINE)
_DIFF_NAME: Final = regex(r"--- [^\n]*\n\+\+\+ ([^\n]+)")


def where_things_are(view: View, running: Mapping[int, str], window: int = 0) -> str:
    """The block for a conversation, of at most `MOST_TOKENS` tokens; empty if there is nothing to say.

    `running`: the command lines running in the background, by process id. The task is everything since the newest
    checkpoint in force. Reads the whole conversation. Texts from the model and tools are put on one line each, without
    control characters.
    """
    found, share = _Findings(), min(1.0, window / WHOLE_FROM) if window else 1.0
    active = (entry for entry, counts in view.context_entries() if counts)
    start = max((entry.last for entry in active if isinstance(entry, Checkpointed)), default=0)
    for entry in view.log.path().after(start):
        if isinstance(entry, Message):
            found.take(entry)
    processes = [f"- process {pid}: {_quoted(line)}" for pid, line in sorted(running.items(), reverse=True)]
    folder = _shared_folder([*found.changed, *found.read])
    within = f", in {folder}" if folder else ""

    def below(path: str) -> str:
        return path.removeprefix(f"{folder}/") if folder else path

    failure, *printed = next(reversed(found.failures.values()), [""])
    lines = [
        *_todo_lines(newest_todo(view.log)),
        *_listed(
            f"Files changed since the task began{within}:",
            [f"- {below(path)}{lines}" for path, lines in reversed(found.changed.items())],
            share * _FILES_TOKENS,
        ),
        *([failure, *_newest(printed, _FAILURE_TOKENS - _tokens(failure))] if failure else []),
        *_listed(
            f"Read{'' if found.changed else within}, newest first:",
            [f"- {below(path)}" for path in reversed(found.read)],
            share * _READ_TOKENS,
        ),
        *_listed(RAN, found.command_lines(), share * _RAN_TOKENS),
        *_listed("Running in the background:", processes, _RUNNING_TOKENS),
        *_listed("Asked of the user:", [f"- {asked}" for asked in reversed(found.asked)], share * _ASKED_TOKENS),
    ]
    return "\n".join((HEADING, *lines)) if lines else ""


class _Findings:
    """The findings in the entries so far, newest last: changed files, with the lines added and removed; by command, how
    it failed; how often the others were run; questions, with their answers; by process id, the commands running in the
    background.
    """

    def __init__(self) -> None:
        self.changed: dict[str, _Lines] = {}
        self.read: dict[str, None] = {}
        self.failures: dict[str, list[str]] = {}
        self.commands: dict[str, _Ran] = {}
        self.asked: dict[str, None] = {}
        self._calls: dict[str, ToolCall] = {}
        self._background: dict[int, str] = {}

    def take(self, entry: Message) -> None:
        if entry.role == "assistant" and isinstance(said := entry.blocks[-1:][0] if entry.blocks else None, Text):
            # An answer that ends with a question: what the user says next is hard to understand without it.
            lines = said.text.strip().splitlines()
            if lines and lines[-1].rstrip("*_ ").endswith(("?", "？", "؟")):
                self.asked[_line(lines[-1])] = None
        for block in entry.blocks:
            if isinstance(block, ToolCall):
                self._calls[block.id] = block
            elif isinstance(block, ToolResult) and block.call_id in self._calls and not entry.stop_reason:
                self._take_result(self._calls[block.call_id], block, entry)

    def _take_result(self, call: ToolCall, result: ToolResult, entry: Message) -> None:
        given, outcome = object_in(call.arguments), entry.outcome
        command, process = command_of(given), given.get("process")
        if command and outcome.left_running:
            self._background[outcome.left_running] = command
        elif command:
            self._take_end(command, result, outcome)
        elif call.name == _LOOK and isinstance(process, int):
            if process in self._background and outcome.exit_code is not None:
                self._take_end(self._background[process], result, outcome)
        elif call.name == ASK and isinstance(question := given.get("question"), str):
            self.asked[f"{_line(question)} → {_line(result.text)}"] = None
        elif not result.is_error:
            changes = entry.diff or CHANGES.search(call.name)
            for path in (given[key] for key in PATH_KEYS if key in given):
                if isinstance(path, str) and path.strip():
                    shown = _line(_in_workspace(normpath(path), entry.diff))
                    self.read.pop(shown, None)
                    if changes:
                        self.changed[shown] = self.changed.pop(shown, _Lines()).plus(entry.diff)
                    elif shown != "." and shown not in self.changed:
                        self.read[shown] = None

    def _take_end(self, command: str, result: ToolResult, outcome: Outcome) -> None:
        key = " ⏎ ".join(" ".join(line.split()) for line in command.splitlines())
        if result.is_error and next(iter(command.split()), "") in _ASKING:
            self.failures.pop(key, None)
        elif not result.is_error or (lines := _last_lines(result.text, outcome)):
            self.failures.pop(key, None)
            if result.is_error or outcome.exit_code is not None:
                times = self.commands.pop(key, _Ran()).times + 1
                self.commands[key] = _Ran(times, outcome.exit_code)
            if result.is_error:
                self.failures[key] = [f"Failed and has not succeeded since: {_quoted(command)}", *lines]

    def command_lines(self) -> list[str]:
        """The commands, those first that are most likely to be run again for the room they take: run often, lately, and
        short. One that does not fit a line is left out: cut, it is of no use.
        """
        newest_failure = next(reversed(self.failures), "")
        whole = ((key, ran) for key, ran in reversed(self.commands.items()) if _line(key) == key != newest_failure)
        newest = [(f"- `{key}`{ran}", ran.times) for key, ran in whole]
        worth = {line: (age + 10) * _tokens(line) / times**2 for age, (line, times) in enumerate(newest)}
        return sorted(worth, key=worth.__getitem__)


class _Ran(msgspec.Struct, frozen=True):
    """How often a command was run, and how it ended the last time."""

    times: int = 0
    exit_code: int | None = 0

    @override
    def __str__(self) -> str:
        return " (failed)" if self.exit_code is None else f" (exit code {self.exit_code})" if self.exit_code else ""


def _shared_folder(paths: Sequence[str]) -> str:
    """The folder whose name is best said once instead of with each of these paths; empty: there is none."""
    folders = Counter(str(folder) for path in paths if path.startswith("/") for folder in PurePosixPath(path).parents)
    saved = {folder: (count - 1) * len(folder) for folder, count in folders.items() if count > 1 and folder != "/"}
    return max(saved, key=lambda folder: (saved[folder], folder), default="")


class _Lines(msgspec.Struct, frozen=True):
    """How many lines of a file were added and removed."""

    added: int = 0
    removed: int = 0

    def plus(self, diff: str) -> "_Lines":
        starts = [line[:1] for line in _HUNK_LINE.findall(diff)]
        return _Lines(self.added + starts.count("+"), self.removed + starts.count("-"))

    @override
    def __str__(self) -> str:
        return f" (+{self.added} −{self.removed})" if self.added or self.removed else ""


def _in_workspace(path: str, diff: str) -> str:
    """The path in the diff of the change, so that a file has one name however the model wrote its path."""
    named = _DIFF_NAME.match(diff)
    return named[1] if named is not None and f"/{path}".endswith(f"/{named[1]}") else path


def _last_lines(text: str, outcome: Outcome) -> list[str]:
    """The last lines that a failed command printed; none: there is nothing to fix, as in a search without hits.

    The program's notes are left out, except that a timeout is why the command failed.
    """
    lines = text[-_RESULT_CHARS:].splitlines()
    lines = [line for line in lines[: len(lines) - max(0, outcome.notes - outcome.timed_out)] if line.strip()]
    return [f"  {_line(line)}" for line in lines[-_FAILURE_LINES:]]


def _quoted(command: str) -> str:
    return f"`{_line(command)}`"


def _todo_lines(todo: TodoList) -> list[str]:
    """As many items as fit, in the order of the list: the current one first, then open ones, then the newest done."""
    if not todo.items:
        return []
    heading = f"Task list, {todo.done} of {len(todo.items)} done"
    if todo.current is None:
        return [heading]
    lines = [_line(item.line) for item in todo.items]
    order = {"in_progress": 0, "pending": 1, "done": 2}
    states = [order[item.state] for item in todo.items]
    ranked = sorted(range(len(lines)), key=lambda place: (states[place], place if states[place] < 2 else -place))
    kept = sorted(ranked[: _fitting([lines[place] for place in ranked], _TODO_TOKENS - _tokens(f"{heading}:"))])
    return [f"{heading}:", *(lines[place] for place in kept), *_more(len(lines) - len(kept))]


def _listed(heading: str, lines: Sequence[str], tokens: float) -> list[str]:
    """As many of the first lines as fit, at least one, under a heading."""
    if not lines:
        return []
    kept = max(1, _fitting(lines, tokens - _tokens(heading)))
    return [heading, *lines[:kept], *_more(len(lines) - kept)]


def _newest(lines: Sequence[str], tokens: int) -> Sequence[str]:
    """As many of the last lines as fit, at least one."""
    return lines[len(lines) - max(1, _fitting(lines[::-1], tokens)) :]


def _fitting(lines: Sequence[str], tokens: float) -> int:
    """How many of the first lines fit."""
    totals = accumulate(map(_tokens, lines))
    return sum(total <= tokens for total in totals)


def _more(count: int) -> list[str]:
    return [f"- and {count} more"] if count else []


def _line(text: str) -> str:
    """A text on one line, cut to about `_LINE_TOKENS` tokens."""
    shown = one_line(text, _LINE_CHARS)
    tokens = _tokens(shown)
    return shown if tokens <= _LINE_TOKENS else one_line(shown, len(shown) * _LINE_TOKENS // tokens)


def _tokens(line: str) -> int:
    return estimate(size_of_text(f"{line}\n"))
