"""Slash commands that ask the model for something: ``/init`` and ``/review``, as the message each stands for."""

from tui_agent.resources import prompt_text


def init_message(name: str, *, mend: bool) -> str:
    """What is sent for ``/init``: write the instruction file `name`, or mend the one that is there."""
    texts = [prompt_text("init"), prompt_text("init_again")] if mend else [prompt_text("init")]
    return "\n".join(texts).format(name=name).strip()


def review_message(about: str = "") -> str:
    """What is sent for ``/review``; `about`: what to look at above all."""
    return prompt_text("review").format(about=f" (above all: {about})" if about else "").strip()
