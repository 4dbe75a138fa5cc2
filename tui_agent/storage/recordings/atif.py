"""Trajectories in the Agent Trajectory Interchange Format (ATIF), versions 1.0 to 1.8.

One JSON document with `steps` of the sources `system`, `user` and `agent`; the format is Harbor's RFC 0001. An agent's
step holds its calls and, under `observation`, their results. `prompt_tokens` counts what was read from the cache; what
was written to it stands in `metrics.extra`, where it is told at all. As `tui-agent trace --atif` writes them, a
compaction is a step of the system with `extra.compaction`, and what the program told the model is one with
`extra.kind`. Subagents' trajectories are conversations of their own. Some programs write an answer with several calls
as several steps, each with the metrics of the whole: since every prompt has the answers before it, two calls never have
the same.
"""

import msgspec
from typing_extensions import override

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall
from tui_agent.conversation.entries import Outcome, Usage, notice
from tui_agent.storage.recordings.fields import Json, blocks_of, picture_at, words
from tui_agent.storage.recordings.recording import ConversationBuilder, RecordingReader


class _Trajectory(msgspec.Struct):
    steps: list[msgspec.Raw]
    agent: msgspec.Raw = msgspec.Raw(b"null")


class AtifReader(RecordingReader):
    def __init__(self, builder: ConversationBuilder) -> None:
        super().__init__(builder)
        self._model = ""
        self._places: dict[int, int] = {}
        self._call = 0
        self._metrics: object = None
        """What the newest step says of its call, if that was the agent's."""

    @override
    def take(self, number: int, line: bytes) -> None:
        trajectory = msgspec.json.decode(line, type=_Trajectory)
        self._model = Json.decode(trajectory.agent)["model_name"].text
        self.builder.each(trajectory.steps, self._step)

    def _step(self, number: int, step: Json) -> None:
        time, builder, content = step["timestamp"].seconds, self.builder, step["message"]
        if step["source"].text != "agent":
            self._metrics = None
        match step["source"].text:
            case "system":
                extra = step["extra"].loose
                if compaction := extra["compaction"]:
                    kept = self._after(compaction["last_step"].count)
                    builder.compaction(number, compaction["text"].text, time, kept=kept)
                elif extra["kind"].text:
                    builder.add(notice(words(blocks_of(content, _block))), time)
                elif isinstance(content.value, str) and not builder.messages:
                    builder.system = builder.system or content.text
            case "user":
                builder.user(number, blocks_of(content, _block), time)
            case "agent":
                self._answer(number, step, time)
            case other:
                raise ValueError(f"unknown source {other[:40]!r}")
        self._places[step["step_id"].count] = builder.place

    def _after(self, last: int) -> int:
        """The message with which what follows a compaction's last step begins; -1: nothing does."""
        covered = self._places.get(last, -1)
        return next((place for step, place in self._places.items() if step > last and place > covered), -1)

    def _answer(self, number: int, step: Json, time: float) -> None:
        calls, results = list(step["tool_calls"]), list(step["observation"]["results"])
        blocks: list[Block] = [Reasoning(thought)] if (thought := step["reasoning_content"].text) else []
        blocks += blocks_of(step["message"], _block)
        blocks += [
            ToolCall(call["tool_call_id"].text, call["function_name"].text, call["arguments"].arguments)
            for call in calls
        ]
        metrics = step["metrics"]
        self._call += not (metrics["prompt_tokens"].count and metrics.value == self._metrics)
        self._metrics = metrics.value
        usage, model = self.builder.usage(number, metrics, _used), step["model_name"].text or self._model
        self.builder.answer(number, blocks, time, answer_id=str(self._call), model=model, usage=usage)
        for place, result in enumerate(results):
            # A result may leave out which call it answers where the step has as many calls as results.
            implied = calls[place]["tool_call_id"].text if len(calls) == len(results) else ""
            call_id, record = result["source_call_id"].text or implied, blocks_of(result["content"], _block)
            if call_id:
                extra = result["extra"].loose
                self.builder.result(
                    number,
                    call_id,
                    record,
                    time,
                    is_error=extra["is_error"].flag,
                    outcome=Outcome(exit_code=extra["exit_code"].exit_code),
                    duration_ms=extra["duration_ms"].count,
                )
            elif record:
                self.builder.user(number, record, time)


def _used(metrics: Json) -> Usage:
    extra, given = metrics["extra"].loose, metrics["prompt_tokens"].count
    if not given:
        return Usage()
    written, thoughts = extra["cache_creation_input_tokens"].count, extra["reasoning_tokens"].count
    read = metrics["cached_tokens"].count
    whole = given + written if given < read + written else given  # some leave out what was written
    return Usage(whole, read, written, metrics["completion_tokens"].count, thoughts)


def _block(part: Json) -> Block | None:
    if part["type"].text == "image" and part["source"]:
        return picture_at(part["source"]["path"].text)
    return Text(part["text"].text)
