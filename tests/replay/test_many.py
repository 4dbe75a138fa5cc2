"""Many recordings: every one once, whatever stops the run and whoever works, and nothing of them in the report."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from distributed import LocalCluster

from tests.e2e.starter import STARTER
from tests.replay.metered import Provider, claude_code_lines, write
from tests.replay.recordings import answer, call, result, user, write_lines
from tests.replay.sessions import Session, write_session
from tui_agent.models.prices import all_models
from tui_agent.replay.many import Result, Results, find, replayed, run, tasks
from tui_agent.reports.replays import ReplayRequest, as_json, as_page, as_text, leaks, recordings_of, replay_many
from tui_agent.settings import Settings
from tui_agent.storage.recordings.recording import UnreadableRecording

POLICIES = ("none", "balanced", "pi")


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight sessions, one of them with usage; one is there twice, and one file is no recording."""
    folder = tmp_path_factory.mktemp("sessions")
    for seed in range(1, 8):
        write_session(folder / f"secretproject{seed}.jsonl", seed=seed, calls=12 + seed)
    write(folder / "metered.jsonl", claude_code_lines(Session(3, 30), Provider(warm=True)))
    (folder / "again").mkdir()
    (folder / "again" / "copy.jsonl").write_bytes((folder / "secretproject1.jsonl").read_bytes())
    (folder / "settings.json").write_text('{"theme": "dark"}')
    return folder


def asked(folder: Path, *, shard: tuple[int, int] = (0, 1)) -> ReplayRequest:
    return ReplayRequest(
        [str(folder)], policies=POLICIES, models=["claude-opus-5-5"], windows=[32_000, 200_000], shard=shard
    )


@pytest.fixture(scope="module")
def known(sessions: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[object, ...], Result]:
    """The results by their keys, worked out one after the other in this process."""
    found = find([str(sessions)], [], sessions)
    settings, names = Settings(), ("as recorded", *POLICIES)
    left = tasks(found, {}, settings, names=names, models=["anthropic:claude-opus-5-5"], windows=[32_000, 200_000])
    return {each.key: each for task in left for each in replayed(task)}


def lines(path: Path) -> list[Result]:
    return list(Results(path).known.values())


def test_each_recording_is_replayed_once_under_all_policies(sessions: Path, known: dict[object, Result]) -> None:
    found = find([str(sessions), str(sessions / "*.jsonl")], [], sessions)
    assert len(found) == 9
    assert len(known) == 9 * 2 * 4
    problems = [each.problem for each in known.values() if each.problem]
    assert sorted(set(problems)) == ["no usage recorded", "not readable"]
    assert problems.count("not readable") == 2 * 4
    usable = [each for each in known.values() if not each.problem]
    assert {each.policy for each in usable} == {*POLICIES, "as recorded"}
    assert all(each.cost_usd > 0 and each.calls > 10 for each in usable)


def test_a_killed_run_goes_on_where_it_was(sessions: Path, known: dict[object, Result], tmp_path: Path) -> None:
    results = tmp_path / "r.jsonl"
    command = [
        *("replay", str(sessions), "--model", "claude-opus-5-5", "--window", "32000", "--window", "200000"),
        *("--jobs", "2", "--results", str(results)),
        *(word for name in POLICIES for word in ("--policy", name)),
    ]
    environ = {**os.environ, "TUI_AGENT_HOME": str(tmp_path / "home")}
    process = subprocess.Popen([sys.executable, "-m", "tui_agent", *command], env=environ, stdout=subprocess.DEVNULL)
    while process.poll() is None and not (results.exists() and results.read_bytes().count(b"\n") >= 4):
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.02)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for child in children:
        child.wait(30)
    before = results.read_bytes()
    results.write_bytes(before[:-20])
    kept = len(lines(results))
    assert 3 <= kept < len(known)
    done = STARTER.run([*command, "--json"], folder=tmp_path, environ=environ, stdin="", timeout=120)
    assert done.returncode == 0, done.stderr
    after = results.read_bytes()
    assert after.startswith(before[:-20])
    assert {each.key: each for each in lines(results)} == known
    assert after.count(b"\n") == len(known) + 1, "a result was worked out twice"
    again = STARTER.run([*command, "--json"], folder=tmp_path, environ=environ, stdin="", timeout=120)
    assert (again.stdout, results.read_bytes()) == (done.stdout, after)


def test_shards_are_all_and_share_nothing(sessions: Path, tmp_path: Path) -> None:
    parts = [
        {each.hash for each in recordings_of(asked(sessions, shard=(number, 3)), tmp_path)} for number in (1, 2, 3)
    ]
    assert set().union(*parts) == {each.hash for each in find([str(sessions)], [], tmp_path)}
    assert sum(map(len, parts)) == 9


def test_any_executor_works(sessions: Path, known: dict[object, Result]) -> None:
    found = find([str(sessions)], [], sessions)
    left = tasks(
        found,
        {},
        Settings(),
        names=("as recorded", *POLICIES),
        models=["anthropic:claude-opus-5-5"],
        windows=[32_000, 200_000],
    )
    with ThreadPoolExecutor(2) as executor:
        assert {each.key: each for done in run(left, executor, 2) for each in done} == known


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A scheduler and two workers, each in a process of its own."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path), host="127.0.0.1"
    ) as cluster:
        yield cluster


@pytest.mark.soak
def test_a_dask_cluster_has_the_same_figures_although_a_worker_is_killed(
    sessions: Path, known: dict[object, Result], tmp_path: Path, cluster: LocalCluster
) -> None:
    results = tmp_path / "r.jsonl"
    killed = list[int]()
    write_results = Results.write

    def write_and_kill(self: Results, done: list[Result]) -> None:
        write_results(self, done)
        if not killed:
            worker = cluster.workers[0].process.process._process
            assert isinstance(worker, multiprocessing.process.BaseProcess)
            killed.append(worker.pid or 0)
            worker.kill()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Results, "write", write_and_kill)
        replay_many(
            asked(sessions),
            tmp_path,
            Settings(),
            results=results,
            executor=cluster.scheduler_address.replace("tcp", "dask"),
        )
    assert killed
    assert {each.key: each for each in lines(results)} == known


def test_without_the_cluster_it_says_so(sessions: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableRecording, match="expected dask://"):
        replay_many(asked(sessions), tmp_path, Settings(), results=tmp_path / "r.jsonl", executor="ray://x")


def test_nothing_of_the_sessions_is_in_the_report_and_a_planted_word_is_found(sessions: Path, tmp_path: Path) -> None:
    results = tmp_path / "r.jsonl"
    summary = replay_many(
        ReplayRequest([str(sessions)], policies=POLICIES), tmp_path, Settings(), results=results, jobs=1
    )
    page, found = "".join(as_page(summary)), find([str(sessions)], [], tmp_path)
    for report in (page, as_json(summary), as_text(summary)):
        assert leaks(report, found) == []
    assert leaks(results.read_text(), found) == []
    told = json.loads(as_json(summary))
    assert told["formats"] == {"neutral": 7, "claude-code": 1}
    assert told["problems"] == {"not readable": 1, "no usage recorded": 7}
    assert told["errors"]["cost"]["sessions"] == 1
    assert {panel["model"] for panel in told["panels"]} <= {*all_models(), "each session's own"}
    for planted in ("secretproject", "copy", "Zanzibar", "settings"):
        (tmp_path / "o.jsonl").write_text('{"role": "user", "text": "an\\nZanzibar"}')
        assert leaks(f"{page}{planted}", [*found, *find([str(tmp_path / "o.jsonl")], [], tmp_path)])
    (tmp_path / "page.html").write_text(page)
    named = ["replay", str(sessions), "--check", str(tmp_path / "page.html")]
    environ = {**os.environ, "TUI_AGENT_HOME": str(tmp_path / "home")}
    done = STARTER.run(named, folder=tmp_path, environ=environ, stdin="", timeout=60)
    assert (done.returncode, done.stdout) == (0, "No word of 9 sessions is in it.\n")


def test_commands_numbers_and_the_users_words_are_followed(tmp_path: Path) -> None:
    command = "pytest -q tests/test_far_away.py"
    said = [user("Begin."), answer("So.", call("c0", "bash", command=command)), result("c0", "x" * 6_000)]
    said += [
        user("No, use port 8,443 instead."),
        answer("Yes.", call("c1", "bash", command=command)),
        result("c1", "y"),
    ]
    for number in range(2, 14):
        said += [answer("On.", call(f"c{number}", "read_file", path="a.py")), result(f"c{number}", "z" * 20_000)]
    said += [answer("Again.", call("last", "bash", command=command)), result("last", "y"), answer("Done.")]
    path = write_lines(tmp_path / "s.jsonl", *said)
    (task,) = tasks(
        find([str(path)], [], tmp_path), {}, Settings(), names=("none", "summary-85"), models=["claude-opus-4-7"],
        windows=[60_000],
    )  # fmt: skip
    whole, cut = replayed(task)
    assert whole.survived["command"] == (2, 2)
    assert whole.survived["user's words"] == (1, 1)
    assert cut.survived["user's words"] == (1, 0)
    assert cut.survived["command"] == (2, 1)
