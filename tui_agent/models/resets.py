"""When a provider's limit resets: in headers, in the error's body, or in its text.

Anthropic: `retry-after`, the resets of its limits for requests and tokens, and of a subscription's windows of five
hours and seven days. OpenAI and those who follow it: `x-ratelimit-reset-…` as a duration, `resets_at` in the body, "try
again in 7m12s" in the text. Gemini: `RetryInfo` in the details; its quotas of a day reset at midnight in California.
LiteLLM hands the provider's headers on with `llm_provider-` before their names.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from time import time

from tui_agent.regex import regex

_DURATION = regex(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_IN = regex(r"(?:try again|retry|available|resets?) (?:again )?in ((?:\d+(?:\.\d+)?(?:ms|[dhms]) ?)+)", re.IGNORECASE)
_AT = regex(
    r"(?:resets?|try again|available|retry)(?: again)? (?:at|after|on):? "
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)|limit reached\|(\d{10})",
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
        return _moment(found[1] or found[2])
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
