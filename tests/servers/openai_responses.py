"""OpenAI's Responses API on 127.0.0.1, without storage: reasoning goes out encrypted and must come back as it went."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar

from typing_extensions import override

from tests.servers import signing
from tests.servers.cache import CacheUse, Segment
from tests.servers.catalogue import OPENAI, ModelSpec
from tests.servers.faults import RuleBroken
from tests.servers.openai_chat import MESSAGES, ChatServer
from tests.servers.openai_chat_rules import Checked
from tests.servers.openai_responses_rules import OVERFLOW, check, item_tokens
from tests.servers.recording import RecordedRequest
from tests.servers.script import Fault, ParsedRequest, Said, Step, parsed
from tests.servers.server import Event, Reply, compact, pieces, tokens_in, within
from tests.servers.wire import Exchange, Request

ENDPOINT = "responses"
"""The name of the endpoint that the settings would have for this server."""


class ResponsesServer(ChatServer):
    """``async with ResponsesServer(script) as server:`` at an address the settings name, with ``api`` responses."""

    catalogue: ClassVar[tuple[ModelSpec, ...]] = OPENAI
    summaries = True
    """Whether summaries of reasoning are given: to verified accounts alone."""
    compacts = False
    """Whether conversations are compacted."""

    @override
    def fault_error(self, fault: Fault, spec: ModelSpec, tokens: int) -> RuleBroken:
        if fault.kind == "context_overflow":
            return RuleBroken(fault.message or OVERFLOW, kind="context_length_exceeded")
        return super().fault_error(fault, spec, tokens)

    @override
    def broken_event(self, fault: Fault) -> bytes:
        error = {"type": "overloaded", "code": "overloaded", "message": fault.message or MESSAGES[529], "param": None}
        return _event({"type": "error", "sequence_number": 0, "error": error}).data

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        if (request.method, request.path) == ("POST", "/v1/responses/compact") and self.compacts:
            self.check_key(request)
            await exchange.respond(200, self._compacted(check(request.body, self.models, self.issued, answers=False)))
            return
        if (request.method, request.path) != ("POST", "/v1/responses"):
            await super().route(request, recorded, exchange)
            return
        self.check_key(request)
        checked = check(request.body, self.models, self.issued)
        if checked.body.get("reasoning") and not self.summaries:
            raise RuleBroken(
                "Your organization must be verified to generate reasoning summaries.", kind="unsupported_value"
            )
        head = compact(checked.body.get("tools") or "") + checked.body.get("instructions", "")
        segments = [Segment(head.encode(), tokens_in(head))]
        segments += [Segment(compact(each).encode(), item_tokens(each)) for each in checked.body["input"]]

        def reply(step: Step, _fault: Fault | None, attempt: int) -> Reply:
            use = self.cache.use_implicit(checked.spec.id, segments, checked.spec.minimum_cached)
            return _Answering(self, checked, step, use, attempt).reply()

        asked = parse(checked.body, checked.spec.id)
        await self.answer(recorded.number, asked, checked, exchange, reply, streamed=True)

    def _compacted(self, checked: Checked) -> dict[str, Any]:
        """What the user said, then an item for what else was said, which only this model can read."""
        items = checked.body["input"]
        nonce = hashlib.sha256(compact(items).encode()).hexdigest()
        sealed = signing.sign(checked.spec.id, nonce[:16], "é" + compact(items))
        item = {"id": f"cmp_{nonce[:24]}", "type": "compaction", "encrypted_content": sealed}
        self.issued.add(checked.spec.id + compact(item))
        said = [each for each in items if each.get("role") == "user"]
        usage = {"input_tokens": checked.tokens, "input_tokens_details": {"cached_tokens": 0}}
        usage |= {"output_tokens": 700, "output_tokens_details": {"reasoning_tokens": 0}}
        told = {"id": f"resp_{nonce[:24]}", "object": "response.compaction", "created_at": 1}
        return {**told, "output": [*said, item], "usage": usage}


class _Answering:
    """Turns one step into the events of an answer."""

    def __init__(self, server: ResponsesServer, checked: Checked, step: Step, use: CacheUse, attempt: int) -> None:
        self._server = server
        self._checked = checked
        self._step = within(step, checked.room)
        self._use = use
        self._events: list[Event] = []
        self._output: list[dict[str, Any]] = []
        seed = f"{checked.tokens}|{len(checked.body['input'])}|{attempt}|{checked.body['input'][-1]}"
        self._nonce = hashlib.sha256(seed.encode()).hexdigest()

    def reply(self) -> Reply:
        step, body = self._step, self._checked.body
        self._tell("response.created", response=self._response("in_progress"))
        self._tell("response.in_progress", response=self._response("in_progress"))
        if "reasoning.encrypted_content" in body.get("include", ()):
            self._reason(summaries=bool(body.get("reasoning")))
        pages = step.pages if {"type": "web_search"} in body.get("tools", ()) else ()
        for number in range(2 if pages else 0):
            call = {"type": "web_search_call", "id": f"ws_{number}{self._nonce[:20]}", "status": "completed"}
            index = len(self._output)
            self._tell("response.output_item.added", output_index=index, item=call | {"status": "in_progress"})
            self._finish(index, {**call, "action": {"type": "search", "query": "x"}})
        if step.text:
            self._say(pages)
        for index in range(len(step.calls)):
            self._call(index)
        usage = self._usage()
        cut = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}.get(step.stop_reason or "")
        status = "incomplete" if cut else "completed"
        details = {"reason": cut} if cut else None
        self._tell(f"response.{status}", response=self._response(status, usage=usage, incomplete_details=details))
        counted = {"input_tokens": usage["input_tokens"], "output_tokens": usage["output_tokens"]}
        return Reply(self._response(status, usage=usage), self._events, {**counted, "cached_tokens": self._use.read})

    def _reason(self, *, summaries: bool) -> None:
        index, text = len(self._output), self._step.reasoning
        encrypted = signing.sign(self._checked.spec.id, self._nonce[:16], text)
        item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{self._nonce[:24]}", "summary": []}
        self._tell("response.output_item.added", output_index=index, item=item)
        half = len(text) // 2
        parts = [part for part in (text[:half], text[half:]) if part] if summaries else []
        for i, part in enumerate(parts):
            place: dict[str, Any] = {"item_id": item["id"], "output_index": index, "summary_index": i}
            self._tell("response.reasoning_summary_part.added", part={"type": "summary_text", "text": ""}, **place)
            for piece in pieces(part, self._step.piece):
                self._tell("response.reasoning_summary_text.delta", paced=True, delta=piece, **place)
            self._tell("response.reasoning_summary_text.done", text=part, **place)
        summary = [{"type": "summary_text", "text": part} for part in parts]
        done = {**item, "summary": summary, "encrypted_content": encrypted}
        self._server.issued.add(compact(done))
        self._finish(index, done)

    def _say(self, pages: tuple[tuple[str, str], ...] = ()) -> None:
        index, text = len(self._output), self._step.text
        item = {"type": "message", "id": f"msg_{self._nonce[:24]}", "role": "assistant", "status": "in_progress"}
        self._tell("response.output_item.added", output_index=index, item={**item, "content": []})
        place: dict[str, Any] = {"item_id": item["id"], "output_index": index, "content_index": 0}
        for piece in pieces(text, self._step.piece):
            self._tell("response.output_text.delta", paced=True, delta=piece, **place)
        self._tell("response.output_text.done", text=text, **place)
        cited = {"type": "url_citation", "start_index": 0, "end_index": 1}
        annotations = [{**cited, "title": title, "url": url} for title, url in pages]
        content = [{"type": "output_text", "text": text, "annotations": annotations}]
        phase = {"phase": "commentary" if self._step.calls else "final_answer"}
        self._finish(index, {**item, "status": "completed", "content": content, **phase})

    def _call(self, number: int) -> None:
        index, call = len(self._output), self._step.calls[number]
        arguments = compact(call.args)
        item = {"type": "function_call", "id": f"fc_{self._nonce[number:][:24]}", "name": call.name, "arguments": ""}
        item["call_id"] = call.id or f"call_{self._nonce[number * 2 :][:24]}"
        self._tell("response.output_item.added", output_index=index, item=item)
        for piece in pieces(arguments, self._step.piece):
            place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
            self._tell("response.function_call_arguments.delta", paced=True, delta=piece, **place)
        self._finish(index, {**item, "arguments": arguments, "status": "completed"})

    def _finish(self, index: int, item: dict[str, Any]) -> None:
        self._tell("response.output_item.done", output_index=index, item=item)
        self._output.append(item)

    def _usage(self) -> dict[str, Any]:
        step = self._step
        thoughts = tokens_in(step.reasoning)
        answered = tokens_in(step.text + "".join(call.name + compact(call.args) for call in step.calls)) + thoughts
        read = step.input_tokens or self._use.total
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": self._use.read},
            "output_tokens": answered,
            "output_tokens_details": {"reasoning_tokens": thoughts},
            "total_tokens": read + answered,
        }

    def _response(self, status: str, **more: Any) -> dict[str, Any]:
        names = {"id": f"resp_{self._nonce[:24]}", "object": "response", "model": self._checked.spec.id}
        return {**names, "status": status, "error": None, "output": self._output[:], "usage": None, **more}

    def _tell(self, kind: str, *, paced: bool = False, **fields: Any) -> None:
        self._events.append(_event({"type": kind, "sequence_number": len(self._events), **fields}, paced=paced))


def parse(body: dict[str, Any], model: str) -> ParsedRequest:
    """The provider-neutral view of a checked request."""
    said: list[Said] = []
    for item in body["input"]:
        match item["type"]:
            case "message":
                said.append(Said(item["role"], "".join(part.get("text", "") for part in item["content"])))
            case "compaction":
                pass
            case "function_call_output":
                output = item["output"]
                text = output if isinstance(output, str) else "".join(part.get("text", "") for part in output)
                said.append(Said("user", "", (text,)))
            case _:
                said.append(Said("assistant", ""))
    tools = [tool.get("name", tool["type"]) for tool in body.get("tools", ())]
    return parsed("openai", body, said, model=model, system=body.get("instructions", ""), tools=tools)


def _event(value: dict[str, Any], *, paced: bool = False) -> Event:
    return Event(f"event: {value['type']}\ndata: {compact(value)}\n\n".encode(), paced)
