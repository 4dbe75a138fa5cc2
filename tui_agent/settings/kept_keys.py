"""Saving providers' API keys in the system's keyring, for users who want that.

A small file in the home folder lists which keys are saved, without the keys: the keyring is only asked if something was
saved in it, since that may take time and prompt the user to unlock it.
"""

import json
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Final, TypeVar

import msgspec

from tui_agent.system.lenient import decoded_file

Returned = TypeVar("Returned")

SERVICE: Final = "tui-agent"
KEPT_FILE: Final = "keyring.json"
LOOKUP_TIMEOUT_S: Final = 10.0
"""Seconds to wait for the keyring at the start."""
SAVE_TIMEOUT_S: Final = 60.0
"""Seconds to wait for the keyring to save a key: it may ask the user to unlock it."""


class KeyringProblem(Exception):
    """The system's keyring cannot be used; the text says why."""


class _Kept(msgspec.Struct):
    kept: tuple[str, ...] = ()


def kept_variables(home: Path) -> tuple[str, ...]:
    """The environment variables whose keys are saved; empty if the list cannot be read."""
    return (decoded_file(home / KEPT_FILE, _Kept) or _Kept()).kept


def bring_keys(home: Path, environ: MutableMapping[str, str]) -> str:
    """Set each unset variable whose key is saved; returns what went wrong, for the user, or an empty text.

    May take `LOOKUP_TIMEOUT_S`: call it in a thread.
    """
    wanted = [name for name in kept_variables(home) if not environ.get(name)]
    for variable in wanted:
        try:
            key = _asked(partial(_look_up, variable), LOOKUP_TIMEOUT_S)
        except KeyringProblem as problem:
            return f"The key kept for {variable} cannot be read: {problem}"
        if not key:
            return f"The key kept for {variable} is no longer in the system's keyring"
        environ[variable] = key
    return ""


def keyring_name() -> str:
    """The name of the system's keyring. Raises KeyringProblem if there is none."""
    return _asked(_usable, LOOKUP_TIMEOUT_S)


def keep_key(home: Path, variable: str, key: str) -> None:
    """Save a key in the system's keyring. Raises KeyringProblem. May wait for the user: call it in a thread."""

    def keep() -> None:
        import keyring

        _usable()
        keyring.set_password(SERVICE, variable, key)

    _asked(keep, SAVE_TIMEOUT_S)
    _note(home, {*kept_variables(home), variable})


def forget_key(home: Path, variable: str) -> None:
    """Delete a key from the system's keyring. Raises KeyringProblem. May wait for the user: call it in a thread."""

    def forget() -> None:
        import keyring
        from keyring.errors import PasswordDeleteError

        with suppress(PasswordDeleteError):  # it is gone already
            keyring.delete_password(SERVICE, variable)

    _asked(forget, SAVE_TIMEOUT_S)
    _note(home, {*kept_variables(home)} - {variable})


def _look_up(variable: str) -> str | None:
    import keyring

    _usable()
    return keyring.get_password(SERVICE, variable)


def _usable() -> str:
    """The name of the system's keyring. Raises KeyringProblem if the package found none that it recommends."""
    import keyring

    backend = keyring.get_keyring()
    if backend.priority < 1:
        raise KeyringProblem("this system has none that can be used (`keyring --list-backends` shows what was found)")
    return str(backend.name)


def _asked(work: Callable[[], Returned], seconds: float) -> Returned:
    """Run `work` for at most `seconds`, and return its result. Raises KeyringProblem, whatever the backend raises.

    It runs in a daemon thread, which does not block the program's exit: a keyring may ask the user and never return.
    """
    outcome: list[Returned] = []
    raised: list[Exception] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            raised.append(error)

    thread = Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(seconds)
    if outcome:
        return outcome[0]
    if not raised:
        raise KeyringProblem(f"it did not answer within {seconds:.0f} seconds")
    if isinstance(raised[0], KeyringProblem):
        raise raised[0]
    # Not the backend's message, which could contain the key.
    raise KeyringProblem(f"it failed ({type(raised[0]).__name__})")


def _note(home: Path, kept: set[str]) -> None:
    """Write the list of saved keys, without the keys. Raises KeyringProblem."""
    from tui_agent.system.durable import make_private_folder, write_file

    try:
        make_private_folder(home)
        write_file(home / KEPT_FILE, (json.dumps({"kept": sorted(kept)}) + "\n").encode())
    except OSError as error:
        raise KeyringProblem(f"{home / KEPT_FILE} cannot be written: {error.strerror}") from None
