"""Limits of the tools, each at its value and one beyond: where something is cut, refused or left uncounted."""

import os
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from typing_extensions import override

from tests.tools.support import Call
from tui_agent.tools.asking import AskUser
from tui_agent.tools.base import Access, PermissionAnswer, PermissionQuestion, ToolFailure
from tui_agent.tools.diffs import unified
from tui_agent.tools.files.encodings import FileKind, sniff
from tui_agent.tools.files.notebooks import Notebook
from tui_agent.tools.files.paging import PageLimits, read_page
from tui_agent.tools.files.replacing import Replaced, replaced
from tui_agent.tools.gate.remembered import MAX_RULES, RememberedRules
from tui_agent.tools.gate.repository import MAX_HOOKS, orders_in
from tui_agent.tools.gate.rules import proposed
from tui_agent.tools.gate.shell_line import read_line
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.mcp.elicitation import _value as elicited
from tui_agent.tools.mcp.known import KnownTool, known_tool, tool_name, unique
from tui_agent.tools.mcp.search import Index, SearchableTool, words
from tui_agent.tools.notes.front_matter import split_front_matter
from tui_agent.tools.notes.memory import Notes
from tui_agent.tools.shell.emulation import Emulation
from tui_agent.tools.shell.output import RawStream, what_still_runs
from tui_agent.tools.shell.processes import Ended
from tui_agent.tools.shell.run_command import shell
from tui_agent.tools.threads import Cancellation
from tui_agent.tools.web.addresses import read_address, redirected, same_site
from tui_agent.tools.web.content import decoded, read_content
from tui_agent.tools.web.html import to_markdown


def _lines(count: int, mark: str = "x") -> str:
    return "".join(f"{mark}{number}\n" for number in range(count))


@pytest.mark.parametrize(("count", "shown", "note"), [(1_999, 2_000, ""), (2_000, 2_000, "… 1 more line")])
def test_a_diff_is_cut_at_two_thousand_lines(count: int, shown: int, note: str) -> None:
    lines = unified("", _lines(count), "a").split("\n")
    assert lines[:3] == ["--- a", "+++ a", f"@@ -0,0 +1,{count} @@"]
    assert len([line for line in lines[2:] if not line.startswith("…")]) == shown
    assert "".join(line for line in lines if line.startswith("…")) == note
    assert unified("", _lines(count), "a", complete=True).count("\n+") == count + 1


@pytest.mark.parametrize(("width", "end"), [(999, "y"), (1_000, "…")])
def test_a_line_of_a_diff_is_cut_at_a_thousand_characters(width: int, end: str) -> None:
    assert unified("", "y" * width + "\n", "a").split("\n")[-1] == "+" + "y" * min(width, 999) + end.replace("y", "")


@pytest.mark.parametrize(("lines", "whole"), [(4_000, False), (4_001, True)])
def test_a_very_large_change_is_shown_as_a_whole(lines: int, whole: bool) -> None:
    # Lines that stay the same in the middle of a change are told apart only up to a number of lines.
    middle = _lines(lines - 2)
    body = unified(f"a\n{middle}b\n", f"c\n{middle}d\n", "x", complete=True).split("\n")
    assert ("-x9" in body) == whole


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "`old` is there 2 times (starting in lines 1, 2)"),
        (9, "10 times (starting in lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)"),
        (10, "11 times (starting in lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …)"),
        (998, "there 999 times"),
        (999, "there at least 1000 times"),
    ],
)
def test_of_many_matches_ten_are_named_and_a_thousand_counted(count: int, said: str) -> None:
    with pytest.raises(ToolFailure) as failure:
        replaced("abc\n" * (count + 1), "abc", "d")
    assert said in str(failure.value)


def test_what_overlaps_is_counted_where_one_is_meant_and_not_where_all_are() -> None:
    with pytest.raises(ToolFailure, match="2 times"):
        replaced("aaa", "aa", "b")
    assert replaced("aaaa", "aa", "b", replace_all=True) == Replaced("bb", [1, 1])


INDENT, ENDS = "indentation", "line ends"


@pytest.mark.parametrize(
    ("differed", "text", "old", "new", "found"),
    [
        (INDENT, "if a:\n    b()\n", "if a:\n  b()\n", "if a:\n  c()\n", "if a:\n    c()\n"),
        (INDENT, "A:\n  f:  \n    b\n", "    f:\n        b\n", "    f:\n        c\n", "A:\n  f:  \n    c\n"),
        (ENDS, "a\r\nb\nc\r\n", "a\nb\nc\n", "a\nB\nc\n", "a\r\nB\r\nc\r\n"),
        (ENDS, "a\r\nb\nc\r\n", "a\nb\nc\n", "A\nb\nc\n", "A\r\nb\nc\r\n"),
        (ENDS, "a\nb", "a \nb\n", "a\nc\n", "a\nc"),
        (ENDS, "x = 1  \ny = 2\nz", "x = 1\ny = 2\n", "x = 1\ny = 3\n", "x = 1  \ny = 3\nz"),
        (ENDS, "a  \nb\n", "a\nb\n", "a\nc\n", "a  \nc\n"),
        (INDENT, "\tif a:\n\t\tb()\n", "if a:\n    b()\n", "if a:\n    c()\n    d()\n", "\tif a:\n\t\tc()\n\t\td()\n"),
        (INDENT, "  a\n  b\n", "a\nb", "a\nc", "  a\n  c\n"),
        ("", "a\r\nb\r\n", "a\nb\n", "c\n", "c\r\n"),
        (ENDS, "a\r\nb\n", "a\nb\n", "c\n", "c\n"),
        (INDENT, "x\n  a \nx\n", "a\n", "", "x\nx\n"),
        (INDENT, "if a:\n\tb()\n", "if a:\n  b()\n", "if a:\n  while c:\n    b()\n", "if a:\n\twhile c:\n\t\tb()\n"),
        (INDENT, "if a:\n\tb()\n", "if a:\n  b()\n", "if a:\n  b(d,\n     e)\n", "if a:\n\tb(d,\n\t   e)\n"),
        (INDENT, "  a\n  b\n", "a\nb\n", "a\n  c\n", "  a\n    c\n"),
        (INDENT, "a\n", "  a\n", "  a\n    b\n", "a\n  b\n"),
    ],
)
def test_white_space_alone_does_not_keep_a_replacement_from_its_place(
    differed: str, text: str, old: str, new: str, found: str
) -> None:
    lines = [2 if text[:2] in ("x\n", "A:") else 1]
    assert replaced(text, old, new) == Replaced(found, lines, differed)


@pytest.mark.parametrize(
    ("text", "old", "said"),
    [
        ("a\nb\n", "1\ta\n2\tb", "Leave out the line numbers"),
        ("a\nfoo( bar )\n", "foo(bar)", "It differs only in white space from these lines:\n2\tfoo( bar )"),
        ("a\nreturn total\n", "return totals", "The nearest lines are:\n2\treturn total\n"),
        ("a\nb\n", "nothing like it", "Read it again"),
        ("return\nb\n", "a ratio", "Read it again"),  # as many letters in common as keep it from being near
        ("return total\nb\n", "z\nreturn totals", "are:\n1\treturn total\n2\tb\nCopy"),
        (_lines(30) + "def frobnicate(x):\n", "def frobnicates(x):\n" + _lines(13, "z"), "31\tdef frobnicate(x):"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is_near(text: str, old: str, said: str) -> None:
    with pytest.raises(ToolFailure) as failure:
        replaced(text, old, "new")
    assert said in str(failure.value)


@pytest.mark.parametrize(("more", "shown"), [(0, 12), (1, 12), (-1, 11)])
def test_twelve_lines_of_what_is_near_are_shown(more: int, shown: int) -> None:
    wanted = _lines(12 + more, "line ")
    text = wanted.replace("line 0\n", "l i n e 0\n") + "end\n"
    with pytest.raises(ToolFailure) as failure:
        replaced(text.replace("line 5", "li ne 5"), wanted, "new")
    assert str(failure.value).count("\tli") + str(failure.value).count("\tl i") == shown


class _Asked(Call):
    """A call whose questions are answered with the first choice."""

    @override
    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        return PermissionAnswer(True, choice=question.choices[0])


@pytest.mark.parametrize(
    ("choices", "fits"),
    [
        (["a"] * 8, True),
        (["a"] * 9, False),
        (["a" * 200, "b"], True),
        (["a" * 201, "b"], False),
        (["a", " "] * 8, True),
    ],
)
async def test_a_question_offers_eight_choices_of_200_characters(
    choices: list[str], fits: bool, tmp_path: Path
) -> None:
    arguments = msgspec.json.encode({"question": "Which?", "choices": choices}).decode()
    context = _Asked(Workspace(tmp_path), (), tmp_path)
    if fits:
        assert (await AskUser().run(arguments, context)).text == f"The user answered: {choices[0]}"
    else:
        with pytest.raises(ToolFailure, match="at most 8 choices of 200 characters"):
            await AskUser().run(arguments, context)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (PermissionAnswer(False), ""),
        (PermissionAnswer(True, choice=" "), ""),
        (PermissionAnswer(False, feedback="Later."), " They said: Later."),
    ],
)
async def test_a_question_without_an_answer_says_so(answer: PermissionAnswer, said: str, tmp_path: Path) -> None:
    class Silent(Call):
        @override
        async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
            return answer

    arguments = msgspec.json.encode({"question": "Which?", "choices": []}).decode()
    output = await AskUser().run(arguments, Silent(Workspace(tmp_path), (), tmp_path))
    assert output.text == f"[the user gave no answer; go on as you think best, or say what you need]{said}"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("a " * 1_999 + "ab", "it has too many commands or words"),
        ("a" * 4_000, ""),
        ("a" * 4_001, "it is longer than 4,000 characters"),
        (" " + "a" * 4_000 + "\n", ""),
        (" && ".join(["a"] * 40), ""),
        (" && ".join(["a"] * 41), "it has too many commands or words"),
        (" ".join(["a"] * 200), ""),
        (" ".join(["a"] * 201), "it has too many commands or words"),
        (" ", "it is empty"),
        ("a;", ""),
        ("a &&", "it ends in the middle"),
        ("; a", "a command is missing"),
        ("a 'b", "a quote is open"),
        ('a "$b"', "it holds a variable"),
        ("a\x01", "it holds control characters"),
        ("a 2>&1 >/dev/null", ""),
        ("a >b", "it reads or writes a file by redirection"),
        ("a & b", "it leaves a command in the background"),
        ("a (b)", "it groups commands"),
        ("a\nb", "it has several lines"),
        ("echo $((1))", "it calculates"),
        ("a <<b", "it holds a text for a command's input"),
        ("a {b,c}", "it holds braces"),
        ("a #b", "it holds a comment"),
        ("a `b`", "it runs commands inside others"),
    ],
)
def test_why_a_line_is_not_plain(line: str, why: str) -> None:
    assert read_line(line).opaque == why


@pytest.mark.parametrize(("rules", "kept"), [(MAX_RULES, MAX_RULES), (MAX_RULES + 1, MAX_RULES)])
def test_two_thousand_rules_of_a_project_are_read(rules: int, kept: int, tmp_path: Path) -> None:
    text = msgspec.json.encode(
        {"projects": {str(tmp_path): [{"rule": f"edit_file({number})"} for number in range(rules)]}}
    )
    (tmp_path / "rules.json").write_bytes(text)
    assert len(RememberedRules(tmp_path / "rules.json", tmp_path).rules) == kept == 2_000


@pytest.mark.parametrize(("samples", "said"), [(MAX_HOOKS, ""), (MAX_HOOKS + 1, "the repository has the hook `")])
def test_a_hundred_samples_of_hooks_are_looked_at(samples: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "hooks").mkdir()
    for name in ("config", *(f"hooks/{number}.sample" for number in range(samples))):
        (tmp_path / name).touch()
    found = orders_in(tmp_path)
    assert found.startswith(said)
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("s", "a" * 56, "mcp__s__" + "a" * 56),
        ("s", "a" * 57, "mcp__s__" + "a" * 49 + "_"),
        ("s", "a.b", "mcp__s__a_b_"),
    ],
)
def test_a_servers_tool_has_a_name_that_every_provider_takes(server: str, tool: str, name: str) -> None:
    found = tool_name(server, tool)
    assert len(found) <= 64
    assert found[: len(name)] == name
    assert len(found) - len(name) == (6 if name.endswith("_") else 0)


def _deep(levels: int) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, ""),
        ({}, ""),
        ({"type": "array"}, "is not that of an object"),
        ({"anyOf": []}, "has anyOf at its top"),
        ({"properties": []}, "has properties that are no object"),
        ({"properties": {"a b": {}}}, "names an argument 'a b'"),
        ({"properties": {"a" * 64: {}}}, ""),
        ({"properties": {"a" * 65: {}}}, "names an argument"),
        ({"properties": {"a": {"type": "no"}}}, "is no JSON Schema"),
        (_deep(19), ""),
        (_deep(20), "is nested more than 40 levels deep"),
        (_deep(300), "is nested more than 40 levels deep"),
        ({"description": "x" * 15_966, "type": "object"}, ""),
        ({"description": "x" * 15_967, "type": "object"}, "has 16,001 characters"),
    ],
)
def test_a_schema_that_a_provider_would_refuse_is_told_in_words(schema: dict[str, object], problem: str) -> None:
    tool, told = known_tool("t", "It does.", schema, reads=False)
    assert (problem in told) if problem else (told == "")
    assert ("The arguments, as a JSON Schema" in tool.description) == bool(problem)
    assert tool.schema.startswith('{"type":"object"' if problem else "{")


@pytest.mark.parametrize(("size", "cut"), [(2_000, False), (2_001, True)])
def test_a_tools_description_is_cut(size: int, cut: bool) -> None:
    described = known_tool("t", "x" * size, {}, reads=True)[0].description
    assert described == ("x" * 2_000 + (" […]" if cut else ""))


def test_a_thousand_tools_of_a_server_are_listed_each_name_once_in_order() -> None:
    tools = [KnownTool(f"t{number:04}") for number in range(1_001)]
    assert unique([*reversed(tools), KnownTool("t0000", "again")]) == tuple(tools[:1_000])


def _entry(name: str, description: str = "", server: str = "s") -> SearchableTool:
    return SearchableTool(server, KnownTool(name, description))


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("log", "log"),  # a name counts more than a part of one, and that more than a description
        ("remove", "delete_file"),  # another word for it
        ("makeFiles", "create_file"),
        ("the", None),
        ("zzz", None),
        ("issues", "list_issues"),
    ],
)
def test_a_tool_is_found_by_its_name_first(query: str, best: str | None) -> None:
    tools = [_entry("worklog"), _entry("other", "a log of things"), _entry("log"), _entry("delete_file", "Gone.")]
    tools += [_entry("create_file"), _entry("list_issues"), _entry("close_issue", "Closes one issue of the list")]
    found = Index(tools).search(query, 1)
    assert [entry.tool.name for entry in found] == ([best] if best else [])


def test_a_search_goes_by_rarity_and_length_and_is_cut() -> None:
    assert words("listAllIssues of_the HTTPServer 42") == ["list", "list", "issu", "http", "server", "42"]
    log = [_entry("worklog"), _entry("other", "a log of things"), _entry("log")]
    assert [entry.tool.name for entry in Index(log).search("log", 9)] == ["log", "worklog", "other"]
    assert len(Index(log).search("log", 2)) == 2
    long = [_entry("a", "send " + "words about it " * 9), _entry("b", "send words")]
    assert [entry.tool.name for entry in Index(long).search("send", 9)] == ["b", "a"]
    rare = [_entry("a", "send"), _entry("b", "send"), _entry("c", "rarely")]
    assert next(entry.tool.name for entry in Index(rare).search("send rarely", 9)) == "c"


def test_five_hundred_notes_are_kept(tmp_path: Path) -> None:
    for number in range(499):
        (tmp_path / f"n{number}.md").touch()
    notes = Notes(tmp_path)
    assert notes.write("new", "d", "text", Cancellation())
    with pytest.raises(ToolFailure, match="There are 500 notes already"):
        notes.write("newer", "d", "text", Cancellation())
    assert not notes.write("n1", "d", "text", Cancellation())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://a.b", "https://a.b", True),
        ("https://a.b", "http://a.b", False),  # a step back to no encryption
        ("http://www.a.b", "http://a.b", True),
        ("http://a.b", "http://c.b", False),
        ("http://a.b:81", "https://a.b", False),
        ("http://a.b", "https://a.b:444", False),
        ("http://a.b:81", "http://a.b:81", True),
        ("http://a.b:443", "http://a.b:80", False),
    ],
)
def test_what_is_the_same_site(one: str, other: str, same: bool) -> None:
    assert same_site(read_address(one), read_address(other)) == same
    target = redirected(read_address(one.replace("//", "//me:secret@")), other)
    assert target.user == ("me:secret" if one == other else "")


@pytest.mark.parametrize(
    ("location", "target"),
    [
        (" ../x?a=b ", "http://a.example/x?a=b"),
        ("//b.example", "http://b.example/"),
        ("/" + "x" * 7_983, "http://a.example/" + "x" * 7_983),
        ("http://[broken", "The page redirects to http://[broken, which is no address."),
        ("ftp://a.example/", "ftp://a.example/ is no web address: it must begin with http:// or https://."),
    ],
)
def test_where_a_redirect_leads(location: str, target: str) -> None:
    try:
        assert redirected(read_address("http://a.example/d/"), location).text == target
    except ToolFailure as failure:
        why = failure.why
        assert why == target


LOCAL = (
    *("localhost", "localhost.localdomain", "a.local", "a.internal.", "a.localhost", "127.1", "0x7f000001", "0x7f.1"),
    *("2130706433", "10.0.0.1", "192.168.1.1", "100.64.0.1", "0.0.0.0", "224.0.0.1", "[::1]", "[::ffff:127.0.0.1]"),
    *("[64:ff9b::a00:1]", "[64:ff9b:1::1]", "[2002:a00:1::]", "[fe80::1]", "[fd00::1]", "[4000::1]"),
)
PUBLIC = ("local.a", "8.8.8.8", "[64:ff9b::808:808]", "[2001:4860:4860::8888]", "1.2.3.4.5", "9x")


@pytest.mark.parametrize("host", LOCAL + PUBLIC)
def test_which_hosts_are_not_on_the_public_network(host: str) -> None:
    assert read_address(f"http://{host}/").is_local == (host in LOCAL)


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        (b"\xef\xbb\xbfa", "", "a"),
        ("ä".encode("utf-16"), "", "ä"),
        ("ä".encode("utf-32"), "", "ä"),
        ("ä".encode("utf-16-le"), "utf-16-le", "ä"),
        (b"\xe4", "", "ä"),
        (b"\xe4", "utf-8", "ä"),
        (b"\x80", "iso8859-1", "€"),
        (b"\xe4", "cp437", "Σ"),
        ("€".encode() * 3 + b"\xff", "", "â‚¬" * 3 + "ÿ"),  # one broken byte of ten
        ("ä".encode() * 5 + b"\xff", "", "ä" * 5 + "\ufffd"),
    ],
)
def test_a_body_is_decoded_by_its_mark_itself_or_what_it_says(body: bytes, charset: str, text: str) -> None:
    assert decoded(body, charset) == text


@pytest.mark.parametrize(("before", "text"), [(2_028, "Σ"), (2_029, "ä")])
def test_a_pages_own_charset_is_looked_for_at_its_beginning(before: int, text: str) -> None:
    page = b" " * before + b"<meta charset='cp437'>" + b"\xe4"
    assert decoded(page, "", is_page=True).strip()[-1] == text
    assert read_content(b" " * 2_043 + b"<html>" + b"x", "").is_page
    assert not read_content(b" " * 2_044 + b"<html>" + b"x", "").is_page


@pytest.mark.parametrize(
    ("head", "media"),
    [
        (b"a" * 9 + b"\x01", ""),  # a tenth
        (b"a" * 8 + b"\x01", "binary"),
        (b"a\0", "binary"),
        (b"\t\n\r\f\b\x1b", ""),
        (b"%PDF-", "application/pdf"),
        (b"\x7fELF", "an ELF program or library"),
        (b"RIFF....WEBP", "image/webp"),
        (b"RIFF....WAVE", ""),
        (b"\xff\xfe\0\0", "UTF-32 text"),
        ("ä".encode()[:1], ""),
    ],
)
def test_what_a_file_contains(head: bytes, media: str) -> None:
    assert sniff(head, whole=True).media == media
    assert sniff("ä".encode()[:1], whole=True).encoding == "latin-1"
    assert sniff("ä".encode()[:1], whole=False).encoding == "utf-8"


@pytest.mark.parametrize(
    ("fed", "rows"),
    [
        ("abc\x1b[2D\x1b[2@xy", "axybc"),
        ("abc\x1b[2D\x1b[@x", "axbc"),
        ("abcd\x1b[3D\x1b[2P", "ad"),
        ("abcd\x1b[3D\x1b[P", "acd"),
        ("abcd\x1b[2D\x1b[K", "ab"),
        ("abcd\x1b[2D\x1b[1K", "   d"),
        ("abcd\x1b[2D\x1b[2K", ""),
        ("a\nb\nc\nd", "b\nc\nd"),
        ("a\nb\nc\x1b[1;1H\x1b[M", "b\nc"),
        ("日本\x1b[1;2Hx", " x本"),
        ("日本\x1b[1;3Hx", "日x"),
        ("e\u0301", "é"),
        ("xか\u3099", "xが"),
        ("\u0301a", "a"),
        ("a\n\nb\x1b[1;1H", "a\n\nb"),
    ],
)
def test_a_screen_is_what_a_terminal_shows(fed: str, rows: str) -> None:
    screen = Emulation(10, 3)
    screen.feed(fed)
    assert screen.text() == rows
    assert screen.scrolled == (["a"] if fed.count("\n") == 3 else [])


def test_the_end_of_stored_output_is_cut_by_bytes_and_lines(tmp_path: Path) -> None:
    raw = RawStream(tmp_path, "call", limit=1_000)
    assert raw.tail(100, 2) == ""
    raw.write(b"one\ntwo\nthree\n")
    assert [raw.tail(most, 2) for most in (100, 7)] == ["two\nthree", "\nthree"]
    raw.close()


def test_ten_processes_that_still_run_are_named() -> None:
    said = what_still_runs(Ended(0, tuple(range(11)), left_open=True), 7)
    assert (
        "running and can no longer write to its output: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9; stop_command(process=7)" in said
    )
    assert "still running: 5; " in what_still_runs(Ended(0, (5,)), 7)


@pytest.mark.parametrize(
    ("there", "found"),
    [
        (("/bin/bash", "/bin/sh"), "/bin/bash"),
        (("/usr/bin/bash",), "/usr/bin/bash"),
        (("/bin/sh",), "/bin/sh"),
        ((), ""),
    ],
)
def test_commands_run_in_bash_or_else_in_what_shell_there_is(
    there: tuple[str, ...], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(os, "access", lambda path, mode: path in there)
    if found:
        assert shell() == found
    else:
        with pytest.raises(ToolFailure, match="no shell"):
            shell()


def test_a_cell_holds_sixteen_characters() -> None:
    screen = Emulation(10, 1)
    screen.feed("x" + "\u0325" * 20)
    assert len(screen.text()) == 16


@pytest.mark.parametrize(("size", "cut"), [(3_999, False), (4_000, True)])  # with the end of its line
def test_what_a_cell_printed_is_cut(size: int, cut: bool) -> None:
    printed = {"output_type": "stream", "name": "stdout", "text": "y" * size}
    cell = {"cell_type": "code", "source": "a", "outputs": [printed], "metadata": {}, "execution_count": 1}
    raw = msgspec.json.encode({"cells": [cell], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}).decode()
    notebook = Notebook.of("a.ipynb", raw)
    assert notebook is not None
    assert ("[… 1 character …]" in notebook.text) == cut
    assert notebook.text.count("y") == 3_999
    assert notebook.text.startswith("=== cell 1 code ===\na\n=== output ===\n")
    assert Notebook.of("a.json", raw) is None
    assert Notebook.of("a.ipynb", raw.replace('"nbformat":4', '"nbformat":3')) is None


@pytest.mark.parametrize(
    ("said", "wanted", "value"),
    [
        ("3", {"type": "integer", "minimum": 3, "maximum": 3}, 3),
        ("2", {"type": "integer", "minimum": 3}, "a number from 3 to any"),
        ("4", {"type": "integer", "maximum": 3}, "a number from any to 3"),
        ("3.5", {"type": "integer"}, "a whole number"),
        ("3.5", {"type": "number"}, 3.5),
        ("x", {"type": "number"}, "a number"),
        ("abc", {"minLength": 3, "maxLength": 3}, "abc"),
        ("ab", {"minLength": 3}, "a text of 3 to any number of characters"),
        ("abcd", {"maxLength": 3}, "a text of 0 to 3 characters"),
        ("a", {"enum": ["a", 2]}, "a"),
        ("2", {"enum": ["a", 2]}, "2"),
        ("b", {"enum": ["a", 2]}, "one of a, 2"),
        ("", {}, "it is needed"),
        ("YES", {"type": "boolean"}, True),
        ("n", {"type": "boolean"}, False),
        ("maybe", {"type": "boolean"}, "yes or no"),
        ("a, b,,", {"type": "array"}, ["a", "b"]),
    ],
)
def test_an_answer_has_to_fit_the_field_of_a_servers_form(said: str, wanted: dict[str, object], value: object) -> None:
    try:
        assert elicited(said, wanted) == value
    except ValueError as error:
        assert str(error) == value  # noqa: PT017 - one row tells what comes back, or why nothing does


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("Name: a", {"name": "a"}),
        ("name: a # said", {"name": "a"}),
        ("name: a: b#c", {"name": "a: b#c"}),
        ("name:", {"name": ""}),
        ('name: "goes on\n  here" # c', {"name": "goes on here"}),
        ('name: "not closed', {"name": "not closed"}),
        ("name: a\n  b\n\n  c", {"name": "a b\nc"}),
        ("name: 'it''s'", {"name": "it's"}),
        ('name: "a\\tb\\u00e9\\U00110000\\q"', {"name": "a\tbé\ufffdq"}),
        ("name: >-\n  a\n  b\n\n  c", {"name": "a b\nc"}),
        ("name: |\n  a\n    b\n", {"name": "a\n  b"}),
        ("tools: [a, 'b, c', \"d\"]", {"tools": "a, b, c, d"}),
        ("tools:\n  - a\n  - 'b'", {"tools": "a, b"}),
        ("tools:\n  - a: 1", {"tools": ""}),
        ("tools:\n  a: 1", {"tools": ""}),
        ("tools: {a: 1}", {"tools": ""}),
        ("a: 1\na: 2\n- x\nb-c: 3", {"a": "1", "b-c": "3"}),
        ("a:b", {}),
    ],
)
def test_front_matter_is_read_as_the_part_of_yaml_that_it_is(lines: str, found: dict[str, str]) -> None:
    assert split_front_matter(f"\ufeff---\r\n{lines}\n...\n\nrest") == (found, "rest")
    for unread in (f"---\n{lines}\nrest", f" ---\n{lines}\n---\nrest"):
        assert split_front_matter(unread) == ({}, unread)


@pytest.mark.parametrize(
    ("limits", "pages"),
    [
        (PageLimits(9, 99, 99), ["1\tab\n2\tcd\n3\té"]),
        (PageLimits(2, 99, 99), ["1\tab\n2\tcd", "3\té"]),
        (PageLimits(9, 10, 99), ["1\tab\n2\tcd", "3\té"]),
        (PageLimits(9, 9, 99), ["1\tab", "2\tcd", "3\té"]),
        (PageLimits(9, 99, 10), ["1\tab\n2\tcd", "3\té"]),
        (PageLimits(9, 99, 9), ["1\tab", "2\tcd\n3\té"]),
        (PageLimits(9, 4, 99), ["1\ta", "1+1\tb", "2\tc", "2+1\td", "3\té"]),
    ],
)
def test_a_page_ends_where_its_limits_are(limits: PageLimits, pages: list[str]) -> None:
    stream, found = BytesIO("ab\ncd\né".encode()), list[str]()
    place: tuple[int, int] | None = (1, 0)
    while place is not None:
        stream.seek(0)
        page = read_page(stream, FileKind("utf-8"), *place, limits, Cancellation())
        found.append(page.text)
        place = page.following
    assert found == pages


@pytest.mark.parametrize(
    ("access", "rules"),
    [
        (Access("call", "server/tool"), ["t"]),
        (Access("network", "https://a.b:81/c?d"), ["t(https://a.b:81/*)"]),
        (Access("network", "words to look for"), ["t"]),
        (Access("read", "{root}/a.py"), ["t(*)"]),
        (Access("read", "{root}/sub/a.py"), ["t(sub/*)"]),
        (Access("read", "/etc/hosts", inside=False), ["t(/etc/*)"]),
        (Access("write", "/etc/hosts", inside=False), ["t(/etc/hosts)"]),
        (Access("write", "{root}/sub/a.py"), ["t(sub/*)"]),
        (Access("write", "{root}/sub/a.py", guarded=True), ["t(sub/a.py)"]),
        (Access("read", "{root}/s*b/a.py"), [r"t(s\*b/*)"]),
    ],
)
def test_what_always_allow_remembers(access: Access, rules: list[str], tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    target = access.target.replace("{root}", str(workspace.root))
    found = proposed("t", msgspec.structs.replace(access, target=target), workspace)
    assert [rule.text for rule in found] == rules


def test_only_a_table_of_data_is_shown_as_one() -> None:
    def page(size: int) -> str:
        return f"<table><tr><td>a<td>b</tr><tr><td>{'c' * size}<td>d</tr></table>"

    assert ["| a | b |" in to_markdown(page(size), "https://a.b/").text for size in (2_000, 2_001)] == [True, False]
