"""What servers say of a request that is too long, and of an answer that would be: each in its own words."""

from pathlib import Path

import pytest

from tests.models.test_errors import ACME
from tui_agent.models.base import ContextOverflow, RequestTooLarge
from tui_agent.models.errors import ErrorReply, failure
from tui_agent.models.refusals import Overflow, longest_answer_in, overflow_in

OVERFLOWS = [line.split(" ", 2) for line in Path(__file__).with_name("overflows.txt").read_text("utf-8").splitlines()]
"""The tokens of a request and the most there may be, where a refusal tells them, and its text."""


@pytest.mark.parametrize(("tokens", "limit", "text"), OVERFLOWS)
def test_each_server_s_own_words_for_too_long(tokens: str, limit: str, text: str) -> None:
    found = Overflow(int(tokens), int(limit))
    assert overflow_in(text) == found
    error = failure(ACME, "m", ErrorReply(400, "", text))
    assert isinstance(error, ContextOverflow)
    assert (error.tokens, error.limit, error.retryable) == (found.tokens, found.limit, False)


def test_what_is_no_overflow() -> None:
    assert overflow_in("max_tokens must be at least 1") is None
    assert overflow_in("Invalid 'metadata.key': string too long. Expected at most 64 characters.") is None
    assert overflow_in("Invalid schema for function 'grep': context is no string") is None
    assert overflow_in("", "context_length_exceeded") == Overflow()


@pytest.mark.parametrize(
    "text",
    [
        "Request payload size exceeds the limit: 20971520 bytes.",
        "total message size 3275158 exceeds limit 2097152",
        "Invalid 'messages[0].content': string too long. Expected a string with maximum length 10485760.",
    ],
)
def test_too_many_bytes(text: str) -> None:
    assert isinstance(failure(ACME, "m", ErrorReply(400, "", text)), RequestTooLarge)


LONGEST = {
    "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-x": 64_000,
    "max_tokens is too large: 4738. This model supports at most 4096 completion tokens, whereas you provided": 4096,
    "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than": 8192,
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]": 8192,
    "Range of max_tokens should be [1, 16384]": 16_384,
    "The maximum tokens you requested exceeds the model limit of 2048. Try again with a lower value.": 2048,
    "max_tokens (128000) exceeds model's maximum output tokens (65536) for model m": 65_536,
    "This model supports at most 16,384 completion tokens": 16_384,
    "max_tokens must be at least 1": 0,
}


@pytest.mark.parametrize("text", LONGEST)
def test_the_longest_answer_there_can_be(text: str) -> None:
    assert longest_answer_in(text) == LONGEST[text]
    assert overflow_in(text) is None
