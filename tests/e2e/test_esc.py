"""Esc and Ctrl+C at every moment, from a real terminal: each is answered, and nothing typed is lost."""

from pathlib import Path

import pytest

from tests.e2e.moments import MOMENTS, answers

FAR_TOO_LATE_S = 20.0
"""Seconds that no machine needs, however busy; what it takes, `python -m tests.bench esc` measures."""


@pytest.mark.soak
def test_esc_and_ctrl_c_are_answered_at_every_moment(tmp_path: Path) -> None:
    taken = dict(answers(tmp_path))
    assert len(taken) == 2 * len(MOMENTS)
    assert all(seconds < FAR_TOO_LATE_S for seconds in taken.values()), taken
