"""Recognises a server's refusal of a request that is too long, by its error text or code.

A refusal that is not recognised becomes an `InvalidRequest` with the server's text, and is never retried silently.
"""

import re

import msgspec


class Overflow(msgspec.Struct, frozen=True):
    """The tokens of a request, and their limit; 0: the server does not say."""

    tokens: int = 0
    limit: int = 0


_N = r"(?P<{}>\d[\d,]{{0,14}})"
_TOKENS, _LIMIT = _N.format("tokens"), _N.format("limit")

_SIZED = (
    # Anthropic, also on Bedrock and Vertex
    rf"prompt is too long: {_TOKENS} tokens > {_LIMIT} maximum",
    rf"exceed context limit: {_TOKENS} \+ \d+ > {_LIMIT}",
    # Gemini; on Vertex
    rf"input token count \({_TOKENS}\) exceeds the maximum number of tokens allowed \({_LIMIT}\)",
    rf"input token count is {_TOKENS} but model only supports up to {_LIMIT}",
    # Bedrock, of Amazon's own models
    rf"max input tokens: {_LIMIT}, request input token count: {_TOKENS}",
    # OpenAI's Chat Completions, and after it DeepSeek, OpenRouter, llama-cpp-python, vLLM before 0.15: what was
    # requested is the answer too, so the part of it that is the prompt counts where it is told
    rf"maximum context length is {_LIMIT} tokens.{{0,60}}?\({_TOKENS} (?:in (?:the messages|your prompt)|of text)",
    rf"maximum context length is {_LIMIT} tokens.{{0,120}}?{_TOKENS} input tokens",
    rf"maximum context length is {_LIMIT} tokens.{{0,40}}?(?:requested|resulted in)(?: about)? {_TOKENS} tokens",
    # OpenAI's newer models
    rf"configured limit of {_LIMIT} tokens.{{0,40}}?resulted in {_TOKENS} tokens",
    # vLLM, in its order of time
    rf"prompt \(total length {_TOKENS}\) is too long to fit into the model \(context length {_LIMIT}\)",
    rf"prompt \(length {_TOKENS}\) is longer than the maximum model length of {_LIMIT}",
    rf"passed {_TOKENS} input tokens.{{0,80}}?context length is only {_LIMIT} tokens",
    # llama.cpp's server and Ollama behind it; llama-cpp-python; Ollama on a Mac
    rf"request \({_TOKENS} tokens\) exceeds the available context size \({_LIMIT} tokens\)",
    rf"requested tokens \({_TOKENS}\) exceed context window of {_LIMIT}",
    rf"input length \({_TOKENS} tokens\) exceeds the model's maximum context length \({_LIMIT} tokens\)",
    # LM Studio
    rf"keep the first {_TOKENS} tokens.{{0,80}}?context length of only {_LIMIT} tokens",
    rf"n_keep \({_TOKENS}\) >= n_ctx \({_LIMIT}\)",
    rf"the input has {_TOKENS} tokens, but the context length only supports {_LIMIT} tokens",
    # Groq and OpenAI: more at once than the account may send in a minute, which no waiting mends
    rf"request too large for .{{0,240}}?limit {_LIMIT}, (?:requested|content) {_TOKENS}",
    # Ollama's cloud and Fireworks
    rf"prompt is too long: {_TOKENS}, model maximum context length: {_LIMIT}",
    # Cohere
    rf"tokens in the prompt cannot exceed {_LIMIT} - received {_TOKENS}",
    # Cerebras
    rf"current length is {_TOKENS} while limit is {_LIMIT}",
    # text-generation-inference
    rf"`inputs` (?:tokens \+ `max_new_tokens` )?must (?:be <=|have less than) {_LIMIT}\D{{0,12}} given: {_TOKENS}",
    # SGLang and Together
    rf"input \({_TOKENS} tokens\) is longer than the model's context length \({_LIMIT} tokens\)",
    rf"maximum context length of {_LIMIT} tokens. You requested a total of {_TOKENS} tokens",
    # xAI, Mistral, Moonshot, GitHub, Poolside
    rf"maximum prompt length is {_LIMIT} but the request contains {_TOKENS} tokens",
    rf"prompt contains {_TOKENS} tokens.{{0,80}}?{_LIMIT} maximum context length",
    rf"exceeded model token limit: {_LIMIT} \(requested: {_TOKENS}\)",
    rf"prompt token count of {_TOKENS} exceeds the limit of {_LIMIT}",
    rf"input length {_TOKENS} exceeds the maximum allowed input length of {_LIMIT} tokens",
)
_LIMITED = (
    # Gemini, where it has not counted
    rf"input token count exceeds the maximum number of tokens allowed \({_LIMIT}\)",
    # DashScope
    rf"range of input length should be \[\d+, {_LIMIT}\]",
    # vLLM and TensorRT-LLM, of an answer that would be longer than the window
    rf"cannot be greater than (?:max_model_len=)?max_total_tokens={_LIMIT}",
    rf"cannot be greater than max_model_len={_LIMIT}",
    # Volcengine; vLLM, where it has counted characters alone
    rf"maximum context length (?:of|is) {_LIMIT} tokens",
)
"""Texts with the limit only."""
_BARE = (
    r"context[_ ]length[_ ]exceeded|exceed_context_size|model_context_window_exceeded|exceeds the available context"
    r"|input exceeds the context window|maximum context length|exceeds? the (?:model's )?(?:maximum )?context"
    r"|greater than the context length|reached context length of|reduce the length of the (?:messages|input prompt)"
    r"|input length exceeds the context length|prompt is longer than the context length|prompt is too long"
    r"|input is too long for requested model|longer than the model's context length|context window exceeds limit"
    r"|context size has been exceeded|prompt too long; exceeded (?:max )?context length|too many input tokens"
    r"|does not fit in context length|increasing (?:context|kv) size"
    r"|too_many_prompt_tokens|total length of all messages is too long|must be less than the context length"
    r"|prompt exceeds max length|prompt 超长|prompt token count exceeds|prompt tokens too long"
    r"|number of input tokens exceeds|tokens in the prompt cannot exceed"
)
_TOO_MANY_BYTES = (
    r"payload size exceeds the limit|payload too large|(?:request body|request entity) too large|length limit exceeded"
    r"|total message size \d+ exceeds limit|string_above_max_length|string too long\. expected a string with maximum"
)
_LONGEST = tuple(
    pattern.format(_N.format("most"))
    for pattern in (
        r"max_tokens: \d+ > {}, which is the maximum allowed number of output tokens",  # Anthropic
        r"supports at most {} completion tokens",  # OpenAI
        r"max_(?:completion_)?tokens\W* must be less than or equal to \W?{}",  # Groq
        r"range of max_tokens (?:is|should be) \[\d+, ?{}\]",  # DeepSeek, DashScope
        r"maximum tokens you requested exceeds the model limit of {}",  # Bedrock
        r"exceeds model's maximum output tokens \({}\)",  # Ollama's cloud
    )
)


def overflow_in(text: str, code: str = "") -> Overflow | None:
    """The sizes in a refusal of a request that is too long; None if it was refused for another reason."""
    for pattern in _SIZED:
        if found := re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            return Overflow(_number(found["tokens"]), _number(found["limit"]))
    for pattern in _LIMITED:
        if found := re.search(pattern, text, re.IGNORECASE):
            return Overflow(0, _number(found["limit"]))
    return Overflow() if any(re.search(_BARE, said, re.IGNORECASE) for said in (text, code)) else None


def is_too_many_bytes(text: str) -> bool:
    """Whether a request was refused for its number of bytes, however many tokens it has."""
    return re.search(_TOO_MANY_BYTES, text, re.IGNORECASE) is not None


def longest_answer_in(text: str) -> int:
    """The longest possible answer in tokens, if the request was refused for a larger `max_tokens`; else 0."""
    found = (re.search(pattern, text, re.IGNORECASE) for pattern in _LONGEST)
    return next((_number(match["most"]) for match in found if match), 0)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
