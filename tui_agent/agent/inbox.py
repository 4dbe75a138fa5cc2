"""What came up in sessions of a project and may be worth remembering: proposals, which only the user takes.

They are found by rule, from the logs, and by how things were done, not by what words mean: commands that succeeded in
several sessions, one or some in a row; files that sessions begin by reading; sentences that the user has typed beside
others in several sessions; and what they said when they had stopped the model or declined a call, or while it worked.
What the project's instructions or the notes have already is left out. If the settings say so, the small model proposes
some, too (`remembering`).

What is found in a session is kept in a file, so only sessions that have changed are read again.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from tui_agent.conversation.blocks import Text, ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Message, Queued
from tui_agent.conversation.tool_facts import TOOL_FACTS
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import log_file, read_entries, read_summary
from tui_agent.storage.sessions import logs_of, stamp_of
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.lenient import decoded, decoded_file
from tui_agent.text import counted, one_line
from tui_agent.tools.gate.known_commands import Unknown, known
from tui_agent.tools.gate.permissions import REFUSED_BECAUSE
from tui_agent.tools.gate.shell_line import read_line

FOLDER: Final = "inbox"
SESSIONS: Final = 200
"""The newest sessions of a project that are looked at."""
READING_S: Final = 2.0
"""Seconds after which no further session is read; the next look goes on."""
IN_SESSIONS: Final[Mapping["Kind", int]] = {"command": 3, "steps": 2, "file": 3, "said": 2}
"""In how many sessions something has to come up, if not in one."""
STEPS: Final = 3
"""Commands in a row that make a procedure."""
FIRST_CALLS: Final = 5
"""Calls with which a session begins."""
MOST_CHARS: Final = 300
"""What is longer is no one thing to remember."""
LEAST_CHARS: Final = 12
PROPOSED: Final = 20
WAITING: Final = "{} from earlier sessions here could be remembered"
"""What a start says of so many things."""
AT_END: Final = 4_000_000
"""Bytes of the largest log that is read at a session's end."""

Kind: TypeAlias = Literal["correction", "said", "model", "steps", "command", "file"]
"""In the order in which they are proposed."""


class _Seen(msgspec.Struct, frozen=True, array_like=True):
    """What came up in one session; `ended`: when, in seconds since the epoch."""

    stamp: tuple[int, ...]
    ended: float = 0.0
    commands: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()


class _Kept(msgspec.Struct):
    """`decided`: proposals that the user has taken or dropped; `read`: those whose change they were shown. `thought`:
    what the small model proposed, by session.
    """

    sessions: dict[str, _Seen] = {}
    thought: dict[str, list[str]] = {}
    decided: list[str] = []
    waiting: int = 0
    read: dict[str, str] = {}


class Proposal(msgspec.Struct, frozen=True):
    """Something to remember. key: names it; text: what, on a line, or each step on one; source: where it came up."""

    key: str
    kind: Kind
    text: str
    source: str


class MemoryProposals:
    """The proposals for one project. `notes`: the folder of its notes. Its methods read files."""

    def __init__(self, home: Path, notes: Path, cwd: str) -> None:
        self._home, self._cwd = home, cwd
        self._file = home / FOLDER / f"{notes.name}.json"

    def proposals(self, known_text: str) -> list[Proposal]:
        """What is proposed, corrections first. `known_text`: what is written down already."""
        kept = self._load()
        before = dict(kept.sessions), kept.waiting
        self._catch_up(kept)
        found = list(islice(_proposed(kept, _plain(known_text)), PROPOSED))
        kept.waiting = len(found)
        if (kept.sessions, kept.waiting) != before:
            self._save(kept)
        return found

    def note(self, session: Path) -> None:
        """Take in the session in this folder, which has ended, if that takes no time worth speaking of."""
        kept = self._load()
        with suppress(StorageError, OSError):
            if log_file(session).stat().st_size <= AT_END:
                stamp = stamp_of(session)
                kept.sessions[session.name] = _seen_in(stamp, read_entries(log_file(session)))
                kept.waiting = len(list(islice(_proposed(kept, ""), PROPOSED)))
                self._save(kept)

    def add(self, session: str, lines: Iterable[str]) -> None:
        """Propose these lines too, which the small model has made of a session. Raises OSError."""
        kept = self._load()
        kept.thought[session] = list(dict.fromkeys((*kept.thought.get(session, ()), *lines)))
        kept.waiting += 1
        self._save(kept)

    def waiting(self) -> int:
        """How many proposals there were at the last look. Cheap."""
        return self._load().waiting

    def decide(self, key: str) -> None:
        """Propose this no more. Raises OSError."""
        kept = self._load()
        kept.decided.append(key)
        kept.read.pop(key, None)
        self._save(kept)

    def show(self, key: str, change: str) -> None:
        """Note that the user was shown this change. Raises OSError."""
        kept = self._load()
        kept.read[key] = _digest(change)
        self._save(kept)

    def was_shown(self, key: str, change: str) -> bool:
        return self._load().read.get(key) == _digest(change)

    def _load(self) -> _Kept:
        return decoded_file(self._file, _Kept) or _Kept()

    def _save(self, kept: _Kept) -> None:
        make_private_folder(self._file.parent)
        write_file(self._file, msgspec.json.encode(kept))

    def _catch_up(self, kept: _Kept) -> None:
        until, now = time.monotonic() + READING_S, dict[str, _Seen]()
        for folder, stamp in logs_of(self._home, self._cwd):
            seen = kept.sessions.get(folder.name)
            if seen is not None and seen.stamp == stamp:
                now[folder.name] = seen
                continue
            if len(now) >= SESSIONS or time.monotonic() > until:
                break
            with suppress(StorageError):
                if read_summary(log_file(folder)).meta.get("cwd", "") == self._cwd:
                    now[folder.name] = _seen_in(stamp, read_entries(log_file(folder)))
        kept.sessions = now


def _seen_in(stamp: tuple[int, ...], entries: Iterable[AnyEntry]) -> _Seen:
    calls: dict[str, ToolCall] = {}
    commands: list[str] = []
    files: list[str] = []
    said: list[str] = []
    corrections: list[str] = []
    ended, stopped = 0.0, False
    for entry in entries:
        ended = entry.time or ended
        if isinstance(entry, Queued) and not entry.kind:
            corrections += _sentences(entry.blocks)
        if not isinstance(entry, Message):
            continue
        if entry.role == "assistant":
            stopped = entry.stop_reason == "interrupted"
            calls |= {block.id: block for block in entry.blocks if isinstance(block, ToolCall)}
        elif entry.kind == "interrupted":
            stopped = True
        elif entry.kind == "user_shell":
            if entry.outcome.exit_code == 0:
                commands.append(entry.typed.removeprefix("!"))
        elif not entry.kind and not entry.typed:
            sentences = list(_sentences(entry.blocks))
            # What is a whole message is most often a task.
            (corrections if stopped else said).extend(sentences if stopped or len(sentences) > 1 else ())
            stopped = False
        for block in entry.blocks:
            if not isinstance(block, ToolResult) or (call := calls.get(block.call_id)) is None:
                continue
            if entry.stop_reason == "denied":
                corrections += _split(block.text.partition(REFUSED_BECAUSE)[2])
            given = decoded(call.arguments, _Given) or _Given()
            if call.name in _RUN and entry.outcome.exit_code == 0:
                commands.append(given.command)
            first = call.name in _READ and len(calls) <= FIRST_CALLS and not block.is_error
            if first and (path := given.path or given.file_path):
                files.append(path)
    worked = (re.sub(_SHORTENED, "", " ".join(command.split())) for command in commands if not _only_reads(command))
    return _Seen(
        stamp,
        ended,
        tuple(command for command in worked if len(command) <= MOST_CHARS)[:MOST_CHARS],
        tuple(dict.fromkeys(files)),
        tuple(dict.fromkeys(filter(_is_one_thing, said))),
        tuple(dict.fromkeys(filter(_is_one_thing, corrections))),
    )


_SHORTENED: Final = r"( 2>&1)?( \| (head|tail)( -\S+| \d+)*)?$"
"""What only shortens the output of a command."""


class _Given(msgspec.Struct):
    command: str = ""
    path: str = ""
    file_path: str = ""


_RUN, _READ = ((name, *TOOL_FACTS[name].claude) for name in ("run_command", "read_file"))
"""The tools' names, in sessions taken over from other agents too."""


def _only_reads(command: str) -> bool:
    """Whether the command is known to change and to prove nothing."""
    line = read_line(command)
    if line.opaque or not line.commands:
        return not line.opaque
    try:
        return all(known(each.words).reads for each in line.commands)
    except Unknown:
        return False


def _sentences(blocks: Sequence[object]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Text):
            yield from _split(block.text)


def _split(text: str) -> Iterator[str]:
    """The sentences of a text; of one with many lines, as when something was pasted, none."""
    if text.count("\n") <= 8 and len(text) <= 4 * MOST_CHARS:
        parts = re.split(r"\n+|(?<=[.!?;])\s+|(?<=[。！？；])", text)
        yield from filter(None, (" ".join(part.split()) for part in parts))


def _is_one_thing(sentence: str) -> bool:
    """Whether it could be remembered by itself: neither a word or two, nor a part of something quoted."""
    if re.search(r"</?\w[\w-]*>", sentence):
        return False  # another program wrote it
    has_words = len(sentence.split()) > 2 or not sentence.isascii()
    is_whole = all(sentence.count(mark) % 2 == 0 for mark in '`"')
    return has_words and is_whole and LEAST_CHARS <= len(sentence) <= MOST_CHARS


def _plain(text: str) -> str:
    """The text without case, punctuation and white space at its edges, by which sentences are the same."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def _proposed(kept: _Kept, written: str) -> Iterator[Proposal]:
    where: dict[tuple[Kind, str], dict[str, str]] = {}
    order = sorted(kept.sessions.items(), key=lambda each: each[1].ended)
    for session, seen in order:
        lines: list[tuple[Kind, str]] = [("correction", text) for text in seen.corrections]
        lines += [("said", text) for text in (*seen.said, *seen.corrections)]
        rows = zip(*(seen.commands[n:] for n in range(STEPS)), strict=False)
        lines += [("steps", "\n".join(steps)) for steps in rows]
        lines += [("command", text) for text in seen.commands]
        lines += [("file", text) for text in seen.files]
        lines += [("model", text) for text in kept.thought.get(session, ())]
        for kind, text in lines:
            where.setdefault((kind, _plain(text)), {})[session] = text
    repeated = {plain for (kind, plain), found in where.items() if kind == "said" and len(found) > 1}
    in_steps: Counter[str] = Counter()
    for kind in get_args(Kind):
        for (each, plain), found in sorted(where.items(), key=lambda item: -len(item[1])):
            newest, text = list(found.items())[-1]
            known_already = plain in written or (kind == "correction" and plain in repeated) or in_steps[plain]
            if each != kind or len(found) < IN_SESSIONS.get(kind, 1) or known_already:
                continue
            if kind == "steps":
                if len(set(text.split("\n"))) < STEPS:
                    continue
                in_steps.update(map(_plain, text.split("\n")))
            key = _digest(f"{kind} {plain}")
            if key not in kept.decided:
                yield Proposal(key, kind, text, _source(kept.sessions[newest], newest, len(found)))


def _source(seen: _Seen, session: str, sessions: int) -> str:
    when = datetime.fromtimestamp(seen.ended)
    day = f"{when:%d %B %Y}".lstrip("0")
    return f"{counted(sessions, 'session')}, last on {day} in {one_line(session, 40)}"
