"""A conversation that is kept in memory, without files or sqlite."""

import gc
import subprocess
import sys
import tracemalloc
import warnings

import pytest
from msgspec.structs import replace

from tests.storage.entries import conversation
from tui_agent.agent.record import Record
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.entries import user_message
from tui_agent.conversation.view import View
from tui_agent.storage.errors import Damaged
from tui_agent.storage.store import MemoryStore, MemoryTexts


async def test_a_record_needs_no_files() -> None:
    store = MemoryStore(conversation(2))
    record = Record(ContextEngine(view=View(await store.load())), store)
    assert await record.append(user_message("more"), user_message("and more")) == 7
    record.note("alert", {"text": "x"})
    await record.flush()
    await store.close()
    assert (await store.load())[:5] == conversation(2)
    assert [entry.seq for entry in await store.load()] == list(range(1, 9))
    assert (store.read_only, list(store.notices)) == ("", [])


async def test_what_was_loaded_is_the_caller_s_own() -> None:
    store = MemoryStore(conversation(1))
    (await store.load()).clear()
    assert len(await store.load()) == 3


async def test_numbers_must_follow_in_memory_too() -> None:
    store = MemoryStore(conversation(1))
    with pytest.raises(ValueError, match="cannot follow entry 3"):
        await store.append(conversation(1))
    assert len(await store.load()) == 3


def test_no_sqlite_is_imported() -> None:
    modules = "tui_agent.storage.store, tui_agent.agent.agent"
    check = f"import sys, {modules}; sys.exit('sqlite3' in sys.modules or 'aiosqlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


async def test_a_text_that_another_process_kept_in_memory_is_gone() -> None:
    texts, other = MemoryTexts(), MemoryTexts()
    saved = await texts.save("a", "text")
    assert await texts.read(saved) == "text"
    with pytest.raises(Damaged, match="was kept in the memory of a process that has ended"):
        await other.read(saved)


def test_a_temporary_folder_goes_with_the_texts_without_a_warning() -> None:
    texts = MemoryTexts()
    folder = texts.folder
    assert texts.folder == folder
    assert folder.is_dir()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del texts
        gc.collect()
    assert not folder.exists()
    assert not warned


async def test_a_long_conversation_is_packed() -> None:
    store, text = MemoryStore(), "The same words again and again. " * 60
    tracemalloc.start()
    try:
        for number in range(1, 1_000):
            await store.append([replace(user_message(f"{number} {text}"), seq=number, parent=number - 1)])
        assert tracemalloc.get_traced_memory()[0] < 999 * len(text) / 2
    finally:
        tracemalloc.stop()
    assert [entry.seq for entry in await store.load()] == list(range(1, 1_000))
