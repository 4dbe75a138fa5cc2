"""Files that ship with the program: style sheets and prompt texts."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def styles_folder() -> Path:
    """The folder of the `*.tcss` files: inside the installed package, or beside it in a checkout."""
    installed = _PACKAGE / "styles"
    return installed if installed.is_dir() else _PACKAGE.parent / "styles"


def prompt_text(name: str) -> str:
    """The text of `prompts/<name>.md`. Raises FileNotFoundError if there is no such file."""
    return (_PACKAGE / "prompts" / f"{name}.md").read_text(encoding="utf-8")
