"""Questions of the model as forms, for clients that support elicitation."""

from collections.abc import Mapping
from typing import Final

from acp.schema import ElicitationFormSessionMode, ElicitationSchema, ElicitationStringPropertySchema

from tui_agent.text import one_line
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion

CHOICE: Final = "choice"
WORDS: Final = "words"


def form(question: PermissionQuestion, session: str) -> ElicitationFormSessionMode:
    """The form for a question: its choices, if any, and a text field."""
    choices = [one_line(choice) for choice in question.choices]
    fields = {WORDS: ElicitationStringPropertySchema(type="string", title="In your own words" if choices else "Answer")}
    if choices:
        fields = {CHOICE: ElicitationStringPropertySchema(type="string", title="Answer", enum=choices), **fields}
    schema = ElicitationSchema(type="object", properties={**fields}, required=None if choices else [WORDS])
    scope = ElicitationFormSessionMode(session_id=session, requested_schema=schema)
    if question.call_id:
        scope.tool_call_id = question.call_id
    return scope


def answer_in_form(content: Mapping[str, object] | None) -> PermissionAnswer:
    """The answer in a filled-in form; the text field takes precedence over a choice."""
    given = {name: str(getattr(value, "root", value) or "").strip() for name, value in (content or {}).items()}
    said = given.get(WORDS) or given.get(CHOICE) or ""
    return PermissionAnswer(allowed=bool(said), choice=said)
