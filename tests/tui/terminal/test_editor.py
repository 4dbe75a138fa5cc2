"""The user's editor, played by a shell script."""

# ruff: noqa: ASYNC110 - processes and their files tell nobody when they change

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tui_agent.tui.terminal import editor
from tui_agent.tui.terminal.editor import EditorFailure, edited, editor_command

SHELL = ["/bin/sh", "-c"]


@pytest.mark.parametrize(
    ("script", "draft", "text"),
    [
        ('printf "%s\\n" "$(cat "$0") more" >"$0"', "a draft", "a draft more"),
        ('printf "\\n" >>"$0"', "a draft\n", "a draft\n\n"),
        ("true", "a draft", "a draft"),
        ('printf "\\377" >"$0"', "", "\ufffd"),
        ('test "$(basename "$0")" = prompt.md && test -z "$SECRET_KEY" && printf "%s" "$COLORTERM" >"$0"', "a", "full"),
    ],
)
async def test_what_the_editor_wrote_is_the_draft(script: str, draft: str, text: str) -> None:
    environ = {"PATH": "/usr/bin:/bin", "SECRET_KEY": "s", "COLORTERM": "full"}
    assert await edited(draft, [*SHELL, script], environ) == text


async def test_only_the_user_can_read_the_file_and_it_is_gone_afterwards() -> None:
    seen = await edited("", [*SHELL, 'stat -c "%a %n" "$0" >"$0"'], os.environ)
    mode, path = seen.split(" ")
    assert mode == "600"
    assert not Path(path).parent.exists()


@pytest.mark.parametrize(
    ("script", "why", "kept"),
    [
        ('printf x >>"$0"; exit 3', "/bin/sh ended with 3", ["ax"]),
        ("exit 1", "/bin/sh ended with 1", []),
        ('rm "$0"; exit 1', "/bin/sh ended with 1", []),
        ('rm "$0"', "its file in .* cannot be used: No such file", []),
        ('printf 123456789 >"$0"', "the text is longer than 0 MiB", []),
    ],
)
async def test_a_failed_editor_says_why_and_what_it_wrote_is_kept(
    script: str, why: str, kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editor, "MAX_DRAFT_BYTES", 8)
    told: list[str] = []
    with pytest.raises(EditorFailure, match=why):
        await edited("a", [*SHELL, script], os.environ, told.append)
    assert told == kept


async def test_an_editor_that_is_left_is_ended_and_what_it_wrote_is_kept(tmp_path: Path) -> None:
    told: list[str] = []
    script = f'trap "" TERM; printf x >>"$0"; echo $$ >{tmp_path}/pid; while :; do sleep 0.01; done'
    editing = asyncio.create_task(edited("a", [*SHELL, script], os.environ, told.append))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        await asyncio.sleep(0.01)
    editing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await editing
    assert told == ["ax"]
    await asyncio.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_an_editor_that_ends_at_the_moment_it_is_left_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def seen(*command: str, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*command, **options))
        return started[0]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", seen)
    editing = asyncio.create_task(edited("a", [*SHELL, "true"], os.environ))
    while not started or started[0].returncode is None:
        await asyncio.sleep(0)
    editing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await editing


@pytest.mark.parametrize("command", [["/nowhere/editor"], ["/dev/null"], ["/bin/sh\0"]])
async def test_an_editor_that_is_none_says_so(command: list[str]) -> None:
    with pytest.raises(EditorFailure, match="cannot be started: "):
        await edited("a", command, os.environ)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"EDITOR": "ed -s"}, ["ed", "-s"]),
        ({"EDITOR": "ed", "VISUAL": "no-such-visual 'a b'"}, ["no-such-visual", "a b"]),
        ({"EDITOR": " "}, ["nano"]),
        ({}, ["nano"]),
        ({"EDITOR": "'"}, []),
    ],
)
def test_which_editor_is_started(
    variables: dict[str, str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EditorFailure, match="There is no editor"):
        editor_command({})
    for name in ("ed", "vi", "nano"):
        (tmp_path / name).touch(mode=stat.S_IRWXU)
    if words:
        first, *rest = editor_command({**variables, "PATH": str(tmp_path)})
        assert [Path(first).name, *rest] == words
    else:
        with pytest.raises(EditorFailure, match="EDITOR cannot be read"):
            editor_command(variables)
