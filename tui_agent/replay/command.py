"""`tui-agent replay` of one recording: reads it, replays it under each policy on each model, and reports."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tui_agent.replay.plot import dots, plot
from tui_agent.replay.recorded import AS_RECORDED
from tui_agent.replay.replaying import OWN, Replay
from tui_agent.replay.simulation import policies
from tui_agent.replay.tables import document, table
from tui_agent.settings import Settings
from tui_agent.storage.recordings.reading import read_recording
from tui_agent.storage.recordings.recording import UnreadableRecording


def replay_report(
    named: str,
    home: Path,
    settings: Settings,
    *,
    names: Sequence[str],
    models: Sequence[str],
    windows: Sequence[int],
    as_json: bool,
    picture: str = "",
) -> str:
    """The report on the recording `named` (a file, a session's id or folder).

    `names` are policies (empty: all), `models` model ids (empty: the recording's own, else the frontier model of the
    settings), `windows` are in tokens (0 or empty: that of the settings, else the model's). `picture` is the file for a
    plot of the frontier (empty: none). Raises `UnreadableRecording`.
    """
    target = Path(picture).expanduser()
    if picture and (target.is_dir() or not target.parent.is_dir()):
        why = "it is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise UnreadableRecording(f"--plot: {target} cannot be written: {why}. Name a file in a folder that exists.")
    chosen = list(policies(names, settings))
    with progress() as bar:
        task = bar.add_task("reading", total=None)
        recording = read_recording(named, home, lambda done, total: bar.update(task, completed=done, total=total))
        replay = Replay(recording, settings, step=lambda: bar.advance(task))
        profiles = [replay.profile(model) for model in models or [OWN]]
        chosen = [AS_RECORDED, *chosen] if replay.tells_requests else chosen
        widths = [width or max(0, settings.context.context_window) for width in windows or [0]]
        steps = len(replay.script.calls) * len(chosen) * len(profiles) * len(widths)
        bar.reset(task, description="replaying", total=steps)
        for profile in profiles:
            for width in widths:
                replay.run(chosen, profile, width)
    if picture:
        try:
            target.write_text(plot(recording.name, dots(replay.outcomes)), encoding="utf-8")
        except OSError as error:
            why = error.strerror or str(error)
            told = (
                f"--plot: {target} cannot be written: {why}. Nothing was drawn; without --plot the figures are printed."
            )
            raise UnreadableRecording(told) from error
    return document(replay) if as_json else table(replay)


@contextmanager
def progress(*more: TextColumn) -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal; it is removed at the end."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), *more)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar
