"""A process that appends to a session for ever and says on standard output what is acknowledged.

``python writer.py FOLDER append|hold|full``
"""

import asyncio
import resource
import sys
from pathlib import Path

from tui_agent.conversation.entries import AnyEntry, user_message
from tui_agent.conversation.log import Log
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LogStore


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def append(folder: Path) -> None:
    """Append in batches of one to three entries; print the number of the last one each time."""
    store = await LogStore.open(folder)
    log = Log(await store.load())
    say(f"loaded {len(log)}")
    while True:
        batch: list[AnyEntry] = []
        for number in range(1 + len(log) % 3):
            message = user_message(f"entry {len(log)}.{number} " + "x" * (len(log) % 3000))
            batch.append(log.stamp(message, 1.0, after=batch))
        await store.append(batch)
        for entry in batch:
            log.append(entry)
        say(log.head)


async def hold(folder: Path) -> None:
    """Open the session, leave every connection open, and come to the end of the program."""
    store = await LogStore.open(folder)
    await store.load()
    say("open")
    KEPT.append(store)


async def full(folder: Path) -> None:
    """Append until no file may grow any more; print what is acknowledged, then what the error says."""
    store = await LogStore.open(folder)
    log = Log(await store.load())
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
    try:
        while True:
            entry = log.stamp(user_message("y" * 20_000), 1.0)
            await store.append([entry])
            log.append(entry)
            say(log.head)
    except StorageError as error:
        say(f"{type(error).__name__}|{error.message}|{error.hint}|{store.last_seq}")
    await store.close()


KEPT: list[object] = []

if __name__ == "__main__":
    asyncio.run({"append": append, "hold": hold, "full": full}[sys.argv[2]](Path(sys.argv[1])))
