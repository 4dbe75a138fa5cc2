"""The language servers that are known, and where they are found. None is ever installed."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.system.programs import find_program

LANGUAGES: Final[Mapping[str, str]] = {
    ".py": "python",
    ".pyi": "python",
    ".ts": "typescript",
    ".tsx": "typescriptreact",
    ".mts": "typescript",
    ".js": "javascript",
    ".jsx": "javascriptreact",
    ".mjs": "javascript",
    ".go": "go",
    ".rs": "rust",
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".hpp": "cpp",
}
"""The language identifier of a file, by its suffix."""

TYPESCRIPT: Final = "typescript-language-server"


class Program(msgspec.Struct, frozen=True):
    """A language server: how it is started, and the languages it is asked about.

    waits: it says when it has read the project, and knows little before. looks_up: it knows where names are defined.
    """

    arguments: tuple[str, ...]
    languages: tuple[str, ...]
    waits: bool = False
    looks_up: bool = True

    @property
    def name(self) -> str:
        return self.arguments[0]

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of the files it is asked about."""
        return tuple(suffix for suffix, language in LANGUAGES.items() if language in self.languages)


_SCRIPTS: Final = ("typescript", "typescriptreact", "javascript", "javascriptreact")
PROGRAMS: Final = (
    # Of those that do the same, the first that is found and starts is asked.
    (
        Program(("basedpyright-langserver", "--stdio"), ("python",)),
        Program(("pyright-langserver", "--stdio"), ("python",)),
    ),
    (Program(("ruff", "server"), ("python",), looks_up=False),),
    (
        Program((TYPESCRIPT, "--stdio"), _SCRIPTS),
        Program(("tsc", "--lsp", "--stdio"), _SCRIPTS),  # from 7 on, for which the other one does not start
    ),
    (Program(("gopls",), ("go",), waits=True),),
    (Program(("rust-analyzer",), ("rust",), waits=True),),
    (Program(("clangd",), ("c", "cpp")),),
)


class Project(msgspec.Struct, frozen=True):
    """A project's folder. Only if it is `trusted` is anything in it run."""

    root: Path
    trusted: bool

    def programs(self, path: Path) -> list[list[Program]]:
        """The servers there are for a file, those that do the same together."""
        language = LANGUAGES.get(path.suffix)
        return [
            [each for each in alike if language in each.languages and self.path_of(each.name) is not None]
            for alike in PROGRAMS
        ]

    def path_of(self, name: str) -> str | None:
        """The path of a program: the project's own, or on PATH."""
        own = (self.root / ".venv/bin", self.root / "node_modules/.bin") if self.trusted else ()
        return next(filter(None, (shutil.which(name, path=str(folder)) for folder in own)), None) or find_program(name)

    def options(self, program: Program) -> Mapping[str, object]:
        """What a server is told at its start, so that it runs nothing of a project that is not trusted, writes nothing,
        and finds what it needs. Raises OSError where it cannot.
        """
        if program.name == "rust-analyzer":
            # Build scripts and macros are the project's programs; nothing may be written into its folder.
            builds = {"procMacro": {"enable": False}, "cargo": {"buildScripts": {"enable": False}}}
            return {"checkOnSave": False, **({} if self.trusted else builds)}
        if program.name == TYPESCRIPT:
            compiler = find_program("tsc")
            library = str(Path(compiler).resolve().parents[1] / "lib") if compiler else ""
            if not self.trusted:
                if not library:
                    raise FileNotFoundError("the project's own TypeScript is used only if you trust it (/trust)")
                return {"tsserver": {"path": library}}
            return {"tsserver": {"fallbackPath": library}} if library else {}
        return {}

    def configuration(self, section: str) -> Mapping[str, object] | None:
        """The server's settings of this name: where Python's packages are."""
        environment = self.root / ".venv"
        if section != "python" or not environment.is_dir():
            return None
        if self.trusted:
            return {"pythonPath": str(environment / "bin/python")}
        return {"analysis": {"extraPaths": list(map(str, environment.glob("lib/python*/site-packages")))}}
