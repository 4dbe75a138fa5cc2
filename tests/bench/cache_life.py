"""What deciding on the cache's life is worth to users who pause as people did in recordings.

    python -m tests.bench.cache_life [--users N] RECORDING...

Each user works through sessions drawn from the recordings, one after the other; what their pauses teach is kept from
session to session. Prints, for a cache that always lives five minutes, one that always lives an hour, one that lives as
the pauses suggest, and that with summaries shortly before it expires: the dollars of all users, how many of them pay
more than with five minutes, and how many of those summaries were in vain since the user did not come back.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from msgspec import structs

from tui_agent.context.cache_life import CacheLife, Pauses
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.prices import look_up
from tui_agent.replay.billing import Billing
from tui_agent.replay.engine_policy import EnginePolicy
from tui_agent.replay.policies import PolicySetup
from tui_agent.replay.replaying import small_profile
from tui_agent.replay.script import Script, make_script
from tui_agent.settings import Settings
from tui_agent.storage.recordings.reading import read_file
from tui_agent.storage.recordings.recording import UnreadableRecording

WAYS: tuple[tuple[str, CacheLife, bool], ...] = (
    ("five minutes", "5m", False),
    ("an hour", "1h", False),
    ("by the pauses", "auto", False),
    ("and a summary before", "auto", True),
)
SESSIONS, MOST_CALLS, LEAST_CALLS = 5, 80, 10
WINDOW = 200_000
DAY_S = 86_400.0


@dataclass
class Sum:
    """What one user's sessions came to."""

    usd: float = 0.0
    written_ahead: int = 0
    in_vain: int = 0


def scripts(paths: Sequence[str]) -> list[Script]:
    """The recordings that have enough calls, with the first of them."""
    found = []
    for path in paths:
        try:
            script = make_script(read_file(Path(path)))
        except UnreadableRecording:
            continue
        if len(script.calls) >= LEAST_CALLS:
            found.append(replace(script, calls=script.calls[:MOST_CALLS]))
    return found


def work(drawn: Sequence[Script], model: str, life: CacheLife, *, ahead: bool) -> Sum:
    """Replay a user's sessions under these settings."""
    profile, pauses, done = look_up(CATALOGUE.quick_profile(model)), Pauses(), Sum()
    plain = Settings()
    settings = structs.replace(
        plain,
        context=structs.replace(plain.context, cache_life=life),
        compaction=structs.replace(plain.compaction, before_expiry=ahead),
    )
    for script in drawn:
        ledger = Billing(profile, small_profile(profile, settings), WINDOW)
        policy = EnginePolicy(PolicySetup(script, ledger, WINDOW), settings)
        policy.engine.pauses = pauses
        for call in script.calls:
            policy.before(call)
            policy.after(call, ledger.call(policy.prompt, call.output, call.time))
        before = policy.before_expiry
        policy.idle_until(script.calls[-1].answer.message.time + DAY_S)
        done.usd += ledger.bill.total
        done.written_ahead += policy.before_expiry
        done.in_vain += policy.before_expiry - before
        pauses = Pauses(pauses.all.plus(structs.replace(Pauses().new, ends=1.0)))
    return done


def main() -> None:
    """Compare the ways."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--model", default="anthropic:claude-opus-5-5")
    parser.add_argument("recordings", nargs="+")
    given = parser.parse_args()
    known, dice = scripts(given.recordings), Random(7)
    users = [dice.choices(known, k=SESSIONS) for _ in range(given.users)]
    brief: list[Sum] = []
    for name, life, ahead in WAYS:
        sums = [work(drawn, given.model, life, ahead=ahead) for drawn in users]
        brief = brief or sums
        total, worse = (
            sum(each.usd for each in sums),
            sum(a.usd > b.usd * 1.001 for a, b in zip(sums, brief, strict=True)),
        )
        written, vain = sum(each.written_ahead for each in sums), sum(each.in_vain for each in sums)
        share = total / sum(each.usd for each in brief) - 1
        print(
            f"{name:<22} ${total:>9.2f} {share:+.1%}  dearer for {worse}  {written} summaries, {vain} in vain",
            flush=True,
        )


if __name__ == "__main__":
    main()
