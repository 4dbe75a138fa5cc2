"""Judging a command line: whether it may run without asking, by which rule, and if not, why.

In a sandbox that confines commands, a rule covers any arguments, since the sandbox limits what they can do. Without
one, a rule covers only arguments that are known to be harmless, and the user is always asked about an opaque line.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from tui_agent.tools.base import WorkspaceView
from tui_agent.tools.gate.known_commands import Known, Unknown, command_length, known, names_known
from tui_agent.tools.gate.patterns import words
from tui_agent.tools.gate.reach import OffLimits, Reach
from tui_agent.tools.gate.repository import why_unsafe
from tui_agent.tools.gate.rules import OUTSIDE, RUNS_OTHERS, SHELL, Rule, uncovered
from tui_agent.tools.gate.shell_line import ShellLine, SimpleCommand, read_line

Outcome: TypeAlias = Literal["allow", "ask", "deny"]

_IN_ITS_SHELL: Final = words("cd printf read exit break continue return shift set local export sleep seq [ :")
"""Commands that, in a sandbox, change nothing but the shell they run in."""
_RUNS: Final = "It runs a command."
_BUILTINS: Final = frozenset({"cd", "echo", "pwd", "test", "true", "false", "type", "command"})
_TESTING: Final = {
    "pytest": 1,
    "mypy": 1,
    "ruff check": 2,
    "ruff format": 2,
    "cargo build": 2,
    "cargo check": 2,
    "cargo test": 2,
    "cargo clippy": 2,
    "go build": 2,
    "go test": 2,
    "go vet": 2,
    "npm test": 2,
    "make": 1,
    "uv run": 3,
    "python -m": 3,
}
"""Commands that build and test, with the number of words that "always" puts into a rule in a sandbox."""


class Confinement(Protocol):
    """Tells whether commands run in a sandbox."""

    @property
    def isolates(self) -> bool:
        """Whether a command started now could change and reach only what the sandbox grants it."""
        ...


class Unconfined:
    """No sandbox."""

    @property
    def isolates(self) -> bool:
        """Always False."""
        return False


class Judgement(msgspec.Struct, frozen=True):
    """The result of judging a command line.

    `reasons` say why it is not allowed. `plain`: every word of it is known before it runs. `only_reads`: all its
    commands are known only to read. `rule` is the rule that allowed it; None if none was needed. `outside`: it may run
    outside the sandbox.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    plain: bool = False
    only_reads: bool = False
    rule: Rule | None = None
    outside: bool = False


class Granted(msgspec.Struct, frozen=True):
    """The rules that allow commands: those of the settings, and the remembered ones."""

    settings: tuple[Rule, ...] = ()
    remembered: tuple[Rule, ...] = ()

    @property
    def all(self) -> tuple[Rule, ...]:
        """Both kinds."""
        return (*self.settings, *self.remembered)


def judge(
    text: str,
    granted: Granted,
    workspace: WorkspaceView,
    *,
    confined: bool = False,
    reading_passes: bool = True,
) -> Judgement:
    """Judge a command line. `reading_passes`: commands that only read need no rule. Reads the disk, within limits."""
    line = read_line(text)
    only_reads = not line.opaque and all(_only_reads(command) for command in line.commands)
    if whole := next((rule for rule in granted.all if rule.tool != OUTSIDE and not rule.pattern), None):
        return Judgement("allow", plain=not line.opaque, only_reads=only_reads, rule=whole)
    if line.opaque:
        if confined and reading_passes and _harmless_where_confined(line, granted):
            return Judgement("allow")
        reason = f"No rule can allow this command: {line.opaque}."
        return Judgement("ask", (reason,))
    judged = _Line(line, workspace, granted, confined=confined, reading_passes=reading_passes)
    reasons = judged.reasons()
    outcome: Outcome = "ask" if reasons else "allow"
    return Judgement(outcome, reasons, True, only_reads, None if reasons else judged.rule)


def judge_outside(text: str, granted: Granted, workspace: WorkspaceView) -> Judgement:
    """Judge whether a line may run outside the sandbox: only ``outside`` rules allow that."""
    rules = Granted(
        tuple(Rule(SHELL, rule.pattern) for rule in granted.settings if rule.tool == OUTSIDE),
        tuple(Rule(SHELL, rule.pattern) for rule in granted.remembered if rule.tool == OUTSIDE),
    )
    if not rules.all:
        return Judgement("ask")
    judged = judge(text, rules, workspace, reading_passes=False)
    rule = judged.rule and Rule(OUTSIDE, judged.rule.pattern)
    return msgspec.structs.replace(judged, rule=rule, outside=judged.outcome == "allow")


def proposed_for(
    text: str,
    granted: Granted,
    workspace: WorkspaceView,
    *,
    tool: str = SHELL,
    confined: bool = False,
    reading_passes: bool = True,
) -> tuple[Rule, ...]:
    """The rules that "always" would remember to allow this line; empty if no rule could."""
    line = read_line(text)
    if line.opaque:
        return ()
    outside = tool == OUTSIDE
    found: dict[Rule, None] = {}
    reach = _Line(line, workspace, Granted() if outside else granted, confined=confined, reading_passes=reading_passes)
    for command in line.commands:
        if reach.next_needs_rule(command):
            found[Rule(tool, _pattern(command, workspace, confined and not outside))] = None
    added = Granted(remembered=tuple(found))
    if outside:
        judged = judge_outside(text, added, workspace)
    else:
        both = Granted(granted.settings, (*granted.remembered, *found))
        judged = judge(text, both, workspace, confined=confined, reading_passes=reading_passes)
    return tuple(found) if judged.outcome == "allow" else ()


class _Line:
    """Judges a plain line, command by command."""

    def __init__(
        self, line: ShellLine, workspace: WorkspaceView, granted: Granted, *, confined: bool, reading_passes: bool
    ) -> None:
        self._line = line
        self._workspace = workspace
        self._granted = granted
        self._confined = confined
        self._reading_passes = reading_passes
        self._reach = Reach(workspace)
        self._follows_cd = _follows_cd(line)
        self.rule: Rule | None = None

    def reasons(self) -> tuple[str, ...]:
        """Why the line is not allowed; empty if it is."""
        found = dict.fromkeys(reason for command in self._line.commands if (reason := self._reason(command)))
        return tuple(reason for reason in found if reason != _RUNS or len(found) == 1)

    def next_needs_rule(self, command: SimpleCommand) -> bool:
        """Whether this command, the next of the line, still needs a rule."""
        return bool(self._reason(command))

    def _reason(self, command: SimpleCommand) -> str:
        if command.texts[0] == "cd":
            moved = self._moved(command)
            return moved if moved or self._reading_passes else self._by_rules(command, _RUNS)
        try:
            self._reach.check_patterns(command.words)
            reason = self._as_reading(command) if self._reading_passes else _RUNS
        except (OffLimits, Unknown) as why:
            reason = f"It runs a command, and {why}." if str(why) else _RUNS
        return self._by_rules(command, reason) if reason else ""

    def _moved(self, command: SimpleCommand) -> str:
        if not self._follows_cd:
            return "It runs a command, and after its `cd` it is not known in which folder the rest runs."
        try:
            self._reach.move(command)
        except OffLimits as why:
            return f"It runs a command, and {why}."
        return ""

    def _as_reading(self, command: SimpleCommand) -> str:
        """Why a command is not allowed as one that only reads. Raises OffLimits, Unknown."""
        found = known(command.words)
        self._check_known(found, command)
        return "" if found.reads else _RUNS

    def _check_known(self, found: Known, command: SimpleCommand) -> None:
        self._reach.check_read(found.paths, found.texts)
        if self._confined:
            return
        if found.flat:
            self._reach.check_flat(found.paths)
        if found.repository and (orders := why_unsafe(self._reach.folder, self._workspace)):
            raise OffLimits(f"git might run what the project says: {orders}")
        if name := _of_the_project(command, self._workspace):
            raise OffLimits(f"`{name}` would be a file of the project")

    def _by_rules(self, command: SimpleCommand, reason: str) -> str:
        told = ""
        fed = self._is_fed(command)
        for rule in self._granted.all:
            prefix = rule.prefix
            if prefix is None or rule.tool == OUTSIDE or not prefix.names(command):
                continue
            missing = "" if self._confined or not rule.pattern else fed or self._not_meant(rule, command)
            if not missing:
                self.rule = rule
                return ""
            told = told or f"It runs a command, and {missing}."
        return told or reason

    def _is_fed(self, command: SimpleCommand) -> str:
        """Why a program might run what comes through a pipe; empty if there is no pipe, or it is known not to."""
        at = next(at for at, each in enumerate(self._line.commands) if each is command)
        if not at or self._line.commands[at - 1].then != "|" or _is_known(command):
            return ""
        return f"what `{command.texts[0]}` reads from the pipe may be orders"

    def _not_meant(self, rule: Rule, command: SimpleCommand) -> str:
        """What in a command the rule that matches it does not cover without a sandbox; empty if it covers all."""
        prefix = rule.prefix
        if prefix is None:
            return "the rule is no words of a command"
        if told := uncovered(prefix, command):
            return told
        try:
            self._reach.check_patterns(command.words)
            if not prefix.more:
                if command.texts[0] == "git" and (orders := why_unsafe(self._reach.folder, self._workspace)):
                    return f"git might run what the project says: {orders}"
                return ""
            return self._not_meant_by_star(rule, len(prefix.words), command)
        except OffLimits as why:
            return str(why)

    def _not_meant_by_star(self, rule: Rule, size: int, command: SimpleCommand) -> str:
        """Raises OffLimits."""
        if command.texts[0] == "cd":
            return ""
        named = command_length(command.texts)
        try:
            found = known((*command.words[:named], *command.words[max(named, size) :]))
        except Unknown:
            found = None
        if found is not None:
            self._check_known(found, command)
            return ""
        if rule in self._granted.remembered and rule not in self._granted.settings:
            return "without a sandbox what was remembered stands for the very same command alone"
        if command.texts[0] == "git" and (orders := why_unsafe(self._reach.folder, self._workspace)):
            return f"git might run what the project says: {orders}"
        self._reach.check_any(command.words[max(1, size) :])
        return ""


def _is_known(command: SimpleCommand) -> bool:
    try:
        known(command.words)
    except Unknown:
        return False
    return True


def _only_reads(command: SimpleCommand) -> bool:
    if command.texts[0] == "cd":
        return True
    try:
        return known(command.words).reads
    except Unknown:
        return False


def _harmless_where_confined(line: ShellLine, granted: Granted) -> bool:
    """Whether each program of an opaque line normally only reads, or was allowed by the user."""
    allowed = {
        prefix.words[0].text
        for rule in granted.all
        if rule.tool != OUTSIDE and (prefix := rule.prefix) and len(prefix.words) == 1 and prefix.more
    }
    return bool(line.names) and all(
        (names_known(name) and name not in RUNS_OTHERS) or name in _IN_ITS_SHELL or name in allowed
        for name in line.names or ()
    )


def _follows_cd(line: ShellLine) -> bool:
    """Whether each command waits for those before it, so that it is known in which folder it runs."""
    joints: Sequence[str] = [command.then for command in line.commands]
    for at, command in enumerate(line.commands):
        if command.texts[0] == "cd" and at and joints[at - 1] == "|":
            return False
    moves = any(command.texts[0] == "cd" for command in line.commands)
    return not moves or all(joint in {"&&", "|"} for joint in joints[:-1])


def _of_the_project(command: SimpleCommand, workspace: WorkspaceView) -> str:
    """The program's name if PATH finds it among files that the session may change; else empty."""
    names = [command.texts[0]] if command.texts[0] not in _BUILTINS else []
    for at in range(0, len(command.texts) - 2, 2):
        if command.texts[at] != "timeout":
            break
        names.append(command.texts[at + 2])
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return next((name for name in names if "/" in name or _found_inside(name, folders, workspace)), "")


def _found_inside(name: str, folders: Iterable[str], workspace: WorkspaceView) -> bool:
    for folder in folders:
        if not os.path.isabs(folder):  # noqa: PTH117 - an entry may be empty
            return True
        place = Path(folder, name)
        if os.access(place, os.X_OK):
            return workspace.contains(Path(os.path.realpath(place)))
    return False


def _pattern(command: SimpleCommand, workspace: WorkspaceView, confined: bool) -> str:
    """The pattern of a rule that allows a command: the widest that can be proven."""
    texts = command.texts
    if texts[0] == "cd":
        return "cd *"
    size = command_length(texts)
    try:
        known(command.words)
    except Unknown:
        if confined:
            for name, size in _TESTING.items():
                if list(texts[: len(name.split())]) == name.split() and len(texts) >= size:
                    return " ".join([*(word.raw for word in command.words[:size]), "*"])
        return command.written
    if texts[0] in RUNS_OTHERS or (texts[0] == "git" and texts[1].startswith("-")):
        return command.written
    wide = " ".join([*texts[:size], "*"])
    judged = _Line(
        ShellLine("", (msgspec.structs.replace(command, then=""),)),
        workspace,
        Granted(remembered=(Rule(SHELL, wide),)),
        confined=confined,
        reading_passes=False,
    )
    return command.written if judged.reasons() else wide


def notices_of(rules: Iterable[Rule]) -> tuple[str, ...]:
    """A sentence for each command rule that can never allow anything."""
    return tuple(
        f"{rule.text[:200]} lets nothing through: write the words of one command, and * as the last of them."
        for rule in rules
        if rule.tool in {SHELL, OUTSIDE} and _is_idle(rule)
    )


def _is_idle(rule: Rule) -> bool:
    prefix = rule.prefix
    if prefix is None:
        return True
    return prefix.more and bool(prefix.words) and prefix.words[0].text in RUNS_OTHERS
