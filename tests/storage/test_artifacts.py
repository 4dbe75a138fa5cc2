import asyncio
import stat
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.storage.files import names
from tui_agent.conversation.entries import Artifact
from tui_agent.storage.artifacts import Artifacts, safe_name
from tui_agent.storage.errors import Damaged, StorageError

HOSTILE = [
    "../../etc/passwd",
    "/etc/passwd",
    "",
    ".",
    "..",
    "a\0b",
    "CON",
    "nul",
    "x" * 500,
    "é/ü",
    "a:b",
    "~",
    "\ud800",
]


async def test_what_is_saved_is_whole_and_read_back(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    text = "first\r\nlast \u00e4\x1b[0m\n"
    artifact = await artifacts.save("toolu_01", text, evicted=True)
    data = text.encode()
    assert artifact == Artifact("large_tool_results/toolu_01", len(data), sha256(data).hexdigest(), True)
    assert (tmp_path / artifact.path).read_bytes() == data
    assert stat.S_IMODE((tmp_path / artifact.path).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "large_tool_results").stat().st_mode) == 0o700
    assert await artifacts.read(artifact) == text


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    artifacts = Artifacts(tmp_path / "s")
    artifact = await artifacts.save(name, f"text of {name!r}")
    assert (tmp_path / "s" / artifact.path).parent == tmp_path / "s" / "large_tool_results"
    assert await artifacts.read(artifact) == f"text of {name!r}"
    assert names(tmp_path) == ["s"]


@given(st.text(max_size=30), st.text(max_size=30))
def test_different_names_stay_different(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)
    assert safe_name(one)
    assert len(safe_name(one)) <= 100


async def test_the_same_text_is_kept_once_and_nothing_is_overwritten(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    first = await artifacts.save("a", "one")
    assert await artifacts.save("b", "one") == first
    second = await artifacts.save("a", "two")
    assert second.path != first.path
    assert await artifacts.save("a", "two") == second
    assert (await artifacts.read(first), await artifacts.read(second)) == ("one", "two")
    assert len(names(tmp_path / "large_tool_results")) == 2


async def test_a_changed_or_missing_file_is_said(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    artifact = await artifacts.save("a", "one")
    (tmp_path / artifact.path).write_text("oNe")
    with pytest.raises(Damaged, match="SHA-256"):
        await artifacts.read(artifact)
    (tmp_path / artifact.path).unlink()
    with pytest.raises(StorageError):
        await artifacts.read(artifact)
    with pytest.raises(Damaged, match="folder"):
        await artifacts.read(Artifact("../../etc/hostname", 1, ""))


async def test_history_grows(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    path = await artifacts.append_history("main", "# one\n")
    assert await artifacts.append_history("main", "# two\n") == path == "conversation_history/main.md"
    assert (tmp_path / path).read_text() == "# one\n# two\n"
    assert await artifacts.append_history("s:sub:x", "y") != path


async def test_parallel_saves_of_one_name(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    saved = await asyncio.gather(*(artifacts.save("same", f"text {number % 5}") for number in range(20)))
    assert len({artifact.path for artifact in saved}) == 5
    for number, artifact in enumerate(saved):
        assert await artifacts.read(artifact) == f"text {number % 5}"


async def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "large_tool_results").write_text("in the way")
    with pytest.raises(StorageError):
        await Artifacts(tmp_path).save("a", "one")
