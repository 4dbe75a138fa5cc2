"""Parses the commands that the offline model understands.

A request is split at separators before a verb: a new line, a comma, a middle dot, "and", "then", a list's number.
Read-only commands joined by "and" form one step, so their calls run in parallel; everything else runs in order.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.conversation.call_tool import CALL_TOOL
from tui_agent.conversation.plan import ASK, PLAN
from tui_agent.conversation.todo import MARKS, TODO, TodoItem

Verb: TypeAlias = Literal[
    "read",
    "summarise",
    "list",
    "glob",
    "grep",
    "write",
    "replace",
    "run",
    "fetch",
    "recall",
    "remember",
    "done",
    "todo",
    "ask",
    "plan",
    "research",
    "tools",
    "call",
    "agent",
    "think",
    "help",
]


FIND_TOOL = "find_tool"
RUN_AGENT = "run_agent"


class Command(NamedTuple):
    """A command: a tool's name and arguments (JSON text), or neither if only the answer's text is needed.

    `missing` says why it cannot be carried out; empty: it can.
    """

    verb: Verb
    subject: str
    tool: str = ""
    arguments: str = ""
    missing: str = ""


Step: TypeAlias = tuple[Command, ...]

_VERBS: Mapping[str, Verb] = {
    **dict.fromkeys(("read", "show", "open", "cat", "view", "print", "display"), "read"),
    **dict.fromkeys(("summarise", "summarize", "sum up"), "summarise"),
    **dict.fromkeys(("list", "ls"), "list"),
    "glob": "glob",
    **dict.fromkeys(("find", "grep", "search", "look for"), "grep"),
    **dict.fromkeys(("write", "create", "save"), "write"),
    **dict.fromkeys(("replace", "change", "edit"), "replace"),
    **dict.fromkeys(("run", "execute"), "run"),
    **dict.fromkeys(("fetch", "download"), "fetch"),
    "recall": "recall",
    "remember": "remember",
    **dict.fromkeys(("mark task done", "mark the task done", "mark the task as done", "done"), "done"),
    "todo": "todo",
    "ask": "ask",
    "plan": "plan",
    "research": "research",
    "call": "call",
    **dict.fromkeys(("think about", "think"), "think"),
    "help": "help",
}
READ_ONLY: frozenset[Verb] = frozenset(
    {"read", "summarise", "list", "glob", "grep", "recall", "ask", "research", "fetch", "tools", "agent"}
)
_MEMORY_TOOLS = ("remember", "save_memory", "write_memory", "memory_write")

_VERB = "|".join(re.escape(verb) for verb in sorted(_VERBS, key=len, reverse=True))
_POLITELY = r"(?:please\s+|now\s+|can you\s+|could you\s+|also\s+)*"
_START = re.compile(rf"{_POLITELY}(?P<verb>{_VERB})\b(?![./_=(\-])", re.IGNORECASE)
_LOOP = re.compile(
    rf"\s*(?:[-*•]\s+|\d+[.)]\s+)?{_POLITELY}(?:run|execute)\s+(?:for|while|until|if|case|\{{|\()\s", re.IGNORECASE
)
_CUT = re.compile(
    r"(?P<mark>\s*(?:[.;,]\s+)?(?:\band\s+then|\bthen|\bafter that,?|\band\s+also|\band)\s+"
    r"|\s*[.;,·]\s+|\s*\n\s*(?:[-*•]|\d+[.)])?\s*)"
    rf"(?=(?:please\s+|now\s+|also\s+)*(?:{_VERB})\b(?![./_=(\-]))",
    re.IGNORECASE,
)
_FULL_STOP = re.compile(r"(?<=[\w)\"'`*\ue001])[.!?]+$")
_LIST_MARK = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_QUOTED = re.compile(r"```[^\n`]*\n(.*?)\n?```|\"((?:[^\"\\]|\\.)*)\"|`([^`]*)`|(?<!\w)'([^'\n]*)'(?!\w)", re.DOTALL)
_HELD = re.compile("\ue000(\\d+)\ue001")
_TOOLS = re.compile(r"(?:a|the|any|some)?\s*tools?\s+(?:for|that|to|which|of|with)\s+(?:can\s+)?", re.IGNORECASE)
_AGENT = re.compile(r"(?:the\s+|my\s+)?agent\s+(?P<agent>[\w:.-]*[\w-]):?\s+(?P<task>.+)", re.IGNORECASE | re.DOTALL)
_NAMED = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)=(?P<value>\ue000\d+\ue001|[^\s,]+)")
_URL = re.compile(r"https?://[^\s<>\"'`]+")


class _Quote(NamedTuple):
    """A quoted text, with and without the quotes."""

    whole: str
    inside: str


def parse(text: str, tools: Sequence[ToolDefinition]) -> tuple[Step, ...]:
    """The steps that `text` asks for, using the tools in `tools`; empty if it contains no command."""
    quotes: list[_Quote] = []

    def hold(match: re.Match[str]) -> str:
        inside = next(group for group in match.groups() if group is not None)
        quotes.append(_Quote(match[0], inside.replace('\\"', '"')))
        return f"\ue000{len(quotes) - 1}\ue001"

    bare = _QUOTED.sub(hold, _HELD.sub("", text))
    offered = {tool.name: tool for tool in tools}
    steps: list[Step] = []
    for together, part in _parts(bare):
        commands = tuple(_commands(part, quotes, offered))
        alike = commands and steps and all(command.verb in READ_ONLY for command in (*steps[-1], *commands))
        if together and alike:
            steps[-1] = (*steps[-1], *commands)
        elif commands:
            steps.append(commands)
    return tuple(steps)


def _parts(text: str) -> list[tuple[bool, str]]:
    """The pieces of `text`, and whether each is joined to the one before by just "and"."""
    pieces: list[tuple[bool, str]] = []
    start, together = 0, False
    for cut in _CUT.finditer(text):
        if ";" in cut["mark"] and _LOOP.match(text, start):
            continue  # The shell's own: for i in 1 2; do ls; done
        pieces.append((together, text[start : cut.start()]))
        start, together = cut.end(), cut["mark"].strip(" ,").lower() == "and"
    pieces.append((together, text[start:]))
    return pieces


def _commands(part: str, quotes: Sequence[_Quote], offered: Mapping[str, ToolDefinition]) -> list[Command]:
    part = _LIST_MARK.sub("", part.strip())
    begun = _START.match(part)
    if begun is None:
        return []
    verb = _VERBS[begun["verb"].lower()]
    rest = part[begun.end() :].strip().lstrip(":").strip()
    if verb not in {"run", "think", "remember", "done", "recall"}:
        rest = _FULL_STOP.sub("", rest)
    if verb == "help" and rest:
        return []
    found = _Reader(quotes, offered).commands(verb, rest)
    return [command for command in found if command.subject or command.verb in {"help", "done"}]


class _Reader:
    """Turns a verb and the words that follow it into commands."""

    def __init__(self, quotes: Sequence[_Quote], offered: Mapping[str, ToolDefinition]) -> None:
        self._quotes = quotes
        self._offered = offered

    def commands(self, verb: Verb, rest: str) -> list[Command]:
        match verb:
            case "read" | "summarise":
                return [self._make(verb, path, "read_file", {"path": path}) for path in self._paths(rest)]
            case "list":
                what, path = self._within(rest, ("in", "of", "under"))
                plain = re.fullmatch(
                    r"(?:all\s+)?(?:the\s+)?(?:files|folders|contents|everything)?", what, re.IGNORECASE
                )
                path = path or ("." if plain else self._path(what))
                return [self._make(verb, path, "list_dir", {"path": path})]
            case "glob":
                return [self._glob(rest)]
            case "grep" if (asked := _TOOLS.match(rest)) and FIND_TOOL in self._offered:
                query = self._whole(rest[asked.end() :])
                return [self._make("tools", query, FIND_TOOL, {"query": query})]
            case "grep":
                return [self._grep(rest)]
            case "write":
                return self._write(rest)
            case "replace":
                return self._replace(rest)
            case "run" | "agent" if (own := _AGENT.fullmatch(rest)) and RUN_AGENT in self._offered:
                given = {"agent": own["agent"], "task": self._whole(own["task"])}
                return [self._make("agent", given["agent"], RUN_AGENT, given)]
            case "run" | "agent":
                return [self._run(rest)]
            case "call" | "tools":
                return self._call(rest)
            case "fetch":
                return [self._make(verb, url, "fetch_url", {"url": url}) for url in _URL.findall(self._text(rest))]
            case "ask" if rest.startswith("me "):
                return self._ask_user(rest)
            case "plan":
                return self._plan(rest)
            case "ask":
                path, _, question = rest.partition(" ")
                given = {"path": self._path(path), "question": self._whole(question)}
                return [self._make(verb, given["path"], "agentic_read_file", given)] if question else []
            case "research":
                question, path = self._within(rest, ("in", "under"))
                given = {"question": self._whole(question), "path": path or "."}
                return [self._make(verb, given["question"], "agentic_research", given)]
            case "recall":
                return [self._make(verb, self._whole(rest), "recall", {"query": self._whole(rest)})]
            case "remember":
                return [self._remember(re.sub(r"^(?:that|to)\s+", "", self._whole(rest)))]
            case "done":
                detail = self._whole(rest) or "The task is done."
                return [self._make(verb, detail, "mark_task_done", {"detail": detail})]
            case "todo":
                return self._todo(rest)
            case "think" | "help":
                return [Command(verb, self._text(rest))]

    def _make(self, verb: Verb, subject: str, tool: str, arguments: Mapping[str, object]) -> Command:
        if tool not in self._offered:
            return Command(verb, subject, missing=f"the tool `{tool}` is not available here")
        return Command(verb, subject, tool, msgspec.json.encode(arguments).decode())

    def _call(self, rest: str) -> list[Command]:
        """A call of a tool by its full name or its name on its server, with a JSON object or ``name=value`` pairs."""
        word, _, said = rest.partition(" ")
        wanted = self._whole(word).rstrip(":")
        name = next((each for each in self._offered if each == wanted or each.endswith(f"__{wanted}")), "")
        through = not name or self._offered[name].deferred
        if not wanted or (not name and "__" not in wanted):
            return []
        try:
            arguments = self._given(said)
        except ValueError:
            return [Command("call", wanted, missing='say it like: call NAME word="value", or with a JSON object')]
        if through:
            return [self._make("call", wanted, CALL_TOOL, {"name": name or wanted, "arguments": arguments})]
        return [self._make("call", wanted, name, arguments)]

    def _given(self, said: str) -> dict[str, object]:
        """Parse the arguments of a call. Raises ValueError if a JSON object is invalid."""
        if "{" in said:
            return msgspec.json.decode(self._text(said), type=dict[str, object])
        return {found["name"]: self._value(found["value"]) for found in _NAMED.finditer(said)}

    def _value(self, text: str) -> object:
        """Parse the value after a name: a quoted text, else as JSON."""
        if held := _HELD.fullmatch(text):
            return self._quotes[int(held[1])].inside
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text

    def _run(self, rest: str) -> Command:
        command = _FULL_STOP.sub("", self._whole(rest))
        if re.match(r"(?:the|a|an|it|all|this|that|my)\b", command, re.IGNORECASE):
            return Command("run", command, missing="write the command itself, like: run pytest -q")
        return self._make("run", command, "run_command", {"command": command})

    def _glob(self, rest: str) -> Command:
        what, path = self._within(rest, ("in", "under"))
        pattern = self._path(what)
        return self._make("glob", pattern, "glob", {"pattern": pattern, **({"path": path} if path else {})})

    def _grep(self, rest: str) -> Command:
        rest = re.sub(r"^for\s+", "", rest, flags=re.IGNORECASE)
        files = re.match(r"(?:all\s+)?(?:the\s+)?files\s+(?:named|called|matching|like)?\s*", rest, re.IGNORECASE)
        what, path = self._within(rest[files.end() :] if files else rest, ("in", "under", "within"))
        if files or (re.search(r"\*", what) and not _HELD.search(what)):
            return self._glob(rest[files.end() :] if files else rest)
        held = _HELD.search(what)
        words = self._quotes[int(held[1])].inside if held else self._text(what).strip()
        path = path or "."
        # What the user writes is meant as it stands, not as an expression.
        return self._make("grep", words, "grep", {"pattern": re.escape(words).replace("\\ ", " "), "path": path})

    def _write(self, rest: str) -> list[Command]:
        held = _HELD.search(rest)
        target = re.search(r"\b(?:to|into|in|as|file)\s+(\S+)", _HELD.sub(" ", rest) if held else rest)
        path = self._path(target[1]) if target else self._path(_HELD.sub(" ", rest).strip().split(" ")[0])
        backwards = re.match(r"(\S+)\s+(?:with|containing|saying)\b", re.sub(r"^(?:the\s+)?file\s+", "", rest))
        if backwards:
            path = self._path(backwards[1])
        if held is None or not path:
            return [Command("write", rest, missing='say what and where, like: write "text" to notes.txt')]
        content = self._quotes[int(held[1])].inside
        return [self._make("write", path, "write_file", {"path": path, "content": content})]

    def _replace(self, rest: str) -> list[Command]:
        held = [self._quotes[int(number)].inside for number in _HELD.findall(rest)]
        target = re.search(r"\b(?:in|of)\s+(?:the\s+)?(?:file\s+)?(\S+)", rest)
        path = self._path(target[1]) if target else ""
        if not target and len(held) == 3:
            path = held.pop(0)
        elif target and (named := _HELD.search(target[1])) and len(held) == 3:
            held.remove(self._quotes[int(named[1])].inside)
        elif not target and len(held) == 2:
            path = self._path(rest.split(" ", maxsplit=1)[0])
        if len(held) != 2 or not path or _HELD.search(path):
            return [Command("replace", rest, missing='say it like: replace "old" with "new" in file.py')]
        everywhere = bool(re.search(r"\b(?:everywhere|all occurrences|every occurrence)\b", rest, re.IGNORECASE))
        given = {"path": path, "old": held[0], "new": held[1], **({"replace_all": True} if everywhere else {})}
        return [self._make("replace", path, "edit_file", given)]

    def _todo(self, rest: str) -> list[Command]:
        written = [self._quotes[int(number)].inside.strip() for number in _HELD.findall(rest)]
        items = [_item(text) for text in written if text]
        if not items:
            return [Command("todo", rest, missing='say it like: todo "[x] read it", "[>] mend it", "run the tests"')]
        return [self._make("todo", "task list", TODO, {"items": items})]

    def _ask_user(self, rest: str) -> list[Command]:
        question, *choices = [self._quotes[int(number)].inside.strip() for number in _HELD.findall(rest)] or [""]
        if not question:
            return [Command("ask", rest, missing='say it like: ask me "Which one?" "this", "that"')]
        return [self._make("ask", question, ASK, {"question": question, "choices": choices})]

    def _plan(self, rest: str) -> list[Command]:
        steps = [self._quotes[int(number)].inside.strip() for number in _HELD.findall(rest)]
        if not steps:
            return [Command("plan", rest, missing='say it like: plan "mend it", "run the tests"')]
        return [self._make("plan", "plan", PLAN, {"plan": "What you asked for, step by step.", "steps": steps})]

    def _remember(self, text: str) -> Command:
        for name in _MEMORY_TOOLS:
            if name in self._offered:
                required = msgspec.json.decode(self._offered[name].schema or "{}", type=_Schema).required
                return self._make("remember", text, name, {(required or ("text",))[-1]: text})
        return Command("remember", text, missing="there is no memory tool here")

    def _paths(self, rest: str) -> list[str]:
        named = re.sub(r"^(?:the\s+)?(?:files?|contents\s+of)\s+", "", rest, flags=re.IGNORECASE)
        named = re.sub(r"^(?:me\s+)?(?:the\s+)?(?:[\w\s]+\bof\s+)?", "", named, flags=re.IGNORECASE)
        words = [word for word in re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s*\n\s*", named) if word.strip()]
        return [self._path(word) for word in words if self._path(word)]

    def _within(self, rest: str, prepositions: Sequence[str]) -> tuple[str, str]:
        found = re.search(
            rf"^(.*?)\s*\b(?:{'|'.join(prepositions)})\s+(?:the\s+)?(?:folder\s+)?(\S+)\s*$", rest, re.DOTALL
        )
        return (found[1], self._path(found[2])) if found else (rest, "")

    def _path(self, words: str) -> str:
        held = _HELD.search(words)
        if held:
            return self._quotes[int(held[1])].inside.strip()
        first = words.strip().split(" ")[0] if words.strip() else ""
        first = first.removeprefix("@") or first
        return first if first in {".", ".."} else first.rstrip(",;:!?")

    def _whole(self, rest: str) -> str:
        held = _HELD.fullmatch(rest.strip().rstrip("."))
        return self._quotes[int(held[1])].inside.strip() if held else self._text(rest).strip()

    def _text(self, rest: str) -> str:
        return _HELD.sub(lambda match: self._quotes[int(match[1])].whole, rest)


def _item(text: str) -> TodoItem:
    """Parse ``[x] read it`` as an item of a task list; without a mark it is pending."""
    for state, mark in MARKS.items():
        if text.startswith(mark):
            return TodoItem(text.removeprefix(mark).strip(), state)
    return TodoItem(text, "pending")


class _Schema(msgspec.Struct, frozen=True):
    required: tuple[str, ...] = ()
