"""An agent for editors: the Agent Client Protocol over standard input and output (docs/editors.md)."""

import importlib
from contextlib import suppress
from typing import Any, Final

_EXTRACT: Final = "extract_docstrings_from_cls"


def _import_messages() -> None:
    """Import the SDK's messages without the descriptions of their fields.

    For these, pydantic parses the source of every class, a quarter of the time of a start, and nothing here reads
    them. What does it is private to pydantic: where it is not found, the start only takes longer.
    """
    fields: dict[str, Any] = {}
    with suppress(ImportError):
        fields = vars(importlib.import_module("pydantic._internal._fields"))
    extract = fields.get(_EXTRACT)
    if extract is not None:
        fields[_EXTRACT] = lambda *_arguments, **_options: {}
    try:
        importlib.import_module("acp.schema")
    finally:
        if extract is not None:
            fields[_EXTRACT] = extract


_import_messages()

from tui_agent.acp.serving import run  # noqa: E402 - only now

__all__ = ["run"]
