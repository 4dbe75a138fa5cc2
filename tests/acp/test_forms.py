"""What editors are shown of calls, and what is made of what they send."""

import random
from pathlib import Path

from acp.helpers import (
    audio_block,
    embedded_blob_resource,
    image_block,
    resource_block,
    resource_link_block,
    text_block,
)
from acp.schema import ContentToolCallContent, FileEditToolCallContent, TextContentBlock
from hypothesis import given
from hypothesis import strategies as st

from tests.test_visible import hostile_texts
from tui_agent.acp.prompts import PromptBlock, mention, read_prompt
from tui_agent.acp.updates import edits, fenced, output_content, question_content, title_of
from tui_agent.tools.base import PermissionQuestion, Preview
from tui_agent.tools.diffs import unified
from tui_agent.visible import original

LINES = st.lists(st.sampled_from(["a", "b", "c", "-", "+x", "@@ -1 +1 @@", " ", ""]), max_size=30).map("\n".join)


@given(LINES, LINES)
def test_the_hunks_of_a_diff_are_what_stood_there_and_what_stands_there(old: str, new: str) -> None:
    for edit in edits(unified(old, new, "a.txt"), "/p/a.txt"):
        assert edit.path == "/p/a.txt"
        assert (edit.old_text or "").rstrip("\n") in old
        assert edit.new_text.rstrip("\n") in new
        assert edit.old_text != edit.new_text or old.endswith("\n") != new.endswith("\n")


def test_a_new_file_has_no_text_before() -> None:
    (made,) = edits(unified("", "one\ntwo\n", "a.txt"), "/p/a.txt")
    assert (made.old_text, made.new_text) == (None, "one\ntwo\n")
    assert list(edits("", "/p/a.txt")) == list(edits(unified("", "x\n", "a"), "")) == []


def test_output_cannot_leave_its_block_nor_give_a_terminal_orders() -> None:
    assert fenced("a\n```\nb\x1b[2J") == "````\na\n```\nb\n````"
    (shown,) = output_content("run_command", "x" * 30_000)
    assert "10,000 more characters" in str(shown)
    assert title_of("run_command", r'{"command": "ls\u001b]0;x\u0007 -l"}') == "ls␛]0;x␇ -l"
    assert title_of("read_file", '{"path": "a.txt"}') == "Read a.txt"


def test_an_editor_is_shown_exactly_what_is_approved() -> None:
    for text in hostile_texts(random.Random(5), 400):
        command = PermissionQuestion("1", "run_command", "{}", (), Preview("Run", command=text or "ls"), "")
        (shown,) = question_content(command, Path("/p"))
        assert isinstance(shown, ContentToolCallContent)
        assert isinstance(shown.content, TextContentBlock)
        fence, _, rest = shown.content.text.partition("sh\n")
        assert rest.endswith(f"\n{fence}")
        assert original(rest.removesuffix(f"\n{fence}")) == (text or "ls")
        arguments = '{"path": "a"}'
        diff = unified("", text or "x", "a", complete=True)
        written = PermissionQuestion("1", "write_file", arguments, (), Preview("Create a", diff=diff), "")
        (edit,) = question_content(written, Path("/p"))
        assert isinstance(edit, FileEditToolCallContent)
        assert (original(edit.new_text), edit.old_text) == (text or "x", None)


def test_a_prompt_is_its_words_then_what_it_holds() -> None:
    blocks: list[PromptBlock] = [
        text_block("See "),
        resource_link_block("a b", "file:///p/a%20b.py#L3"),
        text_block(" and "),
        resource_link_block("page", "https://example.org/"),
        image_block("QQ==", "image/svg+xml"),
        resource_block(embedded_blob_resource("file:///p/x.bin", "QQ==", mime_type="application/zip")),
        audio_block("QQ==", "audio/wav"),
    ]
    read = read_prompt(blocks, pictures=True, model="m")
    assert read.text == 'See @"/p/a b.py" (L3) and https://example.org/'
    assert not read.images
    assert len(read.problems) == 3
    seeing = read_prompt([image_block("QQ==", "image/png")], pictures=False, model="m")
    assert (seeing.images, seeing.problems) == ((), ("m cannot see pictures: only the words are sent.",))
    assert mention("file:///" + str(Path("a.py"))) == "@/a.py"
