"""Slash commands that ask the model for something: ``/init`` and ``/review``, as the message each stands for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tui_agent.resources import prompt_text

ERRANDS: Final = (
    ("review", "the model reviews what is changed here", "[what matters]"),
    ("init", "the model writes AGENTS.md for this project", ""),
)
"""Each one's name, what it does, and how what follows the name is called in the help (empty: nothing may follow)."""
INSTRUCTIONS = "AGENTS.md"
"""The instruction file where the settings name none."""


def errand(text: str, project: Path, names: Sequence[str]) -> str:
    """The message that a slash command without a screen stands for; empty: it asks the model for nothing.

    `names` are the project's instruction files by the settings. One that is there is mended, since nobody can be asked.
    """
    word, _, about = text.strip().partition(" ")
    if word == "/review":
        return review_message(" ".join(about.split()))
    if word == "/init" and not about.strip():
        name = next(iter(names), INSTRUCTIONS)
        return init_message(name, mend=(project / name).exists())
    return ""


def init_message(name: str, *, mend: bool) -> str:
    """What is sent for ``/init``: write the instruction file `name`, or mend the one that is there."""
    texts = [prompt_text("init"), prompt_text("init_again")] if mend else [prompt_text("init")]
    return "\n".join(texts).format(name=name).strip()


def review_message(about: str = "") -> str:
    """What is sent for ``/review``; `about`: what to look at above all."""
    return prompt_text("review").format(about=f" (above all: {about})" if about else "").strip()
