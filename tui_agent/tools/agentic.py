"""The `agentic_*` tools: a subtask on a small model reads for the model, and only its digest enters the conversation.

They keep text out of the conversation; they grant nothing. Every call of a subtask passes the session's permission
gate under the name of the tool it uses, so these tools touch nothing themselves and need no permission.
"""

import json
from collections.abc import Iterable

from typing_extensions import override

from tui_agent.system.resources import prompt_text
from tui_agent.text import counted, money_text
from tui_agent.tools.base import Access, Effect, Tool, ToolContext, ToolOutput, WorkspaceView
from tui_agent.tools.built_in import BuiltIn
from tui_agent.tools.gate.workspace import missing, shown
from tui_agent.tools.subtasks import Subtasks, SubtaskSpec

INNER_TOOLS = {
    "agentic_read_file": ("read_file",),
    "agentic_fetch_url": ("fetch_url",),
    "agentic_grep": ("grep", "read_file"),
    "agentic_research": ("read_file", "grep", "list_dir", "glob"),
}
"""The plain tools that each `agentic_*` tool gives its subtask."""


def agentic_tools(subtasks: Subtasks, offered: Iterable[Tool]) -> list[Tool]:
    """The `agentic_*` tools whose subtasks find all the tools they need among those `offered`."""
    by_name = {tool.definition.name: tool for tool in offered}
    wrappers: list[Tool] = [AgenticReadFile(subtasks), AgenticGrep(subtasks), AgenticResearch(subtasks)]
    if "fetch_url" in by_name:
        wrappers.append(AgenticFetchUrl(subtasks, by_name["fetch_url"]))
    return [tool for tool in wrappers if by_name.keys() >= set(INNER_TOOLS[tool.definition.name])]


class _Wrapper(BuiltIn):
    """The base of these tools: runs a subtask and returns its digest."""

    effect: Effect = "read"

    def __init__(self, subtasks: Subtasks) -> None:
        super().__init__()
        self._subtasks = subtasks

    @override
    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        given = self._signature.parse(arguments)
        # Touches nothing; the target is named so that deny and ask rules apply.
        about = str(workspace.resolve(str(given["path"]))) if "path" in given else str(given.get("url", ""))
        return (Access("none", about),)

    async def _ask(self, context: ToolContext, subject: str, prompt: str) -> ToolOutput:
        name = self.definition.name
        spec = SubtaskSpec(
            system=prompt_text(f"subtask_{name.removeprefix('agentic_')}").strip(),
            prompt=prompt,
            tools=INNER_TOOLS[name],
            title=f"{name} {shown(subject, 100)}",
        )
        return await answered_by(self._subtasks, spec, context)


class AgenticReadFile(_Wrapper):
    """Answers a question about a file."""

    name = "agentic_read_file"

    @override
    async def _do(self, context: ToolContext, /, path: str, question: str) -> ToolOutput:
        """Have a helper read a file and answer your question about it; only its digest comes back.

        Use INSTEAD OF read_file (NOT IN ADDITION TO) for a file that might have more than about 300 lines, or where you
        do not need its exact text; read small files, and lines you will edit, with read_file. Treat the digest as
        authoritative: DO NOT re-read to spot-check, call this again with a narrower question.

        Args:
            path: The file.
            question: What you need to know, whole: the helper knows nothing of this conversation. Ask for the names,
                line numbers or quotes you will need.
        """
        _check_exists(context.workspace, path)
        return await self._ask(context, path, f'Question: {question}\n\nRead "{path}" to answer it.')


class AgenticFetchUrl(_Wrapper):
    """Answers a question about a web page."""

    name = "agentic_fetch_url"
    effect: Effect = "network"

    def __init__(self, subtasks: Subtasks, fetch_url: Tool) -> None:
        super().__init__(subtasks)
        self._fetch_url = fetch_url

    @override
    async def _do(self, context: ToolContext, /, url: str, question: str) -> ToolOutput:
        """Have a helper fetch a web page and answer your question about it; only its digest comes back.

        Use INSTEAD OF fetch_url (NOT IN ADDITION TO) unless the page is known to be short. Treat the digest as
        authoritative: DO NOT fetch again to spot-check, call this again with a narrower question.

        Args:
            url: The whole address.
            question: What you need to know, whole: the helper knows nothing of this conversation. Ask for the names,
                versions or code you will need.
        """
        # Refuse here what fetch_url would refuse: a subtask costs money.
        self._fetch_url.access(json.dumps({"url": url}), context.workspace)
        return await self._ask(context, url, f"Question: {question}\n\nFetch {url} to answer it.")


class AgenticGrep(_Wrapper):
    """Answers a question about what a search finds."""

    name = "agentic_grep"

    @override
    async def _do(self, context: ToolContext, /, pattern: str, question: str, path: str = ".") -> ToolOutput:
        """Have a helper search files and answer your question about the matches; only its digest comes back.

        Use INSTEAD OF grep (NOT IN ADDITION TO) where there might be more than about 30 matches, or where it matters
        what they mean; find one known place with grep. Treat the digest as authoritative: DO NOT repeat the search to
        spot-check, call this again with a narrower pattern or question.

        Args:
            pattern: A regular expression, as for grep.
            question: What you need to know of the matches, whole: the helper knows nothing of this conversation.
            path: The folder or file to search.
        """
        _check_exists(context.workspace, path)
        return await self._ask(context, pattern, f'Question: {question}\n\nSearch for "{pattern}" in "{path}".')


class AgenticResearch(_Wrapper):
    """Answers an open question about the files of a folder."""

    name = "agentic_research"

    @override
    async def _do(self, context: ToolContext, /, question: str, path: str = ".") -> ToolOutput:
        """Have a helper investigate an open question about a folder's files; only its digest comes back.

        Use INSTEAD OF many calls of list_dir, glob, grep and read_file (NOT IN ADDITION TO them) when you do not know
        yet where the answer lies: how something works, where something is done, what uses what. Independent questions
        asked in one step run side by side. Treat the digest as authoritative: DO NOT re-read to spot-check, call this
        again with a narrower question.

        Args:
            question: What you need to know, whole: the helper knows nothing of this conversation. Ask for the paths and
                line numbers you will need.
            path: The folder to look in.
        """
        _check_exists(context.workspace, path)
        return await self._ask(context, question, f'Question: {question}\n\nList "{path}" first.')


def _check_exists(workspace: WorkspaceView, path: str) -> None:
    """Refuse a path that does not exist: a subtask costs money. Tells nothing about places outside the workspace."""
    real = workspace.resolve(path)
    if (workspace.contains(real) or workspace.owns(real)) and not real.exists():
        raise missing(path, real)


async def answered_by(subtasks: Subtasks, spec: SubtaskSpec, context: ToolContext) -> ToolOutput:
    """Run a subtask for a call: what of it enters the conversation, and what people see of it."""
    result = await subtasks.run(spec, lambda now: context.progress(now.text, subtask=now), context.call_id)
    cost = "" if result.cost_usd is None else f"{money_text(result.cost_usd)}, "
    calls = counted(result.steps, "model call")
    summary = f"{cost}{calls}, {result.usage.input_tokens:,} tokens, {result.model}"
    if not result.error:
        return ToolOutput(result.text, summary=summary)
    found = f" What it found until then:\n\n{result.text}" if result.text.strip() else ""
    advice = "Ask a narrower question, or look yourself with the plain tools."
    return ToolOutput(f"[The subtask did not finish: {result.error} {advice}]{found}", is_error=True, summary=summary)
