"""Replaying a script under one policy: what is sent call by call, what it costs, and what could still be seen."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tui_agent.models.base import ModelProfile
from tui_agent.replay.ledger import Bill, Ledger
from tui_agent.replay.policy import MakePolicy, Moment, Policy, Setup
from tui_agent.replay.script import ModelCall, Said, Script

Step = Callable[[], None]


@dataclass(slots=True)
class Evidence:
    """Of what the calls needed: how much could be read in view, how much only found through something in view."""

    needed: int = 0
    in_view: int = 0
    pointed_to: int = 0

    @property
    def share(self) -> float:
        """The share in view; 1 where nothing was needed."""
        return self.in_view / self.needed if self.needed else 1.0

    @property
    def pointer_share(self) -> float:
        """The share that is not in view but that something in view leads to."""
        return self.pointed_to / self.needed if self.needed else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy made of a recording on one model."""

    policy: str
    model: str
    window: int
    bill: Bill
    evidence: Evidence
    compactions: int
    clearings: int


@dataclass(slots=True)
class _Fetched:
    """What was fetched again since the view was last edited, and so need not be fetched twice."""

    pieces: set[int] = field(default_factory=set)
    edits: int = 0


def simulate(
    script: Script,
    name: str,
    make: MakePolicy,
    profile: ModelProfile,
    *,
    small: ModelProfile | None = None,
    window: int = 0,
    step: Step | None = None,
) -> Outcome:
    """Replay the script under a policy. `window` overrides the model's; `step` is called after each call."""
    window = window or profile.window
    ledger = Ledger(profile, small, window)
    policy = make(Setup(script, ledger, window))
    evidence, fetched = Evidence(), _Fetched()
    for call in script.calls:
        for said in call.arrived:
            policy.add(said)
        policy.prepare(Moment(call.time, call.starts_turn))
        ledger.call(policy.prompt, call.output, call.time)
        _weigh(script, call, policy, ledger, evidence, fetched)
        policy.add(call.answer)
        if step is not None:
            step()
    return Outcome(name, profile.id, window, ledger.bill, evidence, policy.compactions, policy.clearings)


def _weigh(
    script: Script, call: ModelCall, policy: Policy, ledger: Ledger, evidence: Evidence, fetched: _Fetched
) -> None:
    """Look for what the call needs; what has left the view but is pointed to is fetched again."""
    edits = policy.compactions + policy.clearings
    if edits != fetched.edits:
        fetched.pieces.clear()
        fetched.edits = edits
    missing: list[Said] = []
    for fact in sorted(call.needed):
        evidence.needed += 1
        if policy.prompt.holds(fact):
            evidence.in_view += 1
            continue
        source = _source(script, fact, call, policy, fetched)
        if source is None:
            continue
        evidence.pointed_to += 1
        if source.index not in fetched.pieces:
            fetched.pieces.add(source.index)
            missing.append(source)
    if missing:
        ledger.fetch(missing, policy.prompt)


def _source(script: Script, fact: int, call: ModelCall, policy: Policy, fetched: _Fetched) -> Said | None:
    """The result to fetch for a mention: one fetched already, else the smallest that something in view leads to."""
    found = [said for said in script.sources.get(fact, ()) if said.index < call.answer.index]
    found = [said for said in found if said.index in fetched.pieces or policy.prompt.leads_to(said)]
    return min(found, key=lambda said: (said.index not in fetched.pieces, said.tokens), default=None)
