"""Session files of Claude Code: JSON lines of which `type` `user` and `assistant` hold the conversation.

The format is not documented by its maker; this reads what its files hold: an answer is written in one line per block,
all with the same `message.id`, results come in `user` lines, side chains are subtasks (where they have files of their
own, each is a conversation), and lines of other types (summaries, snapshots, titles) say nothing to the model; of an
`attachment`, what the user typed while the model worked, what a task in the background reports, and a file that the
user named are read. Each line of an answer repeats the usage of its call, in which `input_tokens` counts neither what
was read from the cache nor what was written to it. A compaction is a `system` line of the subtype `compact_boundary`,
which names what is kept, and a `user` line with `isCompactSummary`, which holds the summary; one of the subtype
`microcompact_boundary` names the calls whose results are left out from there on. `parentUuid` names the line before:
where the user has gone back, the lines of all branches stand in one file. A command's exit code stands at the start of
the text of one that failed; of one that ended well, `toolUseResult` has the output.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec
from typing_extensions import override

from tui_agent.conversation.entries import NO_OUTCOME, Outcome, Usage, notice
from tui_agent.storage.recordings.fields import Json, block_of, blocks_of, words
from tui_agent.storage.recordings.recording import (
    CLEARED,
    UNUSABLE,
    ConversationBuilder,
    RecordingReader,
    usage_of_uncached,
)

_NO_MODEL: Final = "<synthetic>"
"""What stands for the model where Claude Code itself wrote an answer."""
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,3})\b")


class _LinkedPart(msgspec.Struct):
    type: str = ""
    id: str = ""
    tool_use_id: str = ""


class _LinkedMessage(msgspec.Struct):
    id: str = ""
    content: str | list[_LinkedPart] = ""


class _Link(msgspec.Struct, rename="camel"):
    """What of a line says how it is linked to others. `parent_uuid` is unset in early files, whose format had none."""

    type: str = ""
    uuid: str = ""
    parent_uuid: str | msgspec.UnsetType | None = msgspec.UNSET
    logical_parent_uuid: str | None = None
    is_sidechain: bool = False
    is_compact_summary: bool = False
    message: _LinkedMessage = msgspec.field(default_factory=_LinkedMessage)

    @property
    def parts(self) -> list[_LinkedPart]:
        return self.message.content if isinstance(self.message.content, list) else []


class ClaudeCodeReader(RecordingReader):
    """Reads a session file of Claude Code into a conversation. A line that was copied from a resumed session counts
    once, one that is `abandoned` not at all.
    """

    def __init__(self, builder: ConversationBuilder, abandoned: frozenset[str] = frozenset()) -> None:
        super().__init__(builder)
        self.left = len(abandoned)
        self._abandoned = set(abandoned)
        self._places: dict[str, int] = {}
        self._kept = -1
        self._side: bool | None = None
        """Whether the file holds a subagent's side chain alone, as its first message says."""
        self._written_for_an_hour = 0
        """Tokens written to the cache for an hour, less those written for five minutes."""

    @override
    def take(self, number: int, line: bytes) -> None:
        record, builder = Json.decode(line), self.builder
        side, kind, name = record["isSidechain"].flag, record["type"].text, record["uuid"].text
        if record["subtype"].text == "compact_boundary" and not side:
            self._kept = self._places.get(record["compactMetadata"]["preservedSegment"]["headUuid"].text, -1)
        elif record["subtype"].text == "microcompact_boundary" and bool(side) == bool(self._side):
            cleared = [each.text for each in record["microcompactMetadata"]["compactedToolIds"]]
            builder.clearing(cleared, CLEARED, record["timestamp"].seconds)
        if kind not in ("user", "assistant", "attachment") or record["isApiErrorMessage"].flag:
            return
        if kind == "attachment" and record["parentUuid"].text in self._abandoned:
            self._abandoned.add(name)  # another one may hang from it
        if self._side is None:
            self._side = side
        if (side and not self._side) or name in self._places or name in self._abandoned:
            return
        message, time = record["message"], record["timestamp"].seconds
        content = message["content"]
        blocks = blocks_of(content, block_of)
        if record["isCompactSummary"].flag:
            builder.compaction(number, words(blocks), time, kept=self._kept)
            self._kept = -1
        elif kind == "assistant":
            model = message["model"].text
            usage = builder.usage(number, message["usage"], self._used)
            named = "" if model == _NO_MODEL else model
            builder.answer(number, blocks, time, answer_id=message["id"].text, model=named, usage=usage)
        elif kind == "attachment":
            self._attached(number, record["attachment"].loose, time)
        else:
            parts = content if isinstance(content.value, list) else ()
            results = [part for part in parts if part["type"].loose.text == "tool_result"]
            for part in results:
                inner, failed = blocks_of(part["content"], block_of), part["is_error"].flag
                alone = len(results) == 1
                outcome = _outcome(words(inner), failed, record["toolUseResult"]) if alone else NO_OUTCOME
                builder.result(number, part["tool_use_id"].text, inner, time, is_error=failed, outcome=outcome)
            if blocks or not results:
                builder.user(number, blocks, time)
        if name:
            self._places[name] = builder.place

    def _attached(self, number: int, attached: Json, time: float) -> None:
        file = attached["content"]["file"]
        if attached["type"].text == "file" and (text := file["content"].text):
            self.builder.add(notice(f"{file['filePath'].text}:\n{text}"), time)
        elif attached["type"].text == "queued_command" and (said := blocks_of(attached["prompt"], block_of)):
            if attached["commandMode"].text == "task-notification":
                self.builder.add(notice(words(said)), time)
            else:
                self.builder.user(number, said, time)

    def _used(self, record: Json) -> Usage:
        if writes := record["cache_creation"]:
            hour, minutes = writes["ephemeral_1h_input_tokens"].count, writes["ephemeral_5m_input_tokens"].count
            self._written_for_an_hour += hour - minutes
            self.builder.cache_ttl_s = 3600 if self._written_for_an_hour > 0 else 300
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
        return usage_of_uncached(*(record[name].count for name in names))


def _outcome(text: str, is_error: bool, ended: Json) -> Outcome:
    """How a command ended. `ended` is what is told of one that ended well; those that ended otherwise lack some of it,
    or have more.
    """
    if is_error:
        failed = _EXIT_CODE.match(text)
        return Outcome(exit_code=int(failed[1])) if failed else NO_OUTCOME
    fields = ended.value if isinstance(ended.value, dict) else {}
    other = any(fields.get(name) for name in ("interrupted", "backgroundTaskId", "returnCodeInterpretation"))
    return Outcome(exit_code=0) if isinstance(fields.get("stdout"), str) and not other else NO_OUTCOME


def abandoned(lines: Iterable[bytes]) -> frozenset[str]:
    """The lines that said something on branches which the user has gone back from, by their uuid.

    The branch that counts is the one of the newest line, followed from parent to parent; a parent that is not in the
    file counts as the line before. An answer is a chain of lines of one `message.id`, and the results of its calls may
    hang from any of them: all of these belong together.
    """
    links: list[_Link] = []
    for line in lines:
        with suppress(*UNUSABLE):
            link = msgspec.json.decode(line, type=_Link)
            if link.uuid and not link.is_sidechain:
                links.append(link)
    speaking = [link for link in links if link.type in ("user", "assistant")]
    if not any(link.parent_uuid for link in speaking):
        return frozenset()  # nothing is linked in this file
    kept = _branch(links, speaking[-1].uuid) if speaking else set()
    answers = {link.message.id for link in speaking if link.uuid in kept and link.type == "assistant"} - {""}
    kept |= {link.uuid for link in speaking if link.message.id in answers}
    calls = {part.id for link in speaking if link.uuid in kept for part in link.parts if part.type == "tool_use"}
    kept |= {link.uuid for link in speaking for part in link.parts if part.tool_use_id in calls}
    return frozenset(link.uuid for link in speaking if link.uuid not in kept)


def _branch(links: list[_Link], newest: str) -> set[str]:
    """The lines from the newest back to the first, following the parents."""
    places: dict[str, int] = {}
    for place, link in enumerate(links):
        places.setdefault(link.uuid, place)
    found: set[str] = set()
    place = places[newest]
    while place >= 0 and (link := links[place]).uuid not in found:
        found.add(link.uuid)
        if link.parent_uuid is None and link.type == "user" and not link.is_compact_summary:
            # Nothing stands before it: the user went back behind their very first words.
            break
        parent = link.parent_uuid or link.logical_parent_uuid
        place = places.get(parent, place - 1) if isinstance(parent, str) else place - 1
    return found
