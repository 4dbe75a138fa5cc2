"""Texts on files that can be put back, and on those that were; they contain untrusted names and diffs."""

from typing import Final

from tui_agent.agent.history.file_history import PutBackDone
from tui_agent.tools.files.put_back import FileStep, PutBack

NAMED: Final = 50
"""The most files of each kind that are named."""

NOTHING: Final = "No turn has changed files that could be put back"
NOTHING_TO_REDO: Final = "No files were put back that could be changed again"

DOES: Final = {"restore": "changed back", "bring back": "brought back", "remove": "removed", "mode": "mode set back"}


def plan_title(planned: PutBack) -> str:
    """The number of files, in a few words."""
    parts = [f"{_files(len(planned.ours))} can be put back"]
    if planned.theirs:
        parts.append(f"{len(planned.theirs):,} changed by somebody else")
    if planned.impossible:
        parts.append(f"{len(planned.impossible):,} not")
    return ", ".join(parts)


def plan_text(planned: PutBack) -> str:
    """Every file that would be put back, with its diff; those that would stay; and what is unknown."""
    named = [f"{step.name}: {DOES[step.does]}" for step in planned.ours]
    return "\n\n".join(part for part in ("\n".join(named), *rest_of_plan(planned), planned.diff) if part)


def rest_of_plan(planned: PutBack) -> tuple[str, ...]:
    """What would stay, and what is unknown."""
    theirs = [(step.name, step.others) for step in planned.theirs]
    parts = (_listed("Stay as they are", [*theirs, *planned.impossible]), "\n".join(planned.gaps))
    return tuple(part for part in parts if part)


def title_of_done(done: PutBackDone) -> str:
    """What was done."""
    if not done.done:
        return "No file was put back"
    return f"{_files(len(done.done))} put back"


def done_text(planned: PutBack, done: PutBackDone) -> str:
    """The files that were put back, those that were not, and what is unknown."""
    names = "\n".join(_done(step) for step in done.done[:NAMED])
    more = f"and {len(done.done) - NAMED:,} more" if len(done.done) > NAMED else ""
    put = {step.path for step in done.done}
    theirs = [(step.name, step.others) for step in planned.theirs if step.path not in put]
    left = _listed("Stay as they are", [*theirs, *done.failed, *planned.impossible])
    return "\n\n".join(part for part in ("\n".join(filter(None, (names, more))), left, "\n".join(planned.gaps)) if part)


def _done(step: FileStep) -> str:
    return f"{step.name}: {DOES[step.does]}"


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _listed(title: str, files: list[tuple[str, str]]) -> str:
    if not files:
        return ""
    lines = [f"  {name}: {why}" for name, why in dict(files).items()]
    more = [f"  and {len(lines) - NAMED:,} more"] if len(lines) > NAMED else []
    return "\n".join((f"{title}:", *lines[:NAMED], *more))
