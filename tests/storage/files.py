"""Looking at folders."""

from pathlib import Path


def names(folder: Path, pattern: str = "*") -> list[str]:
    """The names in `folder` that match, sorted."""
    return sorted(path.name for path in folder.glob(pattern))


def contents(folder: Path) -> dict[str, bytes]:
    """What the files in `folder` hold, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
