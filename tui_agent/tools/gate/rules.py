"""The rules about what a tool may do, ``TOOL`` or ``TOOL(PATTERN)``.

For a command, PATTERN is its words, quoted as in a shell: the rule allows exactly these words, in the folder it is
bound to. With ``*`` as the last word, any words may follow that the table of known commands accepts; for other commands
such a rule allows nothing. A rule ``outside(PATTERN)`` lets such a command run outside the sandbox. For paths and URLs,
``*`` in PATTERN matches any text, ``?`` one character, and a backslash makes the next character literal; a path is
relative to the project, absolute, or starts with ``~/``. The tool's name may contain ``*`` too.
"""

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tui_agent.settings.trust import MAX_RULE, RULE
from tui_agent.tools.base import Access, WorkspaceView
from tui_agent.tools.gate.known_commands import is_known, may_be_known
from tui_agent.tools.gate.patterns import any_of, escaped, is_wild, matches
from tui_agent.tools.gate.patterns import words as table
from tui_agent.tools.gate.shell_line import SimpleCommand, Word, read_line, read_words

OUTSIDE: Final = "outside"
"""The name used in rules that let a command run outside the sandbox."""
UNRECORDED: Final = "unrecorded"
"""The name of the rule that lets commands run in the sandbox although what they change could not be undone."""
SHELL: Final = "run_command"
"""The tool that runs command lines."""
READ: Final = "read_file"
"""The tool that rules about reading name."""
SEARCH: Final = "grep"
"""The tool that searches files, which rules about reading hold for, too."""
NETWORK: Final = "network"
"""What a command in the sandbox does that reaches a domain, as in ``network(https://example.org/*)``."""
CHANGE: Final = ("edit_file", "write_file")
"""The tools that rules about changing files name."""
RUNS_OTHERS: Final = table(
    "env xargs sudo doas su sh bash dash zsh ksh fish eval exec source . command builtin nice nohup timeout setsid "
    "stdbuf trap alias hash enable mapfile readarray compgen complete bind time watch parallel busybox ssh chroot "
    "unshare nsenter strace ltrace script start-stop-daemon systemd-run"
)
"""Programs that run their arguments."""
_VERBS: Final = {"edit_file": "edit", "write_file": "write", "read_file": "read", "list_dir": "list"}


class RuleError(Exception):
    """A rule that cannot be parsed; the text names it and says how rules are written."""


class CommandPrefix(msgspec.Struct, frozen=True):
    """The words of a rule for commands. `more`: other words may follow them."""

    words: tuple[Word, ...]
    more: bool

    def names(self, command: SimpleCommand) -> bool:
        """Whether the command consists of these words or, with `more`, begins with them."""
        size = len(self.words)
        if len(command.words) < size or (len(command.words) > size and not self.more):
            return False
        pairs = zip(self.words, command.words, strict=False)
        return all(mine.text == its.text and bool(mine.glob) == bool(its.glob) for mine, its in pairs)


class Rule(msgspec.Struct, frozen=True):
    """A rule; `pattern` is empty for one about every call of `tool`.

    `folder`: where a command must run that the rule names in full; empty: where the session works.
    """

    tool: str
    pattern: str = ""
    folder: str = ""

    @classmethod
    def read(cls, text: str) -> "Rule":
        """Parse a rule. Raises RuleError."""
        match = re.fullmatch(RULE, text.strip()) if len(text) <= MAX_RULE else None
        if not match:
            raise RuleError(
                f"{text[:200]!r} is no rule: write TOOL or TOOL(PATTERN), such as run_command(git status *)"
            )
        return cls(match["tool"], match["pattern"] or "")

    @property
    def text(self) -> str:
        """The rule as it is written."""
        return f"{self.tool}({self.pattern})" if self.pattern else self.tool

    @property
    def said(self) -> str:
        """What the rule allows, in words."""
        verb, pattern = _VERBS.get(self.tool, ""), self.pattern
        if self.tool == UNRECORDED:
            return "every command in the sandbox, although what it changes here cannot be undone"
        if self.tool == OUTSIDE:
            return f"outside the sandbox: {Rule(SHELL, pattern, self.folder).said}"
        if self.tool == SHELL:
            if not pattern:
                return "every command"
            if self.prefix is None or self.is_idle:
                return f"nothing: {pattern} is too wide"
            if self.prefix.more:
                return f"{pattern[:-2]} with anything that is known to be harmless"
            return f"the command {pattern}" + (f" in {self.folder}" if self.folder else "")
        if not verb:
            return self.text if pattern else f"every call of {self.tool}"
        if pattern in {"", "*"}:
            return f"every {verb} in this project" if pattern else f"every {verb}, also outside this project"
        return f"every {verb} in {pattern[:-1]}" if pattern.endswith("/*") else f"every {verb} of {pattern}"

    @property
    def limits(self) -> str:
        """What the rule refuses or asks about, in words: unlike one that allows something, it is never too wide."""
        if self.tool != SHELL or not self.pattern:
            return self.said
        words, more = _forbidden(self.pattern)
        return f"the command {' '.join(words)}" + (" with any arguments" if more else "")

    def names(self, tool: str) -> bool:
        """Whether the rule is about this tool."""
        return self.tool not in {OUTSIDE, UNRECORDED} and matches(self.tool, tool)

    @property
    def prefix(self) -> CommandPrefix | None:
        """The words of a rule for commands; None if its pattern is not one plain command."""
        return _prefix(self.pattern)

    @property
    def is_idle(self) -> bool:
        """Whether it is a rule for commands that can allow none."""
        if self.tool not in {SHELL, OUTSIDE} or not self.pattern:
            return False
        prefix = self.prefix
        return prefix is None or (prefix.more and not may_be_known(prefix.words))


def allowing(rules: Iterable[Rule], access: Access, workspace: WorkspaceView) -> Rule | None:
    """The rule, of those about the tool, that allows a path or a URL.

    A `guarded` path is allowed only by a rule that names it in full.
    """
    for rule in rules:
        if access.guarded and (not rule.pattern or is_wild(rule.pattern)):
            continue
        if not rule.pattern or any(matches(rule.pattern, form) for form in _forms(access, workspace, rule)):
            return rule
    return None


def catching(rules: Iterable[Rule], access: Access, workspace: WorkspaceView) -> Rule | None:
    """The deny or ask rule, of those about the tool, that covers a path or a URL."""
    if access.effect in {"network", "call"}:
        return catching_address(rules, access.target)
    return catching_path(rules, access.target, str(workspace.root))


def catching_address(rules: Iterable[Rule], address: str) -> Rule | None:
    """The deny or ask rule, of those about the tool, that covers an address: neither the other scheme nor a port is a
    way around it.
    """
    scheme, mark, rest = address.partition("://")
    named = (rest, re.sub(r"^([^/]*):\d+(?=/|$)", r"\1", rest))
    is_web = mark and scheme in {"http", "https"}
    forms = [f"{each}://{name}" for each in ("http", "https") for name in named] if is_web else [address]
    return next((rule for rule in rules if not rule.pattern or any(matches(rule.pattern, f) for f in forms)), None)


def catching_path(rules: Iterable[Rule], path: str, root: str) -> Rule | None:
    """The deny or ask rule, of those about the tool, that covers a resolved path, in a project with this root.

    A bare name matches in any folder, and a folder includes what is in it.
    """
    forms = _forms_of(path, root)
    forms = (*forms, path.rpartition("/")[2], *(f"{form}/" for form in forms), f"/{forms[0]}")
    rules = tuple(rules)
    patterns = tuple([rule.pattern or "*" for rule in rules])
    # A project may bring any number of rules; most paths fit none.
    if not any(map(any_of(patterns).match, forms)):
        return None
    return next(rule for rule in rules if any(matches(rule.pattern or "*", each) for each in forms))


def about(tools: Sequence[str], rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The rules about certain files or addresses, for one of these tools."""
    return tuple(rule for rule in rules if rule.pattern and any(map(rule.names, tools)))


def catching_line(rules: Iterable[Rule], text: str) -> Rule | None:
    """The deny or ask rule, of those about the tool, that covers a command of a line.

    Also one that may cover a hidden command: in an opaque line, or in the arguments of a program that may run them.
    """
    line = read_line(text)
    for rule in rules:
        if not rule.pattern or matches(rule.pattern, text.strip()):
            return rule
        words, more = _forbidden(rule.pattern)
        if line.opaque:
            if all(mentions(text, word) for word in words):
                return rule
        elif any(_forbids(words, more, command) for command in line.commands):
            return rule
    return None


def hides_commands(text: str) -> str:
    """Why a line cannot be checked against deny rules; empty if it can."""
    line = read_line(text)
    if line.opaque:
        return line.opaque
    hiding = RUNS_OTHERS - {"timeout", "nice", "nohup", "time", "sudo", "doas", "command", "setsid", "stdbuf", "exec"}
    name = next((c.texts[0] for c in line.commands if c.texts[0].rsplit("/", 1)[-1] in hiding), "")
    return f"`{name}` runs what its arguments say" if name else ""


def _forbids(words: tuple[str, ...], more: bool, command: SimpleCommand) -> bool:
    texts = (command.texts[0].rsplit("/", 1)[-1], *command.texts[1:])
    if _begins(words, more, texts):
        return True
    if is_known(command.words) or texts[0] not in RUNS_OTHERS | {"find", "fd", "git", "make", "tar", "rsync"}:
        return False
    inner = ((texts[at].rsplit("/", 1)[-1], *texts[at + 1 :]) for at in range(1, len(texts)))
    hidden = len(words) == 1 and any(mentions(text, words[0]) for text in texts[1:])
    return hidden or any(_begins(words, True, each) for each in inner)


def _begins(words: tuple[str, ...], more: bool, texts: tuple[str, ...]) -> bool:
    if len(texts) < len(words) or (len(texts) > len(words) and not more):
        return False
    return all(matches(word, text) for word, text in zip(words, texts, strict=False))


@lru_cache(maxsize=1_000)
def _forbidden(pattern: str) -> tuple[tuple[str, ...], bool]:
    """The words of a deny or ask rule, as patterns; such a rule is never too wide."""
    words = tuple(pattern.split())
    return (words[:-1], True) if words[-1:] == ("*",) else (words, False)


def mentions(text: str, word: str) -> bool:
    """Whether a word of a rule stands in a text, or the letters of one with wildcards do."""
    literal = word.replace("*", "").replace("?", "")
    return (
        re.search(rf"(?<![\w.-]){re.escape(literal)}(?![\w-])" if literal == word else re.escape(literal), text)
        is not None
    )


def proposed(tool: str, access: Access, workspace: WorkspaceView) -> tuple[Rule, ...]:
    """The rules that "always allow" would remember for a path, a URL or a server's tool."""
    if access.effect == "call":
        return (Rule(tool),)
    if access.effect == "network":
        parts = urlsplit(access.target)
        # What is no address is searched for, by whoever the tool asks.
        return (Rule(tool, f"{escaped(f'{parts.scheme}://{parts.netloc}/')}*") if parts.netloc else Rule(tool),)
    path = Path(access.target)
    if access.guarded or (not access.inside and access.effect == "write"):
        return (Rule(tool, escaped(_forms(access, workspace)[0])),)
    folder = _forms(msgspec.structs.replace(access, target=str(path.parent)), workspace)[0]
    return (Rule(tool, "*" if folder == "." else f"{escaped(folder.rstrip('/'))}/*"),)


def _forms(access: Access, workspace: WorkspaceView, rule: Rule | None = None) -> tuple[str, ...]:
    """The texts by which a rule may name the target: first, for a path below the root, the relative one. A rule that
    does not begin with a folder refers to the project.
    """
    if access.effect in {"network", "call"}:
        return (access.target,)
    forms = _forms_of(access.target, str(workspace.root))
    if rule is not None and not rule.pattern.startswith(("/", "~")):
        return tuple(form for form in forms[:1] if form != access.target)
    return forms


def _forms_of(path: str, root: str) -> tuple[str, ...]:
    relative = "." if path == root else path.removeprefix(f"{root.rstrip('/')}/")
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises if there is none
    below_home = home.startswith("/") and (path == home or path.startswith(f"{home.rstrip('/')}/"))
    in_home = f"~/{path[len(home) :].strip('/') or '.'}" if below_home else ""
    return tuple(form for form in (relative if relative != path else "", path, in_home) if form)


@lru_cache(maxsize=1_000)
def _prefix(pattern: str) -> CommandPrefix | None:
    words = read_words(pattern)
    if words is None:
        return None
    more = len(words) > 1 and words[-1].raw == "*"
    return CommandPrefix(words[:-1] if more else words, more)
