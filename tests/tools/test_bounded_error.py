"""What every tool's answer has in common: an error is bounded, everything else stays whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.tools.base import ToolOutput, bounded_error


@given(text=st.text(st.characters(exclude_characters="["), max_size=400), limit=st.integers(1, 300))
def test_an_error_keeps_both_ends_within_its_limit(text: str, limit: int) -> None:
    output = bounded_error(ToolOutput(text, is_error=True), limit)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    if len(whole) <= limit:
        assert output.text == text
        return
    before, _, rest = output.text.rpartition("\n[... ")
    count, _, after = rest.partition(" bytes of this error are left out ...]\n")
    assert whole.startswith(before.encode())
    assert whole.endswith(after.encode())
    assert int(count.replace(",", "")) == len(whole) - limit
    assert len(before.encode()) + len(after.encode()) <= limit


@pytest.mark.parametrize(
    "output",
    [ToolOutput("x" * 1_000), ToolOutput("x" * 1_000, is_error=True, stream=True), ToolOutput("", is_error=True)],
)
def test_values_and_what_a_command_printed_stay_whole(output: ToolOutput) -> None:
    assert bounded_error(output, 100) is output
