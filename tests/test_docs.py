"""The examples in the README and in `docs/` do what they show: Python runs, command lines have flags that exist."""

import ast
import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from markdown_it import MarkdownIt

from tests.e2e.program import KEYS
from tui_agent.command_line import parse

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
SHELLS = ("console", "sh", "bash", "shell")
NOT_RUN = re.compile(r"<!-- not run: (.+) -->\s*")
MOST_NOT_RUN = 3
"""Examples that may be left unrun, over all pages."""
TIME_LIMIT_S = 120
NOT_FOLLOWED = ("acp", "anthropic", "google", "mcp", "ollama", "openai", "PIL", "pydantic", "rich", "textual")
CACHE = ROOT / ".mypy_cache" / "examples"
TOP_LEVEL_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
CELLS = re.compile(r"^(\w+ = |print\()?await ", re.MULTILINE)
"""An example for a notebook, where cells may await."""
AS_CELLS = """\
import ast, asyncio, inspect, sys

code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def main():
    await eval(code, {"__name__": "__main__"})


asyncio.run(main())
"""


class Block(NamedTuple):
    """A fenced block of a page; `not_run` is why it is not run, or empty."""

    place: str
    language: str
    text: str
    not_run: str = ""


def blocks_in(page: str, markdown: str) -> Iterator[Block]:
    """The fenced blocks; a comment `<!-- not run: reason -->` right before one says that it cannot run alone."""
    reason = ""
    for token in MarkdownIt().parse(markdown):
        if token.type == "fence":
            line = token.map[0] + 1 if token.map else 0
            yield Block(f"{page}:{line}", token.info.partition(" ")[0], token.content, reason)
        marked = NOT_RUN.fullmatch(token.content) if token.type == "html_block" else None
        reason = marked[1] if marked else ""


def command_lines(block: Block) -> Iterator[list[str]]:
    """The arguments of every `tui-agent` that a shell block runs, each up to the next pipe or operator."""
    lines = block.text.replace("\\\n", " ").splitlines()
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in prompted or lines:  # where there are prompts, the other lines are what was printed
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        arguments: list[str] | None = None
        for word in words:
            if set(word) <= set("();<>|&"):
                if arguments is not None:
                    yield arguments
                arguments = None
            elif arguments is not None:
                arguments.append(word)
            elif Path(word).name == "tui-agent":
                arguments = []
        if arguments is not None:
            yield arguments


BLOCKS = [block for page in PAGES for block in blocks_in(page.name, page.read_text(encoding="utf-8"))]
PYTHON = [block for block in BLOCKS if block.language in ("python", "py") and not block.not_run]
LIBRARY = [block for block in PYTHON if block.place.startswith("library.md")]
COMMANDS = [block for block in BLOCKS if block.language in SHELLS and any(command_lines(block))]


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.place)
def test_an_example_runs(block: Block, tmp_path: Path) -> None:
    """In a folder of its own with a README, at home nowhere, with the offline model and no way out to a network."""
    here = tmp_path / "project"
    here.mkdir()
    (here / "README.md").write_text("# A demonstration\n\nIt adds numbers.\n")
    (tmp_path / "example.py").write_text(block.text, encoding="utf-8")
    (tmp_path / "cells.py").write_text(AS_CELLS, encoding="utf-8")
    started = [tmp_path / "cells.py"] if CELLS.search(block.text) else []
    own = {name: value for name, value in os.environ.items() if name not in KEYS and not name.startswith("TUI_AGENT")}
    nowhere = "http://127.0.0.1:9"
    done = subprocess.run(
        [sys.executable, "-P", *map(str, started), str(tmp_path / "example.py")],
        cwd=here,
        env={
            **own,
            "HOME": str(tmp_path),
            "TUI_AGENT_HOME": str(tmp_path / "home"),
            "TUI_AGENT_OFFLINE_DELAY_S": "0",
            "PYTHONPATH": str(ROOT),
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "NO_PROXY": "127.0.0.1,localhost",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_the_examples_of_the_library_are_typed_and_use_public_names_only(tmp_path: Path) -> None:
    for number, block in enumerate(LIBRARY):
        (tmp_path / f"example_{number}.py").write_text(f"# {block.place}\n{block.text}", encoding="utf-8")
        imported = {
            module
            for node in ast.walk(compile(block.text, block.place, "exec", ast.PyCF_ONLY_AST | TOP_LEVEL_AWAIT))
            for module in ([node.module] if isinstance(node, ast.ImportFrom) else [])
            if module and module.startswith("tui_agent.")
        }
        assert not imported, block.place
    # What the package itself imports is checked with it; its own types are what the examples use.
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\n[mypy-{','.join(f'{name}.*' for name in NOT_FOLLOWED)}]\nfollow_imports = skip\n")
    options = ["--strict", "--disable-error-code=top-level-await", f"--config-file={config}", f"--cache-dir={CACHE}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "."], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: block.place)
def test_a_command_line_can_be_read(block: Block) -> None:
    for arguments in command_lines(block):
        with contextlib.suppress(SystemExit):  # --help and --version
            parse(arguments)


def test_few_examples_are_not_run_and_each_says_why() -> None:
    assert PYTHON
    assert COMMANDS
    left = [block for block in BLOCKS if block.not_run]
    assert len(left) <= MOST_NOT_RUN, "\n".join(f"{block.place}: {block.not_run}" for block in left)
    assert [block.place for block in left if block.language not in ("python", "py")] == []
    marks = sum(page.read_text(encoding="utf-8").count("<!-- not run") for page in PAGES)
    assert marks == len(left), "a mark must stand right before its block, with a reason"


PAGE = """\
<!-- not run: it needs a key -->
```python
ask()
```

- A list:

  ```console
  $ git diff | .venv/bin/tui-agent -p "a | b" --model offline > answer.txt && tui-agent sessions --json
  $ tui-agent \\
      -c
  what's printed, such as `tui-agent --no-such-flag`
  ```
"""


def test_blocks_are_found_with_their_language_and_mark_and_command_lines_in_them() -> None:
    code, shell = blocks_in("page.md", PAGE)
    assert (code.place, code.language, code.not_run) == ("page.md:2", "python", "it needs a key")
    assert (shell.place, shell.language, shell.not_run) == ("page.md:8", "console", "")
    assert list(command_lines(shell)) == [["-p", "a | b", "--model", "offline"], ["sessions", "--json"], ["-c"]]
