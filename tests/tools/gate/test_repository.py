"""What a project's repository may have git run: also where its files are damaged, or lead elsewhere."""

from pathlib import Path

import pytest

from tui_agent.tools.gate.repository import configured_in, hooks_of, why_unsafe
from tui_agent.tools.gate.workspace import Workspace


@pytest.mark.parametrize("content", ["", "gitdir", "gitdir: nowhere", "gitdir: a\0b", "\udcff"])
def test_a_repository_that_cannot_be_looked_through_is_not_safe(tmp_path: Path, content: str) -> None:
    (tmp_path / ".git").write_bytes(content.encode(errors="surrogateescape"))
    workspace = Workspace(tmp_path)
    assert why_unsafe(tmp_path, workspace) == "the repository cannot be looked through"
    assert list(hooks_of(tmp_path, workspace)) == []
    assert configured_in(tmp_path) == ()


def test_a_worktrees_hooks_are_those_of_its_repository(tmp_path: Path) -> None:
    main, own, work = tmp_path / "main/.git", tmp_path / "main/.git/worktrees/w", tmp_path / "work"
    for folder in (main / "hooks", own, work):
        folder.mkdir(parents=True)
    (work / ".git").write_text(f"gitdir: {own}\n")
    (own / "commondir").write_text("../..\n")
    (main / "config").write_text('[core]\n\tworktree = evil\n[submodule "a"]\n\tupdate = !./evil\n')
    (work / "evil").touch()
    (main / "hooks/pre-commit").touch()
    (main / "hooks/pre-push.sample").touch()
    assert list(hooks_of(work, Workspace(tmp_path))) == [main / "hooks/pre-commit"]
    assert list(hooks_of(work, Workspace(tmp_path / "main"))) == []
    (work / ".git").write_text(f"gitDIR: {own}\n")
    assert list(hooks_of(work, Workspace(tmp_path))) == []
