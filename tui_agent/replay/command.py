"""`tui-agent replay` of one recording, and `tui-agent exam`: reads it, replays it under each policy, and reports."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.base import UnknownModel
from tui_agent.models.catalogue import catalogue_of
from tui_agent.models.choice import configured_model, model_name
from tui_agent.models.prices import look_up
from tui_agent.replay import exam
from tui_agent.replay.plot import dots, plot
from tui_agent.replay.policies import COMPARED
from tui_agent.replay.recorded import AS_RECORDED
from tui_agent.replay.replaying import OWN, Replay, with_recorded_cache
from tui_agent.replay.simulation import policies
from tui_agent.replay.tables import document, table
from tui_agent.settings import Settings
from tui_agent.storage.recordings.reading import read_recording
from tui_agent.storage.recordings.recording import UnreadableRecording
from tui_agent.text import expanded

EXAMINED: Final = ("balanced", "none", *COMPARED)
"""The policies of an exam, unless some are named."""


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
    target = expanded(picture)
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
            why = f"{error.strerror or error}. Nothing was drawn; without --plot the figures are printed."
            raise UnreadableRecording(f"--plot: {target} cannot be written: {why}") from error
    return document(replay) if as_json else table(replay)


def exam_report(
    named: str,
    home: Path,
    settings: Settings,
    *,
    names: Sequence[str],
    model: str,
    window: int,
    most: int,
    agreed: Callable[[str], bool] | None,
    as_json: bool,
) -> str:
    """The report of an exam over the recording `named`; without `agreed`, its questions and its budget.

    `agreed` is told the budget before the model is asked. `names` are policies (empty: ours and those of others),
    `model` the one that is asked (empty: the recording's own, else that of the settings), `window` is in tokens (0: the
    model's), `most` how many questions. Raises `UnreadableRecording`, `UnknownModel`, `ExamStopped`.
    """
    chosen = list(policies(names or EXAMINED, settings))
    with progress() as bar:
        task = bar.add_task("reading", total=None)
        replay = Replay(read_recording(named, home), settings, step=lambda: bar.advance(task))
        bar.reset(task, description="replaying", total=len(replay.script.calls) * len(chosen))
        profile = _examined(replay, settings, model)
        planned = exam.plan(replay, profile, window, chosen, most)
    if not planned.asked:
        raise UnreadableRecording(
            f"Nothing to ask: in a window of {planned.window:,} tokens, nothing left it that has one exact answer. "
            "A smaller --window makes more leave it."
        )
    budget = exam.budget_text(planned)
    if agreed is None:
        return f"{exam.questions_text(planned)}\n\n{budget}"
    if (missing := catalogue_of(settings).missing_key(profile.name)) is not None:
        raise UnreadableRecording(f"--model: {profile.name} needs a key in {missing}. {budget}")
    if not agreed(budget):
        return "Nothing was asked."
    with progress() as bar:
        task = bar.add_task("asking", total=exam.calls_of(planned))
        spent, sat = asyncio.run(_sit(planned, settings, lambda: bar.advance(task)))
    return (exam.document if as_json else exam.table)(planned, sat, spent)


def _examined(replay: Replay, settings: Settings, model: str) -> ModelProfile:
    """The profile of the model to ask. Raises `UnknownModel`."""
    catalogue = catalogue_of(settings)
    for name in filter(None, (model, replay.recording.model)):
        try:
            return with_recorded_cache(look_up(catalogue.quick_profile(name)), replay.recording)
        except UnknownModel:
            if model:
                raise
    return look_up(catalogue.quick_profile(model_name(settings)))


async def _sit(
    planned: exam.ExamPlan, settings: Settings, step: Callable[[], None]
) -> tuple[float, list[exam.ExamResult]]:
    model = configured_model(settings, planned.profile.name, small=True)
    examiner = exam.Examiner(model, planned.profile, planned.most_usd, step)
    try:
        sat = await examiner.sit(planned)
        return examiner.spent_usd, sat
    finally:
        await model.close()


@contextmanager
def progress(*more: TextColumn) -> Iterator[Progress]:
    """A progress bar on standard error, if that is a terminal; it is removed at the end."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), *more)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar
