"""Answers of one value: its type as a JSON Schema for the model, and the value in the model's text.

The schema is part of the prompt, not of a provider's own parameter. So it works with every model, whatever part of JSON
Schema its provider supports, and the agent can use its tools before the answer.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

import msgspec

from tui_agent.regex import regex
from tui_agent.text import error_text

T = TypeVar("T")

_FENCED: Final = regex(r"```[\w-]*[ \t]*\n(.*?)\n?```", re.DOTALL)
_PROBLEM_CHARS: Final = 1_000


class TurnError(Exception):
    """A turn that `Agent.ask` started gave no answer.

    `kind` and `message` are those of the event `TurnFailed`, `hint` says what to do, `retryable` whether `run()` or
    `ask()` without a prompt may succeed. `text` is the answer as far as it came, or one that does not have the type
    asked for. Everything up to then is kept in the conversation.
    """

    def __init__(self, kind: str, message: str, *, hint: str = "", retryable: bool = False, text: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.retryable = retryable
        self.text = text


class NoValue(ValueError):
    """A text has no value of the type asked for; the message says why, for the model."""


class AnswerType(Generic[T]):
    """The type of an answer: a `msgspec.Struct`, a dataclass, a `TypedDict`, a builtin, a list of these …, or a model
    of pydantic.
    """

    def __init__(self, output: type[T]) -> None:
        """Raises TypeError for a type that JSON cannot express."""
        self._type = output
        # A model of pydantic describes and reads itself.
        describe: Callable[[], dict[str, object]] | None = getattr(output, "model_json_schema", None)
        self._read: Callable[[str], T] | None = getattr(output, "model_validate_json", None)
        try:
            schema = describe() if describe is not None else msgspec.json.schema(output)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{output!r} cannot be the type of an answer: {error}") from error
        self.instruction: Final = instruction(json.dumps(schema, ensure_ascii=False))

    def read(self, answer: str) -> T:
        """The value in an answer. Raises `NoValue`."""
        problem = ""
        for text in candidates(answer):
            try:
                return self._read(text) if self._read is not None else msgspec.json.decode(text, type=self._type)
            except (ValueError, RecursionError) as error:
                problem = problem or error_text(error, _PROBLEM_CHARS)
        raise NoValue(problem)


def instruction(schema: str) -> str:
    """The text for the model after the prompt: answer with a value that is valid under this JSON Schema."""
    return (
        "When all is done, let your last message be the result and nothing else: one JSON value, without a code "
        f"fence and without words around it, that is valid under this JSON Schema:\n{schema}"
    )


def repair(problems: Iterable[str], again: str) -> str:
    """The text for the model if its result is not valid; `again` is the instruction."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    return f"That result is not valid:\n{listed}\n\n{again}"


def candidates(answer: str) -> tuple[str, ...]:
    """The texts of an answer that may be its value: all of it, or its last code block."""
    return (answer, *(_FENCED.findall(answer)[-1:]))
