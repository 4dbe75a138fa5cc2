"""Folding the episodes that the model has closed."""

from typing import Any

from msgspec import structs

from tests.context.talks import FILLER, Talk, situation
from tests.conversation.logs import broken_rules
from tui_agent.context.economics import Situation
from tui_agent.context.layers.episodes import EpisodeLayer
from tui_agent.conversation.blocks import Reasoning, Text
from tui_agent.conversation.entries import Cleared, HeadMoved, Message, Pinned, Shortened, Undone
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.conversation.tasks import episodes
from tui_agent.conversation.view import ReasoningPolicy

RATES = Prices(4, 20, 0.20, 5).rates


def work(talk: Talk, name: str, reads: int = 3) -> int:
    """An episode with as many reads; the entry of the step that closes it."""
    talk.tool("Open.", "episode", title=name)
    for number in range(reads):
        talk.tool(FILLER * 150, path=f"{name}_{number}.py", said=f"{name} {number} is next")
    return talk.tool("Noted.", "episode", title=name, conclusion=f"{name} ends in line 7")


def here(talk: Talk, *, growth: float = 800.0, **more: Any) -> Situation:
    found = structs.replace(situation(talk.view), rates=RATES, growth_of_all=growth)
    return structs.replace(found, **more)


def fold(talk: Talk, **more: Any) -> Shortened | None:
    return EpisodeLayer().plan(talk.view, here(talk, **more))


def folded(talk: Talk, **more: Any) -> int:
    entry = fold(talk, **more)
    assert entry is not None
    return talk.add(entry)


def talk_with(*names: str) -> Talk:
    talk = Talk()
    talk.ask("find it")
    talk.say("I look.")
    for name in names:
        work(talk, name)
    return talk


def test_a_closed_episode_leaves_its_conclusion_and_pointers_and_can_be_had_back() -> None:
    talk = talk_with("search")
    before, head = talk.shown, len(talk.view.log)
    entry = fold(talk)
    assert entry is not None
    assert (entry.episodes, entry.after < entry.before) == ((episodes(talk.view)[0][0].closed,), True)
    seq = talk.add(entry)
    assert FILLER not in talk.shown
    assert "search 1 is next" not in talk.shown
    for kept in ("find it", "I look.", "search ends in line 7", "4 calls of “search” left", "- read search_2.py"):
        assert kept in talk.shown
    assert broken_rules(talk.view.messages()) == []
    assert fold(talk) is None
    talk.add(Undone(target=seq))
    assert talk.shown == before
    assert fold(talk, cold=True) is None, "what the user took back is folded again"
    talk.add(HeadMoved(to=head, reason="rewind"))
    assert fold(talk) is not None


def test_it_waits_until_it_pays() -> None:
    talk = talk_with("search")
    for number in range(12):
        talk.tool(FILLER * 150, path=f"later_{number}.py")
    assert fold(talk, growth=3_000.0) is None
    assert fold(talk, growth=3_000.0, cold=True) is not None
    cleared = Cleared(results=(1,), texts=("",))
    assert fold(talk, growth=3_000.0, cleared=cleared) is not None, "the cache is lost with the clearing"
    work(talk, "another")
    entry = fold(talk, growth=800.0)
    assert entry is not None
    assert [each.name for each in episodes(talk.view)[0] if each.closed in entry.episodes] == ["another"]


def test_bound_thinking_behind_it_has_its_price() -> None:
    talk = talk_with("search")
    talk.view.policy = ReasoningPolicy("the model", bound=False)
    thought = Reasoning("t" * 9_000)
    talk.add(Message(role="assistant", blocks=(thought, Text("I see.")), model="the model"))
    assert fold(talk, growth=100.0) is not None
    assert fold(talk, growth=100.0, model=ModelProfile("", "", bound_reasoning=True)) is None


def test_an_episode_within_another_and_what_stays_of_it() -> None:
    talk = Talk()
    talk.ask("do both")
    talk.tool("Open.", "episode", title="outer")
    pinned = talk.tool(FILLER * 150, path="pinned.py")
    work(talk, "inner")
    folded(talk)
    assert [each.name for each in episodes(talk.view)[1]] == ["outer"]
    assert "inner ends" in talk.shown
    talk.say("Half of it is done.")
    talk.tool(FILLER * 150, path="more.py")
    talk.add(Pinned(items=(pinned,)))
    talk.tool("Noted.", "episode", title="outer", conclusion="both are done")
    folded(talk, cold=True)
    assert "inner ends" not in talk.shown
    assert talk.shown.count(FILLER * 150) == 1
    for kept in ("Half of it is done.", "both are done", "- read inner_2.py"):
        assert kept in talk.shown
    assert broken_rules(talk.view.messages()) == []


def test_what_is_open_refused_or_closed_under_another_name_stays() -> None:
    talk = Talk()
    talk.ask("find it")
    talk.tool("Open.", "episode", title="search")
    talk.tool(FILLER * 150, path="a.py")
    talk.tool("None with this name is open.", "episode", failed=True, title="search", conclusion="wrong")
    talk.call("episode", title="search", conclusion="has no result yet")
    assert fold(talk, cold=True) is None
    assert [each.name for each in episodes(talk.view)[1]] == ["search"]
