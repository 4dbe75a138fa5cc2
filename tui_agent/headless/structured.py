"""A result that is valid under a JSON Schema: what the model is told, how its answer is read, what it is told to mend.

The schema goes in the user's words, not in a provider's own parameter: so it works with every model, whatever part of
JSON Schema its provider takes, and the agent keeps its tools until the answer.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tui_agent.arguments import UsageError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_SCHEMA_BYTES: Final = 256 * 1024
"""A schema is part of the request."""

_MOST_PROBLEMS: Final = 10
_PROBLEM_CHARACTERS: Final = 300
_FENCED: Final = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n?```", re.DOTALL)


JsonValue: TypeAlias = "Mapping[str, JsonValue] | Sequence[JsonValue] | str | float | bool | None"


class Found(NamedTuple):
    """What an answer holds: the value as JSON text, or what is wrong with it."""

    value: str
    problems: tuple[str, ...]


class ResultSchema:
    """The schema that a result has to be valid under."""

    def __init__(self, text: str, validator: "Validator") -> None:
        self._text = text
        self._validator = validator

    @classmethod
    def read(cls, path: Path) -> "ResultSchema":
        """The schema in a file. Raises `UsageError` where it cannot be read or is none."""
        # Imported here: only this asks for it, and it takes a tenth of a second.
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft202012Validator, validator_for
        from referencing import Registry

        try:
            data = path.read_bytes()
            schema = json.loads(data)
        except OSError as error:
            raise UsageError(f"--json-schema: {path} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"--json-schema: {path} is no JSON: {error}") from None
        if not isinstance(schema, dict):
            raise UsageError(f"--json-schema: {path} is no JSON Schema: expected an object")
        if len(data) > MAX_SCHEMA_BYTES:
            raise UsageError(f"--json-schema: {path} is longer than {MAX_SCHEMA_BYTES:,} bytes")
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            where = "/".join(map(str, error.absolute_path)) or "its top"
            raise UsageError(f"--json-schema: {path} is no JSON Schema: {error.message} (at {where})") from None
        # An empty registry: a reference to an address is never fetched.
        return cls(json.dumps(schema, ensure_ascii=False), kind(schema, registry=Registry()))

    def instruction(self) -> str:
        """What the model is told after the prompt."""
        return (
            "When all is done, let your last message be the result and nothing else: one JSON value, without a code "
            "fence and without words around it, that is valid under this JSON Schema:\n" + self._text
        )

    def find(self, answer: str) -> Found:
        """The value in an answer: the whole of it, or the one code block that it holds."""
        problem = "the answer is no JSON"
        for text in (answer, *(_FENCED.findall(answer)[-1:])):
            try:
                value = json.loads(text, parse_constant=_refuse)
            except (ValueError, RecursionError) as error:
                problem = f"the answer is no JSON: {error}" if text is answer else problem
                continue
            problems = self._problems(value)
            return Found("" if problems else json.dumps(value, ensure_ascii=False), problems)
        return Found("", (problem,))

    def repair(self, problems: tuple[str, ...]) -> str:
        """What the model is told where its result is not valid."""
        listed = "\n".join(f"- {problem}" for problem in problems)
        return f"That result is not valid:\n{listed}\n\n{self.instruction()}"

    def _problems(self, value: JsonValue) -> tuple[str, ...]:
        from referencing.exceptions import Unresolvable

        try:
            errors = sorted(self._validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
        except (Unresolvable, RecursionError, re.error) as error:
            return (f"the schema cannot be applied: {error}"[:_PROBLEM_CHARACTERS],)
        told = [f"at {error.json_path}: {error.message}"[:_PROBLEM_CHARACTERS] for error in errors[:_MOST_PROBLEMS]]
        return (*told, f"and {len(errors) - len(told)} more") if len(errors) > len(told) else tuple(told)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")
