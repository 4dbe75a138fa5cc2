"""The model says that a task is finished: `mark_task_done`."""

from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.schema import Signature


class MarkTaskDone:
    """Does nothing itself: the call is the sign, and the record of the task is written when the next turn begins."""

    effect: Effect = "none"

    def __init__(self) -> None:
        self._signature = Signature.of(self._mark, "mark_task_done")
        self.definition = self._signature.definition

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        self._signature.parse(arguments)
        return ()

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview(title="Mark the task done", text=str(self._signature.parse(arguments)["detail"]))

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return self._signature.call(self._mark, arguments)

    def _mark(self, detail: str) -> ToolOutput:
        """Say that the task the user gave you is finished and checked.

        Call it once, at the natural end of a task, not after each step. A record then takes the place of what was
        looked at, so that the next task has room.

        Args:
            detail: The outcome and what was verified, in one or two sentences.
        """
        if not detail.strip():
            raise ToolFailure("mark_task_done: `detail` is empty.", "Say in `detail` what was done.")
        return ToolOutput("Noted. The record of this task is written when the next one begins.", summary="noted")
