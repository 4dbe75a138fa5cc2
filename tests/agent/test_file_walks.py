"""Files put back after random walks: what is promised is done byte for byte, and nothing else changes."""

from pathlib import Path

import pytest

from tests.agent.file_walks import Walk, go

TURNS = 5
PARTS, WALKS = 3, 4
SOAK_PARTS, SOAK_WALKS, SOAK_TURNS = 10, 20, 9


def walks(folder: Path, seeds: range, turns: int) -> None:
    put_back = 0
    for seed in seeds:
        (folder / str(seed)).mkdir()
        put_back += go(Walk(folder / str(seed), seed), turns)
    assert put_back, "nothing was ever put back"


@pytest.mark.parametrize("part", range(PARTS))
def test_a_dozen_walks(part: int, tmp_path: Path) -> None:
    walks(tmp_path, range(part * WALKS, (part + 1) * WALKS), TURNS)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(SOAK_PARTS))
def test_two_hundred_walks(part: int, tmp_path: Path) -> None:
    walks(tmp_path, range(1_000 + part * SOAK_WALKS, 1_000 + (part + 1) * SOAK_WALKS), SOAK_TURNS)
