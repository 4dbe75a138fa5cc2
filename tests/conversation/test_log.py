"""A log reads the same however it is held."""

import sys
from threading import Event, Thread

from tui_agent.conversation.entries import AnyEntry, HeadMoved, Message, Prefix, user_message
from tui_agent.conversation.log import BLOCK_ENTRIES, UNPACKED_ENTRIES, Log
from tui_agent.conversation.view import View

COUNT = UNPACKED_ENTRIES + 5 * BLOCK_ENTRIES + 3


def long_log() -> Log:
    log = Log()
    log.append(log.stamp(Prefix(system="rules"), 1.0))
    for number in range(1, COUNT):
        entry: AnyEntry = HeadMoved(to=number - 2) if number in (30, COUNT - 5) else user_message(f"words {number}")
        log.append(log.stamp(entry, float(number)))
    return log


def test_what_is_packed_reads_as_what_is_not() -> None:
    plain, packed = long_log(), long_log()
    packed.pack()
    assert list(packed) == list(plain) == [packed[seq] for seq in range(1, COUNT + 1)]
    assert [each.seq for each in packed.path()] == list(packed.path().numbers) == list(plain.path().numbers)
    assert View(packed.entries()).messages() == View(plain).messages()
    for log in (packed, packed.copy()):
        log.append(log.stamp(user_message("one more"), 2.0))
        log.pack(unpacked=0)
        assert list(log)[:-1] == list(plain)
    assert len(plain) == COUNT


def test_entries_are_a_part_of_their_log_as_it_was() -> None:
    log = long_log()
    log.pack(unpacked=0)
    entries = log.entries()
    copied = Log.of(entries)
    log.append(log.stamp(user_message("one more"), 2.0))
    assert len(entries) == len(copied) == COUNT
    assert list(entries[10:13]) == [log[11], log[12], log[13]]
    assert list(entries.after(COUNT - 2)) == [log[COUNT - 1], log[COUNT]]
    assert [each.seq for each in entries.of(HeadMoved)] == [31, COUNT - 4]
    assert [type(each) for each in entries[29:32].of(HeadMoved, Message)] == [Message, HeadMoved, Message]
    assert list(Log.of(list(entries))) == list(Log.of(entries[:COUNT])) == list(entries)


def test_a_copy_is_whole_while_others_append_and_pack() -> None:
    log, over = Log(), Event()

    def append() -> None:
        for number in range(20_000):
            log.append(log.stamp(HeadMoved(to=number // 2) if number % 7 == 0 else user_message("words"), 0.0))
            if not log.is_packed:
                log.pack()
        over.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    writer = Thread(target=append)
    writer.start()
    try:
        while not over.is_set():
            copied = log.copy()
            count = len(copied)
            copied.append(copied.stamp(user_message("one more"), 1.0))
            assert [each.seq for each in copied.entries()[-40:]] == list(range(max(1, count - 38), count + 2))
            newest = log[count] if count else None
            assert copied[count + 1].parent == (newest.to if isinstance(newest, HeadMoved) else count)
    finally:
        writer.join()
        sys.setswitchinterval(interval)
