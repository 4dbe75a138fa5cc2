"""The library: what `import tui_agent` offers, and that it costs nothing until it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

import tui_agent


@pytest.mark.parametrize("name", tui_agent.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tui_agent, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tui_agent.no_such_name  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, tui_agent; print([m for m in ('textual', 'anthropic', 'msgspec', 'asyncio') if m in sys.modules])"
    )
    root = Path(tui_agent.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
