"""The system prompt of a session: ground rules, the project's own instructions, and facts about where it runs."""

import platform
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path

from tui_agent.conversation.blocks import valid_text

INSTRUCTIONS_LIMIT = 40_000
"""Characters of one instruction file that enter the prompt."""

CHANGED = "[notice] The project's instructions have changed since this conversation began. They now read:\n\n"
REMOVED = "[notice] The project's instructions that this conversation began with are gone; they no longer apply."


def instructions(root: Path, folder: Path, names: Sequence[str]) -> str:
    """The project's instructions from its root down to `folder`, the nearest last; in each folder the first of `names`.

    Reads files: call it off the event loop. A file that cannot be read is named as such.
    """
    inner = [place for place in (folder, *folder.parents) if place.is_relative_to(root)]
    sections = (_section(place, names, root) for place in reversed(inner))
    return "\n\n".join(section for section in sections if section)


def system_prompt(rules: str, project: str, folder: Path, today: date) -> str:
    """The whole prompt. `project` is the text of `instructions`, or empty."""
    facts = (
        f"Working folder: {folder}\nPlatform: {platform.system()} {platform.machine()}\nStarted on: {today:%Y-%m-%d}"
    )
    parts = [rules.strip(), f"<project-instructions>\n{project}\n</project-instructions>" if project else "", facts]
    return valid_text("\n\n".join(part for part in parts if part))


def news(prompt: str, project: str, notices: Iterable[str]) -> str:
    """What to tell a model whose system prompt is `prompt`, where the project's instructions are now `project`.

    `notices` are those it was given already, oldest first; nothing is said twice.
    """
    if project:
        told, known = CHANGED + project, f"<project-instructions>\n{project}\n</project-instructions>" in prompt
    else:
        told, known = REMOVED, "<project-instructions>" not in prompt
    last = next((text for text in reversed(list(notices)) if text.startswith((CHANGED, REMOVED))), "")
    if last:
        return "" if last == told else told
    return "" if known else told


def _section(place: Path, names: Sequence[str], root: Path) -> str:
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
