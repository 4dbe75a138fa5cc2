"""The language servers that people have, where they are: `make languages` gets them from their registries."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.agent.talking import say, talking
from tests.tools.lsp.test_lookups import asking, texts
from tui_agent.agent.commands.table import run_command
from tui_agent.settings import GivenValue
from tui_agent.system.programs import find_program

FOLDER = Path(__file__).parents[3] / "build/languages"


Case: TypeAlias = tuple[Mapping[str, str], tuple[str, str], tuple[str, str]]
CASES: dict[str, Case] = {
    "basedpyright-langserver": (
        {"one.py": "def count(n: int) -> int:\n    return n\n", "two.py": "import one\n\nprint(one.count(1) + 1)\n"},
        ("-> int", "-> str"),
        ("two.py:3:", "not supported"),
    ),
    "typescript-language-server": (
        {
            "tsconfig.json": "{}",
            "one.ts": "export const count = (n: number) => n;\n",
            "two.ts": "import { count } from './one';\nexport const more: number = count(1);\n",
        },
        ("=> n;", "=> String(n);"),
        ("two.ts:2:", "not assignable"),
    ),
    "gopls": (
        {
            "go.mod": "module shop\n",
            "one.go": "package shop\n\nfunc count(n int) int { return n }\n",
            "two.go": "package shop\n\nvar more int = count(1)\n",
        },
        ("count(n int) int", "counted(n int) int"),
        ("two.go:3:", "count"),
    ),
    "clangd": (
        {"one.h": "int count(int n);\n", "two.c": '#include "one.h"\nint more(void) { return count(1); }\n'},
        ("int count(int n)", "int count(int n, int m)"),
        ("two.c:2:", "Too few arguments"),
    ),
}
"""By server: a project of two files, an edit of the first, and where in which file that breaks what."""


@pytest.mark.parametrize("server", CASES)
async def test_it_tells_what_an_edit_breaks_elsewhere_and_where_names_are_used(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, (old, new), (broken, message) = CASES[server]
    for folder in (Path(sys.executable).parent, FOLDER / "bin", FOLDER / "node_modules/.bin"):
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    if find_program(server) is None:
        pytest.skip(f"{server} is not here: make languages")
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    settings: dict[str, GivenValue] = {"diagnostics.wait_s": 60.0}
    project = tmp_path / "project"
    project.mkdir()
    for name, text in files.items():
        (project / name).write_text(text)
    first, second = [name for name in files if name.startswith(("one", "two"))]
    async with talking(tmp_path, settings) as session:
        if server == "clangd":  # it reads other files from the disk, so it has to have seen them before
            await say(session, f'replace "count(int n)" with "count( int n)" in {first}')
            await say(session, f'replace "count( int n)" with "count(int n)" in {first}')
        told = texts(await say(session, f'replace "{old}" with "{new}" in {first}'))
        assert broken in told
        assert message in told
        assert "new problem" not in texts(await say(session, f'replace "{new}" with "{old}" in {first}'))
        line = next(n for n, text in enumerate(files[first].splitlines(), 1) if "count" in text)
        uses = texts(await say(session, asking("references", path=first, line=line, name="count")))
        assert f"{second}:" in uses or server == "clangd", "whose index of other files comes later"
        assert f"{line}: " in texts(await say(session, asking("symbols", path=first)))
        assert f"{server}: running" in (await run_command(session.agent, "/diagnostics")).text
