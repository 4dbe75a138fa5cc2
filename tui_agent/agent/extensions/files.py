"""The folders of commands, agents, styles and hooks: in the project, if it is trusted, and in the user's folder."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.conversation.blocks import valid_text
from tui_agent.settings.brought import plugin_places
from tui_agent.system.durable import make_private_folder
from tui_agent.system.regular import read_at_most
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import open_file
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.notes.front_matter import split_front_matter
from tui_agent.tools.notes.skills import SKILL_FILE, SKILLS_FOLDER, SkillFolder, signature_of

MOST_FILES: Final = 200
"""The most files read in one folder."""
MOST_BYTES: Final = 262_144
"""The most bytes of one file."""

AGENTS: Final = "agents"
"""The subfolder for agents."""
COMMANDS: Final = "commands"
"""The subfolder for slash commands."""
STYLES: Final = "styles"
"""The subfolder for output styles: Markdown files that tell the model how to write its answers."""

Source: TypeAlias = Literal["project", "yours"]
Kind: TypeAlias = Literal["own", "claude", "plugin"]

_ELSEWHERE: Final = {STYLES: "output-styles"}
"""The names that subfolders have in folders of Claude Code, where they differ."""


class ExtensionFolder(msgspec.Struct, frozen=True):
    """A folder of extensions: the user's, or the project's, whose links must not lead outside `within`.

    kind: how it is laid out, as ours, as Claude Code's `.claude`, or as one of its plugins. prefix: put before the
    names of what a plugin brings. data: where a plugin keeps what outlasts its updates.
    """

    folder: Path
    source: Source
    within: Path | None = None
    kind: Kind = "own"
    prefix: str = ""
    data: Path | None = None

    def subfolder(self, name: str) -> Path:
        return self.folder / (name if self.kind == "own" else _ELSEWHERE.get(name, name))


class MarkdownFile(msgspec.Struct, frozen=True):
    """A Markdown file with its front matter parsed. `problem`: why it cannot be used; empty if it can. `file`: with all
    links followed. `root`: the folder of extensions that it is in.
    """

    name: str
    keys: dict[str, str]
    text: str
    source: Source
    problem: str = ""
    file: Path = Path()
    root: ExtensionFolder | None = None

    @property
    def description(self) -> str:
        return self.key("description")

    def key(self, *names: str) -> str:
        """The value, on one line, of the first of these keys that is set."""
        found = next((self.keys[name] for name in names if self.keys.get(name)), "")
        return shown(" ".join(valid_text(found).split()), 1_000)


def markdown_files(extensions: tuple[ExtensionFolder, ...], subfolder: str) -> tuple[MarkdownFile, ...]:
    """The Markdown files in `subfolder` of each folder of extensions, by name; for equal names, the first folder wins.

    A file in a folder below is called ``folder:name``. Reads files: call it in a thread. Never raises.
    """
    found = {name: _read(name, path, root) for name, (path, root) in named_files(extensions, subfolder).items()}
    return tuple(found[name] for name in sorted(found))


def named_files(extensions: tuple[ExtensionFolder, ...], subfolder: str) -> dict[str, tuple[Path, ExtensionFolder]]:
    """What `markdown_files` reads, by name: each file, with all links followed, and its folder of extensions. Cheap."""
    found: dict[str, tuple[Path, ExtensionFolder]] = {}
    for root in extensions:
        for name, path in _files(root, subfolder):
            found.setdefault(f"{root.prefix}{name}", (path, root))
    return found


def style_text(extensions: tuple[ExtensionFolder, ...], name: str) -> str:
    """The text of the style of this name; empty if there is none. Reads files: call it in a thread."""
    styles = markdown_files(extensions, STYLES) if name else ()
    return next((style.text for style in styles if style.name == name and not style.problem), "")


def signature(extensions: tuple[ExtensionFolder, ...], *subfolders: str) -> tuple[object, ...]:
    """A value that changes whenever a file is added, removed or written. Cheap: reads no file."""
    files = (path for root in extensions for name in subfolders for _, path in _files(root, name))
    return tuple(map(signature_of, files))


def is_there(found: tuple[object, ...]) -> bool:
    """Whether a file had this state because it was there."""
    return len(found) > 2


def contents(root: ExtensionFolder, path: Path) -> bytes | None:
    """At most `MOST_BYTES` of a file; None if there is none, or it leads out. Raises `ToolFailure`, `OSError`."""
    real = Path(os.path.realpath(path))
    if not real.is_file() or _leads_out(root, real):
        return None
    with open_file(real) as stream:
        return read_at_most(stream, MOST_BYTES)


def _files(root: ExtensionFolder, subfolder: str) -> Iterator[tuple[str, Path]]:
    """The names and real paths of the Markdown files in a subfolder and in the folders directly below it, and of those
    that a plugin's manifest names.
    """
    listed: list[tuple[str, str]] = []
    for folder in (root.subfolder(subfolder), *_named(root, subfolder)):
        if folder.suffix == ".md":
            listed.append((folder.name, str(folder)))
            continue
        for entry in _entries(folder):
            if entry.name.endswith(".md"):
                listed.append((entry.name, entry.path))
            elif not entry.name.startswith(".") and entry.is_dir():
                inside = (below for below in _entries(Path(entry.path)) if below.name.endswith(".md"))
                listed += ((f"{entry.name}:{below.name}", below.path) for below in inside)
    for name, path in listed:
        real, called = Path(os.path.realpath(path)), name.removesuffix(".md")
        if called.strip() and not called.startswith(".") and real.is_file() and not _leads_out(root, real):
            yield "".join(called.lower().split()), real


def _named(root: ExtensionFolder, subfolder: str) -> list[Path]:
    """The files and folders in place of a subfolder that the manifest of a plugin names."""
    if root.kind != "plugin":
        return []
    named = plugin_places(root.folder, "outputStyles" if subfolder == STYLES else subfolder)
    return [each for each in named if each != root.subfolder(subfolder)]


def skill_folders(root: ExtensionFolder) -> tuple[SkillFolder, ...]:
    """Where a folder of extensions has skills: in the usual subfolder, and where a plugin's manifest says, which names
    folders of skills and single ones. Reads files.
    """
    usual = SkillFolder(root.subfolder(SKILLS_FOLDER), within=root.within)
    named = (
        SkillFolder(each.parent, root.within, each.name)
        if (each / SKILL_FILE).is_file() and each.name
        else SkillFolder(each, root.within)
        for each in _named(root, SKILLS_FOLDER)
        if each.parent != usual.path
    )
    return (usual, *named)


def _leads_out(root: ExtensionFolder, real: Path) -> bool:
    return root.within is not None and not real.is_relative_to(os.path.realpath(root.within))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, MOST_FILES), key=lambda entry: entry.name)
    except OSError:
        return []


def with_places(text: str, root: ExtensionFolder, skill: Path | None = None) -> str:
    """A text with the places that Claude Code fills in: where its plugin is, and the skill's own folder."""
    if root.kind == "plugin":
        text = text.replace("${CLAUDE_PLUGIN_ROOT}", str(root.folder))
    if root.data is not None and "${CLAUDE_PLUGIN_DATA}" in text:
        with suppress(OSError):
            make_private_folder(root.data)
        text = text.replace("${CLAUDE_PLUGIN_DATA}", str(root.data))
    return text.replace("${CLAUDE_SKILL_DIR}", str(skill)) if skill is not None else text


def _read(name: str, file: Path, root: ExtensionFolder) -> MarkdownFile:
    name, source = shown(name, 64), root.source
    try:
        with open_file(file) as stream:
            text = read_at_most(stream, MOST_BYTES).decode(errors="replace")
    except (ToolFailure, OSError) as error:
        return MarkdownFile(name, {}, "", source, str(error), file, root)
    keys, body = split_front_matter(text)
    text = with_places(valid_text(body).strip(), root)
    return MarkdownFile(name, keys, text, source, "" if text else "it says nothing", file, root)
