import os
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools.support import call
from tui_agent.tools.files.reading import ReadFile
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.notes.front_matter import header, split_front_matter
from tui_agent.tools.notes.skills import MAX_DESCRIPTION, SkillFolder, find_skills, skill_roots, skills_signature


def skill(folder: Path, name: str, text: str) -> Path:
    (folder / name).mkdir(parents=True)
    file = folder / name / "SKILL.md"
    file.write_text(text)
    return file


@given(st.text(max_size=200), st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_what_a_header_is_written_with_is_read_back(name: str, body: str) -> None:
    keys, rest = split_front_matter(header({"description": name, "name": "n"}) + "\nbody")
    assert keys == {"description": name, "name": "n"}
    assert rest == "body"
    split_front_matter(f"---\n{body}\n---\n{name}")


def test_skills_are_found_by_name_with_what_is_wrong(tmp_path: Path) -> None:
    project, own = tmp_path / "project", tmp_path / "own"
    skill(project, "b", "---\nname: Beta\ndescription: >\n  Does\n  beta.\n---\nBody")
    skill(project, "a", "---\ndescription: Named by its folder.\n---\n")
    skill(project, "c", "---\nname: c\n---\nNo description")
    skill(project, ".hidden", "---\ndescription: x\n---\n")
    skill(own, "beta", "---\nname: beta\ndescription: Another.\n---\n")
    skill(own, "long", f"---\ndescription: {'x' * 5_000}\n---\n")
    (project / "empty").mkdir()
    (project / "file").write_text("x")
    os.mkfifo(project / "empty" / "SKILL.md")
    found = find_skills([SkillFolder(project), SkillFolder(own), SkillFolder(tmp_path / "absent")])
    assert [(skill.name, skill.description[:10], bool(skill.problem)) for skill in found] == [
        ("a", "Named by i", False),
        ("beta", "Another.", True),
        ("Beta", "Does beta.", False),
        ("c", "", True),
        ("long", "xxxxxxxxxx", False),
    ]
    assert "another skill has this name" in found[1].problem
    assert "no description" in found[3].problem
    assert len(found[4].description) == MAX_DESCRIPTION + 1


def test_control_characters_stay_on_one_line(tmp_path: Path) -> None:
    skill(tmp_path, "x", '---\nname: "a\\nb"\ndescription: "one\\ntwo \\e[31m \\u202e"\n---\n')
    (found,) = find_skills([SkillFolder(tmp_path)])
    assert found.name == "a b"
    assert found.description == "one two \\x1b[31m \\u202e"


async def test_reading_a_skill_is_reading_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own"
    file = skill(own, "x", "---\ndescription: y\n---\nBody")
    linked = skill(tmp_path / "elsewhere", "z", "---\ndescription: linked\n---\nThere")
    (own / "z").symlink_to(linked.parent)
    folder = SkillFolder(own)
    roots = skill_roots([folder])
    assert roots == (own, linked.parent)
    root = tmp_path / "work"
    root.mkdir()
    workspace = Workspace(root, read_roots=(tmp_path / "session", *roots))
    for path in (str(file), str(own / "z" / "SKILL.md"), str(linked.parent / "SKILL.md")):
        (access,) = ReadFile().access(f'{{"path": "{path}"}}', workspace)
        assert access.own
        assert (await call(ReadFile(), workspace, path=path)).text.startswith("1\t---")


def test_a_projects_skills_cannot_lead_out_of_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    outside = skill(tmp_path / "outside", "x", "---\ndescription: secret\n---\n")
    skills = project / ".agents" / "skills"
    skills.mkdir(parents=True)
    (skills / "x").symlink_to(outside.parent)
    (skills / "y").mkdir()
    (skills / "y" / "SKILL.md").symlink_to(outside)
    folder = SkillFolder(skills, within=project)
    assert find_skills([folder]) == ()
    assert skill_roots([folder]) == (skills,)
    skills.rename(tmp_path / "moved")
    skills.symlink_to("/")
    assert skill_roots([folder]) == ()
    assert find_skills([folder]) == ()


def test_the_signature_changes_with_every_change(tmp_path: Path) -> None:
    folder = [SkillFolder(tmp_path)]
    seen = [skills_signature(folder)]
    file = skill(tmp_path, "x", "---\ndescription: y\n---\n")
    seen.append(skills_signature(folder))
    file.write_text("---\ndescription: zz\n---\n")
    seen.append(skills_signature(folder))
    assert skills_signature(folder) == seen[-1]
    file.unlink()
    seen.append(skills_signature(folder))
    assert len(set(seen)) == 3
    assert seen[0] == seen[-1]
