from pathlib import Path

import pytest

from tests.tools.support import Call, call
from tui_agent.conversation.entries import Hit
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.search.finding import MAX_BYTES, MAX_MATCHES, Glob, Grep


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "o.py").write_text("needle\n")
    root = tmp_path / "work"
    for name, content in {
        "a.py": "one\nneedle\nthree\n",
        "sub/b.py": "needle needle\r\n",
        "sub/deep/c.txt": "needle\n",
        ".github/w.yml": "needle\n",
        ".git/config": "needle\n",
        "skip.py": "needle\n",
        "keep.log": "needle\n",
        "node_modules/m.py": "needle\n",
        "-dash.py": "-needle\n",
        "new\nline.py": "needle\n",
        ".gitignore": "skip.py\nnode_modules/\n!keep.log\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content.encode())
    (root / "early.bin").write_bytes(b"needle\n" + b"x" * 200_000 + b"\0")
    (root / "late.bin").write_bytes(b"\0needle\n")
    (root / "out").symlink_to(outside)
    (root / "out.py").symlink_to(outside / "o.py")
    return root


async def test_glob_heeds_ignore_files_and_follows_no_link(tree: Path) -> None:
    output = await call(Glob(), tree, pattern="*.py")
    assert output.text.split("\n") == ["-dash.py", "a.py", r"new\nline.py", "sub/b.py"]
    assert output.summary == "4 files"


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("sub/*", ".", ["sub/b.py"]),
        ("**/*.{txt,yml}", ".", [".github/w.yml", "sub/deep/c.txt"]),
        ("./a.py", ".", ["a.py"]),
        ("*", "sub", ["sub/b.py", "sub/deep/c.txt"]),
        ("-*", ".", ["-dash.py"]),
        ("*.py", "node_modules", ["node_modules/m.py"]),
        ("*.py", "../outside", ["{outside}/o.py"]),
    ],
)
async def test_glob_patterns(tree: Path, pattern: str, path: str, found: list[str]) -> None:
    output = await call(Glob(), tree, pattern=pattern, path=path)
    assert "No file matches skip.*" in (await call(Glob(), tree, pattern="skip.*")).text
    assert output.text.split("\n") == [name.format(outside=tree.parent / "outside") for name in found]


async def test_grep_shows_lines_below_their_file(tree: Path) -> None:
    output = await call(Grep(), tree, pattern="^needle", glob="*.{py,txt}")
    assert output.text == "a.py\n2:needle\nnew\\nline.py\n1:needle\nsub/b.py\n1:needle needle\nsub/deep/c.txt\n1:needle"
    assert output.summary == "4 matches in 4 files"
    assert [(hit.file, hit.number) for hit in output.outcome.hits] == [
        ("a.py", 2),
        ("new\\nline.py", 1),
        ("sub/b.py", 1),
        ("sub/deep/c.txt", 1),
    ]
    everything = await call(Grep(), tree, pattern="needle")
    assert ".github/w.yml" in everything.text
    for left_out in (".git/config", "skip.py", "node_modules", "late.bin", "out", "WARNING"):
        assert left_out not in everything.text.replace("early.bin", "")


async def test_grep_context_gaps_and_single_files(tree: Path) -> None:
    (tree / "many.txt").write_text("".join(f"{number}\n" for number in range(1, 30)))
    output = await call(Grep(), tree, pattern="^(5|15|16)$", path="many.txt", context=1)
    assert output.text == "many.txt\n4-4\n5:5\n6-6\n--\n14-14\n15:15\n16:16\n17-17"
    assert (output.outcome.hits[1], output.outcome.hit_count) == (Hit("many.txt", 15, "15"), 3)
    (tree / "001-create.sql").write_text("x" * 400 + " needle\n")
    named_by_number = await call(Grep(), tree, pattern="needle", path="001-create.sql")
    assert named_by_number.outcome.hits == (Hit("001-create.sql", 1, "x" * 200),)
    assert (await call(Grep(), tree, pattern="needle", path="skip.py")).text == "skip.py\n1:needle"
    nothing = await call(Grep(), tree, pattern="needle", path="late.bin")
    assert "binary" in nothing.text


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [("-needle", ["-dash.py", "1:-needle"]), (r"one\nneedle", ["a.py", "1:one", "2:needle"]), ("ONE", None)],
)
async def test_grep_patterns(tree: Path, pattern: str, lines: list[str] | None) -> None:
    output = await call(Grep(), tree, pattern=pattern)
    if lines is None:
        assert output.text.startswith(f"No match for {pattern} in this folder. Files ignored")
    else:
        assert output.text.split("\n") == lines


async def test_a_pattern_that_is_no_regex_says_how_to_search_for_text(tree: Path) -> None:
    with pytest.raises(ToolFailure, match=r"unclosed group\. To search for text as it is.*foo\\\(bar"):
        await call(Grep(), tree, pattern="f(")
    with pytest.raises(ToolFailure, match="look-around"):
        await call(Grep(), tree, pattern="(?=a)")
    with pytest.raises(ToolFailure, match="could not be started"):
        await call(Grep(), tree, pattern="a\0b")


async def test_many_matches_are_cut_counted_and_the_same_every_time(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"f{number:02}").write_text("match me\n" * 20)
    first = await call(Grep(), tmp_path, pattern="match")
    assert first.text == (await call(Grep(), tmp_path, pattern="match")).text
    assert first.text.count("match me") == MAX_MATCHES
    notice = "[350 more matches in 18 files; 600 matches in 30 files in all. Narrow the pattern, the path or the glob.]"
    assert first.text.endswith(notice)


async def test_giant_lines_and_many_names_stay_bounded(tmp_path: Path) -> None:
    (tmp_path / "min.js").write_text("x" * 3_000_000 + "needle" + "y" * 3_000_000)
    output = await call(Grep(), tmp_path, pattern="needle")
    assert len(output.text) < 1_000
    for number in range(1_500):
        (tmp_path / f"{'n' * 60}{number:04}").touch()
    names = await call(Glob(), tmp_path, pattern="n*")
    assert len(names.text) < MAX_BYTES + 200
    assert "more files (1,500 files in all)" in names.text


async def test_a_folder_swapped_for_a_link_is_not_searched(tree: Path) -> None:
    workspace = Workspace(tree)
    text = '{"pattern":"needle","path":"sub"}'
    running = Call(workspace, Grep().access(text, workspace), tree)
    (tree / "sub").rename(tree / "away")
    (tree / "sub").symlink_to("../outside")
    with pytest.raises(ToolFailure, match="another place"):
        await Grep().run(text, running)


async def test_the_user_s_own_ripgrep_settings_change_nothing(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "rc").write_text("--files\n")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tree / "rc"))
    assert (await call(Grep(), tree, pattern="one")).text == "a.py\n1:one"
