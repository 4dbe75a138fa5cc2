"""The W3C trace context: of whoever started this program, and of the call that is being made.

What a call starts gets it: commands as the variable ``TRACEPARENT``, servers of tools with each request.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec
from typing_extensions import override

PARENT, STATE = "TRACEPARENT", "TRACESTATE"
_FORM: Final = r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
_here: ContextVar["SpanContext | None"] = ContextVar("span", default=None)


class SpanContext(msgspec.Struct, frozen=True):
    """A span, as others are told of it. `flags`: 1 if it is sampled."""

    trace: int
    span: int
    flags: int = 1

    @override
    def __str__(self) -> str:
        return f"00-{self.trace:032x}-{self.span:016x}-{self.flags:02x}"


def read_context(text: str) -> SpanContext | None:
    """The span that a ``traceparent`` names; None if it names none."""
    found = re.fullmatch(_FORM, text)
    if found is None or text.startswith("ff"):
        return None
    trace, span, flags = (int(each, 16) for each in found.groups())
    return SpanContext(trace, span, flags) if trace and span else None


def inherited(environ: Mapping[str, str] | None = None) -> SpanContext | None:
    """The span of whoever started this program."""
    return read_context((os.environ if environ is None else environ).get(PARENT, ""))


def current() -> SpanContext | None:
    """The span of the call that is being made, else the inherited one."""
    return _here.get() or inherited()


def variables() -> dict[str, str]:
    """The variables that tell a process of the current span."""
    here = current()
    if here is None:
        return {}
    state = os.environ.get(STATE, "")
    return {PARENT: str(here), **({STATE: state} if state else {})}


@contextmanager
def within(span: SpanContext | None) -> Iterator[None]:
    """A context in which this span is the current one; None: the one before stays."""
    if span is None:
        yield
        return
    token = _here.set(span)
    try:
        yield
    finally:
        _here.reset(token)
