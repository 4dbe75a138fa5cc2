"""Every refusal becomes one plain sentence of the right kind."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec
import pytest
from msgspec import structs

from tui_agent.models.base import (
    AuthFailed,
    InvalidRequest,
    ModelError,
    Overloaded,
    PictureRefused,
    RateLimited,
    ReasoningRefused,
    RequestTooLarge,
    Unavailable,
    UnknownModel,
)
from tui_agent.models.errors import ErrorReply, failure, plain, redact, status_of
from tui_agent.models.records import OFFLINE
from tui_agent.models.refusals import parse_retry_after

ACME = msgspec.structs.replace(OFFLINE, id="acme", title="Acme", keys=("ACME_KEY",), addresses=("ACME_URL",))

KINDS: list[tuple[ErrorReply, type[ModelError]]] = [
    (ErrorReply(399, "", "no"), Unavailable),  # no error's status: what failed is not told
    (ErrorReply(400, "invalid_request_error", "no"), InvalidRequest),
    (ErrorReply(400, "invalid_request_error", "You have reached your specified API usage limits."), RateLimited),
    (ErrorReply(405, "", "no"), InvalidRequest),
    (ErrorReply(422, "", "no"), InvalidRequest),
    (ErrorReply(499, "", "no"), InvalidRequest),
    (ErrorReply(501, "", "no"), Unavailable),
    (ErrorReply(401, "", "no"), AuthFailed),
    (ErrorReply(402, "billing_error", "no"), AuthFailed),
    (ErrorReply(403, "", "no"), AuthFailed),
    (ErrorReply(403, "", '{"error":"Content violates usage guidelines. Team: x"}'), InvalidRequest),  # xAI
    (ErrorReply(404, "not_found_error", "model: x"), UnknownModel),
    (ErrorReply(408, "", ""), Unavailable),
    (ErrorReply(413, "request_too_large", "32 MB"), RequestTooLarge),
    (ErrorReply(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes."), RequestTooLarge),
    (ErrorReply(400, "INVALID_ARGUMENT", "Unable to process input image."), PictureRefused),
    (ErrorReply(400, "invalid_request_error", "messages.1.content.0.image.source.base64.data: no"), PictureRefused),
    (ErrorReply(500, "api_error", "the image service is down"), Unavailable),
    (ErrorReply(429, "rate_limit_error", "slow"), RateLimited),
    (ErrorReply(500, "api_error", "oops"), Unavailable),
    (ErrorReply(503, "api_error", "oops"), Unavailable),
    (ErrorReply(503, "UNAVAILABLE", "busy"), Overloaded),
    (ErrorReply(504, "timeout_error", ""), Unavailable),
    (ErrorReply(529, "overloaded_error", "busy"), Overloaded),
    (ErrorReply(200, "overloaded_error", "busy"), Overloaded),
    (ErrorReply(200, "rate_limit_error", "slow"), RateLimited),
    (ErrorReply(200, "invalid_request_error", "no"), InvalidRequest),
    (ErrorReply(200, "something_new", "?"), Unavailable),
    (ErrorReply(0, "RESOURCE_EXHAUSTED", "slow"), RateLimited),
    (ErrorReply(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."), AuthFailed),
]


@pytest.mark.parametrize(("refusal", "kind"), KINDS)
def test_kinds(refusal: ErrorReply, kind: type[ModelError]) -> None:
    error = failure(
        ACME, "model-1", structs.replace(refusal, text=refusal.text + "\n\x1b[31m" + "long " * 200, retry_after=4.0)
    )
    assert type(error) is kind
    assert error.message.isprintable()
    assert len(error.message) < 500
    assert error.retry_after == (4.0 if kind.retryable else None)


def test_an_error_inside_of_a_stream_tells_its_reset_in_its_text() -> None:
    told = "Rate limit reached for gpt-4.1 on requests per day (RPD): Limit 200. Please try again in 7m12s."
    error = failure(ACME, "model-1", ErrorReply(0, "rate_limit_exceeded", told))
    assert isinstance(error, RateLimited)
    assert error.retry_after == 432.0


REFUSED_REASONING = {
    # github.com/anthropics/claude-code, issue 10627; anomalyco/opencode, 48637 and 15074
    "messages.1.content.0: Invalid `signature` in `thinking` block": "messages.1.content.0",
    "messages.12.content.3: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    "Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior`.": "messages.12.content.3",
    "ValidationException: ***.***.content.0: Invalid `signature` in `thinking` block (request id: 2026)": "",
    "messages.3.content.0: Invalid `data` in `redacted_thinking` block": "messages.3.content.0",
    # google-gemini/gemini-cli, issue 13467; decolua/9router, 301
    "Corrupted thought signature.": "",
    "Unable to submit request because Thought signature is not valid.. Learn more: https://cloud.google.com": "",
    # openai/codex, issues 8145 and 8119; smallmain/vscode-unify-chat-provider, 178; can1357/oh-my-pi, 41
    "The encrypted content gAAA...DQ== could not be verified.": "gAAA...DQ==",
    "The encrypted content for item rs_0a18 could not be verified. Reason: Encrypted content could not be decrypted or "
    "parsed.": "rs_0a18",
    "Item with id 'rs_0496' not found. Items are not persisted when `store` is set to false.": "rs_0496",
    "Item 'rs_0496' of type 'reasoning' was provided without its required following item.": "rs_0496",
}


@pytest.mark.parametrize("status", [400, 404, 429])
@pytest.mark.parametrize("text", REFUSED_REASONING)
def test_refused_reasoning_is_told_from_all_else_with_its_name(text: str, status: int) -> None:
    error = failure(ACME, "model-1", ErrorReply(status, "invalid_request_error", text))
    assert isinstance(error, ReasoningRefused)
    assert error.named == REFUSED_REASONING[text]


@pytest.mark.parametrize(
    "text",
    [
        "Encrypted content is not supported with this model.",
        "Item with id 'fc_0496' not found.",
        "thinking.enabled.budget_tokens: Input should be less than max_tokens",
    ],
)
def test_another_refusal_is_not_taken_for_one_of_reasoning(text: str) -> None:
    assert not isinstance(failure(ACME, "model-1", ErrorReply(400, "", text)), ReasoningRefused)


def test_retry_after() -> None:
    assert parse_retry_after("7") == 7.0
    assert parse_retry_after("3.5s") == 3.5
    assert parse_retry_after("-1") == 0.0
    assert parse_retry_after(None) is None
    assert parse_retry_after("soon") is None
    assert parse_retry_after("inf") is None
    assert parse_retry_after("nan") is None
    later = parse_retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True))
    assert later is not None
    assert 60 < later <= 90


def test_keys_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "my-own-key")
    assert redact("x my-own-key y") == "x [key] y"
    assert redact("Authorization: Bearer abc.def-1") == "Authorization: [key]"
    assert redact("no proxy at http://me:pa:ss@proxy.test:8080/x") == "no proxy at http://[key]@proxy.test:8080/x"
    assert redact("see https://docs.test/@me") == "see https://docs.test/@me"
    assert plain("a\ud800\x00b\n\nc") == "a� b c"


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<html>\r\n<head><title>502 Bad Gateway</title></head><body>nginx</body></html>", "502 Bad Gateway"),
        ("<!DOCTYPE html><body><script>alert(1)</script>", "a web page instead of an answer"),
        ("<?xml version='1.0'?><Error><Code>SlowDown</Code></Error>", "SlowDown"),
        ("expected List<int>", "expected List<int>"),
        ("\x1b]0;owned\x07\x1b[31mred", "red"),
        ("".join(map(chr, range(256))).encode("latin-1").decode(errors="replace"), "something that is no text"),
        ("<center><h1>504 Gateway Time-out &amp; so on</h1></center>", "504 Gateway Time-out & so on"),
    ],
)
def test_of_a_page_only_its_title_is_told(page: str, said: str) -> None:
    for status in (404, 502):
        assert failure(ACME, "model-1", ErrorReply(status, "", page)).message.endswith(f"It said: {said}")


@pytest.mark.parametrize("status", [400, 403, 502])
def test_a_refusal_without_a_word_is_a_whole_sentence(status: int) -> None:
    message = failure(ACME, "model-1", ErrorReply(status, "", "")).message
    assert message.rstrip(".").endswith(("it gives no reason", "try again later"))


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        # platform.claude.com, errors
        ("invalid_request_error", 400),
        ("authentication_error", 401),
        ("billing_error", 402),
        ("permission_error", 403),
        ("not_found_error", 404),
        ("request_too_large", 413),
        ("rate_limit_error", 429),
        ("api_error", 500),
        ("timeout_error", 504),
        ("overloaded_error", 529),
        # ai.google.dev, troubleshooting
        ("INVALID_ARGUMENT", 400),
        ("PERMISSION_DENIED", 403),
        ("NOT_FOUND", 404),
        ("RESOURCE_EXHAUSTED", 429),
        ("INTERNAL", 500),
        ("UNAVAILABLE", 503),
        ("DEADLINE_EXCEEDED", 504),
        # developers.openai.com, error codes
        ("insufficient_quota", 402),
        ("rate_limit_exceeded", 429),
        ("server_error", 500),
        ("502", 502),
        ("another", 0),
    ],
)
def test_an_error_inside_a_stream_counts_as_outside_of_one(kind: str, status: int) -> None:
    assert status_of(kind) == status
