"""Reads message lists of other programs into a conversation, and writes them back in the same form.

Four forms: Anthropic Messages (``role``, ``content``), Gemini contents (``role``, ``parts``), OpenAI Chat Completions
(``role``, ``content``, ``tool_calls``), and the items of OpenAI's Responses API::

    conversation.extend(read("anthropic", messages))
    messages = write("anthropic", conversation.messages())

or message by message, with one of `FORMS`::

    reader = FORMS["anthropic"]()
    conversation.extend(reader.read(message))

A list comes back as it was: with signatures, redacted thinking, cache marks and unknown keys. What a conversation
cannot express (a document, a picture at an address, a provider's own tools, a compaction) stands in it as a text that
says what it is, and goes out unchanged, also when one of our models sends the conversation to its provider. Written in
another form, a list is valid there, without what only the first provider understands.

Three things do not come back: bytes are base64, invalid Unicode becomes U+FFFD, and reasoning is left out where the
conversation's `ReasoningPolicy` withholds it. A call without a result gets one that says so.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from tui_agent.conversation.entries import Message
from tui_agent.conversation.request import RequestMessage
from tui_agent.conversation.view import View
from tui_agent.models.forms.anthropic import AnthropicForm
from tui_agent.models.forms.gemini import GeminiForm
from tui_agent.models.forms.openai import OpenAiForm, split_system
from tui_agent.models.forms.reading import FormReader, UnknownForm
from tui_agent.models.forms.responses import ResponsesForm
from tui_agent.models.originals import Form, Json

__all__ = ["FORMS", "Form", "FormReader", "UnknownForm", "read", "split_system", "write"]

FORMS: Final[dict[Form, type[FormReader]]] = {
    "anthropic": AnthropicForm,
    "gemini": GeminiForm,
    "openai": OpenAiForm,
    "responses": ResponsesForm,
}


def read(form: Form, messages: Iterable[object], *, model: str = "", after: View | None = None) -> list[Message]:
    """Read a list in this form as entries without numbers: one for each message, and one for each result.

    Each message is a mapping, or an object of the provider's SDK (anything with ``model_dump``). `model`
    (``provider:id``): recorded as the author of the assistant's messages. `after`: the conversation that the list
    continues.

    A system or developer message becomes a notice in its place; see `split_system`.

    Raises `UnknownForm`; ValueError if there is no such form.
    """
    reader = _of(form)(model, after)
    return [entry for message in messages for entry in reader.read(message)]


def write(form: Form, messages: Sequence[RequestMessage]) -> list[Json]:
    """The messages of a request in this form, without the system prompt. Raises ValueError if there is no such form."""
    return _of(form)().write(messages)


def _of(form: Form) -> type[FormReader]:
    if form not in FORMS:
        raise ValueError(f"there is no form {form!r}; the forms are {', '.join(FORMS)}")
    return FORMS[form]
