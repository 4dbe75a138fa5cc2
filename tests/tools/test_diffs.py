import re

from hypothesis import given
from hypothesis import strategies as st

from tui_agent.tools.diffs import unified

TEXT = st.lists(st.sampled_from(["a", "b", "", "@@ -1 +1 @@", "-x", "é\u2028"]), max_size=30).map("\n".join)


def patched(old: str, diff: str) -> str:
    """`old` with a unified diff applied the plain way."""
    marked = (old[:-1] if old.endswith("\n") else old and old + "\0").split("\n") if old else []
    result: list[str] = []
    at = 0
    for line in diff.replace("\n\\ No newline at end of file", "\0").split("\n")[2:]:
        header = re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@", line)
        if header:
            start = int(header[1]) - (header[2] != "0")
            result += marked[at:start]
            at = start
        elif line[0] == "+":
            result.append(line[1:])
        else:
            assert marked[at] == line[1:]
            result += [line[1:]] * (line[0] == " ")
            at += 1
    result += marked[at:]
    text = "".join(f"{line}\n" for line in result)
    return text.replace("\0\n", "")


@given(TEXT, TEXT)
def test_a_diff_turns_the_old_text_into_the_new(old: str, new: str) -> None:
    diff = unified(old, new, "f")
    assert bool(diff) == (old != new)
    if diff:
        assert diff.startswith("--- f\n+++ f\n@@ ")
        assert patched(old, diff) == new
