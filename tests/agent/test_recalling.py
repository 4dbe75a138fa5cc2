"""Recall over a session's own view: what left it, and what is on another branch."""

from pathlib import Path

from tui_agent.agent.persistence import Persistence
from tui_agent.conversation.entries import AnyEntry, HeadMoved, Summarized, user_message


async def test_each_hit_says_whether_it_left_the_view_or_is_on_another_branch(tmp_path: Path) -> None:
    kept = await Persistence.on_disk(tmp_path)
    view = kept.view
    entries: list[AnyEntry] = [
        user_message("port 8421"),
        Summarized(first=1, last=1, text="a port was set"),
        user_message("port 8421, the wrong way"),
        HeadMoved(to=2),
    ]
    for entry in entries:
        view.apply(view.log.stamp(entry, 1.0))
    found = (await kept.recall("8421", 5)).hits
    assert [(hit.seq, hit.hidden, "on another branch" in hit.place) for hit in found] == [
        (1, True, False),
        (3, True, True),
    ]
    view.apply(view.log.stamp(user_message("port 8421, anew"), 2.0))
    found = (await kept.recall("8421", 5)).hits
    assert [(hit.seq, hit.hidden, "on another branch" in hit.place) for hit in found] == [
        (1, True, False),
        (3, True, True),
        (5, False, False),
    ]
    await kept.close()
