"""Reads message lists of other programs into a conversation, and writes them back in the same form.

Three forms: Anthropic Messages (``role``, ``content``), Gemini contents (``role``, ``parts``) and OpenAI Chat
Completions (``role``, ``content``, ``tool_calls``)::

    conversation.extend(read("anthropic", messages))
    messages = write("anthropic", conversation.messages())

A valid list round-trips: signatures, redacted thinking, cache marks and unknown keys are kept in the blocks' `opaque`
texts, in the fields of our own adapters where those have one. Written in another form, a list is valid there, without
what only the first provider understands.

Where a form allows two spellings but a conversation has only one, the list comes back in that one: results are in the
order of their calls and before other content of their message; blank text, and a message with nothing else, is left
out; a call without a result gets one that says so; keys of Gemini's parts are in camelCase, contents without a role are
the user's, bytes are base64; invalid Unicode becomes U+FFFD. Reasoning comes back if the conversation's
`ReasoningPolicy` allows it.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from tui_agent.context.forms.anthropic import AnthropicReader, AnthropicWriter
from tui_agent.context.forms.gemini import GeminiReader, GeminiWriter
from tui_agent.context.forms.openai import OpenAiReader, OpenAiWriter, split_system
from tui_agent.context.forms.shared import Form, Json, Place, Reader, UnknownForm, Writer, apart
from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.entries import Message
from tui_agent.conversation.request import RequestMessage

__all__ = ["Form", "UnknownForm", "read", "split_system", "write"]

_FORMS: Final[dict[Form, tuple[type[Reader], type[Writer]]]] = {
    "anthropic": (AnthropicReader, AnthropicWriter),
    "gemini": (GeminiReader, GeminiWriter),
    "openai": (OpenAiReader, OpenAiWriter),
}


def read(
    form: Form,
    messages: Iterable[object],
    *,
    model: str = "",
    open_calls: Sequence[ToolCall] = (),
    taken_ids: Collection[str] = (),
) -> list[Message]:
    """Read a list in this form as entries without numbers: one for each message, and one for each result.

    Each message is a mapping, or an object of the provider's SDK (anything with ``model_dump``). `model`
    (``provider:id``): recorded as the author of the assistant's messages. If the list continues a conversation,
    `open_calls` are its calls without a result, and `taken_ids` the ids of its calls.

    A system or developer message of an OpenAI list becomes a notice in its place; see `split_system`.

    Raises `UnknownForm`; ValueError if there is no such form.
    """
    reader = _of(form)[0](model, open_calls, taken_ids)
    return [entry for number, message in enumerate(messages) for entry in reader.read(Place(number), message)]


def write(form: Form, messages: Iterable[RequestMessage]) -> list[Json]:
    """The messages of a request in this form, without the system prompt. Raises ValueError if there is no such form."""
    writer = _of(form)[1]()
    return [written for message in apart(form, messages) for written in writer.write(message.role, message.blocks)]


def _of(form: Form) -> tuple[type[Reader], type[Writer]]:
    if form not in _FORMS:
        raise ValueError(f"there is no form {form!r}; the forms are {', '.join(_FORMS)}")
    return _FORMS[form]
