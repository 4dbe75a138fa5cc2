"""What a command runs or reads before anything else, command by command, and the limits of looking for it."""

import shlex
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.tools.gate.shell_lines import by_command
from tests.tools.gate.test_rules import PROJECT
from tui_agent.tools.base import Change
from tui_agent.tools.gate.judging import PlainCommand, steps_of
from tui_agent.tools.gate.read_first import (
    MAX_BYTES,
    MAX_FILES,
    Approved,
    FilesRunFirst,
    contents_of,
    read_first,
    scripts_in,
)
from tui_agent.tools.gate.workspace import Workspace

PYTHON = ["conftest.py", "tools/gen.py", "tools/json.py"]
ANY = ["Makefile", "conftest.py", "package.json", "rules.mk"]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    more = {"run": "#!/bin/sh\n", "tools/json.py": "", "note.txt": "", "pkg/__init__.py": ""}
    more |= {"tools/note.txt": "", "tools/tool.lua": ""}
    for name, text in {**PROJECT, **more}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("run", "tools/tool.lua", ".venv/bin/mytool"):
        (tmp_path / name).chmod(0o755)
    return Workspace(tmp_path)


def named(paths: Iterable[Path], workspace: Workspace) -> list[str]:
    return sorted(str(path.relative_to(workspace.root)) for path in paths)


def step(line: str, workspace: Workspace) -> list[PlainCommand]:
    return [PlainCommand(tuple(shlex.split(line)), workspace.root)]


FILES: list[tuple[str, list[str]]] = [
    ("make test", sorted([*ANY, "tools/gen.py", "tools/gen.sh", "tools/json.py"])),
    ("cat note.txt", []),  # runs nothing
    ("cargo build", []),  # what it reads first is not there
    ("python3.12 tools/gen.py", PYTHON),  # an interpreter with its version
    ("python -W error tools/gen.py", PYTHON),  # after the value of an option
    ("python -m pkg", ["conftest.py", "pkg/__init__.py", "pkg/__main__.py"]),
    ("run", ["run"]),  # the first word, by its bare name
    ("cat run", []),  # the same file is only read
    ("note.txt", []),  # not to be run
    ("cat tools/note.txt", []),
    ("cat tools/tool.lua", ["tools/tool.lua"]),
    ("cat ./run", ["run"]),
    ("cat tools/gen.sh", ["tools/gen.sh"]),
    ("cat own.c", []),
    ("tool --config=tools/gen.py", ["tools/gen.py", "tools/json.py"]),
    ("mytool", [".venv/bin/mytool"]),
    ("bash -c 'tools/gen.sh now'", ["tools/gen.sh"]),
]


def test_the_files_of_a_command(workspace: Workspace) -> None:
    told = [(line, named(read_first(step(line, workspace), workspace, unknown=False), workspace)) for line, _ in FILES]
    assert told == FILES


def test_what_build_tools_read_besides(tmp_path: Path) -> None:
    for number, (file, lines) in enumerate(by_command("read besides").items()):
        workspace = Workspace(tmp_path / str(number))
        (workspace.root / file).parent.mkdir(parents=True)
        (workspace.root / file).touch()
        for line in lines:
            assert workspace.root / file in read_first(step(line, workspace), workspace, unknown=False), line


def test_a_script_is_found_in_a_folder_that_the_line_changes_to_in_a_group(workspace: Workspace) -> None:
    (workspace.root / "sub").mkdir()
    (workspace.root / "sub/x.sh").touch(0o755)
    assert workspace.root / "sub/x.sh" in read_first(steps_of("(cd sub; ./x.sh)", workspace), workspace, unknown=False)
    assert read_first(steps_of("}", workspace), workspace) == []


def test_of_a_program_in_no_table_all_is_looked_at_where_that_is_asked_for(workspace: Workspace) -> None:
    everything = [".venv/bin/mytool", *ANY, "tools/gen.py", "tools/gen.sh", "tools/json.py"]
    assert named(read_first(step("mytool", workspace), workspace), workspace) == sorted(everything)
    assert named(contents_of(step("mytool", workspace), workspace), workspace) == [".venv/bin/mytool"]
    also = [workspace.root / "own.c", workspace.root / "missing"]
    assert named(contents_of(step("cat note.txt", workspace), workspace, also=also), workspace) == ["own.c"]
    for known in ("cd tools", "env cargo build", "cat note.txt"):
        assert read_first(step(known, workspace), workspace) == []


def test_what_stands_above_the_folder_of_a_command_is_looked_at(workspace: Workspace) -> None:
    assert workspace.root / "Makefile" in read_first([PlainCommand(("make",), workspace.root / "lib")], workspace)


def test_what_stands_outside_is_not_looked_at(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "Makefile").touch()
    (workspace.root / "run").unlink()
    (workspace.root / "run").symlink_to(outside / "Makefile")
    found = read_first(step(f"env make -C {outside} ; ./run", workspace), workspace)
    assert [path for path in found if not path.is_relative_to(workspace.root) or path.is_symlink()] == []


def test_the_script_of_a_hook_is_found(workspace: Workspace) -> None:
    for line, script in (
        ("uv run tools/own.py", "tools/own.py"),
        ('cd "$CLAUDE_PROJECT_DIR"/tools && python3 own.py', "tools/own.py"),
        ("(cd tools; ./own)", "tools/own"),
        ("bun run tools/own.ts", "tools/own.ts"),
        ('for f in tools/own.d/*; do "$f"; done', "tools/own.d/a"),
    ):
        (workspace.root / script).parent.mkdir(exist_ok=True)
        (workspace.root / script).touch(0o755)
        assert workspace.root / script in scripts_in([line], workspace, workspace.root), line
        (workspace.root / script).unlink()


MISSING: list[tuple[str, list[str]]] = [
    ("test -x tools/own && tools/own", ["tools/own"]),
    ('[ -f "$CLAUDE_PROJECT_DIR/own.sh" ] && bash "$CLAUDE_PROJECT_DIR/own.sh"', ["own.sh"]),
    ("./own --out dist/a.js", ["own"]),
    ("mytool dist/a.js > dist/b.js", []),
    ("bash ../own.sh", []),
]


def test_a_script_that_a_hook_would_run_if_it_were_there(workspace: Workspace) -> None:
    for line, missing in MISSING:
        found = scripts_in([line], workspace, workspace.root)
        assert [str(path.relative_to(workspace.root)) for path in found if not path.exists()] == missing


def test_the_scripts_of_hooks_are_found_behind_their_variable_and_in_an_open_quote(workspace: Workspace) -> None:
    lines = ['"$CLAUDE_PROJECT_DIR"/tools/gen.sh', "sh 'tools/gen.sh", "echo tools/gen.sh done", "ls own.c"]
    found = [named(scripts_in([line], workspace, workspace.root), workspace) for line in lines]
    assert found == [["tools/gen.sh"], ["tools/gen.sh"], ["tools/gen.sh"], []]
    (workspace.root / "my tools").mkdir()
    (workspace.root / "my tools/own.sh").touch()
    assert named(scripts_in(["sh 'my tools/own.sh'"], workspace, workspace.root), workspace) == ["my tools/own.sh"]
    below = scripts_in(['sh "$CLAUDE_PROJECT_DIR"/gen.sh \''], workspace, workspace.root / "tools")
    assert named(below, workspace) == ["tools/gen.sh"]


def test_more_files_than_are_looked_at_are_told(tmp_path: Path) -> None:
    names = [f"part{number}.sh" for number in range(MAX_FILES + 1)]
    for name in names:
        (tmp_path / name).touch()
    workspace = Workspace(tmp_path)
    for files, told in ((names[1:], 0), (names, 1)):
        seen = Approved(None, tmp_path).look(step(f"cat {' '.join(files)}", workspace), workspace)
        assert len([change for change in seen.changes if "more than 300 files" in change.title]) == told


@pytest.mark.parametrize(("size", "shown"), [(MAX_BYTES, True), (MAX_BYTES + 1, False)])
def test_of_a_large_file_only_its_beginning_size_and_time_are_compared(size: int, shown: bool, tmp_path: Path) -> None:
    script = tmp_path / "large.sh"
    script.write_text("#" * size)
    workspace, approved = Workspace(tmp_path), Approved(tmp_path / "kept", tmp_path)
    approved.accept(approved.look(step("./large.sh", workspace), workspace))
    assert approved.look(step("./large.sh", workspace), workspace).changes == ()
    script.write_text("#" * (size - 1) + "\n")
    (change,) = approved.look(step("./large.sh", workspace), workspace).changes
    assert (change.title == "large.sh has changed since") == bool(change.diff) == shown
    script.unlink()
    assert approved.look(step("cat large.sh", workspace), workspace).changes == ()


def test_a_change_is_named_by_what_is_known_of_before(tmp_path: Path) -> None:
    script, kept, workspace = tmp_path / "go.sh", tmp_path / "kept", Workspace(tmp_path)
    script.write_text("one\n")

    def titles(approved: Approved) -> list[str]:
        return [change.title for change in approved.look(step("sh go.sh", workspace), workspace).changes]

    assert titles(Approved(kept, tmp_path)) == []
    (began,) = kept.glob("*.began")
    began.write_text("0")
    approved = Approved(kept, tmp_path)
    assert titles(approved) == ["go.sh is new or was changed"]
    approved.earlier = lambda _: b"zero\n"
    assert titles(approved) == ["go.sh was changed in this session"]
    approved.accept(approved.look(step("sh go.sh", workspace), workspace))
    assert titles(Approved(kept, tmp_path)) == []
    script.write_bytes(b"\xff\n")
    assert titles(Approved(kept, tmp_path)) == ["go.sh has changed since: it is not text, or too large to show"]
    script.write_text("")
    assert titles(Approved(kept, tmp_path)) == ["go.sh has changed since"]
    for each in kept.glob("*.json"):
        each.write_text("{")
    script.write_text("two\n")
    assert titles(Approved(kept, tmp_path)) == ["go.sh is new or was changed"]


def test_where_nothing_can_be_written_what_was_allowed_counts_in_this_session(tmp_path: Path) -> None:
    script, workspace = tmp_path / "go.sh", Workspace(tmp_path)
    script.write_text("one\n")
    (tmp_path / "a file").write_text("")
    approved = Approved(tmp_path / "a file" / "kept", tmp_path)
    approved.accept(approved.look(step("sh go.sh", workspace), workspace))
    assert approved.look(step("sh go.sh", workspace), workspace).changes == ()
    script.write_text("two\n")
    (change,) = approved.look(step("sh go.sh", workspace), workspace).changes
    assert change.title == "go.sh has changed since"


def test_five_changed_files_are_named() -> None:
    for files, end in ((5, "f4."), (6, "f4 and 1 more.")):
        changes = tuple(Change(f"f{number} is new", "") for number in range(files))
        assert FilesRunFirst((), changes).reason.endswith(end)


NAMED: list[tuple[str, dict[str, str], str]] = [
    ("make", {"Makefile": "include $(wildcard mk/*.mk)\n"}, "mk/a.mk"),
    ("make", {"Makefile": "x:\n\t$(PY) tools/x.py\n"}, "tools/x.py"),
    ("sh sub/go.sh", {"sub/go.sh": "sh tools/x.sh\n"}, "tools/x.sh"),
    ("make", {"Makefile": "x:\n\tsh mk/*\n"}, "mk/a.mk"),
    ("python3 -m mod", {"mod.py": ""}, "json.py"),
    ("python3 x.py", {"x.py": ""}, "json/__init__.py"),
    ("Rake", {"Rakefile": ""}, "rakelib/a.rake"),
    ("sh go.sh", {"go.sh": "./tool.xyz\n"}, "tool.xyz"),
    ("npm run x", {"package.json": '{"scripts": {"x": "node ./scripts"}}'}, "scripts/index.js"),
    ("cmake .", {"CMakeLists.txt": "add_subdirectory(sub)\n"}, "sub/CMakeLists.txt"),
    ("gradle test", {"settings.gradle": "include 'sub'\n"}, "sub/build.gradle"),
    ("gradle test", {"build.gradle": "apply from: 'more/b.gradle'\n"}, "more/b.gradle"),
    ("rake", {"Rakefile": ""}, "rakelib/a.rake"),
    ("bundle exec x", {"Gemfile": "eval_gemfile 'more/Gems'\n"}, "more/Gems"),
    ("python3 -m pkg", {"pkg/__main__.py": ""}, "json.py"),
    ("npm run x", {"package.json": '{"scripts": {"x": "node ./scripts/x"}}'}, "scripts/x.js"),
    ("npm install", {"package.json": '{"workspaces": ["sub"]}'}, "sub/package.json"),
    ("npm install", {"package.json": '{"workspaces": ["sub/*"]}'}, "sub/one/package.json"),
    ("npm test", {"package.json": '{"test": "vitest run sub/**/*.spec.ts"}'}, "sub/vitest.config.ts"),
    ("sh go.sh", {"go.sh": '. "$(dirname "$0")/tools/inc.sh"\n'}, "tools/inc.sh"),
    ("sh go.sh", {"go.sh": 'bash "$PWD/tools/inc.sh"\n'}, "tools/inc.sh"),
    ("npx -y @s/server", {"node_modules/@s/server/package.json": '{"bin": "i.js"}'}, "node_modules/@s/server/i.js"),
    ("node .hidden", {}, ".hidden.js"),
    ("sh new/../x.sh", {}, "x.sh"),
]


def test_what_a_file_names_that_is_read_first_is_read_too(tmp_path: Path) -> None:
    for number, (line, build, named_there) in enumerate(NAMED):
        workspace = Workspace(tmp_path / str(number))
        for name, text in {**build, named_there: "", "src/code.py": "", "mk/code.py": ""}.items():
            (workspace.root / name).parent.mkdir(parents=True, exist_ok=True)
            (workspace.root / name).write_text(text)
        assert named(read_first(step(line, workspace), workspace), workspace) == sorted([*build, named_there]), line


def test_a_second_look_is_quick_and_sees_what_has_changed(tmp_path: Path) -> None:
    """A line that leads to 60 scripts, each of which names the next and 200 files that are not there."""
    scripts = [tmp_path / f"part{number}.sh" for number in range(60)]
    for script, after in zip(scripts, [*scripts[1:], tmp_path / "last.sh"], strict=True):
        missing = " ".join(f"{script.stem}/data/{number}.txt" for number in range(200))
        script.write_text(f"source ./{after.name}\ncat {missing}\n")
    workspace = Workspace(tmp_path)
    line = step("sh part0.sh", workspace)
    approved = Approved(None, tmp_path)

    def look() -> tuple[list[str], float]:
        began = time.perf_counter()
        seen = approved.look(line, workspace)
        return [Path(kept.path).name for kept in seen.files], time.perf_counter() - began

    names, first = look()
    assert names == [script.name for script in scripts]
    assert min(look()[1] for _ in range(3)) < first / 2
    (tmp_path / "last.sh").write_text("echo done\n")
    assert look()[0] == [*names, "last.sh"]
    scripts[50].write_text("source ./part52.sh\n")
    assert look()[0] == [*names[:51], *names[52:], "last.sh"]
    (tmp_path / "last.sh").unlink()
    (tmp_path / "last.sh").symlink_to("/etc/passwd")
    assert look()[0] == [*names[:51], *names[52:]]
