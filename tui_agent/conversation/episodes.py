"""Episodes: bounded pieces of work that the model opens and closes by name, with the tool `episode`."""

from typing import Final

import msgspec
from msgspec import structs

from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.view import View

EPISODE: Final = "episode"
"""The tool's name."""
MOST_OPEN: Final = 2
"""An episode may contain others, which contain none."""


class Episode(msgspec.Struct, frozen=True):
    """An episode. `first`: the entry of the step that opened it. `closed`: the entry of the step that closed it, and
    `pointers` the one that says what was done, the closing call's result; both 0 while it is open.
    """

    name: str
    first: int
    closed: int = 0
    pointers: int = 0


class EpisodeCall(msgspec.Struct, frozen=True):
    """The arguments of a call: a conclusion closes the episode of this title, none opens it."""

    title: str
    conclusion: str = ""


def episodes(view: View) -> tuple[list[Episode], list[Episode]]:
    """The closed episodes in view, and the open ones, oldest first. Reads only the calls of the tool."""
    closed: list[Episode] = []
    opened: list[Episode] = []
    steps = view.callers(EPISODE)
    results = {group.first: group.results for group in view.groups()} if steps else {}
    for step in steps:
        message = view.log.message(step)
        for call in message.blocks if message is not None else ():
            if not isinstance(call, ToolCall) or call.name != EPISODE:
                continue
            result = results[step].get(call.id, 0)
            answer = view.log.message(result) if result else None
            if answer is None or any(isinstance(each, ToolResult) and each.is_error for each in answer.blocks):
                continue
            given = msgspec.json.decode(call.arguments, type=EpisodeCall)
            place = next((place for place, each in enumerate(opened) if each.name == given.title), None)
            if not given.conclusion.strip():
                opened.append(Episode(given.title, step))
            elif place is not None:
                closed.append(structs.replace(opened[place], closed=step, pointers=result))
                del opened[place:]
    return closed, opened
