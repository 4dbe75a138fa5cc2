"""What one conversation is kept in: the store of its log, the view of it, its long texts, its cost, its subtasks."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from typing_extensions import override

from tui_agent.conversation.entries import AnyEntry, Message, UnattributedCall
from tui_agent.conversation.recalled import RecallHits
from tui_agent.conversation.view import View
from tui_agent.models.usage import UsageTracker
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.store import MemoryStore, MemoryTexts, Store, Texts
from tui_agent.system.durable import in_thread

if TYPE_CHECKING:
    from tui_agent.storage.log import LogStore

SUBTASKS: Final = "subtasks"
"""The folder, in that of a conversation, for the conversations of its subtasks."""
IN_VIEW: Final = frozenset(("verbatim", "restored"))
"""States in which the view has the full text."""

_AT_ONCE: Final = 200
"""Items checked before other tasks get a turn: a few milliseconds."""


SubtaskFolders: TypeAlias = tuple[Callable[[str], Path], Callable[[], Sequence[Path]]]
"""Where the subtasks of a conversation are: the folder of a branch, and all there are, sorted."""


class Persistence:
    """What one conversation is kept in. The parts belong together, so they are made together.

    `Persistence()` keeps it in memory, `on_disk` in a folder, `kept_by` in a store of your own. `view` is what was
    loaded; `tracker` has its usage and cost, so that limits for a whole session hold across processes. `folder` is None
    if nothing is on disk.
    """

    folder: Path | None = None

    def __init__(
        self,
        view: View | None = None,
        *,
        store: Store | None = None,
        texts: Texts | None = None,
        tracker: UsageTracker | None = None,
    ) -> None:
        """`store` has exactly the entries of `view`; see `kept_by`."""
        self.view = view or View()
        self.store = store or MemoryStore(self.view.log)
        self.texts = texts or MemoryTexts()
        self.tracker = tracker or UsageTracker()
        self.tracker.record_log(self.view.log.entries().of(Message, UnattributedCall))
        self.tracker.start_turn()

    @staticmethod
    async def on_disk(
        folder: Path,
        *,
        texts: Artifacts | None = None,
        tracker: UsageTracker | None = None,
        subtasks: SubtaskFolders | None = None,
    ) -> "DiskPersistence":
        """Open the conversation in `folder`, new if the folder is. Raises `StorageError`.

        One process at a time has it open. `texts`: where long texts are kept, by default in `folder` too. `subtasks`:
        the folders of its subtasks, by default below it.
        """
        from tui_agent.storage.log import LogStore, log_file, read_entries

        folder = folder.absolute()  # noqa: ASYNC240 (looks at no file)
        store = await LogStore.open(folder)
        try:
            view = await _folded(await store.load())
            inside = folder / SUBTASKS
            below = subtasks or ((lambda branch: inside / branch), lambda: sorted(inside.glob("*")))
            kept = await in_thread(lambda: DiskPersistence(store, view, texts or Artifacts(folder), tracker, below))

            def count() -> None:
                for log in map(log_file, below[1]()):
                    try:
                        UsageTracker(kept.tracker).record_log(read_entries(log))
                    except StorageError as error:
                        kept.problems.append(f"What a subtask has cost is not known: {error.message}")

            await asyncio.to_thread(count)
            kept.tracker.start_turn()
            return kept
        except BaseException:
            await store.close()
            raise

    @classmethod
    async def kept_by(cls, store: Store, texts: Texts) -> "Persistence":
        """Open the conversation that a store of your own has. Raises `StorageError`.

        `texts` keeps what is too long for the conversation: use one that lasts as long as `store` does.
        """
        view = await _folded(await store.load())
        return await in_thread(lambda: cls(view, store=store, texts=texts))

    async def of_subtask(self, branch: str) -> "Persistence":
        """What a subtask is kept in, whose cost counts here too. Raises `StorageError`."""
        return Persistence(tracker=UsageTracker(self.tracker))

    async def close(self) -> None:
        """Close the store. Raises `StorageError`."""
        await self.store.close()


class DiskPersistence(Persistence):
    """What a conversation on disk is kept in, made by `Persistence.on_disk`."""

    folder: Path
    store: "LogStore"
    texts: Artifacts

    def __init__(
        self, store: "LogStore", view: View, texts: Artifacts, tracker: UsageTracker | None, subtasks: SubtaskFolders
    ) -> None:
        super().__init__(view, store=store, texts=texts, tracker=tracker)
        self.folder = store.folder
        self._subtask_folder, self._subtask_folders = subtasks
        self.problems: list[str] = []
        """Sentences on what could not be read."""

    async def recall(self, query: str, limit: int) -> RecallHits:
        """The best hits for any query, also on other branches; what has left the view comes first."""
        from tui_agent.storage.recall import search

        log = self.view.log
        # The log may grow meanwhile.
        head, every = log.head, range(1, len(log) + 1)
        elsewhere = await asyncio.to_thread(lambda: set(every).difference(log.path(head).numbers))
        hidden: set[int] = set()
        for number, item in enumerate(self.view.outline()):
            if item.state not in IN_VIEW:
                hidden.add(item.seq)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return await search(self.texts, log.entries(), query, limit, hidden=hidden, elsewhere=elsewhere)

    async def recall_elsewhere(self, query: str, limit: int) -> RecallHits:
        """The best hits in the other sessions of this project, other agents' included. Raises `StorageError`."""
        from tui_agent.storage.recall import search_everywhere

        return await search_everywhere(self.folder, query, limit)

    @override
    async def of_subtask(self, branch: str) -> Persistence:
        # The gate knows the folder of this conversation alone, so large results are kept there.
        return await Persistence.on_disk(
            self._subtask_folder(branch), texts=self.texts, tracker=UsageTracker(self.tracker)
        )

    def past_subtasks(self, begins: str) -> list[tuple[str, Sequence[AnyEntry]]]:
        """The branches of subtasks that begin so, and what their logs hold, the newest last. Reads files.

        Raises `StorageError`.
        """
        from tui_agent.storage.log import log_file, read_entries
        from tui_agent.storage.sessions import subtask_branch

        branches = ((subtask_branch(folder), folder) for folder in self._subtask_folders())
        found = [(branch, list(read_entries(log_file(at)))) for branch, at in branches if branch.startswith(begins)]
        return sorted((each for each in found if each[1]), key=lambda each: each[1][-1].time)


async def _folded(entries: Sequence[AnyEntry]) -> View:
    """The view of these entries, with everything computed that its first use would compute."""

    def fold() -> View:
        view = View(entries)
        view.sizes()
        return view

    return await in_thread(fold)
