"""Keyrings that end with the process: one that works, and one that does not."""

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError
from typing_extensions import override


class InMemory(KeyringBackend):
    """A keyring that ends with the process."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: dict[tuple[str, str], str] = {}

    @override
    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    @override
    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    @override
    def delete_password(self, service: str, username: str) -> None:
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError


class Broken(InMemory):
    """One that repeats what it was given as it fails."""

    @override
    def set_password(self, service: str, username: str, password: str) -> None:
        raise RuntimeError(f"no bus for {password}")

    @override
    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError("locked")
