"""The gate that every call passes before it runs: it allows, denies, or asks the user.

Deny rules win over ask rules, those over allow rules, those over the mode. The mode ``plan`` is read-only whatever a
rule allows; in the mode ``allow`` nothing is asked, so only deny rules count.
"""

import asyncio
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from tui_agent.conversation.blocks import ToolCall
from tui_agent.tools.base import Access, Ask, PermissionQuestion, Tool, WorkspaceView
from tui_agent.tools.gate.remembered import RememberedError, RememberedRules
from tui_agent.tools.gate.rules import Rule, allowing, catching, proposed, uncovered
from tui_agent.tools.gate.shell_line import read_line

Mode: TypeAlias = Literal["plan", "ask", "auto", "allow"]
Source: TypeAlias = Literal["mode", "rule", "remembered", "user", "changed"]

_PLAN_ADVICE = (
    "The session is in plan mode: you may read and search, but change and run nothing. Describe what you would do "
    "instead; the user leaves plan mode when they agree."
)
_RULE_ADVICE = (
    "A rule of the user forbids this. Do not look for a way around it: go on without it, or say that you cannot."
)
_REFUSED_ADVICE = "The user declined this call. Do not repeat it: try something else, or ask what they want."


class NobodyToAsk(Exception):
    """Raised by an `Ask`: a call needs the user's word, and the front end has nobody to ask."""

    def __init__(self, question: PermissionQuestion) -> None:
        super().__init__(f"{question.tool}: {question.reason}")
        self.question = question


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a call may run.

    `reason` is for the user; `advice`, of a denial, is for the model. `source` is what decided, and `rule` the rule
    where it was one. `remembered` are the rules that the user allowed for good, and `notice` says what they should know
    about that. `accesses` is what the verdict is about.
    """

    allowed: bool
    reason: str
    source: Source
    advice: str = ""
    rule: str = ""
    remembered: tuple[str, ...] = ()
    notice: str = ""
    accesses: tuple[Access, ...] = ()


class PermissionGate:
    """The gate of a session and all its subtasks. `mode` may be changed at any time.

    Raises RuleError for a rule that cannot be read.
    """

    def __init__(
        self,
        mode: Mode,
        workspace: WorkspaceView,
        *,
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        remembered: RememberedRules | None = None,
    ) -> None:
        self.mode: Mode = mode
        self._workspace = workspace
        self._allow, self._ask, self._deny = (tuple(map(Rule.read, rules)) for rules in (allow, ask, deny))
        self._remembered = remembered
        self._one_question = asyncio.Lock()

    async def check(self, tool: Tool, call: ToolCall, ask: Ask) -> Verdict:
        """Decide on a call. Where several wait for the user's word, they are asked about one after the other.

        Raises ToolFailure for arguments that do not fit, and whatever `ask` raises, NobodyToAsk included.
        """
        name = tool.definition.name
        accesses = await asyncio.to_thread(_accesses, tool, call, self._workspace)
        decided = await asyncio.to_thread(self._decide, name, accesses)
        if isinstance(decided, Verdict):
            return decided
        preview = await asyncio.to_thread(tool.preview, call.arguments, self._workspace)
        async with self._one_question:
            # The answer to the question before this one may have settled it.
            decided = await asyncio.to_thread(self._decide, name, accesses)
            if isinstance(decided, Verdict):
                return decided
            reason, by_rule = decided
            rules = () if by_rule or self._remembered is None else self._proposed(name, accesses)
            pattern = ", ".join(rule.text for rule in rules)
            question = PermissionQuestion(call.id, name, call.arguments, accesses, preview, reason, pattern)
            answer = await ask(question)
            if not answer.allowed:
                advice = f"{_REFUSED_ADVICE} They said: {answer.feedback}" if answer.feedback else _REFUSED_ADVICE
                return Verdict(False, "You declined it.", "user", advice, accesses=accesses)
            notice = await asyncio.to_thread(self._remember, rules) if answer.always and rules else ""
        if await asyncio.to_thread(_accesses, tool, call, self._workspace) != accesses:
            return Verdict(
                False,
                "What the call leads to changed while the question was open.",
                "changed",
                "What this path leads to changed while the user was asked. Look at it and call again.",
                accesses=accesses,
            )
        remembered = tuple(rule.text for rule in rules) if answer.always else ()
        return Verdict(True, "You allowed it.", "user", remembered=remembered, notice=notice, accesses=accesses)

    def passes(self, tool: str, access: Access) -> bool:
        """Whether a call of `tool` that wants just this would be allowed without asking."""
        decided = self._decide(tool, (access,))
        return isinstance(decided, Verdict) and decided.allowed

    def granting(self, tool: str) -> tuple[Rule, ...]:
        """The user's rules that allow `tool` something, with those remembered."""
        remembered = self._remembered.rules if self._remembered else ()
        return tuple(rule for rule in (*self._allow, *remembered) if rule.names(tool))

    def _decide(self, tool: str, accesses: tuple[Access, ...]) -> "Verdict | tuple[str, bool]":
        """The verdict, or why the user must be asked and whether an ask rule wants it."""
        deny, ask, allow = (
            [rule for rule in rules if rule.names(tool)] for rules in (self._deny, self._ask, self._allow)
        )
        for access in accesses:
            if denial := self._denied(access, deny):
                return msgspec.structs.replace(denial, accesses=accesses)
        if self.mode == "plan" and any(_changes(access) for access in accesses):
            return Verdict(False, "Plan mode is read-only.", "mode", _PLAN_ADVICE, accesses=accesses)
        if self.mode == "allow":
            return Verdict(True, "Mode allow.", "mode", accesses=accesses)
        for access in accesses:
            if rule := catching(ask, access, self._workspace):
                return f"The rule {rule.text} asks about it.", True
        remembered = [rule for rule in self._remembered.rules if rule.names(tool)] if self._remembered else []
        granted: Rule | None = None
        for access in accesses:
            reason = _question(access, self.mode)
            if not reason:
                continue
            granted = allowing([*allow, *remembered], access, self._workspace)
            if granted is None:
                return _explained(reason, access, self._workspace, [*allow, *remembered]), False
        if granted:
            source: Source = "rule" if granted in allow else "remembered"
            return Verdict(True, f"The rule {granted.text} allows it.", source, rule=granted.text, accesses=accesses)
        return Verdict(True, f"Mode {self.mode}.", "mode", accesses=accesses)

    def _denied(self, access: Access, deny: list[Rule]) -> Verdict | None:
        if rule := catching(deny, access, self._workspace):
            return Verdict(False, f"The rule {rule.text} forbids it.", "rule", _RULE_ADVICE, rule=rule.text)
        opaque = read_line(access.target).opaque if deny and access.effect == "run" else ""
        if opaque and self.mode == "allow":
            return Verdict(
                False,
                f"It cannot be held against the rules that forbid commands: {opaque}.",
                "rule",
                f"The command cannot be checked against the user's rules because {opaque}. Write it as plain commands, "
                "one call each.",
            )
        return None

    def _proposed(self, tool: str, accesses: tuple[Access, ...]) -> tuple[Rule, ...]:
        rules: list[Rule] = []
        for access in accesses:
            if _question(access, self.mode):
                found = proposed(tool, access, self._workspace)
                if not found:
                    return ()
                rules.extend(found)
        return tuple(dict.fromkeys(rules))

    def _remember(self, rules: tuple[Rule, ...]) -> str:
        if self._remembered is None:
            return ""
        try:
            self._remembered.add(rules)
        except RememberedError as error:
            return f"Allowed, but only for this session: {error}"
        return ""


def _changes(access: Access) -> bool:
    return access.effect not in {"read", "none"}


def _question(access: Access, mode: Mode) -> str:
    """Why the mode asks about an access; empty where it does not."""
    if access.effect == "none" or mode == "allow":
        return ""
    if access.effect == "read":
        return "" if access.inside or access.own else "It reads outside the workspace."
    if access.effect == "write":
        if access.guarded:
            return "It changes a place that shapes how agents and git work here."
        if not access.inside:
            return "It writes outside the workspace."
        return "" if mode == "auto" else "It changes a file."
    return "It runs a command." if access.effect == "run" else "It reaches the network."


def _explained(reason: str, access: Access, workspace: WorkspaceView, rules: list[Rule]) -> str:
    if access.effect != "run":
        return reason
    line = read_line(access.target)
    if line.opaque:
        return f"It runs a command that rules cannot see through: {line.opaque}."
    missing = uncovered(rules, access, workspace)
    return f"It runs a command, and {missing}." if missing else reason


def _accesses(tool: Tool, call: ToolCall, workspace: WorkspaceView) -> tuple[Access, ...]:
    try:
        return tool.access(call.arguments, workspace)
    except StopIteration as error:
        # No future can carry one out of a thread: whoever waits for it would wait for ever.
        raise RuntimeError("the tool raised StopIteration") from error
