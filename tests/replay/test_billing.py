"""The running sums of a prompt, and what a provider's cache reads and writes of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.conversation.entries import Usage, user_message
from tui_agent.replay.billing import PartKind, PromptCache, PromptPart, RequestParts
from tui_agent.replay.script import RecordedMessage


def part(
    tokens: int, *mentions: int, fetchable: tuple[RecordedMessage, ...] = (), kind: PartKind = "result", depth: int = 1
) -> PromptPart:
    depths = dict.fromkeys(mentions, depth)
    return PromptPart(kind, tokens, frozenset(mentions), fetchable, depths=depths)


RESULTS = [RecordedMessage(index, user_message("x"), 10, "x", frozenset()) for index in range(4)]
parts = st.builds(
    lambda tokens, mentions, fetchable, kind, depth: part(
        tokens, *mentions, fetchable=tuple(RESULTS[each] for each in fetchable), kind=kind, depth=depth
    ),
    st.integers(0, 50),
    st.sets(st.integers(0, 5), max_size=3),
    st.sets(st.integers(0, 3), max_size=2),
    st.sampled_from(["result", "summary", "digest"]),
    st.integers(1, 3),
)
edits = st.lists(
    st.tuples(
        st.sampled_from(["append", "splice", "replace", "show", "send"]), st.integers(0, 9), st.integers(0, 9), parts
    ),
    max_size=25,
)


@given(edits)
def test_sums_are_those_of_the_parts(steps: list[tuple[str, int, int, PromptPart]]) -> None:
    prompt = RequestParts(7)
    sent: list[PromptPart] = []
    for kind, one, other, new in steps:
        count = len(prompt)
        match kind:
            case "append":
                prompt.append(new)
            case "splice":
                start = 1 + one % count
                prompt.splice(start, max(start, min(count, other)), [new, new])
            case "replace":
                prompt.replace({one % count: new})
            case "show":
                shown = [*prompt.parts[1 : 1 + one], new, *prompt.parts[1 + one + other :]]
                prompt.show(shown)
                assert prompt.parts[1:] == shown
            case _:
                prompt.mark_sent()
                sent = list(prompt.parts)
        assert prompt.tokens == sum(each.tokens for each in prompt.parts)
        assert prompt.size(len(prompt) // 2) == sum(each.tokens for each in prompt.parts[: len(prompt) // 2])
        for mention in range(6):
            holding = [each for each in prompt.parts if mention in each.mentions]
            assert prompt.holds(mention) == bool(holding)
            if holding:
                least = min(0 if each.kind == "result" else each.depths[mention] for each in holding)
                assert prompt.depth(mention) == least
        for result in RESULTS:
            assert prompt.leads_to(result) == any(result in each.fetchable for each in prompt.parts)
        shared = prompt.unchanged
        assert all(one is other for one, other in zip(prompt.parts[:shared], sent[:shared], strict=True))


def prompt_of(*tokens: int) -> RequestParts:
    prompt = RequestParts(tokens[0])
    for each in tokens[1:]:
        prompt.append(part(each))
    return prompt


def marked(minimum: int = 0) -> PromptCache:
    return PromptCache(ttl_s=300, minimum=minimum, marked=True)


def test_what_was_sent_is_read_and_the_rest_written() -> None:
    cache, prompt = marked(), prompt_of(1000, 500)
    assert cache.use(prompt, 0) == Usage(1500, 0, 1500)
    prompt.append(part(200))
    assert cache.use(prompt, 299) == Usage(1700, 1500, 200)


def test_a_cold_cache_writes_everything_anew() -> None:
    cache, prompt = marked(), prompt_of(1000, 500)
    cache.use(prompt, 0)
    assert not cache.is_cold(299)
    assert cache.is_cold(300)
    assert cache.use(prompt, 300) == Usage(1500, 0, 1500)


def test_an_edit_leaves_what_is_before_the_last_mark_ahead_of_it() -> None:
    cache, prompt = marked(), prompt_of(1000, 500, 200, 100)
    cache.use(prompt, 0)
    prompt.replace({2: part(10)})
    assert cache.use(prompt, 10) == Usage(1610, 1000, 610)


def test_a_mark_at_the_edge_of_the_last_edit_spares_what_is_before_it() -> None:
    cache, prompt = marked(), prompt_of(1000, 500, 200, 100)
    prompt.edges = (2,)
    cache.use(prompt, 0)
    prompt.replace({2: part(10)})
    assert cache.use(prompt, 10) == Usage(1610, 1500, 110)


def test_an_entry_further_back_than_the_lookback_is_not_found() -> None:
    cache, prompt = marked(), prompt_of(1000)
    for _ in range(30):
        prompt.append(part(10))
    cache.use(prompt, 0)
    prompt.splice(25, 31, [part(1) for _ in range(40)])
    assert cache.use(prompt, 1).cache_read_tokens == 1000


def test_too_short_a_prefix_is_not_cached() -> None:
    cache, prompt = marked(minimum=4096), prompt_of(1000, 500)
    assert cache.use(prompt, 0) == Usage(1500, 0, 0)
    prompt.append(part(5000))
    assert cache.use(prompt, 1) == Usage(6500, 0, 6500)


def test_an_implicit_cache_reads_the_common_prefix_and_writes_nothing() -> None:
    cache, prompt = PromptCache(ttl_s=300, minimum=100, marked=False), prompt_of(1000, 500, 200)
    assert cache.use(prompt, 0) == Usage(1700, 0, 0)
    prompt.replace({2: part(10)})
    assert cache.use(prompt, 10) == Usage(1510, 1500, 0)
    assert cache.use(prompt, 400).cache_read_tokens == 0


@pytest.mark.parametrize("is_marked", [False, True])
def test_a_request_sent_earlier_beside_others_takes_no_time_from_their_entries(is_marked: bool) -> None:
    cache, prompt = PromptCache(ttl_s=300, minimum=0, marked=is_marked), prompt_of(1000, 500)
    cache.use(prompt, 0)
    prompt.append(part(200))
    cache.use(prompt, 250)
    assert cache.use(prompt, 10).cache_read_tokens == 1700
    assert not cache.is_cold(500)
    assert cache.use(prompt, 500).cache_read_tokens == 1700
