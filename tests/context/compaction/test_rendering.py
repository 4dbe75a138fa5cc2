"""Groups as text."""

import json

from tests.context.talks import Talk
from tui_agent.context.compaction.forms import cut
from tui_agent.context.compaction.material import archive, fact_sources, transcript
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolResult
from tui_agent.conversation.entries import Artifact, Cleared, Delivered, Digested, Message, Queued, notice, tool_result
from tui_agent.system.lenient import strings_in


def test_a_cut_keeps_both_ends_within_its_limit() -> None:
    text = "head " + "x" * 5_000 + " tail"
    for limit in (0, 10, 60, 500, 4_999):
        assert len(cut(text, limit)) <= limit
    assert cut(text, 500).startswith("head ")
    assert cut(text, 500).endswith(" tail")
    assert cut("short", 5) == "short"


def test_a_transcript_names_speakers_calls_and_failures_and_no_reasoning() -> None:
    talk = Talk()
    talk.ask("hello")
    talk.add(notice("a file changed"))
    talk.add(Message(role="assistant", blocks=(Reasoning("secret thought"), Text("hi"))))
    talk.tool("boom", failed=True, path="x.py")
    told = "\n".join(transcript(talk.view.groups(), result_chars=100))
    assert "[user]\nhello" in told
    assert "[program]\na file changed" in told
    assert '[assistant calls read_file]\n{"path": "x.py"}' in told
    assert "[result of read_file, failed]\nboom" in told
    assert "secret" not in told


def test_arguments_are_read_with_their_json_undone() -> None:
    assert strings_in(json.dumps({"path": "a\\b", "lines": [1, 2.5], "deep": {"x": "y\nz"}, "on": True})) == [
        "a\\b",
        "1",
        "2.5",
        "y\nz",
    ]


def test_the_archive_holds_the_log_and_not_what_the_view_shows_of_it() -> None:
    talk = Talk()
    talk.ask("question")
    talk.tool("the ``` whole ```` result", path="x.py")
    result = len(talk.view.log)
    talk.add(Cleared(results=(result,), texts=("[cleared]",)))
    talk.add(Queued(blocks=(Text("queued words"), Image("image/png", "AAAA"))))
    talk.add(Delivered(queued=len(talk.view.log)))
    talk.add(Digested(results=(result,), placeholder="[archived]", text="the digest"))
    step, call = talk.call(path="big.py")
    talk.add(tool_result(ToolResult(call, "preview"), artifact=Artifact("large_tool_results/c2", 9, "0")))
    text = archive(talk.view, talk.view.groups())
    assert text.startswith(f"## Entries 2 to {step + 1}\n")
    for part in ("question", "the ``` whole ```` result", "queued words", "(an image)", "the digest", "preview"):
        assert part in text
    assert "`````\nthe ``` whole" in text
    assert "large_tool_results/c2" in text
    assert "[cleared]" not in text
    assert "result of read_file" in text
    assert "1970-01-01 00:00:01 UTC" in text


def test_fact_sources_tell_who_said_it_and_of_the_user_have_only_pastes() -> None:
    talk = Talk()
    talk.ask("question")
    talk.ask("paste " * 300)
    talk.tool("answer", path="x.py")
    sources = fact_sources(talk.view.groups())
    assert [(source.speaker, source.text) for source in sources] == [
        ("user", "paste " * 300),
        ("assistant", "x.py"),
        ("tool", "answer"),
    ]
