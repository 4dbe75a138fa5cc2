"""The board of sessions: what each is doing, and opening, renaming, forking or deleting one."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final

from textual.binding import BindingType
from textual.widgets import OptionList
from typing_extensions import override

from tui_agent.agent.presence import LOOK_S, SessionStatus
from tui_agent.storage.sessions import SessionInfo, noted_folder
from tui_agent.text import clean, displayed, money_text, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.pickers import Option, PickerScreen
from tui_agent.tui.wording import age

TITLE_SHOWN: Final = 28
"""Characters of a title: with its figures it fits a screen of 60 columns."""
WORDS_SHOWN: Final = 80


class SessionsScreen(PickerScreen):
    """Lists the sessions that are open elsewhere, then those of `folder`, then others with their folders' names.

    Its result is a session's id, behind ``rename``, ``fork`` or ``delete`` and a space if that is to be done with it,
    or None. `last`: the last words of each session, by id. `current`: the
    session the user is in. `now` returns what the open sessions do, and is called in a thread while one is open.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("sessions")]

    def __init__(
        self,
        sessions: Iterable[SessionInfo],
        last: Mapping[str, str],
        folder: Path,
        current: str = "",
        marked: str = "",
        open_now: Mapping[str, SessionStatus] = {},
        now: Callable[[], Mapping[str, SessionStatus]] | None = None,
        why: str = "",
    ) -> None:
        """`why`: the reason for the question, above the keys."""
        self._sessions, self._last, self._here = tuple(sessions), last, noted_folder(folder)
        self._open, self._now, self._user_in = open_now, now, current
        super().__init__(
            "Sessions: last used, messages, cost, last words",
            self._listed(),
            current,
            describe=lambda key: "\n".join(
                (
                    *filter(None, (displayed(clean(why)),)),
                    f"{key('sessions.rename')} renames, {key('sessions.fork')} forks, {key('sessions.delete')} deletes",
                )
            ),
            marked=marked,
            search=True,
        )

    def _listed(self) -> list[Option]:
        elsewhere = [info for info in self._sessions if info.id in self._open and info.id != self._user_in]
        others = sorted((info for info in self._sessions if info not in elsewhere), key=self._is_of_another)
        groups = [("Open elsewhere", elsewhere), ("Sessions", others)] if elsewhere else [("", others)]
        listed: list[Option] = []
        for heading, infos in groups:
            listed += [Option("", heading, heading=True)] if heading else []
            for info in infos:
                status = self._open.get(info.id) if heading and info in elsewhere else None
                listed.append(_option(info, self._last.get(info.id, ""), status, here=not self._is_of_another(info)))
        return listed

    def _is_of_another(self, info: SessionInfo) -> bool:
        return info.cwd != self._here

    @override
    def on_mount(self) -> None:
        super().on_mount()
        if self._now is not None and self._open.keys() - {self._user_in}:
            self.run_worker(self._follow(self._now))

    async def _follow(self, now: Callable[[], Mapping[str, SessionStatus]]) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._open = await asyncio.to_thread(now)
            self.use(self._listed())

    def action_end_with(self, verb: str) -> None:
        self.catch_up()
        place = self.query_one(OptionList).highlighted
        if place is not None and place < len(self._shown):
            self.dismiss(f"{verb} {self._shown[place].value}")


def state_text(status: SessionStatus) -> str:
    """What an open session is doing, in a word or two."""
    match status.state:
        case "waiting":
            return "asks you"
        case "working":
            return "working"
        case "idle":
            return "open"


def _option(info: SessionInfo, last: str, status: SessionStatus | None, *, here: bool) -> Option:
    place = "" if here else f"  in {one_line(Path(info.cwd).name or info.cwd, 20)}"
    words = f"  {one_line(last, WORDS_SHOWN)}" if last else ""
    cost, state = (info.cost_usd, age(info.updated)) if status is None else (status.cost_usd, state_text(status))
    figures = f"{state:<10} {info.messages:>3,} {money_text(cost):>7}"
    if status is not None and status.window > 0:
        figures += f" {100 * status.tokens / status.window:>3.0f}%"
    return Option(info.id, one_line(info.title, TITLE_SHOWN) or info.id, f"{figures}{place}{words}")
