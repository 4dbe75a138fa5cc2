"""A keyring that keeps its keys in the file that ``TEST_KEYRING`` names: `keyring` takes it as a system's."""

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from typing_extensions import override


class FileKeyring(KeyringBackend):
    """Keys by service and name."""

    priority = 5

    @override
    def get_password(self, service: str, username: str) -> str | None:
        return self._kept().get(f"{service} {username}")

    @override
    def set_password(self, service: str, username: str, password: str) -> None:
        self._keep({**self._kept(), f"{service} {username}": password})

    @override
    def delete_password(self, service: str, username: str) -> None:
        kept = self._kept()
        del kept[f"{service} {username}"]
        self._keep(kept)

    def _keep(self, kept: dict[str, str]) -> None:
        self._file.write_text(json.dumps(kept))

    def _kept(self) -> dict[str, str]:
        return dict(json.loads(self._file.read_text())) if self._file.exists() else {}

    @property
    def _file(self) -> Path:
        return Path(os.environ["TEST_KEYRING"])
