"""Parses the commands that the offline model understands.

A request is split at separators before a verb: a new line, a comma, a middle dot, "and", "then", a list's number.
Read-only commands joined by "and" form one step, so their calls run in parallel; everything else runs in order.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.conversation.tasks import ASK, MARKS, PLAN, TODO, TodoItem
from tui_agent.conversation.wire import CALL_TOOL
from tui_agent.regex import regex


class OfflineCommand(msgspec.Struct, frozen=True):
    """A command: a tool's name and arguments (JSON text), or neither if only the answer's text is needed.

    `missing` says why it cannot be carried out; empty: it can.
    """

    verb: str
    subject: str
    tool: str = ""
    arguments: str = ""
    missing: str = ""


Step: TypeAlias = tuple[OfflineCommand, ...]

_VERBS = {
    **dict.fromkeys(("read", "show", "open", "cat", "view"), "read"),
    **dict.fromkeys(("summarise", "summarize"), "summarise"),
    **dict.fromkeys(("list", "ls"), "list"),
    **dict.fromkeys(("find", "grep", "search", "look for"), "grep"),
    **dict.fromkeys(("write", "create"), "write"),
    **dict.fromkeys(("replace", "change", "edit"), "replace"),
    **dict.fromkeys(("run", "execute"), "run"),
    **dict.fromkeys(("mark task done", "mark the task as done"), "done"),
    **dict.fromkeys(("think about", "think"), "think"),
    **{verb: verb for verb in ("glob", "fetch", "recall", "todo", "ask", "plan", "research", "call", "help")},
}
_READ_ONLY = {"read", "summarise", "list", "glob", "grep", "recall", "ask", "research", "fetch", "tools", "agent"}

_VERB = "|".join(re.escape(verb) for verb in sorted(_VERBS, key=len, reverse=True))
_POLITELY = r"(?:please\s+|now\s+|also\s+|can you\s+)*"
_LIST_MARK = r"(?:[-*•]|\d+[.)])"
_START = regex(rf"\s*(?:{_LIST_MARK}\s+)?{_POLITELY}(?P<verb>{_VERB})\b(?![./_=(\-])", re.IGNORECASE)
_LOOP = regex(
    rf"\s*(?:{_LIST_MARK}\s+)?{_POLITELY}(?:run|execute)\s+(?:for|while|until|if|case|[{{(])\s", re.IGNORECASE
)
_CUT = regex(
    r"(?P<mark>\s*(?:[.;,]\s+)?(?:\band\s+then|\bthen|\band\s+also|\band)\s+"
    rf"|\s*[.;,·]\s+|\s*\n\s*{_LIST_MARK}?\s*)"
    rf"(?={_POLITELY}(?:{_VERB})\b(?![./_=(\-]))",
    re.IGNORECASE,
)
_FULL_STOP = regex(r"(?<=[\w)\"'`*\ue001])[.!?]+$")
_QUOTED = regex(r"```[^\n`]*\n(.*?)\n?```|\"((?:[^\"\\]|\\.)*)\"|`([^`]*)`|(?<!\w)'([^'\n]*)'(?!\w)", re.DOTALL)
_HELD = regex("\ue000(\\d+)\ue001")
_TOOLS = regex(r"(?:a\s+)?tools?\s+(?:for|that|to)\s+", re.IGNORECASE)
_AGENT = regex(r"agent\s+(?P<agent>[\w:.-]*[\w-]):?\s+(?P<task>.+)", re.IGNORECASE | re.DOTALL)
_WITHIN = regex(r"(?P<what>.*?)\s*\b(?:in|under|of)\s+(?P<path>\S+)\s*", re.DOTALL)
_NAMED = regex(r"(?P<name>[A-Za-z_][\w.-]*)=(?P<value>\ue000\d+\ue001|[^\s,]+)")
_URL = regex(r"https?://[^\s<>\"'`]+")
_SAY_IT_LIKE = {
    "write": 'say what and where, like: write "text" to notes.txt',
    "replace": 'say it like: replace "old" with "new" in file.py',
    "todo": 'say it like: todo "[x] read it", "[>] mend it", "run the tests"',
    "ask": 'say it like: ask me "Which one?" "this", "that"',
    "plan": 'say it like: plan "mend it", "run the tests"',
    "call": 'say it like: call NAME word="value", or with a JSON object',
    "run": "write the command itself, like: run pytest -q",
}


def parse(text: str, tools: Sequence[ToolDefinition]) -> tuple[Step, ...]:
    """The steps that `text` asks for, using the tools in `tools`; empty if it contains no command."""
    quotes: list[tuple[str, str]] = []

    def hold(match: re.Match[str]) -> str:
        inside = next(group for group in match.groups() if group is not None)
        quotes.append((match[0], inside.replace('\\"', '"')))
        return f"\ue000{len(quotes) - 1}\ue001"

    bare = _QUOTED.sub(hold, _HELD.sub("", text))
    reader = _Reader(quotes, {tool.name: tool for tool in tools})
    steps: list[Step] = []
    start, together = 0, False
    # The shell's own semicolons split no command: for i in 1 2; do ls; done
    cuts = [cut for cut in _CUT.finditer(bare) if ";" not in cut["mark"] or not _LOOP.match(bare, start)]
    for cut in (*cuts, None):
        commands = tuple(reader.commands(bare[start : cut.start() if cut else len(bare)]))
        if together and steps and all(command.verb in _READ_ONLY for command in (*steps[-1], *commands)):
            steps[-1] = (*steps[-1], *commands)
        elif commands:
            steps.append(commands)
        if cut is not None:
            start, together = cut.end(), cut["mark"].strip(" ,").lower() == "and"
    return tuple(steps)


class _Reader:
    """Turns a verb and the words that follow it into commands. Quoted texts are held back as numbered places."""

    def __init__(self, quotes: Sequence[tuple[str, str]], offered: Mapping[str, ToolDefinition]) -> None:
        self._quotes = quotes
        self._offered = offered

    def commands(self, part: str) -> list[OfflineCommand]:
        begun = _START.match(part)
        if begun is None:
            return []
        verb = _VERBS[begun["verb"].lower()]
        rest = part[begun.end() :].strip().lstrip(":").strip()
        if verb not in ("run", "think", "recall", "help"):
            rest = _FULL_STOP.sub("", rest)
        if verb == "think" or (verb == "help" and not rest):
            return [OfflineCommand(verb, self._text(rest))]
        read: Callable[[str, str], list[OfflineCommand]] | None = getattr(self, f"_{verb}", None)
        found = read(verb, rest) if read is not None else []
        return [command for command in found if command.subject]

    def _make(self, verb: str, subject: str, tool: str, /, **arguments: object) -> list[OfflineCommand]:
        if tool not in self._offered:
            return [OfflineCommand(verb, subject, missing=f"the tool `{tool}` is not available here")]
        return [OfflineCommand(verb, subject, tool, msgspec.json.encode(arguments).decode())]

    def _wrong(self, verb: str, rest: str) -> list[OfflineCommand]:
        return [OfflineCommand(verb, rest, missing=_SAY_IT_LIKE[verb])]

    def _read(self, verb: str, rest: str) -> list[OfflineCommand]:
        named = re.sub(r"^(?:me\s+)?(?:the\s+)?(?:files?\s+)?", "", rest, flags=re.IGNORECASE)
        paths = map(self._path, re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s*\n\s*", named))
        return [each for path in paths if path for each in self._make(verb, path, "read_file", path=path)]

    _summarise = _read

    def _list(self, verb: str, rest: str) -> list[OfflineCommand]:
        what, path = self._within(rest)
        path = path or ("." if re.fullmatch(r"(?:the\s+)?(?:files|folders)?", what) else self._path(what))
        return self._make(verb, path, "list_dir", path=path)

    def _glob(self, verb: str, rest: str) -> list[OfflineCommand]:
        what, path = self._within(rest)
        pattern = self._path(what)
        return self._make("glob", pattern, "glob", pattern=pattern, **({"path": path} if path else {}))

    def _grep(self, verb: str, rest: str) -> list[OfflineCommand]:
        if (asked := _TOOLS.match(rest)) and "find_tool" in self._offered:
            query = self._whole(rest[asked.end() :])
            return self._make("tools", query, "find_tool", query=query)
        files = re.sub(r"^files\s+(?:named\s+)?", "", rest)
        what, path = self._within(re.sub(r"^for\s+", "", rest))
        held = _HELD.search(what)
        if files != rest or ("*" in what and not held):
            return self._glob(verb, files)
        words = self._inside(held) if held else self._text(what).strip()
        # What the user writes is meant as it stands, not as an expression.
        return self._make("grep", words, "grep", pattern=re.escape(words).replace("\\ ", " "), path=path or ".")

    def _write(self, verb: str, rest: str) -> list[OfflineCommand]:
        held = _HELD.search(rest)
        target = re.search(r"\b(?:to|into)\s+(\S+)", rest) or re.match(
            r"(?:file\s+)?(\S+)\s+(?:with|containing)\b", rest
        )
        path = self._path(target[1]) if target else ""
        if held is None or not path:
            return self._wrong(verb, rest)
        return self._make(verb, path, "write_file", path=path, content=self._inside(held))

    def _replace(self, verb: str, rest: str) -> list[OfflineCommand]:
        said = re.search(r"(\ue000\d+\ue001)\s+(?:with|by)\s+(\ue000\d+\ue001)(?:\s+in\s+(\S+))?", rest)
        path = self._path(said[3] or rest[: said.start()]) if said else ""
        if said is None or not path:
            return self._wrong(verb, rest)
        more = {"replace_all": True} if rest.endswith(" everywhere") else {}
        old, new = self._whole(said[1], strip=False), self._whole(said[2], strip=False)
        return self._make(verb, path, "edit_file", path=path, old=old, new=new, **more)

    def _run(self, verb: str, rest: str) -> list[OfflineCommand]:
        if (own := _AGENT.fullmatch(rest)) and "run_agent" in self._offered:
            return self._make("agent", own["agent"], "run_agent", agent=own["agent"], task=self._whole(own["task"]))
        command = _FULL_STOP.sub("", self._whole(rest))
        if re.match(r"(?:the|a|an|it|all|this|that|my)\b", command, re.IGNORECASE):
            return self._wrong(verb, command)
        return self._make(verb, command, "run_command", command=command)

    def _fetch(self, verb: str, rest: str) -> list[OfflineCommand]:
        urls = _URL.findall(self._text(rest))
        return [each for url in urls for each in self._make(verb, url, "fetch_url", url=url)]

    def _recall(self, verb: str, rest: str) -> list[OfflineCommand]:
        return self._make(verb, self._whole(rest), "recall", query=self._whole(rest))

    def _done(self, verb: str, rest: str) -> list[OfflineCommand]:
        detail = self._whole(rest) or "The task is done."
        return self._make(verb, detail, "mark_task_done", detail=detail)

    def _ask(self, verb: str, rest: str) -> list[OfflineCommand]:
        if rest.startswith("me "):
            question, *choices = self._all_quoted(rest) or [""]
            if not question:
                return self._wrong(verb, rest)
            return self._make(verb, question, ASK, question=question, choices=choices)
        path, _, question = rest.partition(" ")
        parts = self._path(path), self._whole(question)
        return self._make(verb, parts[0], "agentic_read_file", path=parts[0], question=parts[1]) if parts[1] else []

    def _research(self, verb: str, rest: str) -> list[OfflineCommand]:
        what, path = self._within(rest)
        question = self._whole(what)
        return self._make(verb, question, "agentic_research", question=question, path=path or ".")

    def _todo(self, verb: str, rest: str) -> list[OfflineCommand]:
        items = [_item(text) for text in self._all_quoted(rest) if text]
        return self._make(verb, "task list", TODO, items=items) if items else self._wrong(verb, rest or verb)

    def _plan(self, verb: str, rest: str) -> list[OfflineCommand]:
        steps = self._all_quoted(rest)
        if not steps:
            return self._wrong(verb, rest or verb)
        return self._make(verb, "plan", PLAN, plan="What you asked for, step by step.", steps=steps)

    def _call(self, verb: str, rest: str) -> list[OfflineCommand]:
        """A call of a tool by its full name or its name on its server, with a JSON object or ``name=value`` pairs."""
        word, _, said = rest.partition(" ")
        wanted = self._whole(word).rstrip(":")
        name = next((each for each in self._offered if each == wanted or each.endswith(f"__{wanted}")), "")
        if not wanted or (not name and "__" not in wanted):
            return []
        given: dict[str, object] = {found["name"]: self._value(found["value"]) for found in _NAMED.finditer(said)}
        if "{" in said:
            try:
                given = msgspec.json.decode(self._text(said), type=dict[str, object])
            except ValueError:
                return self._wrong(verb, wanted)
        if not name or self._offered[name].deferred:
            return self._make(verb, wanted, CALL_TOOL, name=name or wanted, arguments=given)
        return self._make(verb, wanted, name, **given)

    def _value(self, text: str) -> object:
        """Parse the value after a name: a quoted text, else as JSON."""
        if held := _HELD.fullmatch(text):
            return self._inside(held)
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text

    def _within(self, rest: str) -> tuple[str, str]:
        found = _WITHIN.fullmatch(rest)
        return (found["what"], self._path(found["path"])) if found else (rest, "")

    def _path(self, words: str) -> str:
        if held := _HELD.search(words):
            return self._inside(held).strip()
        first = words.strip().split(" ")[0]
        first = first.removeprefix("@") or first
        return first if first in {".", ".."} else first.rstrip(",;:!?")

    def _whole(self, rest: str, *, strip: bool = True) -> str:
        held = _HELD.fullmatch(rest.strip().rstrip("."))
        text = self._inside(held) if held else self._text(rest)
        return text.strip() if strip else text

    def _all_quoted(self, rest: str) -> list[str]:
        return [self._inside(held).strip() for held in _HELD.finditer(rest)]

    def _inside(self, held: re.Match[str]) -> str:
        return self._quotes[int(held[1])][1]

    def _text(self, rest: str) -> str:
        return _HELD.sub(lambda match: self._quotes[int(match[1])][0], rest)


def _item(text: str) -> TodoItem:
    """Parse ``[x] read it`` as an item of a task list; without a mark it is pending."""
    for state, mark in MARKS.items():
        if text.startswith(mark):
            return TodoItem(text.removeprefix(mark).strip(), state)
    return TodoItem(text, "pending")
