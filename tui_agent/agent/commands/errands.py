"""Slash commands that send the model a prepared message: ``/init`` and ``/review``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tui_agent.resources import prompt_text

ERRANDS: Final = (
    ("review", "have the model review your changes", "[what matters]"),
    ("init", "have the model write AGENTS.md for this project", ""),
)
"""Name, description, and the argument's name in the help (empty: it takes none)."""
INSTRUCTIONS = "AGENTS.md"
"""The name of the instruction file if the settings name none."""


def errand(text: str, project: Path, names: Sequence[str]) -> str:
    """The message to send for such a slash command when there is no screen; empty if it is not one.

    `names`: of instruction files, from the settings. An existing file is improved, since nobody can be asked whether
    to replace it.
    """
    word, _, about = text.strip().partition(" ")
    if word == "/review":
        return review_message(" ".join(about.split()))
    if word == "/init" and not about.strip():
        name = next(iter(names), INSTRUCTIONS)
        return init_message(name, mend=(project / name).exists())
    return ""


def init_message(name: str, *, mend: bool) -> str:
    """The message for ``/init``: write the instruction file `name`, or with `mend` improve the existing one."""
    texts = [prompt_text("init"), prompt_text("init_again")] if mend else [prompt_text("init")]
    return "\n".join(texts).format(name=name).strip()


def review_message(about: str = "") -> str:
    """The message for ``/review``; `about`: what to pay most attention to."""
    return prompt_text("review").format(about=f" (above all: {about})" if about else "").strip()
