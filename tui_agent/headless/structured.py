"""Results that are valid under a JSON Schema: instructing the model, reading its answer, asking for corrections.

The schema is part of the prompt, not of a provider's own parameter. So it works with every model, whatever part of JSON
Schema its provider supports, and the agent can use its tools before the answer.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tui_agent.agent.answers import candidates, instruction, repair
from tui_agent.arguments import UsageError

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_SCHEMA_BYTES: Final = 256 * 1024
"""The most bytes of a schema, which is part of the request."""

_MAX_PROBLEMS: Final = 10
_PROBLEM_CHARACTERS: Final = 300


JsonValue: TypeAlias = "Mapping[str, JsonValue] | Sequence[JsonValue] | str | float | bool | None"


class StructuredValue(NamedTuple):
    """The value in an answer as JSON text, or the problems with it."""

    value: str
    problems: tuple[str, ...]


class ResultSchema:
    """The schema that a result must be valid under."""

    def __init__(self, text: str, validator: "Validator") -> None:
        self._text = text
        self._validator = validator

    @classmethod
    def read(cls, path: Path) -> "ResultSchema":
        """Read the schema in a file. Raises `UsageError` if it cannot be read or is not a schema."""
        # Imported here because it takes 0.1 s and is rarely needed.
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft202012Validator, validator_for
        from referencing import Registry

        try:
            data = path.read_bytes()
            schema = json.loads(data)
        except OSError as error:
            raise UsageError(f"--json-schema: {path} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"--json-schema: {path} is not JSON: {error}") from None
        if not isinstance(schema, dict):
            raise UsageError(f"--json-schema: {path} is not a JSON Schema: expected an object")
        if len(data) > MAX_SCHEMA_BYTES:
            raise UsageError(f"--json-schema: {path} is longer than {MAX_SCHEMA_BYTES:,} bytes")
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            where = "/".join(map(str, error.absolute_path)) or "its top"
            raise UsageError(f"--json-schema: {path} is not a JSON Schema: {error.message} (at {where})") from None
        # With an empty registry, references to URLs are never fetched.
        return cls(json.dumps(schema, ensure_ascii=False), kind(schema, registry=Registry()))

    def instruction(self) -> str:
        """The text for the model after the prompt."""
        return instruction(self._text)

    def find(self, answer: str) -> StructuredValue:
        """The value in an answer: either all of it, or its only code block."""
        problem = "the answer is not JSON"
        for text in candidates(answer):
            try:
                value = json.loads(text, parse_constant=_refuse)
            except (ValueError, RecursionError) as error:
                problem = f"the answer is not JSON: {error}" if text is answer else problem
                continue
            problems = self._problems(value)
            return StructuredValue("" if problems else json.dumps(value, ensure_ascii=False), problems)
        return StructuredValue("", (problem,))

    def repair(self, problems: tuple[str, ...]) -> str:
        """The text for the model if its result is not valid."""
        return repair(problems, self.instruction())

    def _problems(self, value: JsonValue) -> tuple[str, ...]:
        from referencing.exceptions import Unresolvable

        try:
            errors = sorted(self._validator.iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
        except (Unresolvable, RecursionError, re.error) as error:
            return (f"the schema cannot be applied: {error}"[:_PROBLEM_CHARACTERS],)
        problems = [f"at {error.json_path}: {error.message}"[:_PROBLEM_CHARACTERS] for error in errors[:_MAX_PROBLEMS]]
        return (
            (*problems, f"and {len(errors) - len(problems)} more") if len(errors) > len(problems) else tuple(problems)
        )


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")
