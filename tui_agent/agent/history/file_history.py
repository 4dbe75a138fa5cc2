"""Saves files before tools change them, and puts them back on request.

Each call that may change files gets two entries: `FilesKept` before it, once the present contents are saved, and
`FilesChanged` with its result. If the program is killed in between, the first entry alone says what may have changed.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.agent.record import Record
from tui_agent.conversation.entries import FileChange, FilesChanged, FilesKept, file_change
from tui_agent.conversation.file_changes import RecentChanges, files_since, newest_changes, unfinished
from tui_agent.conversation.log import Log
from tui_agent.system.durable import in_thread, to_completion, uncancelled
from tui_agent.text import first_of
from tui_agent.tools.base import Access, ToolFailure
from tui_agent.tools.files.confined import clear_leftovers
from tui_agent.tools.files.put_back import GONE, FileStep, PutBack, as_change, plan, put_back
from tui_agent.tools.files.states import FoundFile, look_at, missing_folders
from tui_agent.tools.files.tree import FileStore, Tree, TreeLimits
from tui_agent.tools.gate.workspace import shown

KEPT_EARLIER: Final = "only its contents from before the turn are kept"
"""The reason for not saving contents that a tool wrote and changed again in the same turn."""

UNKEPT_NAMED: Final = 3
"""The most files that a notice names."""


class PutBackDone(msgspec.Struct, frozen=True):
    """The files that were put back, and those that were not, with the reasons. Names are untrusted."""

    done: tuple[FileStep, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


class FileHistory:
    """Saves the files that the tools of one session change.

    folders: compared before and after each command; names are relative to the first. excluded: folders of the program
    itself, which are left out.
    """

    def __init__(self, kept: FileStore, folders: Sequence[Path], excluded: Iterable[Path], limits: TreeLimits) -> None:
        self._kept = kept
        self._folders = tuple(folders)
        self._root = folders[0]
        self._excluded = tuple(excluded)
        self._limits = limits
        self._news: list[str] = []
        self._reported: set[str] = set()
        self._log: Log | None = None
        self._recent = RecentChanges(Log())
        self._trees = [
            Tree(folder, self._excluded, kept, limits)
            for folder in folders
            if not any(folder != other and folder.is_relative_to(other) for other in folders)
        ]

    @asynccontextmanager
    async def watching(self, call_id: str, accesses: Sequence[Access], record: Record) -> AsyncIterator[None]:
        """A context that records the changes of a call with these accesses. Raises `StorageError`, only on entering."""
        paths, tree = self._touched(accesses)
        if not paths and not tree:
            yield
            return
        self._log = record.view.log
        before = await in_thread(self._before, paths, record.view.log) if paths else ()
        if tree:
            for each in self._trees:
                await each.look()
        self._track(change.place for change in before)
        kept = await record.append(FilesKept(call=call_id, files=before, tree=tree))
        try:
            yield
        finally:
            # It is appended with the call's result, which follows even on cancellation.
            record.append_soon(await to_completion(self._changed(kept, before, tree)))

    async def gap(self) -> str:
        """Why not all that a command changes now could be put back, in a sentence; empty if it could."""
        gaps = [await each.gap() for each in self._trees]
        return next(filter(None, gaps), "")

    def earlier(self, path: Path) -> bytes | None:
        """What a file contained before this session changed it; None if that is not known. Slow: reads the log."""
        if self._log is None:
            return None
        found = next((file for file in files_since(self._log, 1).files if file.path == str(path)), None)
        if found is None or found.then.kind == "other":
            return None
        return b"" if found.then.kind == "absent" else self._kept.read(found.then.sha256)

    def take_news(self) -> tuple[str, ...]:
        """Sentences about files that cannot be put back; each is returned once."""
        news, self._news = tuple(self._news), []
        return news

    def plan(self, log: Log, seq: int) -> PutBack:
        """Plan putting files back to their state before entry `seq`. Slow: reads files."""
        return plan(seq, files_since(log, seq), self._folders, self._kept.read)

    def newest(self, log: Log, *, redo: bool = False) -> PutBack | None:
        """Plan undoing the newest turn that changed files; with `redo`, undoing the last put-back.

        None if there is nothing to do. Slow: reads files.
        """
        newest = newest_changes(log)
        seq = newest.put_back if redo else newest.changes
        return self.plan(log, seq) if seq else None

    def resume(self, past: Sequence[FilesKept | FilesChanged]) -> None:
        """Continue after these entries of the log: watch their files, and remove leftovers of a killed program."""
        self._track(change.place for entry in past if isinstance(entry, FilesChanged) for change in entry.files)
        for begun in unfinished(past):
            for change in begun.files:
                clear_leftovers(Path(change.place))

    def close(self) -> None:
        """Delete the copies of files that no command has changed."""
        for tree in self._trees:
            tree.close()
        self._kept.close()

    # Around a call

    def _track(self, paths: Iterable[str]) -> None:
        tracked = [path for path in map(Path, paths) if ".git" not in path.parts]
        for tree in self._trees:
            tree.track(tracked)

    def _touched(self, accesses: Sequence[Access]) -> tuple[list[Path], bool]:
        """The files that a call is known to change, and whether it may also change any other."""
        tree, paths = any(access.effect == "run" for access in accesses), list[Path]()
        own = [folder for folder in self._excluded if not self._root.is_relative_to(folder)]
        for path in (Path(access.target) for access in accesses if access.effect == "write"):
            if any(path.is_relative_to(folder) for folder in own):
                continue
            if path.is_dir():
                tree = True
            else:
                paths.append(path)
        return paths, tree

    def _before(self, paths: Iterable[Path], log: Log) -> tuple[FileChange, ...]:
        """The present state of the files; contents not saved since the user's newest words are saved now."""
        if self._recent.log is not log:
            self._recent = RecentChanges(log)
        past = self._recent.files()
        found: list[FileChange] = []
        for path in paths:
            seen = look_at(path, self._limits.file_bytes)
            known = past.get(str(path))
            unkept = KEPT_EARLIER
            if known is None or known.broken or seen.state not in known.possible:
                unkept = self._keep(seen)
            made = missing_folders(path) if seen.state.kind == "absent" else 0
            found.append(file_change(str(path), seen.state, seen.state, unkept, made))
        return tuple(found)

    def _keep(self, seen: FoundFile) -> str:
        """Save a file's contents; returns why not, or an empty string."""
        if seen.state.kind == "absent":
            return ""
        if seen.state.kind == "other":
            return "it cannot be read, or is not a file"
        if seen.content is None:
            return f"it is larger than {self._limits.file_bytes:,} bytes"
        return self._kept.keep(seen.content)

    async def _changed(self, kept: int, before: Sequence[FileChange], tree: bool) -> FilesChanged:
        def as_now() -> list[FileChange]:
            now = (msgspec.structs.replace(each, after=look_at(Path(each.place), 0).state) for each in before)
            return [change for change in now if change.before != change.after]

        files = await in_thread(as_now) if before else []
        gaps: list[str] = []
        if tree:
            for each in self._trees:
                changes = await each.changes()
                known = {change.place for change in before}
                files += (change for change in changes.files if change.place not in known)
                gaps += changes.gaps
        reasons: dict[str, list[str]] = {}
        for change in files:
            if change.unkept and change.unkept != KEPT_EARLIER:
                reasons.setdefault(change.unkept, []).append(change.path)
        said = list(gaps)
        for why, paths in reasons.items():
            named = first_of([shown(path, 200) for path in paths], UNKEPT_NAMED)
            said.append(f"{named} cannot be put back: {why}.")
        self._news += [text for text in said if text not in self._reported]
        self._reported.update(said)
        return FilesChanged(kept=kept, files=tuple(files), gaps=tuple(dict.fromkeys(gaps)))

    # Putting back

    @uncancelled
    async def put_back(self, planned: PutBack, record: Record, *, overwrite: bool = False) -> PutBackDone:
        """Carry out a plan, except for files that changed since. `overwrite`: also files that somebody else changed.

        The present contents are saved first. Raises `StorageError`, and then nothing was changed.
        """
        steps = planned.steps if overwrite else planned.ours
        failed: list[tuple[str, str]] = []
        ready: list[FileStep] = []
        done: list[FileStep] = []

        def keep() -> tuple[FileChange, ...]:
            changes: list[FileChange] = []
            for step in steps:
                seen = look_at(Path(step.path), self._limits.file_bytes)
                if seen.state != step.now and not (step.folder_first and seen.state.kind == "other"):
                    failed.append((step.name, "changed by somebody else just now"))
                    continue
                unkept = "" if step.folder_first else self._keep(seen)
                if unkept and step.others:
                    failed.append((step.name, f"left as it is: somebody else's changes would be lost; {unkept}"))
                    continue
                ready.append(step)
                changes.append(msgspec.structs.replace(as_change(step), unkept=unkept))
            return tuple(changes)

        def act() -> None:
            # What is removed goes first: something else may have stood in its place.
            for step in sorted(ready, key=lambda step: step.then.kind != "absent"):
                content = b"" if step.then.kind == "absent" else self._kept.read(step.then.sha256)
                if content is None:
                    failed.append((step.name, GONE))
                    continue
                try:
                    put_back(step, content)
                    done.append(step)
                except ToolFailure as failure:
                    failed.append((step.name, failure.why))

        changes = {change.place: change for change in await in_thread(keep)}
        if changes:
            kept = await record.append(FilesKept(since=planned.seq, files=tuple(changes.values())))
            await in_thread(act)
            await record.append(FilesChanged(kept=kept, files=tuple(changes[step.path] for step in done)))
        return PutBackDone(tuple(step for step in ready if step in done), tuple(failed))
