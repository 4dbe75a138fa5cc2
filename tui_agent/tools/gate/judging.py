"""Judging a command line that nothing confines: whether it may run without asking, by which rule, and if not, why.

A line passes only if it is plain and each of its commands is known only to read here, or is allowed by a rule: in its
very words and in the folder the rule is bound to, or with ``*`` as far as the table of known commands goes.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.regex import regex
from tui_agent.tools.base import WorkspaceView
from tui_agent.tools.gate.known_commands import Unknown, command_length, is_known, known
from tui_agent.tools.gate.patterns import words
from tui_agent.tools.gate.reach import LinePaths, NotAllowed
from tui_agent.tools.gate.repository import why_unsafe
from tui_agent.tools.gate.rules import OUTSIDE, RUNS_OTHERS, SHELL, Rule, catching_path
from tui_agent.tools.gate.shell_line import MAX_LINE, ShellLine, SimpleCommand, read_line

Outcome: TypeAlias = Literal["allow", "ask"]

_RUNS: Final = "It runs a command."
_WORD: Final = regex(r"[\w.@/+-]+")
_BUILTINS: Final = words("cd echo pwd test true false type command")


class PlainCommand(msgspec.Struct, frozen=True):
    """A command of a plain line, and the folder where it runs."""

    words: tuple[str, ...]
    folder: Path


class Judgement(msgspec.Struct, frozen=True):
    """The result of judging a command line.

    `reasons` say why it is not allowed. `rule` is the rule that allowed it; None if none was needed. `steps` are the
    commands that rules allowed in their very words; `outside`: the line may run outside the sandbox.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    rule: Rule | None = None
    steps: tuple[PlainCommand, ...] = ()
    outside: bool = False


def judge(text: str, rules: Sequence[Rule], workspace: WorkspaceView, *, reading_passes: bool = True) -> Judgement:
    """Judge a command line by the allow rules. `reading_passes`: commands that only read need none.

    Reads the disk, within limits.
    """
    if whole := next((rule for rule in rules if rule.tool != OUTSIDE and not rule.pattern), None):
        return Judgement("allow", rule=whole)
    line = read_line(text)
    if line.opaque:
        return Judgement("ask", (f"No rule can allow this command: {line.opaque}.",))
    judged = _Line(line, workspace, rules, reading_passes=reading_passes)
    reasons = tuple(dict.fromkeys(reason for command in line.commands if (reason := judged.reason(command))))
    if reasons:
        return Judgement("ask", tuple(reason for reason in reasons if reason != _RUNS or len(reasons) == 1))
    return Judgement("allow", rule=judged.rule, steps=tuple(judged.exact))


def judge_outside(text: str, rules: Iterable[Rule], workspace: WorkspaceView) -> Judgement:
    """Judge whether a line may run outside the sandbox: only ``outside`` rules allow that."""
    granted = tuple(Rule(SHELL, rule.pattern, rule.folder) for rule in rules if rule.tool == OUTSIDE)
    if not granted:
        return Judgement("ask")
    judged = judge(text, granted, workspace, reading_passes=False)
    rule = judged.rule and Rule(OUTSIDE, judged.rule.pattern, judged.rule.folder)
    return msgspec.structs.replace(judged, rule=rule, outside=judged.outcome == "allow")


def limit_on_reading(text: str, rules: Sequence[Rule], workspace: WorkspaceView) -> Rule | None:
    """The rule, of those about what may not be read, about a file that a known command of a plain line names."""
    line = read_line(text)
    if not rules or line.opaque:
        return None
    reach = LinePaths(workspace)
    for command in line.commands:
        if command.texts[0] == "cd":
            # Wherever that is: nothing is allowed here.
            reach.folder = Path(os.path.realpath(os.path.join(reach.folder, *command.texts[1:2])))  # noqa: PTH118
            continue
        try:
            found = known(command.words)
            for path in reach.named((*found.paths, *found.texts)):
                if rule := catching_path(rules, str(path), str(workspace.root)):
                    return rule
        except (NotAllowed, Unknown):
            continue
    return None


def proposed_for(
    text: str, rules: Sequence[Rule], workspace: WorkspaceView, *, tool: str = SHELL, reading_passes: bool = True
) -> tuple[Rule, ...]:
    """The rules that "always" would remember to allow this line; empty if no rule could."""
    line = read_line(text)
    if line.opaque:
        return ()
    outside = tool == OUTSIDE
    judged = _Line(line, workspace, () if outside else rules, reading_passes=reading_passes and not outside)
    found: dict[Rule, None] = {}
    for command in line.commands:
        if judged.reason(command):
            pattern = _pattern(command, workspace)
            found[Rule(tool, pattern, "" if pattern.endswith(" *") else str(judged.folder))] = None
    if outside:
        allowed = judge_outside(text, found, workspace)
    else:
        allowed = judge(text, (*rules, *found), workspace, reading_passes=reading_passes)
    return tuple(found) if allowed.outcome == "allow" else ()


def steps_of(text: str, workspace: WorkspaceView) -> tuple[PlainCommand, ...]:
    """The commands of a line, each with its folder; of one that is not plain, its words in the first folder."""
    line = read_line(text)
    if line.opaque:
        words = tuple(_WORD.findall(re.sub(r"\$(\w+)", r" \1 ", text[:MAX_LINE])))
        return (PlainCommand(words, workspace.root),) if words else ()
    judged = _Line(line, workspace, (Rule(SHELL, "cd *"),), reading_passes=False)
    steps: list[PlainCommand] = []
    for command in line.commands:
        judged.reason(command)
        steps.append(PlainCommand(command.texts, judged.folder))
    return tuple(steps)


class _Line:
    """Judges a plain line, command by command. `exact` collects what rules allowed in its very words."""

    def __init__(
        self, line: ShellLine, workspace: WorkspaceView, rules: Sequence[Rule], *, reading_passes: bool
    ) -> None:
        self._line = line
        self._workspace = workspace
        self._rules = rules
        self._reading_passes = reading_passes
        self._reach = LinePaths(workspace)
        self.exact: list[PlainCommand] = []
        self.rule: Rule | None = None

    @property
    def folder(self) -> Path:
        """Where the next command runs."""
        return self._reach.folder

    def reason(self, command: SimpleCommand) -> str:
        """Why this command, the next of the line, is not allowed; empty if it is."""
        if command.texts[0] == "cd":
            moved = self._moved(command)
            return moved if moved or self._reading_passes else self._by_rules(command, _RUNS)
        if self._reading_passes:
            refusal = self._not_reading(command)
            return self._by_rules(command, refusal) if refusal else ""
        return self._by_rules(command, _RUNS)

    def _moved(self, command: SimpleCommand) -> str:
        if not _follows_cd(self._line):
            return "It runs a command, and after its `cd` it is not known in which folder the rest runs."
        try:
            self._reach.move(command)
        except NotAllowed as why:
            return f"It runs a command, and {why}."
        return ""

    def _not_reading(self, command: SimpleCommand) -> str:
        """Why a command is not known only to read here; empty if it is."""
        try:
            found = known(command.words)
            self._reach.check_patterns(command.words)
            self._reach.check_read(found.paths, found.texts)
            if found.flat:
                self._reach.check_flat(found.paths)
        except (NotAllowed, Unknown) as why:
            return f"It runs a command, and {why}." if str(why) else _RUNS
        if found.repository and (orders := why_unsafe(self._reach.folder, self._workspace)):
            return f"It runs a command, and git might run what the project says: {orders}."
        if name := _of_the_project(command, self._workspace):
            return f"It runs a command, and `{name}` would be a file of the project."
        return "" if found.reads else _RUNS

    def _by_rules(self, command: SimpleCommand, reason: str) -> str:
        by_rule = ""
        for rule in self._rules:
            prefix = rule.prefix
            if prefix is None or rule.tool == OUTSIDE or not prefix.names(command):
                continue
            missing = self._not_by_star(command) if prefix.more else self._not_exactly(rule, command)
            if not missing:
                self.rule = rule
                return ""
            by_rule = by_rule or missing
        return by_rule or reason

    def _not_by_star(self, command: SimpleCommand) -> str:
        if command.texts[0] == "cd":
            return ""
        reason = self._not_reading(command)
        # What is known, but changes something (`git add`), is what the rule is for.
        return "" if reason == _RUNS and is_known(command.words) else reason

    def _not_exactly(self, rule: Rule, command: SimpleCommand) -> str:
        """Why a rule with the words of the command does not allow it; empty if it does."""
        bound = Path(rule.folder) if rule.folder else self._workspace.root
        if command.texts[0] != "cd" and self._reach.folder != bound:
            return "It runs a command, and not in the folder for which it was allowed."
        at = next(at for at, each in enumerate(self._line.commands) if each is command)
        if at and self._line.commands[at - 1].then == "|" and not is_known(command.words):
            return f"It runs a command, and what `{command.texts[0]}` reads from the pipe may be orders."
        try:
            self._reach.check_patterns(command.words)
        except NotAllowed as why:
            return f"It runs a command, and {why}."
        if command.texts[0] == "git" and (orders := why_unsafe(self._reach.folder, self._workspace)):
            return f"It runs a command, and git might run what the project says: {orders}."
        self.exact.append(PlainCommand(command.texts, self._reach.folder))
        return ""


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
    return next((name for name in names if "/" in name or program_inside(name, workspace)), "")


def program_inside(name: str, workspace: WorkspaceView) -> Path | None:
    """The file that PATH finds for a program if it is among those that the session may change."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        place = Path(folder, name)
        if not os.path.isabs(folder):  # noqa: PTH117 - an entry may be empty
            return workspace.root / place
        if os.access(place, os.X_OK):
            return place if workspace.contains(Path(os.path.realpath(place))) else None
    return None


def _pattern(command: SimpleCommand, workspace: WorkspaceView) -> str:
    """The pattern of a rule that allows a command: with ``*`` if that is accepted."""
    texts = command.texts
    if texts[0] == "cd":
        return "cd *"
    if not is_known(command.words) or texts[0] in RUNS_OTHERS or (texts[0] == "git" and texts[1].startswith("-")):
        return command.written
    wide = " ".join([*texts[: command_length(texts)], "*"])
    alone = ShellLine("", (msgspec.structs.replace(command, then=""),))
    judged = _Line(alone, workspace, (Rule(SHELL, wide),), reading_passes=False)
    return command.written if judged.reason(alone.commands[0]) else wide


def notices_of(rules: Iterable[Rule]) -> tuple[str, ...]:
    """What the user should know about command rules that can allow nothing: a sentence that names them."""
    idle = [rule.text[:120] for rule in rules if rule.is_idle]
    if not idle:
        return ()
    named = ", ".join(idle[:20]) + (f" and {len(idle) - 20:,} more" if len(idle) > 20 else "")
    notice = (
        f"{named}: such rules let nothing through. With * as its last word a rule allows only what is known to be "
        "harmless (docs/permissions.md); write the exact command instead. In a full sandbox commands need no rule."
    )
    return (notice,)
