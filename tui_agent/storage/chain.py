"""The hash chain of a log: each entry's hash covers its bytes and the hash before it; the first, the session's id.

The log's database notes the newest link with every append, and each event of the trace has that of its entry. So
nothing that was written can be changed, removed or reordered without writing everything after it anew, in both.
"""

from hashlib import sha256
from typing import Final

import msgspec

HEAD_KEY: Final = "head"
"""Where the log's database notes its newest link, among its facts."""


class Link(msgspec.Struct, frozen=True):
    """The chain at entry number `seq` (0: before the first); `hash` in hex."""

    seq: int
    hash: str

    def following(self, body: bytes) -> "Link":
        """The next link, for an entry that is encoded as `body`."""
        return Link(self.seq + 1, sha256(self.hash.encode() + body).hexdigest())


def beginning(session: str) -> Link:
    return Link(0, sha256(f"tui-agent session {session}".encode("utf-8", "surrogatepass")).hexdigest())


def as_text(link: Link) -> str:
    return msgspec.json.encode(link).decode()


def from_text(text: str | None) -> Link | None:
    """The link that was noted; None if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode(text or "", type=Link)
    except msgspec.MsgspecError:
        return None
