"""Finding skills: folders with a ``SKILL.md`` that says how to do one kind of task (the open Agent Skills format).

The model first sees only a skill's name and description; the text enters the context when it reads the file.
"""

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import msgspec

from tui_agent.conversation.blocks import valid_text
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import open_file
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.notes.front_matter import split_front_matter

SKILL_FILE = "SKILL.md"
SKILLS_FOLDER = "skills"
"""The subfolder for skills."""
MAX_SKILLS = 500
"""The most skills that are read in one folder."""
MAX_DESCRIPTION = 1_024
"""The most characters of a description (the limit of the Agent Skills format)."""

_HEAD = 65_536


class SkillFolder(msgspec.Struct, frozen=True):
    """A folder of skills.

    With all links followed, a skill must be in the folder `within`: a project's skills may not be outside the project.
    None: links may lead anywhere, as for the user's own skills. only: the one folder in it that counts; empty: all.
    """

    path: Path
    within: Path | None = None
    only: str = ""


class Skill(msgspec.Struct, frozen=True):
    """A skill. `file` is its ``SKILL.md``, with all links followed; `problem` says why it cannot be used, if so.

    text: what it says. hint, arguments: what is said of its arguments, and their names. offered: the model is told of
    it. invocable: the user can call it.
    """

    name: str
    description: str
    file: Path
    problem: str = ""
    text: str = ""
    hint: str = ""
    arguments: str = ""
    offered: bool = True
    invocable: bool = True


def find_skills(folders: Iterable[SkillFolder]) -> tuple[Skill, ...]:
    """The skills of these folders, sorted by name. Of two with the same name, the one in the earlier folder is used.

    Reads files: call it off the event loop. Raises nothing for files that are missing or cannot be read.
    """
    found: list[Skill] = []
    names: dict[str, Path] = {}
    for folder in folders:
        for skill in map(_read, _files(folder)):
            first = names.setdefault(skill.name.casefold(), skill.file) if not skill.problem else skill.file
            if first != skill.file:
                skill = msgspec.structs.replace(skill, problem=f"another skill has this name: {shown(str(first))}")
            found.append(skill)
    return tuple(sorted(found, key=lambda skill: (skill.name.casefold(), str(skill.file))))


def skill_roots(folders: Iterable[SkillFolder]) -> tuple[Path, ...]:
    """The folders of the skills' files, with all links followed: they may always be read."""
    roots: list[Path] = []
    for folder in folders:
        real = _real(folder.path, folder)
        if real is None:
            continue
        roots.append(real)
        roots.extend(file.parent for file in _files(folder) if not file.parent.is_relative_to(real))
    return tuple(dict.fromkeys(roots))


def skill_files(folders: Iterable[SkillFolder]) -> tuple[Path, ...]:
    """The skills' files, with all links followed. Cheap: no file is read."""
    return tuple(file for folder in folders for file in _files(folder))


def skills_signature(folders: Iterable[SkillFolder]) -> tuple[tuple[object, ...], ...]:
    """A value that changes when a skill is added, removed or edited. Cheap: no file is read."""
    return tuple(map(signature_of, skill_files(folders)))


def signature_of(file: Path) -> tuple[object, ...]:
    """A value that changes when the file is replaced or written to."""
    try:
        found = file.stat()
    except OSError as error:
        return (str(file), error.errno)
    return (str(file), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _files(folder: SkillFolder) -> list[Path]:
    """The ``SKILL.md`` files in a folder, sorted by the names of their folders, with all links followed."""
    root = _real(folder.path, folder)
    if root is None:
        return []
    try:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in islice(entries, 10 * MAX_SKILLS))
    except OSError:
        return []
    names = [folder.only] if folder.only else [name for name in names if not name.startswith(".")]
    places = (_real(root / name / SKILL_FILE, folder) for name in names)
    return list(islice((place for place in places if place is not None and place.is_file()), MAX_SKILLS))


def _real(path: Path, folder: SkillFolder) -> Path | None:
    """`path` with all links followed; None if that is outside of where `folder` may have skills."""
    real = Path(os.path.realpath(path))
    if folder.within is not None and not real.is_relative_to(Path(os.path.realpath(folder.within))):
        return None
    return real


def _read(file: Path) -> Skill:
    name = shown(file.parent.name, 64)
    try:
        with open_file(file) as stream:
            text = stream.read(_HEAD).decode(errors="replace")
    except (ToolFailure, OSError) as error:
        return Skill(name, "", file, str(error))
    keys, body = split_front_matter(text)
    name = shown(_one_line(keys.get("name", "")), 64) or name
    description = _one_line(keys.get("description", ""))
    if len(description) > MAX_DESCRIPTION:
        description = f"{description[:MAX_DESCRIPTION]}…"
    return Skill(
        name,
        description,
        file,
        "" if description else "its front matter has no description",
        text=valid_text(body).strip(),
        hint=shown(_one_line(keys.get("argument-hint", "")), 100),
        arguments=keys.get("arguments", ""),
        offered=keys.get("disable-model-invocation", "").lower() != "true",
        invocable=keys.get("user-invocable", "").lower() != "false",
    )


def _one_line(text: str) -> str:
    return shown(" ".join(valid_text(text).split()), 10 * MAX_DESCRIPTION)
