"""Keys in the keyring of the system: a keyring of this process's own stands in for it."""

from collections.abc import Iterator
from pathlib import Path

import keyring
import keyring.backends.fail
import pytest

from tests.settings.keyrings import Broken, InMemory
from tui_agent.settings import kept_keys
from tui_agent.settings.kept_keys import KeyringProblem, bring_keys, forget_key, keep_key, kept_variables, keyring_name

KEY = "sk-ant-secret"


@pytest.fixture
def backend() -> Iterator[InMemory]:
    before = keyring.get_keyring()
    keyring.set_keyring(mine := InMemory())
    yield mine
    keyring.set_keyring(before)


def test_a_kept_key_is_there_at_the_next_start(tmp_path: Path, backend: InMemory) -> None:
    keep_key(tmp_path / "home", "GEMINI_API_KEY", KEY)
    environ: dict[str, str] = {}
    assert bring_keys(tmp_path / "home", environ) == ""
    assert environ == {"GEMINI_API_KEY": KEY}
    assert KEY not in "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())


def test_a_variable_that_is_set_wins_and_the_keyring_is_not_asked(tmp_path: Path) -> None:
    keyring.set_keyring(Broken())
    (tmp_path / kept_keys.KEPT_FILE).write_text('{"kept": ["GEMINI_API_KEY"]}')
    environ = {"GEMINI_API_KEY": "mine"}
    assert bring_keys(tmp_path, environ) == ""
    assert environ == {"GEMINI_API_KEY": "mine"}
    assert "RuntimeError" in bring_keys(tmp_path, {})


def test_nothing_kept_needs_no_keyring(tmp_path: Path) -> None:
    keyring.set_keyring(Broken())
    assert bring_keys(tmp_path, {}) == ""
    (tmp_path / kept_keys.KEPT_FILE).write_text("[")
    assert bring_keys(tmp_path, {}) == ""


def test_what_a_newer_version_keeps_beside_the_names_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / kept_keys.KEPT_FILE).write_text('{"version": 2, "kept": ["GEMINI_API_KEY"]}')
    assert kept_variables(tmp_path) == ("GEMINI_API_KEY",)


def test_a_forgotten_key_is_gone(tmp_path: Path, backend: InMemory) -> None:
    keep_key(tmp_path, "GEMINI_API_KEY", KEY)
    backend.kept.clear()
    assert "no longer" in bring_keys(tmp_path, {})
    forget_key(tmp_path, "GEMINI_API_KEY")
    assert kept_variables(tmp_path) == ()
    keep_key(tmp_path, "GEMINI_API_KEY", KEY)
    forget_key(tmp_path, "GEMINI_API_KEY")
    assert backend.kept == {}


def test_a_keyring_that_fails_or_is_missing_is_told_without_the_key(tmp_path: Path, backend: InMemory) -> None:
    assert keyring_name() == backend.name
    keyring.set_keyring(Broken())
    with pytest.raises(KeyringProblem) as raised:
        keep_key(tmp_path, "GEMINI_API_KEY", KEY)
    assert KEY not in str(raised.value)
    keyring.set_keyring(keyring.backends.fail.Keyring())  # type: ignore[no-untyped-call]
    with pytest.raises(KeyringProblem, match="none that can be used"):
        keyring_name()
    assert kept_variables(tmp_path) == ()
