"""Errors in plain words, for a card in the pane."""

from typing import NamedTuple


class Explanation(NamedTuple):
    """What happened and was kept (`text`), and what to do (`hint`)."""

    title: str
    text: str
    hint: str = ""


def explain(error: Exception) -> Explanation | None:
    """`error` for people, when it is one of those that are made for them; None: nobody expected it."""
    from tui_agent.models.base import ModelError
    from tui_agent.session import SessionError
    from tui_agent.storage.errors import StorageError

    match error:
        case ModelError():
            return Explanation("The model cannot be used", error.message, "choose another one with /model")
        case StorageError():
            return Explanation("The conversation could not be saved", error.message, error.hint)
        case SessionError():
            return Explanation("The session could not be opened", error.message, error.hint)
        case _:
            return None
