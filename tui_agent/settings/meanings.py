"""What each setting means: the docstring under its field in the schema, for `/config` and the documentation."""

import ast
from pathlib import Path

from tui_agent.settings import Settings, schema


def meanings() -> dict[tuple[str, str], str]:
    """The docstring under each field of each settings section; that of a section itself has an empty name.

    Reads and parses the schema: some ten milliseconds.
    """
    module = ast.parse(Path(schema.__file__).read_text(encoding="utf-8"))
    found: dict[tuple[str, str], str] = {}
    for section in (node for node in module.body if isinstance(node, ast.ClassDef)):
        found[section.name, ""] = ast.get_docstring(section) or ""
        for setting, below in zip(section.body, section.body[1:], strict=False):
            if isinstance(setting, ast.AnnAssign) and isinstance(setting.target, ast.Name):
                match below:
                    case ast.Expr(value=ast.Constant(value=str() as text)):
                        found[section.name, setting.target.id] = text
    return found


def section_name(key: str) -> str:
    """The class that declares the last part of `key`."""
    section: object = Settings()
    for part in key.split(".")[:-1]:
        section = getattr(section, part)
    return type(section).__name__


def meaning_of(key: str) -> str:
    """What one setting means, on one line."""
    return " ".join(meanings()[section_name(key), key.rsplit(".", 1)[-1]].split())
