"""Tools that have a subtask look, in place of the model itself."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tools.support import call
from tui_agent.conversation.entries import Usage
from tui_agent.tools.agentic import AgenticGrep, AgenticReadFile, AgenticResearch
from tui_agent.tools.base import SubtaskProgress, ToolFailure
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.subtasks import SubtaskResult, SubtaskSpec


class Subtasks:
    """Ends each subtask with `error`, and keeps what was asked."""

    def __init__(self, error: str = "", cost_usd: float | None = None) -> None:
        self.asked: list[SubtaskSpec] = []
        self._error, self._cost_usd = error, cost_usd

    async def run(
        self, spec: SubtaskSpec, progress: Callable[[SubtaskProgress], None], call_id: str = ""
    ) -> SubtaskResult:
        self.asked.append(spec)
        return SubtaskResult("id", "what was found", "model", Usage(1_000), self._cost_usd, 2, self._error)


@pytest.mark.parametrize("path", ["a.txt", ".", "absent", "../outside", "/nowhere/outside", "{own}/kept", "{own}/gone"])
async def test_nothing_is_paid_for_a_path_that_is_known_not_to_be_there(tmp_path: Path, path: str) -> None:
    root, own = tmp_path / "project", tmp_path / "session"
    for folder in (root, own):
        folder.mkdir()
    (root / "a.txt").touch()
    (own / "kept").touch()
    path, subtasks = path.format(own=own), Subtasks()
    for tool, words in (
        (AgenticReadFile(subtasks), {}),
        (AgenticGrep(subtasks), {"pattern": "x"}),
        (AgenticResearch(subtasks), {}),
    ):
        workspace = Workspace(root, read_roots=[own])
        if path.endswith(("absent", "gone")):
            with pytest.raises(ToolFailure, match="does not exist"):
                await call(tool, workspace, question="?", path=path, **words)
            continue
        # Of what is outside, nothing is told here: the subtask's own calls are judged.
        assert (await call(tool, workspace, question="?", path=path, **words)).text == "what was found"
    assert len(subtasks.asked) == (0 if path.endswith(("absent", "gone")) else 3)


@pytest.mark.parametrize(
    ("error", "usd", "text", "summary"),
    [
        ("", None, "what was found", "2 model calls, 1,000 tokens, model"),
        ("", 0.25, "what was found", "$0.250, 2 model calls, 1,000 tokens, model"),
        (
            "It was interrupted.",
            0.25,
            "[The subtask did not finish: It was interrupted. Ask a narrower question, ",
            "$0.25",
        ),
    ],
)
async def test_what_a_subtask_came_to_is_told_with_its_cost(
    tmp_path: Path, error: str, usd: float | None, text: str, summary: str
) -> None:
    output = await call(AgenticResearch(Subtasks(error, usd)), tmp_path, question="?")
    assert output.text.startswith(text)
    assert "what was found" in output.text
    assert output.summary.startswith(summary)
    assert output.is_error == bool(error)
