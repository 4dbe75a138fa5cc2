"""All policies by name, and replaying a script under one: what is sent, what it costs, and what stays in view."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

import msgspec

from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import ModelProfile
from tui_agent.replay.billing import Bill, Billing, PromptPart
from tui_agent.replay.engine_policy import EnginePolicy
from tui_agent.replay.policies import (
    COMPARED,
    KeepingPolicy,
    MakePolicy,
    PolicySetup,
    ReplayPolicy,
    Write,
    written_by_rule,
)
from tui_agent.replay.script import RecordedCall, RecordedMessage, Script
from tui_agent.settings import POLICIES, PolicyName, Settings, with_policy
from tui_agent.settings.schema import Preset
from tui_agent.storage.recordings.recording import UnreadableRecording

Step = Callable[[], None]

COMPARED_CHARS = 200
"""Characters of a message of the user that must stand in the prompt for it to count as readable."""

PRESETS: tuple[Preset, ...] = ("layered", "digest", "summary-only", "off")
OURS: tuple[str, ...] = (*PRESETS, *POLICIES)
NAMES: tuple[str, ...] = (*OURS, "none", *COMPARED)
"""All policies, this program's first."""


class UnknownPolicy(UnreadableRecording):
    """There is no policy with this name."""


def preset_policy(name: Preset | PolicyName, settings: Settings) -> MakePolicy:
    """A preset of this program, or a policy of `/policy`, under these settings."""
    policy = next((each for each in POLICIES if each == name), None)
    context = msgspec.structs.replace(settings.context, preset=name)
    chosen = with_policy(settings, policy) if policy else msgspec.structs.replace(settings, context=context)
    return lambda setup: EnginePolicy(setup, chosen)


def policies(names: Sequence[str], settings: Settings) -> dict[str, MakePolicy]:
    """The policies with these names; all if none are given. Raises `UnknownPolicy`."""
    known: dict[str, MakePolicy] = {"none": KeepingPolicy, **COMPARED}
    known |= {name: preset_policy(name, settings) for name in (*PRESETS, *POLICIES)}
    for name in names:
        if name not in known:
            close = get_close_matches(name, NAMES, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(NAMES)}"
            raise UnknownPolicy(f"--policy: there is no policy {name!r}; {hint}")
    return {name: known[name] for name in names or NAMES}


@dataclass(slots=True)
class Evidence:
    """How many of the mentions that calls needed were in view, and how many only reachable through something in view.

    `depths` counts those in view by the number of summaries they had passed through: 0 verbatim, 1 in a summary of the
    turns, 2 in a summary of a summary, and so on. `kinds` counts by kind (path, name, number, …; also the commands that
    are run again, and at the end the words of the user) what was needed, and of it what was in view.
    """

    needed: int = 0
    in_view: int = 0
    pointed_to: int = 0
    depths: Counter[int] = field(default_factory=Counter)
    kinds: dict[str, tuple[int, int]] = field(default_factory=dict)

    def survived(self, kind: str, *, in_view: bool) -> None:
        """Count one thing of this kind that was needed."""
        needed, seen = self.kinds.get(kind, (0, 0))
        self.kinds[kind] = needed + 1, seen + in_view

    @property
    def share(self) -> float:
        """The share in view; 1 if nothing was needed."""
        return self.in_view / self.needed if self.needed else 1.0

    @property
    def verbatim_share(self) -> float:
        """The share in view verbatim, not in a summary; 1 if nothing was needed."""
        return self.depths[0] / self.needed if self.needed else 1.0

    @property
    def depth(self) -> float:
        """The average number of summaries that mentions in view, except verbatim ones, had passed through; 0 if all are
        verbatim.
        """
        summarised = self.in_view - self.depths[0]
        return sum(depth * count for depth, count in self.depths.items()) / summarised if summarised else 0.0

    @property
    def pointer_share(self) -> float:
        """The share that is not in view but reachable through something in view."""
        return self.pointed_to / self.needed if self.needed else 0.0


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The result of a policy for a recording on one model: the usage of each call, and the prompt at the end."""

    policy: str
    model: str
    window: int
    bill: Bill
    evidence: Evidence
    compactions: int
    clearings: int
    used: tuple[Usage, ...] = ()
    view: tuple[PromptPart, ...] = ()


def simulate(
    script: Script,
    name: str,
    make: MakePolicy,
    profile: ModelProfile,
    *,
    small: ModelProfile | None = None,
    window: int = 0,
    write: Write = written_by_rule,
    step: Step | None = None,
) -> ReplayOutcome:
    """Replay the script under a policy. `window` (tokens) overrides the model's; `step` is called after each call."""
    window = window or profile.window
    ledger = Billing(profile, small, window)
    policy = make(PolicySetup(script, ledger, window, write))
    search = _Search(script, policy, ledger, script.kinds)
    usages: list[Usage] = []
    for call in script.calls:
        waited_for = ledger.bill.awaited_tokens
        policy.before(call)
        ledger.note_wait(ledger.bill.awaited_tokens - waited_for)
        used = ledger.call(policy.prompt, call.output, call.time)
        usages.append(used)
        search.look_for_what_is_needed(call)
        policy.after(call, used)
        if step is not None:
            step()
    search.look_for_the_users_words()
    counts = policy.compactions, policy.clearings
    view = tuple(policy.prompt.parts[1:])
    return ReplayOutcome(name, profile.id, window, ledger.bill, search.evidence, *counts, tuple(usages), view)


@dataclass(slots=True)
class _Search:
    """Looks for what each call needs, and bills finding it again, under every policy by one rule: what a recorded call
    uses has been read once more if the prompt no longer holds it, whether something in it says where or the model has
    to search. A result is fetched at most once between two edits of the prompt.
    """

    script: Script
    policy: ReplayPolicy
    ledger: Billing
    kinds: Mapping[int, str]
    evidence: Evidence = field(default_factory=Evidence)
    fetched: set[int] = field(default_factory=set)
    edits: int = 0

    def look_for_what_is_needed(self, call: RecordedCall) -> None:
        """Count what is in view, and fetch again what is not."""
        edits = self.policy.compactions + self.policy.clearings
        if edits != self.edits:
            self.fetched.clear()
            self.edits = edits
        missing: list[RecordedMessage] = []
        for mention in sorted(call.needed):
            self.evidence.needed += 1
            self.evidence.survived(self.kinds[mention], in_view=self.policy.prompt.holds(mention))
            if self.policy.prompt.holds(mention):
                self.evidence.in_view += 1
                self.evidence.depths[self.policy.prompt.depth(mention)] += 1
                continue
            earlier = [each for each in self.script.sources.get(mention, ()) if each.index < call.answer.index]
            self.evidence.pointed_to += any(map(self.policy.prompt.leads_to, earlier))
            # One that was fetched already, else the smallest.
            source = min(earlier, key=lambda each: (each.index not in self.fetched, each.tokens), default=None)
            if source is not None and source.index not in self.fetched:
                self.fetched.add(source.index)
                missing.append(source)
        if missing:
            self.ledger.fetch(missing, self.policy.prompt)
        for command in call.again:
            self.evidence.survived("command", in_view=self._shows(command))

    def look_for_the_users_words(self) -> None:
        """Count at the end which of the user's later messages, as corrections, can still be read as they began."""
        said = [message for call in self.script.calls[1:] for message in call.arrived if not message.is_result]
        for message in said:
            words = message.text.strip()[:COMPARED_CHARS]
            if words:
                self.evidence.survived("user's words", in_view=self._shows(words))

    def _shows(self, text: str) -> bool:
        return any(text in part.shown for part in self.policy.prompt.parts)
