"""How far off a replay's predictions are.

    python -m tests.bench.prediction               made sessions, their usage counted by another tokenizer and cache
    python -m tests.bench.prediction RECORDING...  recordings with their provider's usage

Prints a line a session: the error of each kind of tokens and of the dollars, the share of calls whose cache read is
within 5%, and the error of the dollars after the first third, predicted with the rates of that third.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.replay.metered import Provider, claude_code_lines, write
from tests.replay.sessions import Session
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.prices import look_up
from tui_agent.replay.forecast import Accuracy, compare, error_of
from tui_agent.replay.recorded import AS_RECORDED, as_recorded, measure
from tui_agent.replay.replaying import with_recorded_cache
from tui_agent.replay.script import make_script
from tui_agent.replay.simulation import simulate
from tui_agent.settings import Settings
from tui_agent.storage.recordings.reading import read_file
from tui_agent.storage.recordings.recording import Recording

SESSIONS = ((3, 200), (5, 200), (3, 450), (5, 450), (7, 450))
"""Seeds, and the calls each session has at least."""


def recordings(paths: Sequence[str]) -> Iterator[tuple[str, Recording]]:
    """The recordings named, else made sessions."""
    for named in paths:
        yield Path(named).name, read_file(Path(named))
    if paths:
        return
    for seed, calls in SESSIONS:
        provider = Provider(compact_at=80_000, warm=True)
        with TemporaryDirectory() as folder:
            lines = claude_code_lines(Session(seed, calls), provider)
            yield f"made session {seed}", read_file(write(Path(folder) / "s.jsonl", lines))


def predicted(recording: Recording) -> Accuracy | None:
    """The prediction of a recording at its own model; None if it has no usage."""
    measured = measure(recording)
    if measured is None:
        return None
    profile = with_recorded_cache(look_up(CATALOGUE.quick_profile(recording.model)), recording)
    script = make_script(recording, measured)
    outcome = simulate(script, AS_RECORDED, as_recorded(recording, Settings()), profile)
    return compare(recording, measured, script, outcome.used, profile)


def main() -> None:
    """Predict every recording."""
    for name, recording in recordings(sys.argv[1:]):
        accuracy = predicted(recording)
        if accuracy is None:
            print(f"{name[:28]:<28} no usage recorded")
            continue
        ours, told = accuracy.predicted, accuracy.recorded
        errors = {
            "sent": error_of(ours.input_tokens, told.input_tokens),
            "read": error_of(ours.cache_read_tokens, told.cache_read_tokens),
            "written": error_of(ours.cache_write_tokens, told.cache_write_tokens),
            "dollars": error_of(*accuracy.costs),
        }
        shown = "  ".join(f"{kind} {error:+.1%}" for kind, error in errors.items())
        rest = f"{error_of(*accuracy.rest.costs):+.1%}" if accuracy.rest is not None else "-"
        lost = sum(each.lost for each in accuracy.losses.values())
        print(
            f"{name[:28]:<28} {len(accuracy.calls):>4} calls  {shown}  reads within 5%: {accuracy.close_share:.0%}  "
            f"cache lost {lost} times, {accuracy.explained:.0%} by its rules  after the first third {rest}",
            flush=True,
        )


if __name__ == "__main__":
    main()
