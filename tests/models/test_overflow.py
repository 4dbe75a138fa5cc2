"""What servers say of a request that is too long, and of an answer that would be: each in its own words."""

import pytest

from tests.models.test_errors import ACME
from tui_agent.models.base import ContextOverflow, RequestTooLarge
from tui_agent.models.errors import ErrorReply, failure
from tui_agent.models.refusals import Overflow, longest_answer_in, overflow_in

OVERFLOWS = {
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 20024 tokens.": (
        20024,
        8192,
    ),
    "This model's maximum context length is 6048 tokens. However, you requested 6616 tokens (568 in the messages, 6048 "
    "in the completion).": (568, 6048),
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens.": (
        140_000,
        131_072,
    ),
    "This model's maximum context length is 2048 tokens. However, your request has 8 input tokens plus 2045": (8, 2048),
    "You passed 1015 input tokens and requested 10 output tokens. However, the model's context length is only 1024 "
    "tokens": (1015, 1024),
    "request (5051 tokens) exceeds the available context size (2048 tokens), try increasing it": (5051, 2048),
    "Requested tokens (5051) exceed context window of 2048": (5051, 2048),
    "Trying to keep the first 10136 tokens when context the overflows. However, the model is loaded with context "
    "length of only 7866 tokens": (10_136, 7866),
    "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)": (15_028, 7424),
    "Request too large for model `llama-3.3` in organization `x` service tier `y` on tokens per minute (TPM): Limit "
    "6000, Requested 14810, please reduce": (14_810, 6000),
    "Please reduce the length of the messages or completion. Current length is 42328 while limit is 40000": (
        42_328,
        40_000,
    ),
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs` tokens": (
        3474,
        2048,
    ),
    "`inputs` must have less than 1024 tokens. Given: 1872": (1872, 1024),
    "The input (9000 tokens) is longer than the model's context length (8192 tokens).": (9000, 8192),
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.": (537_812, 131_072),
    "prompt is too long: 205000 tokens > 200000 maximum": (205_000, 200_000),
    "This model's maximum context length is 8192 tokens. However, you requested 4096 output tokens and your prompt "
    "contains at least 9000 input tokens, for a total of at least 13096 tokens.": (9000, 8192),
    "The decoder prompt (length 8825) is longer than the maximum model length of 8192.": (8825, 8192),
    "The prompt (total length 25938) is too long to fit into the model (context length 4096).": (25_938, 4096),
    "Unable to submit request because the input token count is 32825 but model only supports up to 32768.": (
        32_825,
        32_768,
    ),
    "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 9279": (9279, 8192),
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.": (
        509_178,
        272_000,
    ),
    "input length (9000 tokens) exceeds the model's maximum context length (8192 tokens)": (9000, 8192),
    "Prompt contains 300000 tokens and 0 images too large for model with 262144 maximum context length": (
        300_000,
        262_144,
    ),
    "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.": (131_393, 131_040),
    "The input token count exceeds the maximum number of tokens allowed (1048576).": (0, 1_048_576),
    "InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]": (0, 98_304),
    "max_tokens=16384 cannot be greater than max_model_len=max_total_tokens=8192.": (0, 8192),
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).": (1_200_000, 1_048_576),
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease": (190_000, 200_000),
    "prompt too long; exceeded max context length by 4 tokens": (0, 0),
    "Context size has been exceeded.": (0, 0),
    "Your input exceeds the context window of this model.": (0, 0),
    "The number of tokens to keep from the initial prompt is greater than the context length.": (0, 0),
    "Please reduce the length of the messages or completion.": (0, 0),
    "Input is too long for requested model.": (0, 0),
    "Input does not fit in context length. The input has 31430 tokens, but the context length only supports 30000 "
    "tokens.": (31_430, 30_000),
    "The prompt is too long: 265392, model maximum context length: 262144": (265_392, 262_144),
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.": (4292, 4081),
    "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 55051.": (
        55_051,
        30_000,
    ),
    "Requested token count exceeds the model's maximum context length of 163840 tokens.": (0, 163_840),
    "'max_tokens' is too large: 4096. This model's maximum context length is 32768 tokens.": (0, 32_768),
    "Input token count + max_tokens parameter must be less than the context length of the model.": (0, 0),
    "Input Tokens Exceeded: Number of input tokens exceeds maximum length.": (0, 0),
    "The total length of all messages is too long.": (0, 0),
    "Prompt exceeds max length": (0, 0),
    "failed to decode, try again, increasing context size or reducing parallel": (0, 0),
    "Input prompt is too big compared to KV size. Please try increasing KV size.": (0, 0),
    "Prompt 超长": (0, 0),
}


@pytest.mark.parametrize("text", OVERFLOWS)
def test_each_server_s_own_words_for_too_long(text: str) -> None:
    assert overflow_in(text) == Overflow(*OVERFLOWS[text])
    error = failure(ACME, "m", ErrorReply(400, "", text))
    assert isinstance(error, ContextOverflow)
    assert (error.tokens, error.limit, error.retryable) == (*OVERFLOWS[text], False)


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
