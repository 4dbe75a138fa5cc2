"""The running sums of a prompt, and what a provider's cache reads and writes of it."""

from hypothesis import given
from hypothesis import strategies as st

from tui_agent.conversation.entries import user_message
from tui_agent.replay.cache import CacheUse, PromptCache
from tui_agent.replay.prompt import Piece, Prompt
from tui_agent.replay.script import Said


def piece(tokens: int, *facts: int, leads: tuple[Said, ...] = ()) -> Piece:
    return Piece("result", tokens, frozenset(facts), leads)


SAID = [Said(index, user_message("x"), 10, "x", frozenset()) for index in range(4)]
pieces = st.builds(
    lambda tokens, facts, leads: piece(tokens, *facts, leads=tuple(SAID[each] for each in leads)),
    st.integers(0, 50),
    st.sets(st.integers(0, 5), max_size=3),
    st.sets(st.integers(0, 3), max_size=2),
)
edits = st.lists(
    st.tuples(st.sampled_from(["append", "splice", "replace", "send"]), st.integers(0, 9), st.integers(0, 9), pieces),
    max_size=25,
)


@given(edits)
def test_sums_are_those_of_the_pieces(steps: list[tuple[str, int, int, Piece]]) -> None:
    prompt = Prompt(piece(7))
    sent: list[Piece] = []
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
            case _:
                prompt.mark_sent()
                sent = list(prompt.pieces)
        assert prompt.tokens == sum(each.tokens for each in prompt.pieces)
        assert prompt.size(len(prompt) // 2) == sum(each.tokens for each in prompt.pieces[: len(prompt) // 2])
        for fact in range(6):
            assert prompt.holds(fact) == any(fact in each.facts for each in prompt.pieces)
        for said in SAID:
            assert prompt.leads_to(said) == any(said in each.leads for each in prompt.pieces)
        shared = prompt.unchanged
        assert all(one is other for one, other in zip(prompt.pieces[:shared], sent[:shared], strict=True))


def prompt_of(*tokens: int) -> Prompt:
    prompt = Prompt(piece(tokens[0]))
    for each in tokens[1:]:
        prompt.append(piece(each))
    return prompt


def marked(minimum: int = 0) -> PromptCache:
    return PromptCache(ttl_s=300, minimum=minimum, marked=True)


def test_what_was_sent_is_read_and_the_rest_written() -> None:
    cache, prompt = marked(), prompt_of(1000, 500)
    assert cache.use(prompt, 0) == CacheUse(1500, 0, 1500)
    prompt.append(piece(200))
    assert cache.use(prompt, 299) == CacheUse(1700, 1500, 200)


def test_a_cold_cache_writes_everything_anew() -> None:
    cache, prompt = marked(), prompt_of(1000, 500)
    cache.use(prompt, 0)
    assert not cache.is_cold(299)
    assert cache.is_cold(300)
    assert cache.use(prompt, 300) == CacheUse(1500, 0, 1500)


def test_an_edit_leaves_what_is_before_the_last_mark_ahead_of_it() -> None:
    cache, prompt = marked(), prompt_of(1000, 500, 200, 100)
    cache.use(prompt, 0)
    prompt.replace({2: piece(10)})
    assert cache.use(prompt, 10) == CacheUse(1610, 1000, 610)


def test_a_mark_at_the_edge_of_the_last_edit_spares_what_is_before_it() -> None:
    cache, prompt = marked(), prompt_of(1000, 500, 200, 100)
    prompt.edge = 2
    cache.use(prompt, 0)
    prompt.replace({2: piece(10)})
    assert cache.use(prompt, 10) == CacheUse(1610, 1500, 110)


def test_an_entry_further_back_than_the_lookback_is_not_found() -> None:
    cache, prompt = marked(), prompt_of(1000)
    for _ in range(30):
        prompt.append(piece(10))
    cache.use(prompt, 0)
    prompt.splice(25, 31, [piece(1) for _ in range(40)])
    assert cache.use(prompt, 1).read == 1000


def test_too_short_a_prefix_is_not_cached() -> None:
    cache, prompt = marked(minimum=4096), prompt_of(1000, 500)
    assert cache.use(prompt, 0) == CacheUse(1500, 0, 0)
    prompt.append(piece(5000))
    assert cache.use(prompt, 1) == CacheUse(6500, 0, 6500)


def test_an_implicit_cache_reads_the_common_prefix_and_writes_nothing() -> None:
    cache, prompt = PromptCache(ttl_s=300, minimum=100, marked=False), prompt_of(1000, 500, 200)
    assert cache.use(prompt, 0) == CacheUse(1700, 0, 0)
    prompt.replace({2: piece(10)})
    assert cache.use(prompt, 10) == CacheUse(1510, 1500, 0)
    assert cache.use(prompt, 400).read == 0
