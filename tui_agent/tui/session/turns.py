"""Shows the agent's events on the screen, in one match over their kinds."""

from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final, Protocol, assert_never

from typing_extensions import Unpack

from tui_agent.agent import events
from tui_agent.agent.events import AgentEvent
from tui_agent.conversation.entries import USER_SHELL
from tui_agent.conversation.tasks import TODO
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.text import call_summary, compact_count, counted
from tui_agent.tui.cards.blocks import (
    FooterBlock,
    Level,
    NoticeBlock,
    ProseBlock,
    ReasoningBlock,
    ResultSize,
    ToolBlock,
    ToolState,
)
from tui_agent.tui.pane.status_bar import Changes, StatusBar, StatusBarFacts
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.wording import AGAIN, doing, saved_text

MAX_PROMPT_SHOWN: Final = 4_000
"""Characters of a user's text that the pane shows; the conversation itself has all of it."""

_LEVELS: Final = {"info": Level.INFO, "warning": Level.WARNING, "error": Level.ERROR}

_ENDINGS: Final = {
    "max_tokens": ("The answer was cut at the output limit", "ask it to go on, or raise --max-tokens"),
    "refusal": ("The model declined to answer", "put the request in other words, or try another model with /model"),
    "context_window": ("The model's window is full", "start a new session, or switch to a larger model with /model"),
}

_AGAINST_LOOPS: Final = "Esc stops the turn; a word from you, written now, reaches the model at its next step"


class Waiting(Protocol):
    """A display of the texts that wait for the running turn's next step."""

    def add(self, seq: int, text: str) -> None:
        """Show the text with this entry number as waiting."""
        ...

    def remove(self, seq: int) -> None:
        """Remove a text that no longer waits."""
        ...


class NoDisplay:
    """In place of the `StatusBar` and of `Waiting`, for a view that is filled off screen."""

    status = StatusBarFacts()

    def show(self, **changes: Unpack[Changes]) -> None:
        """Do nothing."""

    def add(self, seq: int, text: str) -> None:
        """Do nothing."""

    def remove(self, seq: int) -> None:
        """Do nothing."""


class TurnView:
    """Shows a conversation from its events, live or from its history.

    `changed` is called with each event that changed the context.
    """

    def __init__(self, transcript: Transcript, status: StatusBar | NoDisplay, waiting: Waiting) -> None:
        self.transcript = transcript
        self._moved_at = 0
        self._status = status
        self._waiting = waiting
        self._prose: ProseBlock | None = None
        self._reasoning: ReasoningBlock | None = None
        self._reasoning_began = 0.0
        self._streamed: list[ProseBlock | ReasoningBlock] = []
        self._retry: NoticeBlock | None = None
        self._running: dict[str, ToolBlock] = {}
        self._todo: ToolBlock | None = None
        self._undone: dict[int, int] = {}
        self.changed: Callable[[AgentEvent], None] | None = None
        self._own_shown: dict[int, ToolBlock] = {}
        self._left = False
        self._entered = True
        self.answered = False
        self.interrupted = False
        self.failed = False

    def leave_screen(self) -> None:
        """Show nothing from now on."""
        self._left, self.changed = True, None

    def offscreen(self) -> "TurnView":
        """A view that fills another transcript off screen; `go_on_with` or `go_on_below` then takes it over."""
        return TurnView(self.transcript.successor(), NoDisplay(), NoDisplay())

    def go_on_with(self, other: "TurnView") -> None:
        """Switch to the transcript of `other`, and append the blocks that came here since the branch was changed."""
        running = [block for block in self._running.values() if block.index < self._moved_at]
        since = self.transcript.blocks[self._moved_at :]
        self.transcript, undone, self._moved_at = other.transcript, self._undone, 0
        self.transcript.take_over([*running, *since])
        self._undone = dict(other._undone)
        for seq, target in undone.items():
            self._undone[seq] = target
            self._mark(target, undone=True)

    def go_on_below(self, other: "TurnView", above: int) -> None:
        """Switch to the transcript of `other`, which has the older history, and append the blocks from `above` on."""
        newer, undone = self.transcript.blocks[above:], self._undone
        self.transcript = other.transcript
        self.transcript.take_over(newer)
        self._undone = {**other._undone, **undone}
        for target in undone.values():
            self._mark(target, undone=True)

    @property
    def moved(self) -> bool:
        """Whether the branch was changed, and is not shown yet."""
        return bool(self._moved_at)

    def begin(self) -> None:
        """Show that a turn is about to run."""
        self.answered = self.interrupted = self.failed = self._entered = False
        self._sending()

    def show(self, event: AgentEvent) -> None:
        """Show one event."""
        if self._left:
            return
        match event:
            case events.TurnStarted():
                # The first one was shown by `begin`; others follow it, towards a goal or for texts sent too late.
                self._sending()
            case events.GoalCheck():
                self._status.show(activity="checking the goal", since=monotonic())
            case events.PermissionAsked():
                self._tool_state(event.question.call_id, ToolState.ASKING)
                self._active("your answer is needed")
            case events.UserMessage():
                self._entered = True
                self._waiting.remove(event.queued)
                if event.kind != "user_shell":
                    self._todo = None
                    text, lines = _shown_prompt(event.typed or event.text, len(event.images))
                    self.transcript.add_user(text, seq=event.seq, lines=lines)
                elif (card := self._own_shown.get(event.queued)) is not None:
                    card.seq = event.seq
            case events.ModelCallStarted():
                self._streamed.clear()
                self._active("thinking")
            case events.ReasoningDelta():
                self._on_reasoning(event.text)
            case events.TextDelta():
                self._on_text(event.text)
            case events.ToolCallDelta():
                self._active(f"writing {facts_of(event.name).title or 'a tool call'} {compact_count(event.size)}")
            case events.Retrying():
                self._on_retry(event)
            case events.AssistantMessage():
                self._on_message(event)
            case events.ToolStarted():
                self._on_tool(event)
            case events.ToolProgress():
                if (block := self._running.get(event.call_id)) is not None:
                    self.transcript.show_progress(block, event.text, event.above, event.subtask)
            case events.ToolFinished():
                self._on_result(event)
            case events.ContextChanged():
                self._status.show(
                    tokens=event.tokens, window=event.window, measured=event.measured, cost_usd=event.cost_usd
                )
                self._status.show(turn_cost_usd=event.turn_cost_usd, reading=event.reading, writing=event.writing)
            case events.ContextStepStarted(in_background=True):
                self._status.show(summarising=True)
            case events.ContextStepStarted():
                self._active(_STEPS_RUNNING.get(event.step, event.step))
            case events.ContextStep():
                self._on_context_step(event)
            case events.BranchChanged():
                self._moved_at = len(self.transcript)
                self.failed = False
                self._undone = {}
                self._status.show(tokens=event.after, measured=False)
            case events.ModelChanged():
                self._status.show(model=event.model, window=event.window or self._status.status.window)
            case events.Notice():
                level = _LEVELS.get(event.level, Level.INFO)
                self.transcript.add_notice(level, event.title, event.text, event.hint)
            case events.CustomEntry():
                self.transcript.add_notice(Level.INFO, event.name, event.text or event.data)
            case events.Alert():
                self.transcript.add_notice(
                    Level.WARNING, "The model looks stuck", event.text, event.hint or _AGAINST_LOOPS
                )
            case events.TurnFailed():
                self._settle()
                self.failed = True
                kept = f"{(event.hint or 'Everything up to here is kept').removesuffix('.')}."
                if not self._entered:
                    kept += " Your text is in the prompt again."
                elif event.retryable or not event.hint:
                    kept += f" {AGAIN} and Enter sends it again."
                elif event.kind in _MENDABLE:
                    kept += f" {AGAIN} and Enter then sends it again."
                title = "The goal has ended" if event.kind in _GOAL_ENDS else "The turn stopped"
                self.transcript.add_notice(Level.ERROR, title, event.message, kept)
            case events.TurnFinished():
                self._on_finish(event)
            case _:
                assert_never(event)
        if self.changed is not None and isinstance(event, _CHANGES):
            self.changed(event)

    def show_waiting(self, queued: Iterable[tuple[int, str]]) -> None:
        """Show texts, with their entry numbers, that have waited since an earlier run of the program."""
        for seq, text in queued:
            self._waiting.add(seq, text)

    def end(self) -> None:
        """Close everything that is still open on the screen: the turn has ended, for whatever reason."""
        self._settle()
        self._status.show(activity="", until=0.0)

    def _on_reasoning(self, text: str) -> None:
        self.answered = True
        self._finish_prose()
        if self._reasoning is None:
            self._reasoning_began = monotonic()
            self._reasoning = self.transcript.start_reasoning(text)
            self._streamed.append(self._reasoning)
            self._active("thinking")
        else:
            self.transcript.stream(self._reasoning, text)

    def _on_text(self, text: str) -> None:
        self.answered = True
        self._finish_reasoning()
        if self._prose is None:
            # Leading blank lines would paint an empty block.
            text = text.lstrip("\n")
            if not text:
                return
            self._prose = self.transcript.start_prose(text)
            self._streamed.append(self._prose)
            self._active("answering")
        else:
            self.transcript.stream(self._prose, text)

    def _on_retry(self, event: events.Retrying) -> None:
        self._finish_reasoning()
        self._finish_prose()
        began_anew = bool(self._streamed)
        if began_anew and self.transcript.blocks[-len(self._streamed) :] == self._streamed:
            self.transcript.truncate(len(self.transcript) - len(self._streamed))
        self._streamed.clear()
        # Of tries that follow each other the newest is told: it has their number.
        if self._retry is not None and self.transcript.blocks[-1:] == [self._retry]:
            self.transcript.truncate(len(self.transcript) - 1)
        self._retry = self.transcript.add_notice(
            Level.WARNING,
            event.sentence,
            "Esc stops waiting; everything so far is kept."
            if event.until
            else "The answer starts again."
            if began_anew
            else "",
        )
        if event.until:
            self._active("until the limit resets", until=monotonic() + event.delay_s)
        else:
            self._active(f"waiting for try {event.attempt + 1}")

    def _on_message(self, event: events.AssistantMessage) -> None:
        self.answered = True
        self._finish_reasoning()
        self._finish_prose()
        tokens = event.usage.reasoning_tokens or None
        thoughts = [block for block in self._streamed if isinstance(block, ReasoningBlock)]
        if thoughts:
            self.transcript.finish(thoughts[-1], seconds=thoughts[-1].seconds, tokens=tokens)
        elif event.reasoning.strip():
            self.transcript.add_reasoning(event.reasoning, tokens=tokens)
        if event.text.strip() and not any(isinstance(block, ProseBlock) for block in self._streamed):
            self.transcript.add_prose(event.text.strip("\n"))
        self._streamed.clear()

    def _on_tool(self, event: events.ToolStarted) -> None:
        if event.name != USER_SHELL:
            self._finish_reasoning()
            self._finish_prose()
        # A turn has one card for its task list, which every call of it updates.
        again = self._todo if event.name == TODO else None
        block = self._running[event.call_id] = self.transcript.add_tool(
            event.call_id,
            event.name,
            summary=call_summary(event.arguments),
            arguments=event.arguments,
            state=ToolState.RUNNING,
            instead=again,
        )
        if event.name == TODO:
            self._todo = block
        if event.name != USER_SHELL:
            self._active_tools()

    def _on_result(self, event: events.ToolFinished) -> None:
        block = self._running.pop(event.call_id, None) or self.transcript.tool(event.call_id)
        if block is None:
            block = self.transcript.add_tool(event.call_id, event.name)
        self.transcript.finish_tool(
            block,
            _tool_state(event.status),
            event.text,
            size=ResultSize(
                lines=event.outcome.line_count or _line_count(event.text), tokens=event.tokens, bytes=event.size
            ),
            diff=event.diff,
            note=event.summary,
            outcome=event.outcome,
            seconds=event.duration_ms / 1000 or None,
        )
        if event.evicted:
            # Scaled from the tokens of the part that is shown.
            whole = round(event.size * event.tokens / max(1, len(event.text)))
            self.transcript.add_boundary(
                f"{event.name} result put into a file",
                before=whole,
                after=event.tokens,
                reason="too large to show whole",
                text=f"The model was given its beginning and its end; the whole is kept in {event.artifact}",
                seq=event.seq,
                restores=True,
            )
        if event.name == USER_SHELL:
            # It has the number of the message that it became or waits to become.
            self._own_shown[event.seq], block.seq = block, event.seq
        else:
            self._active_tools()

    def _on_context_step(self, event: events.ContextStep) -> None:
        if event.step in ("summary", "checkpoint"):
            self._status.show(summarising=False)
        if event.error:
            self.transcript.add_notice(
                Level.WARNING, f"{events.step_text(event.step)}: nothing was changed", event.error
            )
            return
        self.transcript.add_boundary(
            events.step_text(event.step, event.items),
            before=event.before,
            after=event.after,
            saved=saved_text(event.saved_usd - (event.cost_usd or 0.0), event.saving_usd),
            reason=event.reason,
            text=event.text,
            seq=event.seq,
        )
        if event.target:
            self._undone[event.seq] = event.target
            self._mark(event.target, undone=True)
        self._status.show(tokens=event.after, measured=False)

    def _mark(self, seq: int, *, undone: bool) -> None:
        """Mark a step as undone or in force again; if it undid another step, mark that one the other way round."""
        self.transcript.mark_undone(seq, undone=undone)
        if seq in self._undone:
            self._mark(self._undone[seq], undone=not undone)

    def _on_finish(self, event: events.TurnFinished) -> None:
        self.end()
        if event.stop_reason in _ENDINGS:
            title, hint = _ENDINGS[event.stop_reason]
            self.transcript.add_notice(Level.WARNING, title, hint=hint)
        elif event.stop_reason == "interrupted":
            self.interrupted = True
            hint = (
                "what was said so far is kept; type to go on" if self.answered else "your text is in the prompt again"
            )
            self.transcript.add_notice(Level.INFO, "Stopped", hint=hint)
        footer = FooterBlock(
            **self.transcript.place(), seconds=event.duration_ms / 1000, usd=event.cost_usd or 0.0, files=event.files
        )
        if footer.parts:
            self.transcript.add(footer)

    def _tool_state(self, call_id: str, state: ToolState) -> None:
        block = self._running.get(call_id)
        if block is not None:
            self.transcript.set_tool_state(block, state)

    def _finish_reasoning(self) -> None:
        if self._reasoning is not None:
            self.transcript.finish(self._reasoning, seconds=monotonic() - self._reasoning_began)
            self._reasoning = None

    def _finish_prose(self) -> None:
        if self._prose is not None:
            self.transcript.finish(self._prose)
            self._prose = None

    def _settle(self) -> None:
        self._finish_reasoning()
        self._finish_prose()
        own = {call_id: block for call_id, block in self._running.items() if block.name == USER_SHELL}
        for call_id, block in self._running.items():
            if call_id not in own:
                self.transcript.set_tool_state(block, ToolState.INTERRUPTED)
        self._running = own

    def _sending(self) -> None:
        # A step that the user asked for holds the turn up.
        if self._status.status.activity not in _STEPS_RUNNING.values():
            self._status.show(activity="sending", since=monotonic())

    def _active(self, what: str, until: float = 0.0) -> None:
        """Show the activity, if a turn is running; with `until` on the monotonic clock, how long it still waits."""
        if self._status.status.activity:
            self._status.show(activity=what, until=until)

    def _active_tools(self) -> None:
        names = [block.name for block in self._running.values() if block.name != USER_SHELL]
        match names:
            case []:
                self._active("thinking")
            case [name]:
                self._active(doing(name))
            case _:
                self._active(f"running {len(names)} tools")


_CHANGES: Final = (
    events.UserMessage,
    events.ModelCallStarted,
    events.AssistantMessage,
    events.ToolFinished,
    events.ContextChanged,
    events.ContextStep,
    events.BranchChanged,
    events.ModelChanged,
    events.TurnFinished,
)
"""Events that change the context."""

_MENDABLE: Final = frozenset(("auth", "context_overflow", "invalid_request", "unknown_model"))
"""Kinds of errors after which the same message may succeed once the user has done what the hint says."""
_GOAL_ENDS: Final = ("goal", "goal_cost")
_STEPS_RUNNING: Final = {
    "summary": "summarising older turns",
    "checkpoint": "writing the task's record",
    "digest": "digesting results",
}


def _tool_state(status: str) -> ToolState:
    try:
        return ToolState(status)
    except ValueError:
        return ToolState.ERROR


def _line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") if text else 0)


def _shown_prompt(text: str, images: int) -> tuple[str, int]:
    """The text to show of a message and, if its middle was left out, its number of lines (else 0)."""
    pictures = f"\n[{counted(images, 'image')}]" if images else ""
    if len(text) <= MAX_PROMPT_SHOWN:
        return f"{text}{pictures}", 0
    head, tail = text[: MAX_PROMPT_SHOWN * 3 // 4], text[-MAX_PROMPT_SHOWN // 4 :]
    # Leave out whole lines if possible.
    head = head[: head.rfind("\n") + 1] or f"{head}\n"
    tail = tail[tail.find("\n") + 1 :]
    lines = _line_count(text)
    left = lines - _line_count(head) - _line_count(tail)
    said = counted(left, "more line") if left > 0 else counted(len(text) - len(head) - len(tail), "more character")
    return f"{head}… {said}\n{tail}{pictures}", lines + bool(images)
