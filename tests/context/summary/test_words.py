"""What is kept of the user's own words, and what finding that out costs."""

import sys
from types import FrameType

from tui_agent.context.summary.words import kept_words
from tui_agent.conversation.entries import Words

MESSAGES = 1_000


def test_a_message_that_replaces_nothing_is_not_compared_with_those_before_it() -> None:
    said = [Words(seq, f"Please look at module {seq} and explain what it does.") for seq in range(1, MESSAGES + 1)]
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        kept = kept_words(said, last=MESSAGES, limit=10**9, tokens_of=lambda size: size.characters)
    finally:
        sys.setprofile(None)
    assert list(kept) == said
    # Each comparison would be several more, with each of the newest 200 messages.
    assert calls < 100 * MESSAGES
