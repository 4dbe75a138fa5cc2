"""Rules of what a tool may do: ``TOOL`` or ``TOOL(PATTERN)``, and what "always" would remember for a call.

In a pattern ``*`` stands for any text, ``?`` for one character, and a backslash takes the next character as it is;
``NAME *`` at the end of a pattern for a command also means NAME alone. The tool's name may hold ``*`` too. A pattern is
held against a command (each simple command of a line), a URL, or a path: relative to the workspace's root, absolute, or
from ``~/``.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tui_agent.tools.base import Access, WorkspaceView
from tui_agent.tools.gate.command_rules import covering, proposed_patterns
from tui_agent.tools.gate.patterns import escaped, is_wild, matches
from tui_agent.tools.gate.shell_line import ShellLine, read_line

_RULE = re.compile(r"(?P<tool>[A-Za-z0-9_.:/*-]+)(?:\((?P<pattern>.+)\))?", re.DOTALL)


class RuleError(Exception):
    """A rule that cannot be read; the text names it and says how rules are written."""


class Rule(msgspec.Struct, frozen=True):
    """`pattern` is empty for a rule about every call of `tool`."""

    tool: str
    pattern: str = ""

    @classmethod
    def read(cls, text: str) -> "Rule":
        """Raises RuleError."""
        match = _RULE.fullmatch(text.strip())
        if not match:
            raise RuleError(f"{text!r} is no rule: write TOOL or TOOL(PATTERN), such as run_command(git status *)")
        return cls(match["tool"], match["pattern"] or "")

    @property
    def text(self) -> str:
        """The rule as it is written."""
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool

    def names(self, tool: str) -> bool:
        """Whether the rule is about this tool."""
        return matches(self.tool, tool)


def allowing(rules: Iterable[Rule], access: Access, workspace: WorkspaceView) -> Rule | None:
    """A rule (of those about the tool) that lets `access` through, if together they let all of it through.

    A place that is `guarded` is let through only by a rule that names it whole.
    """
    rules = tuple(rules)
    if access.effect == "run":
        whole = next((rule for rule in rules if not rule.pattern), None)
        covered = covering([rule.pattern for rule in rules], read_line(access.target), workspace).pattern
        return whole or next((rule for rule in rules if rule.pattern == covered), None)
    for rule in rules:
        if access.guarded and (not rule.pattern or is_wild(rule.pattern)):
            continue
        if not rule.pattern or any(matches(rule.pattern, form) for form in _forms(access, workspace)):
            return rule
    return None


def uncovered(rules: Iterable[Rule], access: Access, workspace: WorkspaceView) -> str:
    """What of a command that these rules name they do not stand for, in words; empty where they do not name it."""
    patterns = [rule.pattern for rule in rules if rule.pattern]
    return covering(patterns, read_line(access.target), workspace).missing


def catching(rules: Iterable[Rule], access: Access, workspace: WorkspaceView) -> Rule | None:
    """A rule, of those about the tool, that names any part of `access`, or may name a part that is not known yet."""
    forms = _command_forms(read_line(access.target)) if access.effect == "run" else _loose_forms(access, workspace)
    if access.effect == "run":
        forms = (*forms, access.target.strip())
    for rule in rules:
        if not rule.pattern or any(matches(rule.pattern, form) for form in forms):
            return rule
        if access.effect == "run" and _may_become(rule.pattern, read_line(access.target)):
            return rule
    return None


def proposed(tool: str, access: Access, workspace: WorkspaceView) -> tuple[Rule, ...]:
    """What "always allow this" would remember; nothing where no rule could ever let the call through."""
    if access.effect == "run":
        return tuple(Rule(tool, pattern) for pattern in proposed_patterns(read_line(access.target), workspace))
    if access.effect == "network":
        parts = urlsplit(access.target)
        return (Rule(tool, f"{escaped(f'{parts.scheme}://{parts.netloc}/')}*"),) if parts.netloc else ()
    path = Path(access.target)
    if access.guarded or (not access.inside and access.effect == "write"):
        return (Rule(tool, escaped(_forms(access, workspace)[0])),)
    folder = _forms(msgspec.structs.replace(access, target=str(path.parent)), workspace)[0]
    return (Rule(tool, "*" if folder == "." else f"{escaped(folder.rstrip('/'))}/*"),)


def _command_forms(line: ShellLine) -> tuple[str, ...]:
    texts = [*(command.text for command in line.commands), *line.mentions]
    # "git status *" also means the bare name: so does a trailing space here.
    return tuple(form for text in texts for form in (text, f"{text} "))


def _may_become(pattern: str, line: ShellLine) -> bool:
    """Whether a command whose arguments are only known when it runs is of the program the pattern starts with."""
    program = pattern.split(" ", 1)[0]
    return any(command.dynamic and command.words and matches(program, command.words[0]) for command in line.commands)


def _forms(access: Access, workspace: WorkspaceView) -> tuple[str, ...]:
    """How a rule may name the target: a path below the root is relative first."""
    if access.effect == "network":
        return (access.target,)
    path = Path(access.target)
    forms = [access.target]
    if path.is_relative_to(workspace.root):
        forms.insert(0, path.relative_to(workspace.root).as_posix())
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises where there is none
    if home.is_absolute() and path.is_relative_to(home):
        forms.append(f"~/{path.relative_to(home).as_posix()}")
    return tuple(forms)


def _loose_forms(access: Access, workspace: WorkspaceView) -> tuple[str, ...]:
    """For rules that forbid: a name alone is meant wherever it is, and a folder with what is in it."""
    if access.effect == "network":
        return (access.target,)
    forms = _forms(access, workspace)
    return (*forms, Path(access.target).name, *(f"{form}/" for form in forms), f"/{forms[0]}")
