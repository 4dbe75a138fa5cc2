"""Finding tools by plain descriptions, among 300 of ten servers."""

from tests.tools.mcp.catalogue import ASKED, three_hundred
from tui_agent.tools.mcp.known import KnownTool
from tui_agent.tools.mcp.search import Index, SearchableTool


def test_each_of_twenty_plain_descriptions_finds_its_tool_among_300() -> None:
    entries = three_hundred()
    assert len(entries) == 300
    assert len({entry.server for entry in entries}) == 10
    index = Index(entries)
    found = {query: [f"{each.server}/{each.tool.name}" for each in index.search(query, 5)] for query in ASKED}
    missed = {query: found[query] for query, wanted in ASKED.items() if wanted not in found[query]}
    assert len(ASKED) == 20
    assert not missed


def test_nothing_is_found_where_no_word_is_known() -> None:
    assert Index(three_hundred()).search("xyzzy plugh", 5) == []
    assert Index(()).search("anything", 5) == []


def test_a_tool_whose_schema_is_no_json_is_found_by_its_name() -> None:
    for schema in ("{", "[]", '{"properties": []}'):
        entry = SearchableTool("s", KnownTool("open_issue", "", schema))
        assert Index([entry]).search("issue", 5) == [entry]
