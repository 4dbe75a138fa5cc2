"""Forecasting the usage of a recording's calls, and how far off that is.

Each call is predicted from the recorded figure of the call before it, what was added since, and what the documented
rules of the cache would have kept: all of that call or, after an edit, what `billing` says. What a client and its
provider do beyond these rules is learned as rates (`ClientHabits`): how much of the cache is lost at a prompt, at any
other call, after a pause longer than its time to live, and after an edit; and how much of what is not read from it is
written to it. What a call's own usage says is never used for it, except in the rates of a fit on all calls;
`Accuracy.rest` has the calls after the first third, predicted with the rates of that third and with those that are
usual. The latter were read off 174 public recordings of 55 repositories, none of which counts for more than 400 calls.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from tui_agent.conversation.entries import ContextEntry, Usage
from tui_agent.conversation.profile import HOUR_S, ModelProfile, Prices
from tui_agent.models.usage import cost_usd
from tui_agent.replay.script import MeasuredSizes, Script
from tui_agent.storage.recordings.recording import Recording, is_metered

CLOSE_READ: Final = 0.05
"""A predicted cache read counts as close if its error is at most this share of the recorded one."""

Moment: TypeAlias = Literal["prompt", "step", "pause", "edit"]
"""When a cache may be lost: at a message that is no result (a prompt, a skill, an interruption), at any other call,
after a pause of at least its time to live, and after the recording replaced or removed messages."""

MOMENTS: Final[tuple[Moment, ...]] = get_args(Moment)
_USUAL: Final[dict[Moment, float]] = {"prompt": 0.15, "step": 150.0, "pause": 0.9, "edit": 0.5}
"""What is lost at each moment if nothing is known: at a step so many tokens, at the others a share of the cached ones.
Between two calls of a turn a cache is rarely lost, but what is newest may not be in it yet, however large it is."""
_USUAL_HOUR: Final[dict[Moment, float]] = {"prompt": 0.05, "step": 100.0, "pause": 0.9, "edit": 0.4}
"""The same for a cache that is kept for an hour."""
_USUAL_IMPLICIT: Final[dict[Moment, float]] = {"prompt": 0.2, "step": 2_200.0, "pause": 0.45, "edit": 0.4}
"""The same for a cache that nobody marks and a provider keeps as it likes."""
_USUAL_FACTOR: Final = 0.9
"""What `MeasuredSizes.factor` usually is."""
_TRUST, _TRUST_STEP = 4, 20
"""The usual losses count as much as this many calls of average size."""
_TRUST_GROWTH: Final = 20_000
"""The usual growth counts as much as that of this many tokens."""
_SILENT, _SILENT_IMPLICIT = 2, 12
"""If nothing was read from a cache in this many calls after the first, nothing ever is: nobody keeps or reports one. A
cache that nobody marks may take some calls to begin."""
_MOST_MORE = 0.05
"""The largest share by which more is read than what the last call left: a call that is not recorded wrote it."""
_LOST = 0.75
"""A cache counts as lost if less than this share of what should be there was read."""
_SHRUNK = 0.03
"""A prompt shrank without a recorded edit if at least this share of it is missing."""


class _Step(msgspec.Struct, frozen=True):
    """One call: its usage as recorded and as simulated by the rules alone, and the recorded tokens before it.

    `added` are the tokens that the rules say the prompt has more than the last one, `turn` those of the turn before it,
    `kept` the tokens that should be in the cache. `edited`: `added` is the whole prompt; `starts`: the user said
    something.
    """

    number: int
    moment: Moment
    recorded: Usage
    simulated: Usage
    before: int
    added: int
    turn: int
    kept: int
    edited: bool
    starts: bool

    @property
    def expected(self) -> int:
        """The tokens of the prompt if nothing is left out."""
        return self.added if self.edited else self.before + self.added

    @property
    def readable(self) -> int:
        """The tokens that could have been read from the cache."""
        return min(self.kept, self.recorded.input_tokens)

    @property
    def lost(self) -> int:
        """The tokens of these that were not; negative if a call that is not recorded wrote more."""
        return self.readable - self.recorded.cache_read_tokens

    @property
    def is_lost(self) -> bool:
        return self.recorded.cache_read_tokens < _LOST * self.readable


@dataclass(frozen=True, slots=True)
class ClientHabits:
    """What a client and its provider do beyond the rules.

    `losses`: what of the cache is lost at each moment (`_USUAL`); `floor`: the tokens that are read where it is lost.
    `growth`: tokens per token that the rules expect; `stripped`: the share of a turn that the provider removes at the
    next prompt (its reasoning); `written`: the share of what is not read that a marked cache is billed to write;
    `resent`: the tokens that a client sends beside a new summary more than at first.
    """

    losses: dict[Moment, float]
    floor: int
    growth: float
    stripped: float
    written: float
    resent: int = 0

    def predict(self, step: _Step, *, marked: bool) -> tuple[Usage, int]:
        """The expected usage of a call, and its most likely cache read."""
        total = max(1, step.added + self.resent) if step.edited else step.before + round(step.added * self.growth)
        if step.starts and not step.edited:
            total -= round(self.stripped * step.turn)
        kept = min(step.kept, total)
        lost = min(kept, self.losses[step.moment] * (1 if step.moment == "step" else kept))
        read = min(total, round(kept - lost))
        written = round(self.written * (total - read)) if marked else 0
        likely = min(self.floor, kept) if lost > kept / 2 else kept
        return Usage(total, read, written, step.recorded.output_tokens), likely


class ComparedCall(msgspec.Struct, frozen=True):
    """One call as predicted and as recorded; costs in USD. `likely_read` is its most likely cache read, while
    `predicted` has the expected one.
    """

    number: int
    predicted: Usage
    recorded: Usage
    predicted_cost: float
    recorded_cost: float
    likely_read: int

    @property
    def is_close(self) -> bool:
        """Whether the most likely cache read is close to the recorded one (`CLOSE_READ`)."""
        recorded = self.recorded.cache_read_tokens
        return abs(self.likely_read - recorded) <= CLOSE_READ * recorded


class CacheLosses(msgspec.Struct, frozen=True):
    """How many calls there were at one moment, how many of them lost the cache, and the tokens lost."""

    calls: int
    lost: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The comparison of predicted and recorded usage, call by call.

    `losses` says when the cache was lost. `shrunk` are the calls whose prompt was smaller than the one before, without
    a recorded edit. `rest` is the comparison of the calls after the first third, predicted by the habits of that third;
    None if there are too few.
    """

    model: str
    prices: Prices | None
    calls: tuple[ComparedCall, ...]
    losses: dict[Moment, CacheLosses] = field(default_factory=dict)
    shrunk: tuple[int, ...] = ()
    rest: "Accuracy | None" = None

    @property
    def predicted(self) -> Usage:
        return sum((call.predicted for call in self.calls), Usage())

    @property
    def recorded(self) -> Usage:
        return sum((call.recorded for call in self.calls), Usage())

    @property
    def costs(self) -> tuple[float, float]:
        """The cost of all calls, predicted and recorded, in USD."""
        return sum(call.predicted_cost for call in self.calls), sum(call.recorded_cost for call in self.calls)

    @property
    def far(self) -> tuple[ComparedCall, ...]:
        return tuple(call for call in self.calls if not call.is_close)

    @property
    def close_share(self) -> float:
        return 1 - len(self.far) / len(self.calls)

    @property
    def explained(self) -> float:
        """The share of the lost tokens that the cache's rules explain: lost after a pause, or after an edit."""
        lost = sum(each.tokens for each in self.losses.values())
        by_rule = sum(self.losses[moment].tokens for moment in ("pause", "edit") if moment in self.losses)
        return by_rule / lost if lost else 1.0


def error_of(predicted: float, recorded: float) -> float:
    """The relative error of a prediction, positive if it is too high; infinite if the recorded value is 0."""
    if predicted == recorded:
        return 0.0
    return (predicted - recorded) / recorded if recorded else float("inf")


def compare(
    recording: Recording, measured: MeasuredSizes, script: Script, used: Sequence[Usage], profile: ModelProfile
) -> Accuracy | None:
    """Compare predicted with recorded usage for the calls of one model; None if none is recorded.

    `used` is the simulated usage of each call.
    """
    steps = list(_steps(recording, measured, script, used, profile.cache_ttl_s))
    if not steps:
        return None
    third, marked = len(steps) // 3, profile.cache == "marked"
    fitted = _compared(steps, habits(steps, marked=marked), profile)
    if not third:
        return fitted
    usual = (_USUAL_HOUR if profile.cache_ttl_s >= HOUR_S else _USUAL) if marked else _USUAL_IMPLICIT
    found = habits(steps[:third], marked=marked, usual=usual, usual_growth=_USUAL_FACTOR / measured.factor)
    return replace(fitted, rest=_compared(steps[third:], found, profile))


def _steps(
    recording: Recording, measured: MeasuredSizes, script: Script, used: Sequence[Usage], ttl_s: float
) -> Iterable[_Step]:
    edits = [entry.seq for entry in recording.log if isinstance(entry, ContextEntry)]
    last: Usage | None = None
    simulated_last, last_seq, last_time, turn, starts, answered = 0, 0, 0.0, 0, False, False
    for call, simulated in zip(script.calls, used, strict=True):
        message = call.answer.message
        starts = starts or call.starts_turn
        if message.usage is None or not is_metered(message, recording.model):
            answered = answered or message.model in ("", recording.model)
            continue
        recorded, surprise = message.usage, measured.surprises.get(message.seq, 0)
        total = simulated.input_tokens - surprise
        edited = last is None or any(last_seq < seq < message.seq for seq in edits)
        before = last.input_tokens if last is not None else 0
        added = total if edited else total - simulated_last
        moment: Moment = "prompt" if starts else "step"
        if edited:
            moment = "edit"
        elif call.time - last_time >= ttl_s:
            moment = "pause"
        kept = max(0, min(simulated.cache_read_tokens, total)) if edited else before
        if last is None and call.number > 1 and not answered:
            # What another model has read before is in no cache of this one.
            kept, simulated = 0, msgspec.structs.replace(simulated, cache_read_tokens=0, cache_write_tokens=total)
        yield _Step(call.number, moment, recorded, simulated, before, added, turn, kept, edited, starts)
        turn = 0 if edited else (0 if starts else turn) + max(0, recorded.input_tokens - before)
        last, simulated_last, last_seq, last_time = recorded, simulated.input_tokens, message.seq, call.time
        starts = False


def habits(
    steps: Sequence[_Step], *, marked: bool, usual: Mapping[Moment, float] | None = None, usual_growth: float = 1.0
) -> ClientHabits:
    """The habits that these calls show; what is `usual` counts beside them, if it is given."""
    later = steps[1:]
    floors = [step.recorded.cache_read_tokens for step in later if step.is_lost]
    floors = floors or [step.recorded.cache_read_tokens for step in steps[:1]]
    size = fmean([step.readable for step in later]) if later else 1.0
    silent = len(later) >= (_SILENT if marked else _SILENT_IMPLICIT) and not any(
        step.recorded.cache_read_tokens for step in steps
    )
    losses: dict[Moment, float] = {}
    for moment in MOMENTS:
        here = [step for step in later if step.moment == moment]
        lost, readable = float(sum(step.lost for step in here)), [float(step.readable) for step in here]
        if usual is not None:
            trust = _TRUST_STEP if moment == "step" else _TRUST
            readable += [size] * trust
            lost += trust * usual[moment] * (1 if moment == "step" else size)
        if moment == "step":
            losses[moment] = float("inf") if silent else _evenly(readable, lost)
        else:
            losses[moment] = 1.0 if silent else max(-_MOST_MORE, lost / (sum(readable) or 1.0))
    unread = sum(step.recorded.input_tokens - step.recorded.cache_read_tokens for step in steps)
    written = sum(step.recorded.cache_write_tokens for step in steps) / unread if unread else 1.0
    grown = [(step.recorded.input_tokens - step.before, step.added) for step in later if step.moment == "step"]
    grown = [(found, expected) for found, expected in grown if found > 0 and expected > 0]
    if usual is not None:
        grown.append((round(_TRUST_GROWTH * usual_growth), _TRUST_GROWTH))
    growth = sum(found for found, _ in grown) / sum(expected for _, expected in grown) if grown else 1.0
    resent = [step.recorded.input_tokens - step.added for step in later if step.edited]
    stripped, more = _stripped(later, growth), round(fmean(resent)) if resent else 0
    return ClientHabits(losses, round(fmean(floors)) if floors else 0, growth, stripped, written, more)


def _evenly(readable: Sequence[float], lost: float) -> float:
    """The tokens that each call loses, at most all it could read, so that they lose so many together; infinite if that
    is more than all could read.
    """
    for place, tokens in enumerate(sorted(readable)):
        share = lost / (len(readable) - place)
        if share <= tokens:
            return share
        lost -= tokens
    return float("inf") if readable else 0.0


def _stripped(steps: Sequence[_Step], growth: float) -> float:
    """The share of a turn that is missing from the next prompt: the median over all turns, weighed by their size."""
    turns = [step for step in steps if step.starts and not step.edited and step.turn > 0]
    shares = sorted(
        ((step.before + step.added * growth - step.recorded.input_tokens) / step.turn, step.turn) for step in turns
    )
    half = sum(size for _, size in shares) / 2
    for share, size in shares:
        half -= size
        if half <= 0:
            return min(1.0, max(0.0, share))
    return 0.0


def _compared(steps: Sequence[_Step], found: ClientHabits, profile: ModelProfile) -> Accuracy:
    calls: list[ComparedCall] = []
    marked = profile.cache == "marked"
    for place, step in enumerate(steps):
        first = step.before == 0 and not place
        predicted, likely = found.predict(step, marked=marked)
        if first:
            likely, writes = step.simulated.cache_read_tokens, round(found.written * step.simulated.cache_write_tokens)
            predicted = msgspec.structs.replace(step.simulated, cache_write_tokens=writes)
        costs = [cost_usd(usage, profile.prices) or 0.0 for usage in (predicted, step.recorded)]
        calls.append(ComparedCall(step.number, predicted, step.recorded, costs[0], costs[1], likely))
    losses: dict[Moment, CacheLosses] = {}
    for moment in MOMENTS:
        here = [step for step in steps if step.moment == moment and step.before]
        lost = [step.lost for step in here if step.is_lost]
        losses[moment] = CacheLosses(len(here), len(lost), sum(lost))
    shrunk = tuple(
        step.number
        for step in steps
        if not step.edited and step.recorded.input_tokens < (1 - _SHRUNK) * min(step.before, step.expected)
    )
    return Accuracy(profile.id, profile.prices, tuple(calls), losses, shrunk)
