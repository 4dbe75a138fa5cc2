"""What refusals say in numbers: the sizes of a request that is too long, and when a limit resets.

A refusal that is not recognised becomes an `InvalidRequest` with the server's text, and is never retried silently.

Resets stand in headers, in the error's body, or in its text. Anthropic: `retry-after`, the resets of its limits for
requests and tokens, and of a subscription's windows of five hours and seven days. OpenAI and those who follow it:
`x-ratelimit-reset-…` as a duration, `resets_at` in the body, "try again in 7m12s" in the text. Gemini: `RetryInfo` in
the details; its quotas of a day reset at midnight in California. LiteLLM hands the provider's headers on with
`llm_provider-` before their names.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from time import time

import msgspec

from tui_agent.regex import regex


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


_DURATION = regex(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_IN = regex(r"(?:try again|retry|available|resets?) (?:again )?in ((?:\d+(?:\.\d+)?(?:ms|[dhms]) ?)+)", re.IGNORECASE)
_AT = regex(
    r"(?:resets?|try again|available|retry|regain access)(?: again)? (?:at|after|on):? "
    r"(\d{4}-\d\d-\d\d(?:[T ]| at )\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z| UTC|[+-]\d\d:?\d\d)?)|limit reached\|(\d{10})",
    re.IGNORECASE,
)
_WINDOWS = ("unified-5h", "unified-7d", "unified-7d_opus", "unified-7d_sonnet", "unified")
_HANDED_ON = "llm_provider-"
_RATES = ("requests", "tokens", "input-tokens", "output-tokens")


def parse_retry_after(value: str | None) -> float | None:
    """Parse a ``retry-after`` value to seconds: a number, a duration (``3.5s``) or a date. None if invalid."""
    if not value:
        return None
    try:
        seconds = float(value.strip().removesuffix("s"))
    except ValueError:
        from email.utils import parsedate_to_datetime

        try:
            seconds = parsedate_to_datetime(value).timestamp() - time()
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if seconds < float("inf") else None


def seconds_to_reset(headers: Mapping[str, str], body: object = None, text: str = "") -> float | None:
    """The seconds until a limit resets or a request may be sent again; None if the provider does not say.

    What it asks for explicitly counts first; then the latest reset of the limits that are used up.
    """
    handed_on = {name.removeprefix(_HANDED_ON): value for name, value in headers.items() if name.startswith(_HANDED_ON)}
    headers = {**handed_on, **headers}
    found = (_asked(headers), _of_limits(headers), _in_body(body), _in_text(text))
    return next((each for each in found if each is not None and each < float("inf")), None)


def _asked(headers: Mapping[str, str]) -> float | None:
    exact = parse_retry_after(headers.get("retry-after-ms"))
    # Azure says 0 there where `retry-after` has whole seconds.
    return exact / 1000 if exact else parse_retry_after(headers.get("retry-after"))


def _of_limits(headers: Mapping[str, str]) -> float | None:
    found = [seconds for seconds in _resets(headers) if seconds is not None and seconds > 0]
    return max(found, default=None)


def _resets(headers: Mapping[str, str]) -> Iterator[float | None]:
    for window in _WINDOWS:
        if headers.get(f"anthropic-ratelimit-{window}-status") == "rejected":
            yield _moment(headers.get(f"anthropic-ratelimit-{window}-reset"))
    for rate in _RATES:
        if headers.get(f"anthropic-ratelimit-{rate}-remaining") == "0":
            yield _moment(headers.get(f"anthropic-ratelimit-{rate}-reset"))
        if headers.get(f"x-ratelimit-remaining-{rate}") == "0":
            yield _wait(headers.get(f"x-ratelimit-reset-{rate}"))
    if headers.get("x-ratelimit-remaining") == "0":
        yield _moment(headers.get("x-ratelimit-reset"))  # OpenRouter: milliseconds since 1970
    for window in ("primary", "secondary"):
        if headers.get(f"x-codex-{window}-used-percent") == "100":
            yield _wait(headers.get(f"x-codex-{window}-reset-after-seconds"))


def _in_body(body: object) -> float | None:
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    error = error if isinstance(error, dict) else body
    if isinstance(seconds := error.get("resets_in_seconds"), int | float):
        return parse_retry_after(str(seconds))
    if (at := error.get("resets_at")) is not None:
        return _moment(str(at))
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(headers := metadata.get("headers"), dict):
        return _of_limits({str(name).lower(): str(value) for name, value in headers.items()})
    return _in_details(error.get("details"))


def _in_details(details: object) -> float | None:
    """Gemini's: a quota of a day resets at midnight, whatever its `RetryInfo` says, which is about the minute's."""
    found = [each for each in details if isinstance(each, dict)] if isinstance(details, list) else []
    for detail in found:
        violations = detail.get("violations")
        for violation in violations if isinstance(violations, list) else ():
            if isinstance(violation, dict) and "PerDay" in str(violation.get("quotaId")):
                return _to_midnight_in_california()
    for detail in found:
        if str(detail.get("@type", "")).endswith("RetryInfo"):
            return parse_retry_after(str(detail.get("retryDelay", "")))
    return None


def _to_midnight_in_california() -> float | None:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        now = datetime.now(ZoneInfo("America/Los_Angeles"))
    except ZoneInfoNotFoundError:
        return None
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight.timestamp() - now.timestamp()


def _in_text(text: str) -> float | None:
    if (found := _IN.search(text)) is not None:
        return _wait(found[1].replace(" ", ""))
    if (found := _AT.search(text)) is not None:
        return _moment(found[2] or found[1].replace(" at ", " ").replace(" UTC", "Z"))
    return None


def _wait(value: str | None) -> float | None:
    """A duration in seconds: ``6m0s``, ``120ms``, ``1.2s``, or a number."""
    if not value:
        return None
    if (found := _DURATION.fullmatch(value.strip())) is not None:
        days, hours, minutes, seconds, milliseconds = (float(each or 0) for each in found.groups())
        return days * 86_400 + hours * 3_600 + minutes * 60 + seconds + milliseconds / 1000
    return parse_retry_after(value)


def _moment(value: str | None) -> float | None:
    """Seconds until a moment: seconds or milliseconds since 1970, or RFC 3339. 0 if it is past."""
    if not value:
        return None
    try:
        moment = float(value)
        moment = moment / 1000 if moment > 1e11 else moment
    except ValueError:
        try:
            moment = datetime.fromisoformat(value).timestamp()
        except ValueError:
            return None
    return max(0.0, moment - time())
