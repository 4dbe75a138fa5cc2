"""How far off a replay is: made sessions whose usage a tokenizer and a cache of their own counted, predicted again.

    python -m tests.bench.prediction        the figures of docs/replay.md

Prints a line a session: its calls, the error of each kind of tokens and of the dollars in all, and the share of calls
whose cache read is within 5%.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.replay.metered import Provider, claude_code_lines, write
from tests.replay.sessions import Session
from tests.replay.test_recorded import check
from tui_agent.replay.recorded import error_of
from tui_agent.storage.recordings.reading import read_file

SESSIONS = ((3, 200), (5, 200), (3, 450), (5, 450), (7, 450))
"""Seeds, and the calls each session has at least."""


def main() -> None:
    """Predict every session."""
    for seed, calls in SESSIONS:
        provider = Provider(compact_at=80_000, warm=True)
        with TemporaryDirectory() as folder:
            lines = claude_code_lines(Session(seed, calls), provider)
            accuracy, _, _ = check(read_file(write(Path(folder) / "s.jsonl", lines)))
        ours, told = accuracy.predicted, accuracy.recorded
        errors = {
            "sent": error_of(ours.input_tokens, told.input_tokens),
            "read": error_of(ours.cache_read_tokens, told.cache_read_tokens),
            "written": error_of(ours.cache_write_tokens, told.cache_write_tokens),
            "dollars": error_of(*accuracy.costs),
        }
        shown = "  ".join(f"{name} {error:+.3%}" for name, error in errors.items())
        print(f"{len(accuracy.calls)} calls  {shown}  reads within 5%: {accuracy.close_share:.0%}")


if __name__ == "__main__":
    main()
