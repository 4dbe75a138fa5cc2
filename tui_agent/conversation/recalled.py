"""What a search of the session finds."""

from typing import Literal, TypeAlias

import msgspec

MatchKind: TypeAlias = Literal["exact", "all_words", "some_words"]


class RecallHit(msgspec.Struct, frozen=True, kw_only=True):
    """A passage that was found.

    `excerpt` is its text, character by character, with the match at `offset`; `place` says where it stands, and `read`
    is the call that shows it in its file (empty: it lies in no file). `hidden`: the model no longer sees it. `call` is
    the argument line of the tool call it belongs to, `time` is in seconds since the epoch. `role`: ``user``,
    ``assistant``, ``reasoning``, ``tool_call``, ``tool_result``, ``raw_output``, ``notice``, ``summary``,
    ``checkpoint`` or ``digest``. `session` names the other session that it is from; empty: it is from this one.
    """

    seq: int
    time: float
    role: str
    tool: str
    call: str
    match: MatchKind
    hidden: bool
    excerpt: str
    offset: int
    place: str
    read: str
    session: str = ""


class RecallHits(msgspec.Struct, frozen=True):
    """The best hits, and the number of those that quote the query or contain all its words.

    sessions: how many other sessions were searched; left_out: how many were not, for want of time.
    """

    hits: tuple[RecallHit, ...]
    total: int
    sessions: int = 0
    left_out: int = 0
