"""When a limit resets, in the forms that providers were seen to use."""

import time
from typing import Any

import pytest

from tui_agent.models.refusals import seconds_to_reset

NOW = 1_795_000_000


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui_agent.models.refusals.time", lambda: float(NOW))


def limit(name: str, remaining: str, seconds: int) -> dict[str, str]:
    """The headers of one of Anthropic's limits."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(NOW + seconds))
    return {f"anthropic-ratelimit-{name}-remaining": remaining, f"anthropic-ratelimit-{name}-reset": at}


def window(name: str, status: str, seconds: int) -> dict[str, str]:
    """The headers of one of a subscription's windows."""
    return {f"anthropic-ratelimit-{name}-status": status, f"anthropic-ratelimit-{name}-reset": str(NOW + seconds)}


HEADERS: list[tuple[dict[str, str], float | None]] = [
    # platform.claude.com, rate limits: the response headers
    ({"retry-after": "37", "anthropic-ratelimit-requests-remaining": "0"}, 37),
    (limit("requests", "12", 900) | limit("input-tokens", "0", 45), 45),
    # a subscription's windows, the latest counts: router-for-me/CLIProxyAPI, pull 3148; lidge-jun/opencodex, 3809
    (window("unified-5h", "rejected", 180) | window("unified-7d", "rejected", 90_000), 90_000),
    # platform.openai.com and console.groq.com, rate limits
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360),
    ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "7.66s"}, 7.66),
    ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms"}, 0.12),
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h2m3s"}, 3_723),
    ({"retry-after-ms": "250"}, 0.25),
    ({"retry-after-ms": "0", "retry-after": "2"}, 2.0),
    ({"retry-after-ms": "0"}, None),
    ({"llm_provider-retry-after": "20", "llm_provider-content-length": "182"}, 20),
    ({"retry-after": "5", "llm_provider-retry-after": "20"}, 5),
    ({"llm_provider-x-ratelimit-remaining-requests": "0", "llm_provider-x-ratelimit-reset-requests": "6m0s"}, 360),
    # openrouter.ai, limits
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str((NOW + 600) * 1000)}, 600),
    # icebear0828/codex-proxy, issue 65
    ({"x-codex-primary-used-percent": "100", "x-codex-primary-reset-after-seconds": "471285"}, 471_285),
    ({"x-codex-secondary-used-percent": "100", "x-codex-secondary-reset-after-seconds": "90"}, 90),
]

QUOTA = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "PerMinute"}]}
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36.5s"}
BODIES: list[tuple[Any, float]] = [
    # james-6-23/codex2api, issue 9; earendil-works/pi, issue 4172
    ({"error": {"type": "usage_limit_reached", "resets_at": NOW + 602_705, "resets_in_seconds": 602_705}}, 602_705),
    ({"error": {"type": "usage_limit_reached", "resets_at": NOW + 120}}, 120),
    ({"error": "usage_limit_reached", "resets_in_seconds": 90}, 90),
    # google-gemini/gemini-cli, issue 8437
    ({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [QUOTA, RETRY]}}, 36.5),
]

TEXTS = [
    # Aider-AI/aider, issue 3265
    ("Rate limit reached for model gemma2-9b-it … Please try again in 5.289s. Visit https://console.groq.com", 5.289),
    ("Rate limit reached for gpt-4.1 on requests per day (RPD): Limit 200. Please try again in 7m12s.", 432),
    ("Please retry in 37.5s.", 37.5),
    (f"Claude AI usage limit reached|{NOW + 3_600}", 3_600),
    # continuedev/continue, issue 11621
    (f"You will regain access on {time.strftime('%Y-%m-%d at %H:%M', time.gmtime(NOW + 620))} UTC.", 620),
    (f"limit resets at: {time.strftime('%Y-%m-%dT%H:%M:%S+0000', time.gmtime(NOW + 600))}", 600),
]


@pytest.mark.parametrize(("headers", "seconds"), HEADERS)
def test_headers(headers: dict[str, str], seconds: float) -> None:
    assert seconds_to_reset(headers) == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize(("body", "seconds"), BODIES)
def test_bodies(body: Any, seconds: float) -> None:
    assert seconds_to_reset({}, body) == pytest.approx(seconds, abs=0.01)
    assert seconds_to_reset({}, [body, {}]) is not None


@pytest.mark.parametrize(("text", "seconds"), TEXTS)
def test_texts(text: str, seconds: float) -> None:
    assert seconds_to_reset({}, None, text) == pytest.approx(seconds, abs=0.01)


def test_a_quota_of_a_day_resets_at_midnight_in_california() -> None:
    violations = [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]
    details = [{"violations": violations}, {"@type": "x/google.rpc.RetryInfo", "retryDelay": "36s"}]
    seconds = seconds_to_reset({}, {"error": {"details": details}})
    assert seconds is not None
    assert 0 < seconds <= 25 * 3_600
    there = time.gmtime(time.time() + seconds + 30)
    assert (there.tm_hour, there.tm_min) in ((7, 0), (8, 0))


@pytest.mark.parametrize("headers", [{}, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon"}])
def test_what_is_not_told_is_not_known(headers: dict[str, str]) -> None:
    bodies: tuple[Any, ...] = (None, {}, [], {"error": "no"}, {"error": {"details": "no", "resets_at": "later"}})
    for body in bodies:
        assert seconds_to_reset(headers, body, "Slow down, in a moment.") is None


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, {"error": {"resets_in_seconds": 10**400}}),
        ({}, {"error": {"resets_in_seconds": float("inf")}}),
        ({}, {"error": {"resets_in_seconds": float("nan")}}),
        ({}, {"error": {"resets_at": "1e400"}}),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "9" * 400 + "s"}, None),
        ({"retry-after": "1e400"}, None),
    ],
)
def test_what_never_resets_is_not_waited_for(headers: dict[str, str], body: object) -> None:
    assert seconds_to_reset(headers, body) is None
