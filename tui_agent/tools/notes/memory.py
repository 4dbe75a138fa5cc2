"""What the model keeps for later sessions: `memory`."""

from typing import Literal

from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.files.threads import Stop, in_thread
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.notes.notes import MAX_TEXT, Notes, one_line
from tui_agent.tools.schema import Signature

NAME = "memory"


class Memory:
    """Writes and removes notes. They are no part of the workspace, and a change of one is a change of a file."""

    effect: Effect = "write"

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._signature = Signature.of(self._change, NAME)
        self.definition = self._signature.definition

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        given = self._signature.parse(arguments)
        return (Access("write", str(self._notes.file(str(given["name"])))),)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        given = self._signature.parse(arguments)
        if given["action"] == "remove":
            return Preview(f"Remove the note {shown(str(given['name']), 100)}")
        text = f"{one_line(str(given['description']))}\n\n{given['text']}"
        return Preview(f"Remember {shown(str(given['name']), 100)}", text=text)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await in_thread(lambda stop: self._signature.call(self._change, arguments, stop))

    def _change(
        self,
        stop: Stop,
        /,
        action: Literal["write", "remove"],
        name: str,
        description: str = "",
        text: str = "",
    ) -> ToolOutput:
        """Keep a note about this project for later sessions, or remove one.

        Note what will matter again and is not plain from the files: decisions and their reasons, what the person
        wants, pitfalls, commands that work. Never a secret. One subject a note; writing a note again replaces it.
        Later sessions see each note's name and description, and read the note itself with read_file.

        Args:
            action: write (new, or in place of an old note) or remove.
            name: Lower-case words joined by hyphens, such as release-steps.
            description: For write: what the note holds and when it helps, on one line.
            text: For write: the whole note, in Markdown.
        """
        if action == "remove":
            self._notes.remove(name, stop)
            return ToolOutput(f"Removed the note {name}.", summary=f"removed {name}")
        described = one_line(description)
        if not described or not text.strip():
            raise ToolFailure("A note needs a description (one line) and a text.", "Nothing was written; give both.")
        if len(text) > MAX_TEXT:
            raise ToolFailure(
                f"The note is too long: {len(text):,} characters, at most {MAX_TEXT:,}.",
                "Nothing was written; keep what matters, or make several notes.",
            )
        is_new = self._notes.write(name, described, text, stop)
        done = "Wrote" if is_new else "Replaced"
        where = shown(str(self._notes.file(name)))
        return ToolOutput(f"{done} the note {name}: {where}", summary=f"{done.lower()} {name}")
