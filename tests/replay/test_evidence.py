"""The page of evidence: fetched by git, the same bytes each time, nothing of the sessions in it."""

from pathlib import Path

import pytest

from tests.bench import evidence
from tests.bench.public_sessions import Source, fetch, git
from tests.replay.metered import Provider, claude_code_lines, write
from tests.replay.sessions import Session, write_session


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Source]]:
    """Two repositories, below a folder that stands for the host, and what is taken from them."""
    host = tmp_path_factory.mktemp("host")
    sources = []
    for agent, name in (("claude-code", "one/secretplace"), ("pi", "two/other")):
        tree = host / name
        tree.mkdir(parents=True)
        if agent == "claude-code":
            write(tree / "wanted.jsonl", claude_code_lines(Session(3, 12), Provider(warm=True)))
        else:
            write_session(tree / "wanted.jsonl", seed=1, calls=12)
        (tree / "unwanted.jsonl").write_text("not asked for")
        place = ("-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b.c")
        git(tree / ".git", *place, "init", "-q")
        for key in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
            git(tree / ".git", "config", key, "true")
        git(tree / ".git", f"--work-tree={tree}", *place, "add", ".")
        git(tree / ".git", f"--work-tree={tree}", *place, "commit", "-qm", "sessions")
        commit = git(tree / ".git", "rev-parse", "HEAD").decode().strip()
        sources.append(Source(agent, name, commit, "MIT", "all", ("wanted.jsonl",)))
    return host, sources


def test_the_page_is_the_same_whatever_came_first_and_holds_nothing_of_the_sessions(
    published: tuple[Path, list[Source]], tmp_path: Path
) -> None:
    host, sources = published
    files = {source: fetch(source, tmp_path, host=f"file://{host}") for source in sources}
    assert [path.name for paths in files.values() for path in paths] == ["wanted.jsonl"] * 2
    results = tmp_path / "results.jsonl"
    measured = evidence.measure(files, results, jobs=1)
    page = evidence.page(measured) + evidence.paragraph(measured)
    assert "| claude-code | cost | 1 |" in page
    results.write_text("\n".join(reversed(results.read_text("utf-8").splitlines())) + "\n", encoding="utf-8")
    again = evidence.measure(files, results)
    assert evidence.page(again) + evidence.paragraph(again) == page
    assert evidence.leaks_of(page, measured, files) == []
    assert evidence.leaks_of(f"{page} wanted", measured, files) == ["wanted"]


def test_a_mirror_has_the_same_files_as_the_host(published: tuple[Path, list[Source]], tmp_path: Path) -> None:
    host, (source, _) = published
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / source.repository.replace("/", "+")).symlink_to(host / source.repository)
    (fetched,) = fetch(source, tmp_path / "a", host=f"file://{host}")
    (mirrored,) = fetch(source, tmp_path / "b", mirror=mirror, host="file:///nowhere")
    assert fetched.read_bytes() == mirrored.read_bytes()
    assert fetch(source, tmp_path / "b", host="file:///nowhere") == [mirrored]


def test_what_the_readme_says_stands_on_the_page() -> None:
    said = evidence.README.read_text("utf-8").partition(evidence.BEGIN)[2].partition(evidence.END)[0]
    page = evidence.PAGE.read_text("utf-8")
    places = [line for line in said.splitlines() if line.startswith("  - ")]
    assert len(places) == len(evidence.CELLS)
    for line in places:
        place, share, in_view = line[4:].split(": ")[0], line.split()[4], line.split(" with ")[1].split("%")[0]
        table = page.partition(f"### {place}\n")[2].partition("###")[0]
        rows = [row.strip("|").replace(" ", "").split("|") for row in table.splitlines() if row.startswith("| `")]
        ours, *others = [row for row in rows if "`none`" not in row[0]]
        cheapest = min(float(row[1].replace(",", "")) for row in others)
        assert float(ours[1].replace(",", "")) / cheapest == pytest.approx(float(share), abs=0.006)
        assert float(ours[3]) * 100 == pytest.approx(float(in_view), abs=0.6)
