"""For how long a prefix is kept is decided by the user's own pauses, at the prices of the model."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import model_named
from tui_agent.context.cache_life import LEAST_CALLS, PauseCounts, Pauses, kept_for
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.models.usage import cost_usd

OPUS_55 = Prices(4, 20, 0.20, 5)


def opus() -> ModelProfile:
    return msgspec.structs.replace(
        model_named("anthropic:claude-opus-5-5", window=200_000, cache="marked"), prices=OPUS_55, keeps_hours=True
    )


def pausing(calls: int, every: int, seconds: float, *, tokens: int = 80_000, added: int = 1_500) -> Pauses:
    """One pause of so many `seconds` in each `every` calls; the others come at once."""
    pauses = Pauses()
    for number in range(calls):
        pauses.learn(seconds if every and number % every == every - 1 else 5.0, tokens, added)
    return pauses


DECISIONS = {
    "none": (Pauses(), ""),
    "too few": (pausing(LEAST_CALLS - 1, 5, 900), ""),
    "no pauses": (pausing(200, 0, 0), ""),
    "ten": (pausing(200, 10, 900), "all"),
    "just lost": (pausing(200, 10, 301), "all"),
    "just kept": (pausing(200, 10, 3_600), "all"),
    "not lost": (pausing(200, 10, 300), ""),
    "too long": (pausing(200, 10, 3_601), ""),
    "few": (pausing(200, 40, 900), "prefix"),
    "little to lose": (pausing(200, 10, 900, tokens=9_000, added=3_000), "prefix"),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_the_pauses_decide(name: str) -> None:
    pauses, kept = DECISIONS[name]
    assert kept_for("auto", opus(), pauses, 80_000) == kept


def test_the_setting_comes_first_and_only_claude_can_be_asked() -> None:
    often, never = pausing(200, 10, 900), Pauses()
    assert kept_for("5m", opus(), often, 80_000) == ""
    assert kept_for("1h", opus(), never, 80_000) == "all"
    other = msgspec.structs.replace(opus(), keeps_hours=False)
    assert kept_for("1h", other, often, 80_000) == ""
    assert kept_for("1h", msgspec.structs.replace(opus(), prices=None), often, 80_000) == ""


def test_sessions_are_counted_together_and_a_damaged_file_is_left_aside() -> None:
    first = pausing(30, 10, 900)
    saved = msgspec.json.encode(first.all.plus(msgspec.structs.replace(PauseCounts(), ends=1.0)))
    again = Pauses(msgspec.json.decode(saved, type=PauseCounts))
    assert again.all == msgspec.structs.replace(first.all, ends=1.0)
    assert len(saved) < 300
    assert Pauses(PauseCounts(calls=(1.0,), tokens=(1.0,))).all == PauseCounts()


def test_who_never_came_back_is_not_waited_for() -> None:
    pauses = pausing(100, 10, 900)
    assert pauses.returning(300) == 1.0
    assert pauses.returning(3_600) == 0.0
    ended = Pauses(msgspec.structs.replace(pauses.all, ends=30.0))
    assert ended.returning(300) == pytest.approx(0.25)


@given(written=st.integers(0, 10**6), lasting=st.integers(0, 10**6), read=st.integers(0, 10**6))
def test_both_prices_of_writing_are_billed(written: int, lasting: int, read: int) -> None:
    lasting = min(written, lasting)
    usage = Usage(written + read + 7, read, written, 11, cache_write_hour_tokens=lasting)
    cost = cost_usd(usage, OPUS_55)
    whole = 7 * 4 + read * 0.2 + (written - lasting) * 5 + lasting * 8 + 11 * 20
    assert cost == pytest.approx(whole / 1e6)
    rates = opus().for_an_hour().rates(0)
    assert rates is not None
    assert rates.write == 2.0
