"""Session files of pi: JSON lines that form a tree by `id` and `parentId`, as its own page on them says.

The conversation is the way from the newest line back to the first; files of version 1 have no ids and one branch. An
answer's usage counts what was read from the cache and written to it beside `input`. A `compaction` names the first line
that it keeps. What the user ran with `!` and what extensions said to the model are messages of their own.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec
from typing_extensions import override

from tui_agent.conversation.entries import NO_OUTCOME, Outcome, Usage, notice, user_shell
from tui_agent.storage.recordings.fields import Json, block_of, blocks_of, words
from tui_agent.storage.recordings.recording import UNUSABLE, ConversationBuilder, RecordingReader, usage_of_uncached

_EXIT_CODE: Final = re.compile(r"Command exited with code (\d{1,3})\s*\Z")


class _Link(msgspec.Struct, rename="camel"):
    type: str = ""
    id: str = ""
    parent_id: str | None = None


class PiReader(RecordingReader):
    """Reads a session file of pi into a conversation, without the entries in `left`."""

    def __init__(self, builder: ConversationBuilder, left: frozenset[str] = frozenset()) -> None:
        super().__init__(builder)
        self.left = len(left)
        self._left = left
        self._places: dict[str | int, int] = {}
        """The message at or before each entry, by its id and, for files without ids, by its place in the file."""
        self._entries = 0
        self._commands = 0

    @override
    def take(self, number: int, line: bytes) -> None:
        record, builder = Json.decode(line), self.builder
        place, self._entries = self._entries, self._entries + 1
        if (name := record["id"].text) in self._left:
            return
        time = record["timestamp"].seconds
        match record["type"].text:
            case "message":
                self._message(number, record["message"], time)
            case "compaction":
                first = record["firstKeptEntryId"].text or record["firstKeptEntryIndex"].value
                kept = self._places.get(first, -1) if isinstance(first, str | int) else -1
                builder.compaction(number, record["summary"].text, time, kept=kept)
            case "branch_summary":
                self._take_words(record["summary"].text, time)
            case "custom_message":
                self._take_words(words(blocks_of(record["content"], block_of)), time)
            case _:
                pass  # a header, a setting, a label, an extension's own data
        self._places[place] = builder.place
        if name:
            self._places[name] = builder.place

    def _message(self, number: int, record: Json, time: float) -> None:
        builder, blocks = self.builder, blocks_of(record["content"], block_of)
        match record["role"].text:
            case "user":
                builder.user(number, blocks, time)
            case "assistant":
                usage = builder.usage(number, record["usage"], _used)
                builder.answer(number, blocks, time, model=record["model"].text, usage=usage)
            case "toolResult":
                failed = record["isError"].flag
                outcome = _outcome(words(blocks), failed) if record["toolName"].text == "bash" else NO_OUTCOME
                call = record["toolCallId"].text
                builder.result(number, call, blocks, time, is_error=failed, outcome=outcome)
            case "bashExecution" if not record["excludeFromContext"].flag:
                self._commands += 1
                ran = user_shell(f"shell-{self._commands}", record["command"].text, record["output"].text)
                outcome = Outcome(exit_code=record["exitCode"].exit_code)
                builder.add(msgspec.structs.replace(ran, outcome=outcome), time)
            case "custom" | "hookMessage":
                self._take_words(words(blocks), time)
            case "branchSummary":
                self._take_words(record["summary"].text, time)

    def _take_words(self, text: str, time: float) -> None:
        if text.strip():
            self.builder.add(notice(text), time)


def _used(record: Json) -> Usage:
    return usage_of_uncached(*(record[name].count for name in ("input", "cacheRead", "cacheWrite", "output")))


def _outcome(text: str, failed: bool) -> Outcome:
    found = _EXIT_CODE.search(text) if failed else None
    return Outcome(exit_code=int(found[1]) if found else None if failed else 0)


def branch_left(lines: Iterable[bytes]) -> frozenset[str]:
    """The ids of the entries that are not on the way from the newest one back to the first.

    A parent that is not in the file, as its line is broken, counts as the entry before.
    """
    links: dict[str, tuple[str | None, str]] = {}
    """Of each entry, its parent and the entry before it in the file."""
    newest = ""
    for line in lines:
        with suppress(*UNUSABLE):
            link = msgspec.json.decode(line, type=_Link)
            if link.id and link.type != "session":
                links.setdefault(link.id, (link.parent_id, newest))
                newest = link.id
    kept: set[str] = set()
    place: str | None = newest
    while place and place not in kept:
        kept.add(place)
        parent, before = links[place]
        place = parent if parent is None or parent in links else before
    return frozenset(links.keys() - kept)
