import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.gate.shell_lines import table
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.guarded import guards
from tui_agent.tools.gate.workspace import Workspace, access_to, shown

NAMES = st.sampled_from(["a", "b", "c", "é", ".git"])
PARTS = st.sampled_from(["a", "b", "c", "..", ".", "é", "~", "~root", "$HOME", "", "link0", "link1", "link2"])
PATHS = st.lists(PARTS, min_size=1, max_size=7).map("/".join)


@settings(deadline=None)
@given(
    folders=st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=5),
    links=st.lists(st.tuples(PATHS, st.sampled_from(["", "/etc/", "../", "../../"]), PATHS), max_size=3),
    path=PATHS,
)
def test_a_path_counts_as_inside_only_where_it_really_leads(
    folders: list[str], links: list[tuple[str, str, str]], path: str
) -> None:
    with tempfile.TemporaryDirectory() as top:
        root = Path(top).resolve() / "work"
        root.mkdir()
        (root.parent / "work-beside").mkdir()
        for folder in folders:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for number, (where, up, target) in enumerate(links):
            place = root / where.replace("..", "a").lstrip("/")
            if place.is_dir() and not os.path.lexists(place / f"link{number}"):
                (place / f"link{number}").symlink_to(up + target or ".")
        workspace = Workspace(root)
        try:
            real = workspace.resolve(path)
        except ToolFailure:
            return
        assert real.is_absolute()
        assert ".." not in real.parts
        assert os.path.realpath(real) == str(real)
        truth = os.path.realpath(root / os.path.expanduser(path))  # noqa: PTH111 - the plain reading of the text
        assert workspace.contains(real) == (truth == str(root) or truth.startswith(f"{root}/"))
        if path.startswith(("~/", "/")):
            assert not workspace.contains(real)


@given(st.text(max_size=300))
def test_hostile_text_is_a_path_or_a_plain_refusal(text: str) -> None:
    workspace = Workspace(Path("/nowhere/at/all"))
    try:
        real = workspace.resolve(text)
    except ToolFailure as failure:
        str(failure).encode()
        return
    assert real.is_absolute()
    shown(str(real)).encode()


def test_text_that_cannot_be_a_path_is_refused(tmp_path: Path) -> None:
    for path in ("", "a\0b", "\ud800", "a\udcff", "x" * 300, "y/" * 3_000):
        with pytest.raises(ToolFailure):
            Workspace(tmp_path).resolve(path)
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ToolFailure, match="circle"):
        Workspace(tmp_path).resolve("a")


def test_a_folder_with_a_longer_name_is_not_inside(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    assert not workspace.contains(workspace.resolve("../work-beside/x"))
    assert not workspace.contains(tmp_path / "work" / ".." / "other")


def test_names_that_differ_only_in_composition_or_kind_of_space_are_found(tmp_path: Path) -> None:
    (tmp_path / "cafe\u0301").mkdir()
    (tmp_path / "cafe\u0301" / "Shot at 9\u202fAM.png").touch()
    real = Workspace(tmp_path).resolve("caf\u00e9/Shot at 9 AM.png")
    assert real.is_file()


def test_extra_folders_are_inside_and_read_roots_are_own(tmp_path: Path) -> None:
    session, skills, extra = (tmp_path / name for name in ("session", "skills", "extra"))
    (session / "large_tool_results").mkdir(parents=True)
    (session / "large_tool_results" / "id1").touch()
    (session / "checkpoints.sqlite").touch()
    workspace = Workspace(tmp_path / "work", [extra], [session, skills])
    assert workspace.contains(workspace.resolve(str(extra / "x")))
    for path in ("large_tool_results/id1", str(session / "large_tool_results" / "id1"), str(skills / "x" / "SKILL.md")):
        access = access_to(workspace, path, "read")
        assert access.own
        assert not access.inside
        assert access_to(workspace, path, "write").guarded
        assert not access_to(workspace, path, "write").own
    assert access_to(workspace, "large_tool_results/../../x", "read").own is False
    assert workspace.contains(workspace.resolve("large_tool_results/of-the-project"))


def test_an_artifact_path_cannot_leave_the_session_by_a_link(tmp_path: Path) -> None:
    session = tmp_path / "session"
    (session / "large_tool_results").mkdir(parents=True)
    (session / "large_tool_results" / "out").symlink_to("/etc/passwd")
    access = access_to(Workspace(tmp_path / "work", (), [session]), "large_tool_results/out", "read")
    assert not access.own


def test_guarded_places_at_every_depth_and_behind_links_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").symlink_to("rules.md")
    (tmp_path / ".git").mkdir()
    (tmp_path / "innocent").symlink_to(".git")
    workspace = Workspace(tmp_path)

    def is_guarded(path: str) -> bool:
        assert not access_to(workspace, path, "read").guarded
        return access_to(workspace, path, "write").guarded

    assert [path for path in (*table("guarded"), ".g\u200cit/config") if not is_guarded(path)] == []
    assert [path for path in table("unguarded") if is_guarded(path)] == []


def test_a_name_that_no_file_can_have_takes_no_time() -> None:
    assert not guards("a" + ".d" * 1_000_000 + "x")
    assert guards(".envrc" + ".d" * 120)


def test_the_programs_own_folder_is_guarded_wherever_it_lies(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, guarded=[tmp_path / "state"])
    for path in ("state/permissions.json", "state/config.json", "state", "state/new/x"):
        assert access_to(workspace, path, "write").guarded
        assert not access_to(workspace, path, "read").guarded
    assert not access_to(workspace, "statement", "write").guarded


def test_a_project_below_a_guarded_name_is_worked_in(tmp_path: Path) -> None:
    root = tmp_path / ".claude" / "worktrees" / "x"
    root.mkdir(parents=True)
    assert not access_to(Workspace(root), "a.py", "write").guarded
    assert access_to(Workspace(root), "../settings.json", "write").guarded
    (tmp_path / ".ssh").mkdir()
    assert access_to(Workspace(tmp_path / ".ssh"), "authorized_keys", "write").guarded
