"""Batches: tasks in worktrees and processes of their own, one ceiling, resumed after a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, Fault, Script, Step, Turn
from tui_agent.arguments import UsageError
from tui_agent.headless.batch import Batch, BatchOptions, read_tasks
from tui_agent.storage.ledger import Ledger

OPUS = ("--set", "model.id=claude-opus-5-5", "--yolo")
PRICE = 0.30
"""USD that no call of these tests reaches."""


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "first")
    return folder


def options(repository: Path, tasks: list[dict[str, Any]], **more: Any) -> BatchOptions:
    path = repository.parent / "tasks.jsonl"
    path.write_text("\n".join(json.dumps({"folder": "shop", **task}) for task in tasks))
    return BatchOptions(path, repository.parent / "out.jsonl", **{"words": OPUS, **more})


async def run(given: BatchOptions) -> list[dict[str, Any]]:
    batch = Batch(given, read_tasks(given.tasks), lambda _: None)
    await batch.run()
    written = [json.loads(line) for line in given.results.read_text().splitlines()]
    assert written == batch.done
    return written


def test_tasks_that_are_none_are_refused(tmp_path: Path) -> None:
    for lines in ("{", "[]", '{"id": "a"}', '{"prompt": "x", "id": "1"}\n{"prompt": "y", "id": "1"}'):
        (tmp_path / "tasks.jsonl").write_text(lines)
        with pytest.raises(UsageError, match="batch:"):
            read_tasks(tmp_path / "tasks.jsonl")


def test_a_ledger_is_passed_by_no_more_than_one_call(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger").set_ceiling(1.0)
    passed: list[float] = []

    def work(_: int) -> None:
        ledger = Ledger(tmp_path / "ledger")
        while (call := ledger.reserve(0.01, 0.4)) != "never":
            if isinstance(call, int):
                ledger.settle(call, 0.3)
                passed.append(ledger.money().spent)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert max(passed) == pytest.approx(1.2)
    assert Ledger(tmp_path / "ledger").money().reserved == 0


def test_of_two_limits_of_a_provider_the_later_counts(tmp_path: Path) -> None:
    ledger, other = Ledger(tmp_path / "ledger"), Ledger(tmp_path / "ledger")
    assert ledger.limited_s("anthropic") == 0
    for seconds in (100, 50):
        ledger.limit("anthropic", time.time() + seconds)
    assert 90 < other.limited_s("anthropic") <= 100
    assert other.limited_s("openai") == 0
    other.limit("openai", time.time() - 5)
    assert ledger.limited_s("openai") == 0


def test_money_set_aside_by_a_killed_process_counts_as_spent(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.set_ceiling(1.0)
    code = (
        "from pathlib import Path; from tui_agent.storage.ledger import Ledger; "
        f"print(Ledger(Path({str(ledger.path)!r})).reserve(0.1, 0.95))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert ledger.money().reserved == 0.95
    assert ledger.reserve(0.1, 0.1) == "never"


async def test_each_task_has_its_answer_patch_and_cost_under_one_ceiling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path
) -> None:
    make = Step(calls=(Call("write_file", {"path": "made.txt", "content": "x"}),))
    limited = Step(text="Done.", fault=Fault(kind="rate_limited", times=1, retry_after=0.05))
    script = Script((Turn((make, limited), when="make"), Turn((Step(text='{"n": 3}'),), when="count")))
    tasks: list[dict[str, Any]] = [
        {"id": "a", "prompt": "make it"},
        {"id": "b", "prompt": "count", "schema": {"type": "object", "required": ["n"]}},
        {"instance_id": "c", "problem_statement": "make that", "base_commit": "HEAD"},
    ]
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    async with AnthropicServer(script) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        first = await run(options(repository, tasks[:1], max_usd=0.000_001, jobs=1))
        assert first == [], "what the ceiling kept from being done is done later"
        done = await run(options(repository, tasks, max_usd=PRICE))
        asked = len(server.model_requests)
        assert await run(options(repository, tasks, max_usd=PRICE)) == done
        assert len(server.model_requests) == asked, "nothing is done twice"
    assert [each["error"] for each in done] == [None] * 3
    assert [each["id"] for each in done] == ["a", "b", "c"]
    assert "+x" in done[0]["patch"]
    assert done[1]["structured"] == {"n": 3}
    assert 0 < sum(each["cost_usd"] for each in done) < PRICE
    spent = Ledger(tmp_path / "out.jsonl.state").money()
    assert spent.spent == pytest.approx(sum(each["cost_usd"] for each in done))
    assert spent.reserved == 0
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    swebench = await run_as_predictions(options(repository, tasks, max_usd=PRICE, form="swebench"))
    assert [set(each) for each in swebench] == [{"instance_id", "model_name_or_path", "model_patch"}] * 3


async def test_what_failed_is_tried_again_and_a_task_without_a_folder_is_of_the_current_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path
) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"prompt": "read a.txt"}')
    given = BatchOptions(tmp_path / "tasks.jsonl", tmp_path / "out.jsonl", words=("--yolo", "--model", "offline"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    assert [each["error"]["kind"] for each in await run(given)] == ["worktree"]
    monkeypatch.chdir(repository)
    assert [each["error"] for each in await run(given)] == [None]


async def run_as_predictions(given: BatchOptions) -> list[dict[str, Any]]:
    await Batch(given, read_tasks(given.tasks), lambda _: None).run()
    return [json.loads(line) for line in given.results.read_text().splitlines()]


def test_a_batch_that_was_killed_goes_on(tmp_path: Path, repository: Path) -> None:
    go, started = tmp_path / "go", tmp_path / "started"
    wait = f"run test -e {go} || {{ touch {started}; sleep 600; }}"
    tasks = [{"id": "quick", "prompt": "read a.txt"}, {"id": "slow", "prompt": wait}]
    given = options(repository, tasks)
    words = [sys.executable, "-m", "tui_agent", "batch", str(given.tasks), "--out", str(given.results), "--yolo"]
    words += ["--model", "offline", "--set", "permissions.sandbox=off", "--jobs", "1"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "user"), "TUI_AGENT_OFFLINE_DELAY_S": "0"}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith("quick: done")
        while not started.exists():
            time.sleep(0.01)
        children = psutil.Process(running.pid).children(recursive=True)
        assert children
        running.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    go.touch()
    again = subprocess.run(words, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert [json.loads(line)["exit_code"] for line in given.results.read_text().splitlines()] == [0, 0]
    assert len(git(repository, "worktree", "list").splitlines()) == 1
