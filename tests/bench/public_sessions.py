"""Recorded sessions of coding agents that others published, fetched by git at fixed commits. None is kept here."""

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

GITHUB: Final = "https://github.com"


class Source(NamedTuple):
    """Recordings in a repository. `chosen` says by which rule they were taken from all that are there."""

    agent: str
    repository: str
    commit: str
    licence: str
    chosen: str
    paths: tuple[str, ...]


_CLAUDE_CODE: Final = (
    "00/c9e2351016/0",
    "1c/127425ed32/0",
    "36/1bace85e2c/0",
    "48/463c89a2b7/0",
    "5c/5cb639eac4/0",
    "72/0c20f08988/0",
    "78/bb8d617c08/0",
    "89/e8867f9092/0",
    "9b/04c3d92e38/4",
    "b0/dc55b3a1dc/1",
    "c0/8972f3adb1/0",
    "d1/d3bff114fe/0",
    "ec/6d3a8b5152/0",
)
_CODEX: Final = (
    "2025-09-24T19-22-20-01997e76-d124-7592-9cac-2ec05abbca08",
    "2025-09-24T20-12-23-01997ea4-a70d-7da3-8c20-c736db82a7c5",
    "2025-09-25T08-02-05-0199812e-64f0-7f73-91fc-095dda01c36e",
    "2025-09-25T09-49-46-01998190-fba6-7f40-9309-dc4e48c5844a",
    "2025-09-25T15-12-14-019982b8-3422-79e0-8b3b-05abaf4f3c3e",
)
_GEMINI: Final = (
    "2025-12-24T21-37-2ccb51c5",
    "2025-12-25T21-07-7ee43789",
    "2025-12-28T03-31-4eb0784d",
    "2025-12-30T01-31-271ace30",
    "2026-01-01T01-15-376d5da4",
    "2026-01-01T03-48-e0af73a9",
    "2026-01-01T06-42-b1fc1c13",
    "2026-01-01T22-31-dfbafc17",
    "2026-01-01T23-35-1d310a63",
    "2026-01-10T01-55-ac6d3016",
    "2026-01-11T00-25-17b4d5e9",
    "2026-01-11T05-18-ce524c68",
)

SOURCES: Final = (
    Source(
        "claude-code",
        "entireio/cli",
        "394f81fab87f71aa8938d91ff7a067c524ff344b",
        "MIT",
        "every tenth, by path, of the 130 sessions of at least 1 MB",
        tuple(f"{place}/full.jsonl" for place in _CLAUDE_CODE),
    ),
    Source(
        "codex",
        "jnarowski/agentcmd",
        "958c4940e3a23f0fc6f7e8bf832239e12f29e110",
        "MIT",
        "all",
        tuple(f"packages/agent-cli-sdk/tests/fixtures/codex/full/rollout-{name}.jsonl" for name in _CODEX),
    ),
    Source(
        "gemini-cli",
        "mischa-thisness/M-Gemini",
        "3bad8d462ef0a93165eb373a44f09a77910e5ecd",
        "CC0-1.0",
        "all archived ones of at least 45 calls",
        tuple(f"Archives/session-{name}.json" for name in _GEMINI),
    ),
    Source(
        "pi",
        "badlogic/pi-mono",
        "83378aad7e74a0e2bb8f37c007a9685fb4609d8a",
        "MIT",
        "all",
        (
            "packages/coding-agent/test/fixtures/before-compaction.jsonl",
            "packages/coding-agent/test/fixtures/large-session.jsonl",
        ),
    ),
)


def fetch(source: Source, cache: Path, *, mirror: Path | None = None, host: str = GITHUB) -> list[Path]:
    """The recordings of a source as files below `cache`; what is there is not fetched again.

    Only these files are fetched, from `host`. `mirror` is a folder of repositories named ``owner+name``, each a git
    folder or with one named ``repo`` in it, that are asked instead.
    """
    name = source.repository.replace("/", "+")
    files = [cache / "sessions" / name / source.commit[:8] / path for path in source.paths]
    missing = [(path, file) for path, file in zip(source.paths, files, strict=True) if not file.exists()]
    if missing:
        repository = _mirrored(mirror / name) if mirror is not None else None
        repository = repository or _fetched(source, cache / "git" / name, host)
        for path, file in missing:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(git(repository, "cat-file", "blob", f"{source.commit}:{path}"))
    return files


def _mirrored(folder: Path) -> Path | None:
    places = (folder / "repo" / ".git", folder / "repo", folder / ".git", folder)
    return next((place for place in places if (place / "objects").is_dir()), None)


def _fetched(source: Source, repository: Path, host: str) -> Path:
    """A repository with the commit and its folders; a file's content comes when it is asked for."""
    if not repository.exists():
        repository.mkdir(parents=True)
        git(repository, "init", "--quiet", "--bare")
        git(repository, "remote", "add", "origin", f"{host}/{source.repository}")
    git(repository, "fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", source.commit)
    return repository


def git(repository: Path, *words: str) -> bytes:
    """What git prints in this repository. Raises `subprocess.CalledProcessError`."""
    command = ["git", f"--git-dir={repository}", *words]
    return subprocess.run(command, check=True, capture_output=True).stdout
