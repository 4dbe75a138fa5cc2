"""Streams of events and of lines, however their bytes come."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.models.http import events_in, lines_in, local_client

Reading = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]
EVENTS = [b'{"a": 1}', '{"b": "\u2028 é"}'.encode(), b"[DONE]"]


def read(reading: Reading, pieces: list[bytes]) -> list[bytes]:
    async def coming() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def all_of_it() -> list[bytes]:
        return [each async for each in reading(coming())]

    return asyncio.run(all_of_it())


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in pairwise(ends)]


places = st.lists(st.integers(0, 200), max_size=8)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@given(places=places)
def test_events_are_the_same_with_any_line_end_and_cut(end: bytes, mark: bytes, places: list[int]) -> None:
    told = b"".join(b"event: x" + end + b"data: " + data + end + b": kept alive" + end + end for data in EVENTS)
    assert read(events_in, cut(mark + told, places)) == EVENTS
    assert read(events_in, cut(told.removesuffix(end), places)) == EVENTS


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@given(places=places)
def test_so_are_lines(end: bytes, places: list[int]) -> None:
    assert read(lines_in, cut(b"\xef\xbb\xbf" + end.join(EVENTS), places)) == EVENTS


@given(places=places)
def test_a_whole_body_of_json_is_one_event(places: list[int]) -> None:
    body = b'{\n  "choices": [\n\n    1\n  ]\n}\n'
    assert read(events_in, cut(body, places)) == [body.removesuffix(b"\n")]


@pytest.mark.parametrize(("url", "port"), [("https://there.example/v1", 443), ("http://localhost/v1", 80)])
def test_a_local_server_is_looked_for_at_the_port_of_its_scheme(
    monkeypatch: pytest.MonkeyPatch, url: str, port: int
) -> None:
    asked: list[tuple[str, int]] = []

    def create_connection(address: tuple[str, int], timeout: float) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", create_connection)
    with pytest.raises(ConnectionRefusedError), local_client(url):
        pass
    assert [each[1] for each in asked] == [port]
