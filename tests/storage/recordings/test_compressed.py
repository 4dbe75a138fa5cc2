"""Compressed recordings, as codex leaves those of last week: read as the plain ones, with Python and with a program."""

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tui_agent.cli import main
from tui_agent.replay.many import find, hash_of
from tui_agent.storage.recordings.reading import head_of, read_file
from tui_agent.storage.recordings.recording import UnreadableRecording

MODULES = ("compression.zstd", "backports.zstd")
zstd = import_module(MODULES[0] if sys.version_info >= (3, 14) else MODULES[1])
WORDS = "a word that is there again " * 4_000


@pytest.fixture
def rollout(tmp_path: Path) -> Path:
    """A session of codex beside the same one compressed, in two parts as after it went on."""
    lines = [
        {"type": "session_meta", "timestamp": "2026-01-02T03:04:05Z", "payload": {"id": "1", "cwd": "/srv/shop"}},
        *(
            {
                "type": "response_item",
                "timestamp": "2026-01-02T03:04:06Z",
                "payload": {"type": "message", "role": role, "content": [{"type": kind, "text": text}]},
            }
            for role, kind, text in (("user", "input_text", "Count."), ("assistant", "output_text", WORDS))
        ),
    ]
    folder = tmp_path / ".codex/sessions/2026/01/02"
    folder.mkdir(parents=True)
    plain = folder / "rollout-1.jsonl"
    parts = [f"{json.dumps(line)}\n".encode() for line in lines]
    plain.write_bytes(b"".join(parts))
    plain.with_name("rollout-1.jsonl.zst").write_bytes(zstd.compress(parts[0]) + zstd.compress(b"".join(parts[1:])))
    return plain


@pytest.fixture(params=["module", "program"])
def packed(rollout: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "program":
        if shutil.which("zstd") is None:
            pytest.skip("there is no program zstd")
        for name in MODULES:
            monkeypatch.setitem(sys.modules, name, None)
    return rollout.with_name("rollout-1.jsonl.zst")


def test_a_compressed_session_is_read_as_the_plain_one(rollout: Path, packed: Path) -> None:
    assert [each.blocks for each in read_file(packed).messages] == [each.blocks for each in read_file(rollout).messages]
    assert head_of(packed, 5_000) == rollout.read_bytes()[:5_000]
    assert hash_of(packed) == hash_of(rollout)


def test_a_broken_one_is_named(packed: Path) -> None:
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(UnreadableRecording, match=r"rollout-1\.jsonl\.zst cannot be unpacked"):
        read_file(packed)


def test_the_sessions_of_codex_are_found_compressed_or_not_each_once(
    rollout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TUI_AGENT_HOME", str(tmp_path / "home"))
    # The program starts nothing that lies in its working folder.
    monkeypatch.chdir(tmp_path)
    assert len(find([], ["codex"], tmp_path)) == len(find([str(tmp_path / ".codex")], [], tmp_path)) == 1
    rollout.unlink()
    assert [each.path.name for each in find([], ["codex"], tmp_path)] == ["rollout-1.jsonl.zst"]
    assert main(["sessions", "import", str(rollout.with_name("rollout-1.jsonl.zst"))]) == 0
    assert "recorded by codex: 2 messages" in capsys.readouterr().out


def test_what_is_missing_to_read_it_is_said(rollout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MODULES:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("PATH", "/nowhere")
    packed = rollout.with_name("rollout-1.jsonl.zst")
    with pytest.raises(UnreadableRecording, match=r"Install the program zstd, or `pip install 'tui-agent\[zstd\]'`"):
        read_file(packed)
    assert len(hash_of(packed)) == 32
