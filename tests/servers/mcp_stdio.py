"""A server of tools over standard input and output (MCP 2025-06-18), written from the specification without its SDK.

It enforces what a client must do: the handshake comes first, a cancelled request gets no answer. What is wrong with it
is said by its arguments, one fault each; see `main`. It imports little, so that a test can have many of them.
"""

import json
import os
import sys
import time
from typing import Any

FAULTS = sys.argv[1:]
ONE_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def tool(name: str, description: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


TEXT = {"type": "string"}
TOOLS: list[dict[str, Any]] = [
    tool("echo", "Say the same again.", text=TEXT),
    tool("add", "Add two numbers.", a={"type": "number"}, b={"type": "number"}),
    {**tool("look", "Look at the weather of a city.", city=TEXT), "annotations": {"readOnlyHint": True}},
    tool("picture", "A picture of one point."),
    tool("wait", "Wait until it is cancelled, with progress."),
    tool("cancelled", "How many requests were cancelled."),
    tool("die", "End this server."),
    tool("large", "An answer of that many bytes.", size={"type": "integer"}),
    tool("escape", "Terminal escapes."),
    tool("grow", "Offer one more tool from now on."),
    tool("variables", "The names of the environment."),
    tool("orphan", "Start a process that outlives this one, as far as it can."),
    tool("hurt", "Fail."),
    tool("ask", "Ask the user."),
]
"""What it offers."""
if "lies" in FAULTS:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(300):
        deep = {"type": "object", "properties": {"x": deep}}
    TOOLS += [
        {"name": "deep", "description": "Nested 600 levels deep.", "inputSchema": deep},
        {"name": "odd name/with\x1b[31m signs", "description": "x" * 50_000, "inputSchema": {"type": "object"}},
        {"name": "either", "description": "One of two.", "inputSchema": {"type": "object", "anyOf": [{}, {}]}},
        {"name": "wrong", "description": "No schema.", "inputSchema": {"type": "object", "properties": {"a": 7}}},
        {
            "name": "promise",
            "description": "Answers otherwise than it says.",
            "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        },
    ]
if listed := next((fault for fault in FAULTS if fault.startswith("tools=")), ""):
    with open(listed[6:], encoding="utf-8") as stream:  # noqa: PTH123 - it imports little
        TOOLS = json.load(stream)


class State:
    ready = False
    cancelled = 0
    grown = 0


state = State()
waiting: set[object] = set()
asking: dict[object, object] = {}


def say(**message: Any) -> None:
    if "chatty" in FAULTS:
        sys.stdout.write('Listening …\n\n{"level": "debug"}\n[1, 2]\n\x1b[32mready\x1b[0m\n')
    if "new" in FAULTS:
        message["extra"] = {"a": [None]}
        if isinstance(message.get("result"), dict):
            message["result"] = {**message["result"], "resultKind": "later", "_meta": {"x": 1}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(*parts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": part} for part in parts], **more}


def call(number: Any, name: str, given: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any] | None:
    match name:
        case "echo":
            return text(str(meta.get(given["text"], given["text"])))
        case "add":
            total = given["a"] + given["b"]
            return text(json.dumps({"sum": total}), structuredContent={"sum": total})
        case "look":
            return {"content": [], "structuredContent": {"city": given["city"], "sun": True}}
        case "picture":
            return {"content": [{"type": "image", "data": ONE_PIXEL, "mimeType": "image/png"}]}
        case "wait":
            waiting.add(number)
            if "progressToken" in meta:
                told = {"progressToken": meta["progressToken"], "progress": 1, "total": 4, "message": "half-hearted"}
                say(method="notifications/progress", params=told)
            return None
        case "cancelled":
            return text(str(state.cancelled))
        case "die":
            sys.stderr.write("I have had enough\n")
            sys.stderr.flush()
            os._exit(7)
        case "large":
            return text("x" * given["size"])
        case "escape":
            return text("\x1b]0;owned\x07\x1b[2Jhello\x1b[31m red")
        case "grow":
            state.grown += 1
            TOOLS.append(tool(f"grown_{state.grown}", "A tool that was not there before.", text=TEXT))
            say(method="notifications/tools/list_changed")
            return text("grown")
        case "variables":
            return text(" ".join(sorted(os.environ)))
        case "orphan":
            reading, writing = os.pipe()
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.write(writing, str(os.getpid()).encode())
                    os.execv("/bin/sleep", ["sleep", "600"])  # noqa: S606
                os._exit(0)
            return text(os.read(reading, 20).decode())
        case "ask":
            asking["ask-1"] = number
            wanted = {
                "colour": {"type": "string", "enum": ["red", "blue"]},
                "count": {"type": "integer"},
                "sure": {"type": "boolean"},
                "more": {"type": "string", "enum": ["a"]},
            }
            schema = {"type": "object", "properties": wanted, "required": ["colour", "count", "sure"]}
            params = {"message": "Which one?", "requestedSchema": schema}
            say(id="ask-1", method="elicitation/create", params=params)
            return None
        case "hurt":
            return text("it hurts", isError=True)
        case "promise":
            return {"content": [], "structuredContent": {"n": "seven"}}
    return text(name)


def answer(method: str, number: Any, params: dict[str, Any]) -> None:
    if method == "initialize":
        if "hangs" in FAULTS:
            return
        if "early" in FAULTS:
            say(id="early-1", method="ping")
            say(id="early-2", method="roots/list")
            say(id="early-3", method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
            say(method="notifications/message", params={"level": "info", "data": "early"})
        told: dict[str, Any] = {
            "protocolVersion": "2024-11-05" if "old" in FAULTS else "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "test", "title": "Test server", "version": "1"},
            "instructions": "Ask me \x1b[1manything\x1b[0m." + " Really." * ("talks" in FAULTS) * 5_000,
        }
        say(id=number, result=told)
    elif not state.ready:
        say(id=number, error={"code": -32600, "message": "the handshake comes first"})
    elif method == "prompts/list":
        needed = [{"name": "what", "required": True}, {"name": "how"}]
        say(id=number, result={"prompts": [{"name": "review", "description": "Review it.", "arguments": needed}]})
    elif method == "prompts/get":
        asked = f"Please review {params['arguments']['what']} {params['arguments'].get('how', 'well')}."
        say(id=number, result={"messages": [{"role": "user", "content": {"type": "text", "text": asked}}]})
    elif method == "resources/read":
        contents = [{"uri": params["uri"], "mimeType": "text/plain", "text": f"all of {params['uri']}"}]
        say(id=number, result={"contents": contents})
    elif method == "tools/list":
        start = int(params.get("cursor") or 0)
        page: dict[str, Any] = {"tools": TOOLS[start : start + 100]}
        if start + 100 < len(TOOLS):
            page["nextCursor"] = str(start + 100)
        say(id=number, result=page)
    elif method == "tools/call":
        if params["name"] not in [each["name"] for each in TOOLS]:
            say(id=number, error={"code": -32602, "message": f"Unknown tool: {params['name']}"})
            return
        found = call(number, params["name"], params.get("arguments") or {}, params.get("_meta") or {})
        if found is not None:
            say(id=number, result=found)
    else:
        say(id=number, error={"code": -32601, "message": f"no method {method}"})


def notified(method: str, params: dict[str, Any]) -> None:
    if method == "notifications/initialized":
        state.ready = True
        if "floods" in FAULTS:
            while True:
                say(method="notifications/message", params={"level": "info", "data": "x" * 200})
    elif method == "notifications/cancelled" and params.get("requestId") in waiting:
        state.cancelled += 1


def main() -> None:
    """Serve until the input ends. Faults: ``hangs`` (never answers the handshake), ``dies`` (at once), ``floods``,
    ``endless`` (one line that never ends), ``noisy`` (a flood of errors), ``deaf`` (ignores the end of its input),
    ``lies`` (about its tools), ``talks`` (long instructions), ``tools=FILE`` (offers those), ``chatty`` (prints what is
    no message between its messages), ``early`` (asks the client before the handshake is over), ``old`` (speaks the
    protocol of 2024-11-05), ``new`` (fields that nobody knows in everything it says).
    """
    if "dies" in FAULTS:
        sys.stderr.write("no licence found\n")
        raise SystemExit(3)
    while "endless" in FAULTS:
        sys.stdout.write("x" * 65_536)
    if "noisy" in FAULTS:
        for _ in range(200):
            sys.stderr.write("noise " * 10_000 + "\n")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message["method"], message["id"], message.get("params") or {})
        elif message.get("id") in asking:
            say(id=asking.pop(message["id"]), result=text(json.dumps(message.get("result"))))
        elif "method" in message:
            notified(message["method"], message.get("params") or {})
    while "deaf" in FAULTS:
        time.sleep(60)


if __name__ == "__main__":
    main()
