"""What one conversation is kept in: the store of its log, the view of it, its long texts, its cost."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_agent.conversation.entries import AnyEntry, Message, UnattributedCall, model_call
from tui_agent.conversation.view import View
from tui_agent.durable import in_thread
from tui_agent.models.usage import UsageTracker
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.store import MemoryStore, MemoryTexts, Store, Texts

if TYPE_CHECKING:
    from tui_agent.storage.log import LogStore

SUBTASKS: Final = "subtasks"
"""The folder, in that of a conversation, for the conversations of its subtasks."""


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
        folder: Path, *, texts: Artifacts | None = None, tracker: UsageTracker | None = None
    ) -> "DiskPersistence":
        """Open the conversation in `folder`, which is created if it is missing. Raises `StorageError`.

        One process at a time has it open. `texts`: where long texts are kept, by default in `folder` too.
        """
        from tui_agent.storage.log import LogStore

        store = await LogStore.open(folder)
        try:
            view = await _folded(await store.load())
            kept = await in_thread(lambda: DiskPersistence(store, view, texts or Artifacts(folder), tracker))
            for entries in await asyncio.to_thread(_of_subtasks, folder):
                UsageTracker(kept.tracker).record_log(entries)
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

    async def close(self) -> None:
        """Close the store. Raises `StorageError`."""
        await self.store.close()


class DiskPersistence(Persistence):
    """What a conversation on disk is kept in, made by `Persistence.on_disk`."""

    folder: Path
    store: "LogStore"
    texts: Artifacts

    def __init__(self, store: "LogStore", view: View, texts: Artifacts, tracker: UsageTracker | None) -> None:
        super().__init__(view, store=store, texts=texts, tracker=tracker)
        self.folder = store.folder


def _of_subtasks(folder: Path) -> list[list[AnyEntry]]:
    """The calls in the logs of subtasks below a conversation's folder; what cannot be read does not count."""
    from tui_agent.storage.log import log_file, read_entries

    found: list[list[AnyEntry]] = []
    for log in map(log_file, sorted((folder / SUBTASKS).glob("*"))):
        with suppress(StorageError):
            found.append([entry for entry in read_entries(log) if model_call(entry) is not None])
    return found


async def _folded(entries: Sequence[AnyEntry]) -> View:
    """The view of these entries, with everything computed that its first use would compute."""

    def fold() -> View:
        view = View(entries)
        view.sizes()
        return view

    return await in_thread(fold)
