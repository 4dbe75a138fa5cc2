"""The system prompt of a session: ground rules, what is known of the project, and facts about where it runs.

What is known comes in sections: the project's own instructions, the index of skills, the index of memory. A section
that is empty is absent. A section that changes while a conversation goes on reaches the model as a notice; the prompt
it began with stays as it is.
"""

import platform
from collections.abc import Iterable, Sequence
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from tui_agent.conversation.blocks import valid_text

INSTRUCTIONS_LIMIT = 40_000
"""Characters of one instruction file that enter the prompt."""
NEWS_LIMIT = 40_000
"""Characters of one section that enter a notice."""

_TAGS = ("project-instructions", "skills", "memory")
_NAMES = ("The project's instructions", "The index of skills", "The index of memory")
_CHANGED = "[notice] {name} changed while this conversation went on. Now it reads:\n\n"
_REMOVED = "[notice] {name}: gone. What this conversation was told of it no longer applies."


class Sections(NamedTuple):
    """The text of each section, without its tags; empty for one that is absent."""

    instructions: str = ""
    skills: str = ""
    memory: str = ""


def instructions(root: Path, folder: Path, names: Sequence[str]) -> str:
    """The project's instructions from its root down to `folder`, the nearest last; in each folder the first of `names`.

    Reads files: call it off the event loop. A file that cannot be read is named as such.
    """
    sections = (_instructions_of(place, names, root) for place in reversed(_places(root, folder)))
    return "\n\n".join(section for section in sections if section)


def instruction_files(root: Path, folder: Path, names: Sequence[str]) -> list[Path]:
    """Every file that `instructions` may read, whether it is there or not."""
    return [place / name for place in _places(root, folder) for name in names]


def system_prompt(rules: str, sections: Sections, folder: Path, today: date) -> str:
    """The whole prompt; the same bytes for the same arguments."""
    facts = (
        f"Working folder: {folder}\nPlatform: {platform.system()} {platform.machine()}\nStarted on: {today:%Y-%m-%d}"
    )
    tagged = (_tagged(tag, text) for tag, text in zip(_TAGS, sections, strict=True) if text)
    return valid_text("\n\n".join([rules.strip(), *tagged, facts]))


def news(prompt: str, sections: Sections, told: Iterable[str], own_memory: str = "") -> tuple[str, ...]:
    """What to tell a model whose system prompt is `prompt`, where the sections are now `sections`: a notice for each
    that is not as the model knows it. `told` are the notices it was given since that prompt, oldest first; a memory
    that reads like `own_memory`, the model's own writing, is no news.
    """
    given = list(told)
    known = sections.memory == own_memory != ""
    notices = (
        _news_of(number, prompt, text, given)
        for number, text in enumerate(sections)
        if not (known and _TAGS[number] == "memory")
    )
    return tuple(notice for notice in notices if notice)


def is_news(text: str) -> bool:
    """Whether a notice is one of `news`."""
    return any(text.startswith(_heads(number)) for number in range(len(_TAGS)))


def _news_of(number: int, prompt: str, text: str, told: list[str]) -> str:
    changed, removed = _heads(number)
    now = valid_text(changed + _cut(text)) if text else removed
    last = next((notice for notice in reversed(told) if notice.startswith((changed, removed))), "")
    if last:
        return "" if last == now else now
    tag = _TAGS[number]
    known = valid_text(_tagged(tag, text)) in prompt if text else f"\n<{tag}>\n" not in prompt
    return "" if known else now


def _heads(number: int) -> tuple[str, str]:
    return _CHANGED.format(name=_NAMES[number]), _REMOVED.format(name=_NAMES[number])


def _cut(text: str) -> str:
    """At most `NEWS_LIMIT` characters; the digest tells one long text from another that begins alike."""
    if len(text) <= NEWS_LIMIT:
        return text
    digest = blake2b(text.encode(errors="replace"), digest_size=4).hexdigest()
    return f"{text[:NEWS_LIMIT]}\n[… {len(text) - NEWS_LIMIT:,} more characters: read the files. Version {digest}]"


def _tagged(tag: str, text: str) -> str:
    return f"<{tag}>\n{text.replace(f'</{tag}', f'< /{tag}')}\n</{tag}>"


def _places(root: Path, folder: Path) -> list[Path]:
    return [place for place in (folder, *folder.parents) if place.is_relative_to(root)]


def _instructions_of(place: Path, names: Sequence[str], root: Path) -> str:
    found = next((place / name for name in names if (place / name).is_file()), None)
    if found is None:
        return ""
    try:
        text = found.resolve().read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        text = f"(could not be read: {error.strerror})"
    if len(text) > INSTRUCTIONS_LIMIT:
        text = f"{text[:INSTRUCTIONS_LIMIT]}\n[… {len(text) - INSTRUCTIONS_LIMIT:,} more characters in this file]"
    return f"# {found.relative_to(root)}\n\n{text}" if text else ""
