"""A prompt that is sent again and again while the program runs: ``/loop 10m PROMPT``."""

import re
from typing import TYPE_CHECKING, Final

from tui_agent.text import one_line
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.host import Host

if TYPE_CHECKING:
    from textual.timer import Timer

    from tui_agent.agent.agent import Agent

_EVERY: Final = re.compile(r"(\d{1,4})\s*(s|m|h)\s+(\S.*)", re.DOTALL)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
SHORTEST_S: Final = 10
"""Seconds between two rounds, at least."""
_USAGE: Final = "/loop 10m PROMPT begins one, /loop off ends it"


class Loop:
    """The loop of the app; at most one runs. A round is left out while a turn runs; a turn that failed or was stopped
    ends it.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._timer: Timer | None = None
        self._agent: Agent | None = None
        self._running = ""
        self._sent = False

    async def run(self, argument: str) -> None:
        """Begin a loop, end it (``off``), or say what runs."""
        if not argument:
            self._host.say(
                Level.INFO, self._running or "No loop runs", hint="/loop off ends it" if self._running else _USAGE
            )
        elif argument == "off":
            self._end("The loop has ended" if self._timer else "No loop runs")
        elif (found := _EVERY.fullmatch(argument)) is None or int(found[1]) * _SECONDS[found[2]] < SHORTEST_S:
            self._host.say(Level.WARNING, "That is no loop", f"{_USAGE}; {SHORTEST_S} seconds is the shortest.")
        else:
            self._end()
            self._agent, self._sent = await self._host.agent(), False
            every = f"{found[1]}{found[2]}"
            self._running = f"Every {every}: {one_line(found[3], 60)}"
            self._host.status.show(loop=every)
            prompt = found[3].strip()
            self._timer = self._host.set_interval(int(found[1]) * _SECONDS[found[2]], lambda: self._again(prompt))
            self._host.say(Level.INFO, self._running, hint="/loop off ends it")
            self._again(prompt)

    def _again(self, prompt: str) -> None:
        session = self._host.session
        if session is None or session.agent is not self._agent:
            self._end("The loop has ended with its session")
        elif self._sent and self._host.last_turn_broke_off:
            self._end("The loop has ended: its last turn failed or was stopped")
        elif not self._host.occupied():
            self._sent = True
            if prompt.startswith("/"):
                self._host.run_worker(self._host.run_command(prompt), name="command")
            else:
                self._host.ask_model(prompt, prompt)

    def _end(self, why: str = "") -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer, self._running = None, ""
        self._host.status.show(loop="")
        if why:
            self._host.say(Level.INFO, why)
