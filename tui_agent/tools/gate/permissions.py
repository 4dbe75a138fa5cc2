"""The permission gate: before a call runs, it allows it, denies it or asks the user.

Deny rules take precedence over ask rules, those over allow rules, those over the mode. The mode ``plan`` is read-only
whatever a rule allows; the mode ``allow`` never asks, so only deny rules count. In the mode ``auto``, a command that a
full sandbox confines runs unasked if what it changes can be undone; any other only if it is known to read and nothing
else (`judging.py`). Whatever is allowed to run without a sandbox is bound to what it runs first (`read_first.py`).
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.conversation.blocks import ToolCall
from tui_agent.tools.base import Access, Ask, Change, PermissionQuestion, Preview, Tool, ToolFailure, WorkspaceView
from tui_agent.tools.gate.judging import (
    Judgement,
    PlainCommand,
    judge,
    judge_outside,
    limit_on_reading,
    notices_of,
    proposed_for,
    steps_of,
)
from tui_agent.tools.gate.read_first import Approved, FilesRunFirst
from tui_agent.tools.gate.remembered import RememberedError, RememberedRules
from tui_agent.tools.gate.rules import (
    CHANGE,
    NETWORK,
    OUTSIDE,
    READ,
    SEARCH,
    SHELL,
    UNRECORDED,
    Rule,
    about,
    allowing,
    catching,
    catching_line,
    hides_commands,
    proposed,
)

Mode: TypeAlias = Literal["plan", "ask", "auto", "allow"]
Unasked: TypeAlias = Literal["sandboxed", "known"]
Source: TypeAlias = Literal["mode", "rule", "remembered", "user", "changed", "hook"]

_PLAN_ADVICE = (
    "The session is in plan mode: you may read and search, but change and run nothing. Submit what you would do as a "
    "plan (submit_plan); the user leaves plan mode when they approve it."
)
_RULE_ADVICE = (
    "A rule of the user forbids this. Do not look for a way around it: go on without it, or say that you cannot."
)
_REFUSED_ADVICE = "The user declined this call. Do not repeat it: try something else, or ask what they want."
REFUSED_BECAUSE = f"{_REFUSED_ADVICE} They said: "
"""Before the user's own words in the result of a call that they declined."""


class Confinement(Protocol):
    """Tells whether commands run in a sandbox, and what they left to git that it would put into guarded files."""

    @property
    def isolates(self) -> bool:
        """Whether a command started now could change and reach only what the sandbox grants it."""
        ...

    @property
    def held(self) -> tuple[Change, ...]:
        """What the user has not yet accepted of it."""
        ...

    def accept_held(self, accepted: Sequence[Change]) -> None:
        """Ask about these no more."""
        ...


class History(Protocol):
    """Tells whether what a command changes can be undone."""

    async def gap(self) -> str:
        """Why not all that a command changes now could be put back, in a sentence; empty if it could."""
        ...

    def earlier(self, path: Path) -> bytes | None:
        """What a file contained before this session changed it; None if that is not known."""
        ...


class NobodyToAsk(Exception):
    """Raised by an `Ask` of a front end that cannot ask anybody.

    Several calls of one step may wait for an answer: `questions` are all of them, `question` is the first.
    """

    def __init__(self, question: PermissionQuestion, *others: PermissionQuestion) -> None:
        super().__init__(f"{question.tool}: {question.reason}")
        self.question = question
        self.questions = (question, *others)


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a call may run.

    `reason` is for the user; `advice`, given with a denial, is for the model. `source` is what decided, and `rule` the
    rule if it was one. `remembered` are the rules that the user's answer added, and `notice` is what they should know
    about them. `accesses` is what the verdict is about.
    """

    allowed: bool
    reason: str
    source: Source
    advice: str = ""
    rule: str = ""
    remembered: tuple[str, ...] = ()
    notice: str = ""
    accesses: tuple[Access, ...] = ()


class GrantedRule(msgspec.Struct, frozen=True):
    """A rule in force.

    `said`: what it allows, refuses or asks about, in words. `remembered`: the user can take it back; otherwise it comes
    from the settings. `for_session`: it is remembered until the session is closed.
    """

    text: str
    kind: Literal["allow", "ask", "deny"]
    said: str
    remembered: bool = False
    for_session: bool = False

    @property
    def source(self) -> str:
        """Where it comes from, in words."""
        if self.for_session:
            return "for this session"
        return "remembered" if self.remembered else f"settings, {self.kind}"


class _Question(msgspec.Struct, frozen=True):
    """Why the user is asked. `by_rule`: because of an ask rule of theirs, so "always" is not offered. `seen`: what a
    command that nothing would confine runs first. `unrecorded`: what it changes could not be undone.
    """

    reason: str
    by_rule: bool = False
    seen: FilesRunFirst = FilesRunFirst()
    unrecorded: bool = False


class PermissionGate:
    """The gate of a session and all its subtasks.

    `mode` may be changed at any time; `before_plan` is the mode before ``plan``. `confinement` tells whether commands
    run in a sandbox, `history` whether what they change can be undone. `unasked`: what runs unasked in the mode
    ``auto``, every command that is confined or only those that are known to read. `approved`: the private folder for
    what commands that were allowed without a sandbox run first. Raises RuleError for a rule that cannot be parsed.
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
        confinement: Confinement | None = None,
        history: History | None = None,
        unasked: Unasked = "sandboxed",
        approved: Path | None = None,
    ) -> None:
        self._mode: Mode = mode
        self.before_plan: Mode = "ask" if mode == "plan" else mode
        self.confinement = confinement
        self.history = history
        self._unasked = unasked
        self._approved = Approved(approved, workspace.root)
        self._workspace = workspace
        self._allow, self._ask, self._deny = (tuple(map(Rule.read, rules)) for rules in (allow, ask, deny))
        self._remembered = remembered
        self._of_session: tuple[Rule, ...] = ()
        self._one_question = asyncio.Lock()
        self._let_through: dict[str, tuple[PlainCommand, ...]] = {}
        """The commands of lines that may run and are bound to what they run first, by line."""

    @property
    def mode(self) -> Mode:
        """The permission mode: what may happen without asking."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        if mode != "plan":
            self.before_plan = mode

    @property
    def runs_confined(self) -> bool:
        """Whether commands run unasked in the mode ``auto``: a full sandbox confines them, and their changes are kept.

        The first use takes about 0.1 s: call it off the event loop.
        """
        return self._unasked == "sandboxed" and self.history is not None and self._isolates

    @property
    def limits(self) -> tuple[Rule, ...]:
        """The rules about files that may not be read or changed, and addresses not reached, or not unasked."""
        return about((READ, NETWORK, *CHANGE), (*self._deny, *self._ask))

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about rules that can allow nothing."""
        forgotten = self._remembered.notice if self._remembered else ""
        return (*notices_of(self._allow), *((forgotten,) if forgotten else ()))

    async def check(
        self, tool: Tool, call: ToolCall, ask: Ask, *, stopped: str = "", doubted: str = "", trusted: str = ""
    ) -> Verdict:
        """Decide on a call, asking the user if necessary. Concurrent questions are asked one after the other.

        `stopped` says what the sandbox prevented: the question is then whether to run the call outside, and the
        accesses of an allowing verdict have `outside`, as for a call that asks for that itself. `doubted` is a reason
        to ask about a call that would otherwise pass, `trusted` why a hook of the user's lets it pass without the
        question, unless a rule of theirs has them asked. Raises ToolFailure for arguments that do not fit
        and instead of a question about a call that cannot work, and whatever `ask` raises, NobodyToAsk included.
        """
        name = tool.definition.name
        accesses, unasked = await asyncio.to_thread(self._looked_at, tool, call)
        if stopped:
            stopped = f"The sandbox stopped it: {stopped}"
        elif any(access.outside for access in accesses):
            stopped = "It is to run outside the sandbox, where nothing confines it."
        gap = await self.history.gap() if unasked and not stopped and self.history is not None else ""
        decided = await asyncio.to_thread(self._decide, name, accesses, stopped, gap)
        if isinstance(decided, Verdict) and decided.allowed and doubted:
            decided = _Question(doubted, by_rule=True)
        if isinstance(decided, Verdict):
            return decided
        if trusted and not doubted and not decided.by_rule:
            reached = _reached(accesses, stopped)
            return Verdict(True, f"A hook of yours allows it: {trusted}", "hook", accesses=reached)
        preview = await asyncio.to_thread(tool.preview, call.arguments, self._workspace)
        readable = (self.passes(READ, structs.replace(access, effect="read")) for access in accesses)
        if preview.failure and all(readable):
            # There is nothing to decide. The failure quotes the file, so it must be one the model may read unasked.
            raise ToolFailure(*preview.failure)
        async with self._one_question:
            # The answer to an earlier question may have decided this one.
            if not doubted:
                decided = await asyncio.to_thread(self._decide, name, accesses, stopped, gap)
            if isinstance(decided, Verdict):
                return decided
            rules: tuple[Rule, ...] = ()
            if not decided.by_rule and self._remembered is not None:
                rules = await asyncio.to_thread(self._proposed, name, accesses, stopped, decided)
            question = PermissionQuestion(
                call.id,
                name,
                call.arguments,
                accesses,
                structs.replace(preview, changes=(*preview.changes, *decided.seen.changes)),
                decided.reason,
                tuple(map(self._said, rules)),
                outside=bool(stopped),
            )
            answer = await ask(question)
            if not answer.allowed:
                advice = f"{REFUSED_BECAUSE}{answer.feedback}" if answer.feedback else _REFUSED_ADVICE
                said = f"You declined it: {answer.feedback}" if answer.feedback else "You declined it."
                return Verdict(False, said, "user", advice, accesses=accesses)
            notice = await asyncio.to_thread(self._remember, rules) if answer.always and rules else ""
            if answer.for_session:
                self._of_session = tuple(dict.fromkeys((*self._of_session, *rules)))
        if await asyncio.to_thread(self._has_changed, tool, call, accesses, decided.seen, stopped):
            return Verdict(
                False,
                "What the call leads to changed while the question was open.",
                "changed",
                "What this path leads to changed while the user was asked. Look at it and call again.",
                accesses=accesses,
            )
        remembered = tuple(rule.text for rule in rules) if answer.always else ()
        reached = _reached(accesses, stopped)
        return Verdict(True, "You allowed it.", "user", remembered=remembered, notice=notice, accesses=reached)

    async def check_own(self, line: str, ask: Ask, call_id: str = "", *, title: str = "Run your command") -> bool:
        """Whether to run a command line of the user's own, without a sandbox: one they typed, or one of their hooks.

        They are asked only if what it runs first has changed since they last allowed it, and again if it changes until
        they have answered. Raises what `ask` raises.
        """
        shown: FilesRunFirst | None = None
        while (seen := await asyncio.to_thread(lambda: self._look(steps_of(line, self._workspace)))) != shown:
            if not seen.changes or self.mode == "allow":
                break
            shown = seen
            preview = Preview(title, command=line, changes=seen.changes)
            accesses = (Access("run", line, outside=True),)
            question = PermissionQuestion(call_id, SHELL, "{}", accesses, preview, seen.reason)
            if not (await ask(question)).allowed:
                return False
        await asyncio.to_thread(self._accept, seen, line)
        return True

    def changed_since(self, line: str) -> str:
        """What a line that nothing confines runs first and was changed since it was let through, in a sentence; empty
        if nothing was. Reads files: call it right before the run, off the event loop.
        """
        steps = self._let_through.pop(line, ())
        seen = self._look(steps) if steps else FilesRunFirst()
        return seen.reason if seen.changes else ""

    def passes(self, tool: str, access: Access) -> bool:
        """Whether a call of `tool` with just this access would be allowed without asking."""
        decided = self._decide(tool, (access,), "", "")
        return isinstance(decided, Verdict) and decided.allowed

    @property
    def _isolates(self) -> bool:
        return self.confinement is not None and self.confinement.isolates

    def _looked_at(self, tool: Tool, call: ToolCall) -> tuple[tuple[Access, ...], bool]:
        """What a call touches, and whether it is a command that runs unasked if its changes can be undone."""
        unasked = tool.definition.name == SHELL and self.mode == "auto" and self.runs_confined
        return _accesses(tool, call, self._workspace), unasked

    def _has_changed(
        self, tool: Tool, call: ToolCall, accesses: tuple[Access, ...], seen: FilesRunFirst, stopped: str
    ) -> bool:
        """Whether something else would run now than was shown; if not, that is noted as allowed."""
        if _accesses(tool, call, self._workspace) != accesses:
            return True
        if self._seen(tool.definition.name, accesses, stopped) != seen:
            return True
        self._accept(seen, *(access.target for access in accesses if access.effect == "run"))
        return False

    def _seen(self, tool: str, accesses: tuple[Access, ...], stopped: str) -> FilesRunFirst:
        """What the commands of a call would run first; nothing if a sandbox confines them."""
        lines = [access.target for access in accesses if access.effect == "run" and tool == SHELL]
        if not lines or (self._isolates and not stopped):
            return FilesRunFirst()
        return self._look(tuple(step for line in lines for step in steps_of(line, self._workspace)))

    def _look(self, steps: tuple[PlainCommand, ...]) -> FilesRunFirst:
        if self.history is not None:
            self._approved.earlier = self.history.earlier
        seen = self._approved.look(steps, self._workspace)
        # Git may be called by any program.
        held = self.confinement.held if self.confinement is not None else ()
        return structs.replace(seen, changes=(*seen.changes, *held))

    def _accept(self, seen: FilesRunFirst, *lines: str) -> None:
        self._approved.accept(seen)
        self._let_through |= dict.fromkeys(lines, seen.steps)
        if self.confinement is not None:
            self.confinement.accept_held(seen.changes)

    def granting(self, tool: str) -> tuple[Rule, ...]:
        """The allow rules about `tool`, of the settings, remembered, and for this session."""
        return tuple(rule for rule in (*self._allow, *self._kept) if rule.names(tool))

    def rules(self) -> tuple[GrantedRule, ...]:
        """Every rule in force; first those that can be taken back."""
        lasting = self._remembered.rules if self._remembered else ()
        found = [
            GrantedRule(rule.text, "allow", rule.said, remembered=True, for_session=rule not in lasting)
            for rule in self._kept
        ]
        dropped = self._remembered.dropped if self._remembered else ()
        found += [GrantedRule(text, "allow", "lets nothing through any more", remembered=True) for text in dropped]
        of_settings: tuple[tuple[Literal["allow", "ask", "deny"], tuple[Rule, ...]], ...] = (
            ("allow", self._allow),
            ("ask", self._ask),
            ("deny", self._deny),
        )
        found += [
            GrantedRule(rule.text, kind, rule.said if kind == "allow" else rule.limits)
            for kind, rules in of_settings
            for rule in rules
        ]
        return tuple(found)

    def take_back(self, rule: str) -> None:
        """Forget a remembered rule, so that the user is asked again. Raises RememberedError."""
        self._of_session = tuple(each for each in self._of_session if each.text != rule)
        if self._remembered is not None:
            self._remembered.remove(rule)

    @property
    def _kept(self) -> tuple[Rule, ...]:
        lasting = self._remembered.rules if self._remembered else ()
        return (*lasting, *(rule for rule in self._of_session if rule not in lasting))

    def _decide(self, tool: str, accesses: tuple[Access, ...], stopped: str, gap: str) -> Verdict | _Question:
        for access in accesses:
            if denial := self._denied(tool, access):
                return structs.replace(denial, accesses=accesses)
        if self.mode == "plan" and any(self._changes(tool, access) for access in accesses):
            return Verdict(False, "Plan mode is read-only.", "mode", _PLAN_ADVICE, accesses=accesses)
        if self.mode == "allow":
            return Verdict(True, "Mode allow.", "mode", accesses=_reached(accesses, stopped))
        for access in accesses:
            if rule := self._limiting(self._ask, tool, access):
                return _Question(
                    f"The rule {rule.text} asks about it.", by_rule=True, seen=self._seen(tool, accesses, stopped)
                )
        granted: Rule | None = None
        allowed: list[Access] = []
        for access in accesses:
            if access.effect == "run":
                judged = self._run(tool, access, stopped, gap)
                if judged.outcome != "allow":
                    seen = self._seen(tool, accesses, stopped)
                    reason = stopped or " ".join(judged.reasons)
                    reason = f"{reason} {seen.reason}" if seen.changes else reason
                    return _Question(reason, seen=seen, unrecorded=bool(gap and not stopped))
                if judged.steps:
                    # What a rule allows word for word is also bound to what it runs first.
                    seen = self._look(judged.steps)
                    if seen.changes:
                        return _Question(seen.reason, by_rule=True, seen=self._seen(tool, accesses, "outside"))
                    self._accept(seen, access.target)
                granted = judged.rule or granted
                allowed.append(structs.replace(access, outside=judged.outside))
                continue
            allowed.append(access)
            reason = self._reason(access)
            if not reason:
                continue
            granted = allowing(self.granting(_named_in_rules(tool, access)), access, self._workspace)
            if granted is None:
                return _Question(reason)
        if granted:
            source: Source = "rule" if granted in self._allow else "remembered"
            why = f"The rule {granted.text} allows it."
            return Verdict(True, why, source, rule=granted.text, accesses=tuple(allowed))
        return Verdict(True, f"Mode {self.mode}.", "mode", accesses=tuple(allowed))

    def _run(self, tool: str, access: Access, stopped: str, gap: str) -> Judgement:
        """Judge a command. One that may run outside the sandbox is judged as running outside."""
        confined = tool == SHELL and self._isolates
        if confined or stopped:
            outside = judge_outside(access.target, (*self._allow, *self._kept), self._workspace)
            if stopped or outside.outcome == "allow":
                return outside
        if confined and (self.mode == "plan" or (self.mode == "auto" and self.runs_confined and not gap)):
            return Judgement("allow")
        # Only run_command passes the text to a shell; to another tool `ls` may mean anything.
        reading = tool == SHELL and self.mode == "auto"
        judged = judge(access.target, self.granting(tool), self._workspace, reading_passes=reading)
        if confined:
            # What is confined is not bound to what it runs first.
            judged = structs.replace(judged, steps=())
        if not gap or judged.outcome == "allow":
            return judged
        accepted = next((rule for rule in (*self._allow, *self._kept) if rule.tool == UNRECORDED), None)
        return Judgement("allow", rule=accepted) if accepted else Judgement("ask", (gap,))

    def _denied(self, tool: str, access: Access) -> Verdict | None:
        if rule := self._limiting(self._deny, tool, access):
            return Verdict(False, f"The rule {rule.text} forbids it.", "rule", _RULE_ADVICE, rule=rule.text)
        judged = access.effect == "run" and self.mode == "allow" and any(rule.names(tool) for rule in self._deny)
        if judged and (hidden := hides_commands(access.target)):
            return Verdict(
                False,
                f"It cannot be held against the rules that forbid commands: {hidden}.",
                "rule",
                f"The command cannot be checked against the user's rules because {hidden}. Write it as plain commands, "
                "one call each.",
            )
        return None

    def _limiting(self, rules: tuple[Rule, ...], tool: str, access: Access) -> Rule | None:
        """The rule, of those that refuse or have the user asked, that is about an access: what may not be read may not
        be searched either, nor be read by a command, from which only a sandbox hides it.
        """
        name = _named_in_rules(tool, access)
        named = tuple(rule for rule in rules if rule.names(name) or (name == SEARCH and rule.names(READ)))
        if access.effect != "run":
            return catching(named, access, self._workspace)
        reads = about((READ,), rules) if tool == SHELL and not self._isolates else ()
        return catching_line(named, access.target) or limit_on_reading(access.target, reads, self._workspace)

    def _changes(self, tool: str, access: Access) -> bool:
        if access.effect == "run" and tool == SHELL and self._isolates:
            # In plan mode the sandbox lets commands write nothing.
            return access.outside
        return access.effect not in {"read", "none"}

    def _reason(self, access: Access) -> str:
        """Why the mode asks about an access; empty if it does not."""
        match access.effect:
            case "read" if not (access.inside or access.own):
                return "It reads outside the workspace."
            case "write" if access.guarded:
                return "It changes a place that shapes how agents, git, shells or tools work."
            case "write" if not access.inside:
                return "It writes outside the workspace."
            case "write" if self.mode != "auto":
                return "It changes a file."
            case "call":
                return f"It calls a tool of the server {access.target.partition('/')[0]}."
            case "network":
                return "It reaches the network."
        return ""

    def _proposed(self, tool: str, accesses: tuple[Access, ...], stopped: str, decided: _Question) -> tuple[Rule, ...]:
        rules: list[Rule] = []
        for access in accesses:
            if access.effect == "run" and decided.unrecorded:
                found: tuple[Rule, ...] = (Rule(UNRECORDED),)
            elif access.effect == "run":
                found = proposed_for(
                    access.target,
                    self.granting(tool),
                    self._workspace,
                    tool=OUTSIDE if stopped else tool,
                    reading_passes=tool == SHELL and self.mode == "auto",
                )
            elif self._reason(access):
                found = proposed(_named_in_rules(tool, access), access, self._workspace)
            else:
                continue
            if not found:
                return ()
            rules.extend(found)
        return tuple(dict.fromkeys(rules))

    def _said(self, rule: Rule) -> str:
        """What a rule allows, in words; where it is bound to is seen from the folder of the session."""
        folder, root = rule.folder, str(self._workspace.root)
        folder = "" if folder == root else folder.removeprefix(f"{root}/")
        return structs.replace(rule, folder=folder).said

    def _remember(self, rules: tuple[Rule, ...]) -> str:
        if self._remembered is None:
            return ""
        try:
            self._remembered.add(rules)
        except RememberedError as error:
            return f"Allowed, but only for this session: {error}"
        return ""


def _named_in_rules(tool: str, access: Access) -> str:
    """The tool that a rule about this access names: what a command reads, it may read as the tool that reads does."""
    return READ if tool == SHELL and access.effect == "read" else tool


def _reached(accesses: tuple[Access, ...], stopped: str) -> tuple[Access, ...]:
    """What is allowed: commands outside the sandbox if it `stopped` them."""
    return tuple(structs.replace(each, outside=each.effect == "run") for each in accesses) if stopped else accesses


def _accesses(tool: Tool, call: ToolCall, workspace: WorkspaceView) -> tuple[Access, ...]:
    try:
        return tool.access(call.arguments, workspace)
    except StopIteration as error:
        # A future cannot carry StopIteration out of a thread: the caller would wait for ever.
        raise RuntimeError("the tool raised StopIteration") from error
