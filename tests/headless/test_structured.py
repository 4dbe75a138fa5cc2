"""A result under a JSON Schema: which schemas are taken, which answers are, and what the model is told to mend."""

import json
from pathlib import Path

import pytest

from tui_agent.arguments import UsageError
from tui_agent.headless.structured import MAX_SCHEMA_BYTES, ResultSchema

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def schema_of(folder: Path, schema: object) -> ResultSchema:
    path = folder / "schema.json"
    path.write_text(json.dumps(schema))
    return ResultSchema.read(path)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"name": "Ä", "age": 3}', {"name": "Ä", "age": 3}),
        (' \n{"name": "A", "age": 3}\n', {"name": "A", "age": 3}),
        ('Here it is:\n```json\n{"name": "A", "age": 3}\n```\nDone.', {"name": "A", "age": 3}),
        ('```\n{"name": "A"}\n```\n```json\n{"name": "A", "age": 3}\n```', {"name": "A", "age": 3}),
    ],
)
def test_a_valid_answer_is_found(tmp_path: Path, answer: str, value: object) -> None:
    found = schema_of(tmp_path, PERSON).find(answer)
    assert found.problems == ()
    assert json.loads(found.value) == value


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("The name is A.", "the answer is not JSON: Expecting value"),
        ("", "the answer is not JSON"),
        ('{"name": "A", "age": -1}', "at $.age: -1 is less than the minimum of 0"),
        ('{"name": "A", "age": NaN}', "NaN is not JSON"),
        ('{"name": "A"}', "at $: 'age' is a required property"),
        ('{"name": "A", "age": 1} and more', "the answer is not JSON: Extra data"),
        ("[" * 100_000, "the answer is not JSON"),
    ],
)
def test_what_is_wrong_is_said_to_the_model(tmp_path: Path, answer: str, problem: str) -> None:
    schema = schema_of(tmp_path, PERSON)
    found = schema.find(answer)
    assert found.value == ""
    assert any(problem in told for told in found.problems), found.problems
    assert all(told in schema.repair(found.problems) for told in found.problems)
    assert json.dumps(PERSON) in schema.repair(found.problems)


def test_many_problems_are_counted(tmp_path: Path) -> None:
    found = schema_of(tmp_path, {"items": {"type": "string"}}).find(json.dumps(list(range(40))))
    assert len(found.problems) == 11
    assert found.problems[-1] == "and 30 more"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON: "),
        ("[]", "is not a JSON Schema: expected an object"),
        ('{"type": "strin"}', "is not a JSON Schema: 'strin' is not valid"),
        ('{"title": "' + "x" * MAX_SCHEMA_BYTES + '"}', "is longer than"),
    ],
)
def test_what_is_no_schema_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "schema.json").write_text(text)
    with pytest.raises(UsageError, match=said):
        ResultSchema.read(tmp_path / "schema.json")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        ResultSchema.read(tmp_path / "absent.json")


def test_a_reference_to_an_address_is_not_fetched_and_a_schema_names_its_draft(tmp_path: Path) -> None:
    schema = schema_of(tmp_path, {"$ref": "http://127.0.0.1:9/schema.json"})
    (problem,) = schema.find("1").problems
    assert problem.startswith("the schema cannot be applied: ")
    draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3, "exclusiveMinimum": True}
    assert schema_of(tmp_path, draft_4).find("3").problems
    assert not schema_of(tmp_path, draft_4).find("4").problems
