import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.storage.children import start_writer
from tui_agent.storage.errors import DiskFull, ReadOnly, SessionBusy, StorageError, explained
from tui_agent.storage.log import LogStore
from tui_agent.storage.session_lock import LOCK_NAME, SessionLock


def test_the_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    lock = SessionLock.acquire(tmp_path)
    with pytest.raises(SessionBusy) as caught:
        SessionLock.acquire(tmp_path)
    assert caught.value.pid == os.getpid()
    assert str(os.getpid()) in caught.value.message
    assert caught.value.since[:10].replace("T", " ") in caught.value.message
    assert caught.value.hint
    lock.release()
    lock.release()
    SessionLock.acquire(tmp_path).release()


def test_a_lock_that_names_nobody_is_still_a_lock(tmp_path: Path) -> None:
    lock = SessionLock.acquire(tmp_path)
    (tmp_path / LOCK_NAME).write_bytes(b"\xff{")
    with pytest.raises(SessionBusy, match="another process"):
        SessionLock.acquire(tmp_path)
    lock.release()


INHERITED = """
import os, subprocess, sys
from pathlib import Path
from tui_agent.storage.session_lock import SessionLock
lock = SessionLock.acquire(Path(sys.argv[1]))
subprocess.Popen(["cat"], pass_fds=[lock._descriptor])
os._exit(0)
"""


def test_what_a_dead_process_was_just_starting_is_waited_for(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", INHERITED, str(tmp_path)], stdin=subprocess.PIPE) as holder:
        holder.wait()
        assert SessionLock.is_held(tmp_path)
        with ThreadPoolExecutor(1) as threads:
            taking = threads.submit(SessionLock.acquire, tmp_path)
            assert holder.stdin is not None
            holder.stdin.close()
            taking.result().release()


def test_no_folder_no_lock(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        SessionLock.acquire(tmp_path / "absent")
    (tmp_path / LOCK_NAME).mkdir()
    with pytest.raises(StorageError, match="cannot be used: Is a directory"):
        SessionLock.acquire(tmp_path)


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.ENOSPC, DiskFull, "There is no space left to write /x"),
        (errno.EDQUOT, DiskFull, "There is no space left to write /x"),
        (errno.EFBIG, DiskFull, "There is no space left to write /x"),
        (errno.EROFS, ReadOnly, "/x lies on a read-only file system."),
        (errno.EACCES, ReadOnly, "/x may not be opened for writing."),
        (errno.EPERM, ReadOnly, "/x may not be opened for writing."),
        (errno.EIO, StorageError, "/x cannot be used: Input/output error."),
    ],
)
def test_errors_of_the_system_say_what_they_mean_here(number: int, kind: type[StorageError], said: str) -> None:
    with pytest.raises(StorageError) as raised, explained(Path("/x")):
        raise OSError(number, os.strerror(number))
    assert type(raised.value) is kind
    assert raised.value.message.startswith(said)
    assert bool(raised.value.hint) == (kind is not StorageError)


async def test_another_process_holds_it_until_it_dies(tmp_path: Path) -> None:
    child = start_writer(tmp_path, "append")
    assert child.stdout is not None
    child.stdout.readline()
    with pytest.raises(SessionBusy) as caught:
        await LogStore.open(tmp_path)
    assert caught.value.pid == child.pid
    beside = await LogStore.open(tmp_path, read_only=True)
    await beside.load()
    await beside.close()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    store = await LogStore.open(tmp_path)
    await store.close()
