"""What the servers share: scripts and records, also as files, and the cache with its clock."""

from __future__ import annotations

from pathlib import Path

from tests.servers.anthropic import parse
from tests.servers.cache import PromptCache, Segment
from tests.servers.coding_task import coding_task_script
from tests.servers.recording import read_record
from tests.servers.script import Call, Fault, Script, Step, Turn


def test_script_survives_a_file(tmp_path: Path) -> None:
    script = Script((Turn((Step(text="é", calls=(Call("a", {"b": [1]}),), fault=Fault(kind="stall")),), when="x"),))
    assert Script.load(script.save(tmp_path / "script.json")) == script
    assert Script.load(coding_task_script().save(tmp_path / "task.json")) == coding_task_script()


def test_turns_are_chosen_by_the_prompt() -> None:
    script = Script((Turn((Step(text="summary"),), when="Summarise"), Turn((Step(text="one"), Step(text="two")))))

    def said(*contents: str) -> str:
        roles = ["user", "assistant"] * len(contents)
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
        return script.step(parse({"model": "claude-opus-5-5", "messages": messages})).text

    assert said("hi") == "one"
    assert said("hi", "x", "Summarise this") == "summary"
    assert said("Summarise", "x", "go on") == "one"


def test_unfinished_line_of_a_record_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.write_text('{"type": "violation", "text": "one"}\n{"type": "viol')
    assert read_record(path).violations == ["one"]
    assert read_record(tmp_path / "none").requests == []


def block(name: str, mark: str | None = None) -> Segment:
    return Segment(name.encode(), 1000, mark)


def test_cache_entries_end_and_are_renewed() -> None:
    now = 0.0
    cache = PromptCache(lambda: now)
    prompt = [block("a", "1h"), block("b", "5m"), block("c")]
    first = cache.use_marked("m", prompt, 512)
    assert (first.uncached, first.read, first.written_5m, first.written_1h) == (1000, 0, 1000, 1000)
    now = 200.0
    assert cache.use_marked("m", prompt, 512).read == 2000
    now = 499.0
    assert cache.use_marked("m", prompt, 512).read == 2000
    now = 799.5
    later = cache.use_marked("m", prompt, 512)
    assert (later.read, later.written_5m) == (1000, 1000)


def test_cache_looks_back_twenty_blocks() -> None:
    cache = PromptCache()
    start = [block(str(i)) for i in range(5)]
    cache.use_marked("m", [*start, block("end", "5m")], 512)
    near = [*start, block("end"), *(block(f"n{i}") for i in range(18)), block("last", "5m")]
    far = [*start, block("end"), *(block(f"f{i}") for i in range(20)), block("last", "5m")]
    assert cache.use_marked("m", near, 512).read == 6000
    assert cache.use_marked("m", far, 512).read == 0
    assert cache.use_marked("other", near, 512).read == 0
