"""The commands that change the branch: rewind, undo, fork and tree, and showing the conversation of the new branch."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from tui_agent.agent.commands.branches import REWOUND, UNDONE
from tui_agent.agent.commands.command import number_of
from tui_agent.system.durable import in_thread
from tui_agent.text import counted, one_line, sentence
from tui_agent.tui.cards.blocks import Block, BoundaryBlock, Level, ProseBlock, ToolBlock
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.session.ending import NEWEST
from tui_agent.tui.session.past import EarlierEvents, SubtaskSteps, in_slices, show_earlier
from tui_agent.tui.wording import WHILE_A_TURN_RUNS

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent
    from tui_agent.agent.events import AgentEvent, BranchChanged
    from tui_agent.tools.files.put_back import PutBack
    from tui_agent.tui.host import Host
    from tui_agent.tui.session.turns import TurnView

QUOTED_CHARS: Final = 40
"""Characters of a message that a notice quotes."""
FREED_AT_ONCE: Final = 500
"""Blocks of a conversation that are freed at once; freeing a long one in one go would delay a key."""
CHANGING_BRANCH: Final = "changing the branch"
UNDO_ASKED: Final = "Put these files back as they were?"
REDO_ASKED: Final = "Change these files again?"
REDO_HINT: Final = "/undo-edits redo changes them again"
UNDO_HINT: Final = "/undo-edits puts them back again"


class FilesOutcome(msgspec.Struct, frozen=True):
    """The notice on files that were put back."""

    level: Level
    title: str
    text: str
    hint: str


class BranchCommands:
    def __init__(self, host: "Host") -> None:
        self._host = host
        self._moving = False
        self._at_work = 0
        self._of_files: FilesOutcome | None = None
        self._undoing = False

    # Commands

    async def rewind(self, number: str = "") -> None:
        """Go back to before a message of the user's, and put its text into the prompt.

        `number`: the message's number, optionally followed by what to rewind; empty: the user chooses among their
        messages. Raises `SessionUnavailable`, `StorageError`.
        """
        agent = await self._host.agent()
        if self._refused():
            return
        if not number:
            from tui_agent.tui.dialogs.branch_pickers import rewind_picker

            prompts = await asyncio.to_thread(agent.branches.prompts)
            if not prompts:
                self._host.say(Level.INFO, "There is nothing to take back")
                return
            chosen = await self._host.question(rewind_picker(prompts))
            if chosen is None:
                return
            number = chosen
        # The user may choose what to rewind after they have seen the diff.
        word, _, what = number.partition(" ")
        seq = number_of(word) if what.strip() in REWOUND else None
        if seq is None:
            self._host.say(
                Level.WARNING, "/rewind takes the number of a message of yours", hint="/rewind alone lists them"
            )
            return

        planned: PutBack | None = None
        said = ""

        async def look() -> None:
            nonlocal planned, said
            said = one_line(agent.branches.prompt(seq), QUOTED_CHARS)
            planned = await agent.files.changes(seq)

        async def move() -> None:
            if planned and not wanted.startswith("conversation"):
                self._of_files = await self._put_back(agent, planned, wanted, tell=wanted.startswith("files"))
            if wanted.startswith("files"):
                self._tell_of_files(self._host.say)
                return
            # The notice on the files is for the conversation after the rewind.
            self._host.entry.prompt.begin(await agent.branches.rewind(seq))

        unchanged, hint = "Nothing was taken back", "/rewind alone lists your messages"
        if not await self._move(look, unchanged, hint):
            return
        asked = f"Take back “{said}” and all after it?" if said else "Take this message back, and all after it?"
        wanted = await self._files_asked(asked, planned, rewinds=True) if planned else "conversation"
        if wanted:
            await self._move(move, unchanged, hint)

    async def undo(self, what: str = "") -> None:
        """Undo the newest turn; if it changed files, the user chooses what to undo. Raises as `rewind`."""
        agent = await self._host.agent()
        if what not in UNDONE:
            wanted = ", ".join(filter(None, UNDONE))
            self._host.say(Level.WARNING, f"/undo takes nothing, or one of {wanted}")
            return
        if newest := agent.branches.newest_prompt():
            self._undoing = True
            try:
                await self.rewind(str(newest))
            finally:
                self._undoing = False
        else:
            self._host.say(Level.INFO, "There is nothing to undo")

    async def undo_edits(self, argument: str = "") -> None:
        """Put back the files that the newest turn changed; with ``redo``, reverse the last such step.

        Raises as `rewind`.
        """
        agent = await self._host.agent()
        if self._refused():
            return
        if argument not in ("", "diff", "redo"):
            self._host.say(Level.WARNING, "/undo-edits takes nothing, or diff, or redo")
            return

        redo, planned = argument == "redo", None

        async def look() -> None:
            nonlocal planned
            planned = await agent.files.newest(redo=redo)

        async def put_back() -> None:
            if planned:
                hint = UNDO_HINT if redo else REDO_HINT
                self._of_files = await self._put_back(agent, planned, wanted, tell=True, hint=hint)
                self._tell_of_files(self._host.say)

        if not await self._move(look, "Nothing was put back", ""):
            return
        if not planned:
            from tui_agent.agent.files import NOTHING, NOTHING_TO_REDO

            self._host.say(Level.INFO, NOTHING_TO_REDO if redo else NOTHING)
            return
        wanted = await self._files_asked(REDO_ASKED if redo else UNDO_ASKED, planned, rewinds=False)
        if wanted:
            await self._move(put_back, "Nothing was put back", "")

    async def _files_asked(self, title: str, planned: "PutBack", *, rewinds: bool) -> str:
        """Show what would be put back and ask what to do; empty if nothing."""
        from tui_agent.tui.dialogs.files_screen import FilesScreen, ShownPlan

        shown = await in_thread(ShownPlan.of, planned)
        return await self._host.question(FilesScreen(title, planned, shown, rewinds=rewinds)) or ""

    async def _put_back(
        self, agent: "Agent", planned: "PutBack", wanted: str, *, tell: bool, hint: str = REDO_HINT
    ) -> FilesOutcome:
        from tui_agent.agent.files import done_text, title_of_done
        from tui_agent.tui.dialogs.files_screen import OVERWRITING

        done = await agent.files.put_back(planned, overwrite=wanted.endswith(OVERWRITING), tell=tell)
        level = Level.WARNING if done.failed or not done.done else Level.INFO
        return FilesOutcome(level, title_of_done(done), done_text(planned, done), hint if done.done else "")

    def _tell_of_files(self, say: Callable[..., object]) -> None:
        if self._of_files is not None:
            report, self._of_files = self._of_files, None
            say(report.level, report.title, report.text, hint=report.hint)

    async def fork(self, number: str = "") -> None:
        """Start another branch after a message; without a number, after the newest. Raises as `rewind`."""
        agent = await self._host.agent()
        if self._refused():
            return
        seq = number_of(number)
        if number and seq is None:
            self._host.say(Level.WARNING, "/fork takes the number of a message, or nothing for the newest")
            return

        await self._move(lambda: agent.branches.fork(seq), "No branch was begun", "/items lists the messages")

    async def tree(self, number: str = "") -> None:
        """Switch to another branch; without a number, the user chooses. Raises as `rewind`."""
        agent = await self._host.agent()
        if self._refused():
            return
        if not number:
            from tui_agent.tui.dialogs.branch_pickers import tree_picker

            branches = await asyncio.to_thread(agent.branches.all)
            if len(branches) < 2:
                self._host.say(
                    Level.INFO, "There is one branch so far", hint="your next message after /fork or /rewind begins one"
                )
                return
            chosen = await self._host.question(tree_picker(branches))
            if chosen is None or chosen == str(branches[0].tip):
                return
            number = chosen

        tip = number_of(number) or 0
        await self._move(
            lambda: agent.branches.switch(tip), "The conversation stays on its branch", "/tree alone lists them"
        )

    def _refused(self) -> bool:
        why = self._host.occupied()
        if why:
            self._host.hint(why)
        return bool(why)

    async def _move(self, move: Callable[[], Awaitable[object]], unchanged: str, hint: str) -> bool:
        """Change the branch, or say why it cannot be done; False if it was not.

        Ignored while another change is under way, such as when a key was pressed twice.
        """
        from tui_agent.agent.turn.turns import AgentBusy

        if self._moving:
            return False
        self._moving = True
        try:
            with self._shown_as_activity():
                await move()
            return True
        except AgentBusy:
            self._host.hint(WHILE_A_TURN_RUNS)
        except ValueError as error:
            self._host.say(Level.WARNING, unchanged, sentence(str(error)), hint)
        finally:
            self._moving = False
        return False

    # Showing the new branch

    def moved(self, agent: "Agent", view: "TurnView", event: "BranchChanged") -> None:
        """Show the conversation after a change of branch, whoever made it."""
        # A rewind returns them with the message that it takes back.
        self._host.forget_waiting(give_back=event.reason != "rewind")
        # Take the history now: later events are shown live.
        earlier, newest = agent.branches.history_in_parts(NEWEST)
        shown = self._show(agent, view, event, newest, EarlierEvents(earlier, 0), undone=self._undoing)
        self._host.run_worker(shown, name="branch", group="branch", exclusive=True)

    async def _show(
        self,
        agent: "Agent",
        view: "TurnView",
        event: "BranchChanged",
        newest: "Iterable[AgentEvent]",
        earlier: EarlierEvents,
        *,
        undone: bool,
    ) -> None:
        """Fill another transcript off screen with the newest part and show that, then add what came before it."""
        with self._shown_as_activity():
            before, filling = view.transcript, view.offscreen()
            follower = self._host.pane.follower(filling.transcript)
            await in_slices(newest, filling, follower.take_in)
            follower.take_in()
            await asyncio.sleep(0)
            title, hint = _title_and_hint(event, before, filling.transcript, undone=undone)
            filling.transcript.add_notice(Level.INFO, title, hint=hint)
            self._tell_of_files(filling.transcript.add_notice)
            await asyncio.sleep(0)
            view.go_on_with(filling)
            self._host.pane.show(follower)
            self._host.refresh_status()
            SubtaskSteps(view.transcript, agent.subtask_progress)
        await free(before)
        await show_earlier(earlier, view, self._host.pane)
        SubtaskSteps(view.transcript, agent.subtask_progress)

    @contextmanager
    def _shown_as_activity(self) -> Iterator[None]:
        self._at_work += 1
        self._host.status.show(hint=CHANGING_BRANCH)
        try:
            yield
        finally:
            self._at_work -= 1
            if not self._at_work and self._host.status.status.hint == CHANGING_BRANCH:
                self._host.status.show(hint="")


async def free(transcript: Transcript) -> None:
    """Free a conversation that is no longer shown, `FREED_AT_ONCE` blocks at a time."""
    while len(transcript):
        transcript.truncate(max(0, len(transcript) - FREED_AT_ONCE))
        await asyncio.sleep(0)


def _title_and_hint(event: "BranchChanged", before: Transcript, now: Transcript, *, undone: bool) -> tuple[str, str]:
    """The title of the notice, and how to get back. `undone`: the change came from `/undo`."""
    match event.reason:
        case "rewind":
            taken = before.said_after(event.to)
            words = _words(taken)
            hint = "its text is in the prompt (Ctrl+C clears it); /tree brings it all back"
            if undone and taken is not None:
                return f"Undone: {words}{_came_of(before.blocks[taken.index + 1 :])}", hint
            return f"Rewound to before {words}" if words else "Rewound", hint if words else "/tree leads back"
        case "fork":
            words = _words(before.said_up_to(event.to))
            title = f"A new branch after {words}" if words else "A new branch from here"
            return title, "it begins with your next message; /tree then leads back to the other one"
        case "switch":
            known = {block.message for block in before}
            own = (block for block in now if block.message not in known)
            words = _words(next(own, None) or now.said_up_to(event.to))
            return f"Back on the branch with {words}" if words else "Back on the other branch", "/tree leads back"


def _words(block: Block | None) -> str:
    said = one_line(block.said if block is not None else "", QUOTED_CHARS)
    return f"“{said}”" if said else ""


def _came_of(blocks: Sequence[Block]) -> str:
    """The consequences of a message, in words: answers, calls and so on."""
    calls = sum(isinstance(block, ToolBlock) for block in blocks)
    answer = any(isinstance(block, ProseBlock) for block in blocks)
    steps = sum(isinstance(block, BoundaryBlock) and block.frees for block in blocks)
    counts = (calls, "tool call"), (steps, "context step")
    parts = ["its answer"] * answer + [counted(count, what) for count, what in counts if count]
    return f", {', '.join(parts[:-1])}{' and ' * (len(parts) > 1)}{parts[-1]}" if parts else ""
