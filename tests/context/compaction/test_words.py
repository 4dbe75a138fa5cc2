"""What is kept of the user's own words: all that fits, exactly as it was said, and a count of the rest."""

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.context.performer import Performer, written
from tests.profiles import model_named
from tui_agent.context.compaction.words import kept_words
from tui_agent.context.effects import Refusal
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Message, ModelSwitched, Prefix, Words, user_message
from tui_agent.conversation.request import said_text, words_block
from tui_agent.conversation.sizes import TextSize, size_of_text
from tui_agent.settings import CompactionSettings, Settings

MODEL = model_named("test:model", window=200_000, source="provider", tier="frontier")
SUMMARY = "Everything went well so far, and the work goes on as it was planned. There is nothing else to tell."
ROUNDS = 5
LEFT_OUT = re.compile(r"^\[([\d,]+) older messages? (?:is|are) left out", re.MULTILINE)


def pairs() -> list[tuple[str, str]]:
    """Pairs of sentences in seven languages: half of the second ones replace the first, half only look like it."""
    with (Path(__file__).parent / "pairs.tsv").open(encoding="utf-8", newline="") as lines:
        return [(row["first"], row["second"]) for row in csv.DictReader(lines, delimiter="\t")]


def tokens_of(size: TextSize) -> int:
    return round(size.ascii * 0.33 + size.other * 1.5)


def told(engine: ContextEngine) -> str:
    blocks = (block for message in engine.view.messages() for block in message.blocks)
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


def compacted(sentences: list[str], user_words_tokens: int) -> ContextEngine:
    """A conversation in which the user says these sentences, one a message, with five compactions on the way."""
    settings = Settings(compaction=CompactionSettings(auto=False, user_words_tokens=user_words_tokens))
    engine = ContextEngine(settings, model=MODEL)
    caller = Performer(engine, written(SUMMARY))
    engine.extend([ModelSwitched(model=MODEL.name), Prefix(system="You are a coding assistant.")])
    share = -(-len(sentences) // ROUNDS)
    for start in range(0, len(sentences), share):
        for sentence in sentences[start : start + share]:
            answer = Message(role="assistant", blocks=(Text("Noted, and done. " * 30),), model=MODEL.name)
            engine.extend([user_message(sentence), answer])
        done = caller.run(engine.compact())
        assert done.seq, done.error
    return engine


def test_where_the_prefix_fills_most_of_a_small_window_the_words_take_a_third_of_what_it_leaves() -> None:
    model = model_named("test:small", window=8_192, source="provider", tier="frontier")
    engine = ContextEngine(Settings(compaction=CompactionSettings(auto=False)), model=model)
    engine.extend([ModelSwitched(model=model.name), Prefix(system="A rule of many words. " * 600)])
    for number in range(40):
        said = user_message(f"Message {number}: {'word ' * 20}")
        engine.extend([said, Message(role="assistant", blocks=(Text("Noted."),), model=model.name)])
    Performer(engine, written(SUMMARY)).run(engine.compact())
    shown, history = engine.view.shown_words(), engine.limits().budget.history
    assert 0 < history // 3 < model.window // 10
    assert shown.words
    assert shown.left_out
    assert tokens_of(size_of_text(words_block(shown.words, left_out=shown.left_out))) <= history // 3


@pytest.mark.parametrize("order", ["one after the other", "all first ones, then all second ones"])
def test_with_room_every_sentence_is_there_after_five_compactions_and_in_order(order: str) -> None:
    given_pairs = pairs()
    sentences = [each for pair in given_pairs for each in pair]
    if order.startswith("all"):
        sentences = [first for first, _ in given_pairs] + [second for _, second in given_pairs]
    engine = compacted(sentences, 20_000)
    kept = engine.view.shown_words()
    covered = [each.text for each in kept.words]
    assert covered == sentences[: len(covered)]
    assert kept.left_out == 0
    request = told(engine)
    assert all(f"\n{sentence}" in request for sentence in sentences)
    assert LEFT_OUT.search(request) is None


@pytest.mark.parametrize("room", [300, 1_000, 4_000])
def test_without_room_the_oldest_are_left_out_and_counted_and_none_is_altered(room: int) -> None:
    sentences = [each for pair in pairs() for each in pair]
    engine = compacted(sentences, room)
    request, kept = told(engine), engine.view.shown_words()
    there = [sentence for sentence in sentences if f"\n{sentence}" in request]
    assert there == sentences[len(sentences) - len(there) :]
    assert 0 < len(there) < len(sentences)
    found = LEFT_OUT.search(request)
    assert found is not None
    assert int(found[1].replace(",", "")) == kept.left_out == len(sentences) - len(there)
    assert [each.text for each in kept.words] == there[: len(kept.words)]


def test_a_block_says_which_statement_holds_and_when_each_was_made() -> None:
    first, *_ = block = words_block([Words(7, "Use tabs.\n  Always.", 1_700_000_000.0)], left_out=2).splitlines()
    assert "the later one holds" in first
    assert block[1:] == [
        "[2 older messages are left out for want of room; recall finds them by their words.]",
        "[2023-11-14 22:13]",
        "Use tabs.",
        "  Always.",
    ]
    assert words_block([], left_out=0) == ""


def test_a_pinned_message_is_kept_however_old_it_is() -> None:
    said = [Words(seq, f"Sentence number {seq}, which is like every other one.") for seq in range(1, 200)]
    kept = kept_words(said, last=150, limit=400, tokens_of=tokens_of, pinned={3, 9})
    seqs = [each.seq for each in kept]
    assert seqs[:2] == [3, 9]
    assert seqs[2:] == list(range(seqs[2], 151))


def test_a_pinned_message_is_in_the_request_once_and_not_counted() -> None:
    engine = compacted([each for pair in pairs() for each in pair], 1_000)
    caller, oldest = Performer(engine, written(SUMMARY)), engine.view.said()[0]
    left_out = engine.view.shown_words().left_out
    assert not isinstance(caller.run(engine.pin([oldest.seq])), Refusal)
    assert told(engine).count(oldest.text) == 1
    assert engine.view.shown_words().left_out == left_out - 1


def test_a_paste_is_cut_in_its_middle_between_words_before_anything_is_left_out() -> None:
    paste = "\n".join(f"line {number} of the paste, number {number * 7}" for number in range(4_000))
    said = [Words(1, "Never push."), Words(2, paste), Words(3, "Use tabs.")]
    kept = kept_words(said, last=3, limit=2_000, tokens_of=tokens_of)
    assert [each.seq for each in kept] == [1, 2, 3]
    assert (kept[0], kept[2]) == (said[0], said[2])
    first, mark, last = re.split(r"\n(\[…[^\n]*…\])\n", kept[1].text)
    assert paste.startswith(f"{first}\n")
    assert paste.endswith(f"\n{last}")
    gone = re.search(r"([\d,]+) characters of message 2", mark)
    assert gone is not None
    assert int(gone[1].replace(",", "")) == len(paste) - len(first) - len(last)


@given(st.lists(st.text(min_size=1, max_size=4_000), max_size=40), st.integers(0, 6_000), st.data())
@hypothesis_settings(deadline=None, max_examples=60)
def test_any_words_are_the_newest_that_fit_each_whole_or_cut_in_its_middle(
    texts: list[str], limit: int, data: st.DataObject
) -> None:
    said = [Words(seq, text) for seq, text in enumerate(texts, 1)]
    last = data.draw(st.integers(0, len(said)))
    kept = kept_words(said, last=last, limit=limit, tokens_of=tokens_of)
    assert [each.seq for each in kept] == list(range(last - len(kept) + 1, last + 1))
    assert not kept or tokens_of(size_of_text(words_block(kept, left_out=last - len(kept)))) <= limit
    for each in kept:
        text = said[each.seq - 1].text
        if each.text != text:
            first, last_part = re.split(r"\n\[… [\d,]+ characters of message \d+ [^\n]*…\]\n", each.text)
            assert text.startswith(first)
            assert text.endswith(last_part)
            assert len(each.text) < len(text) + 200
        assert each.text in said_text(each)
