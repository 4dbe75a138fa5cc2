"""The report on replays of many recordings, as a table, as JSON and as a page. It has figures only.

Nothing of a session is in it: no text, no path, no name. `leaks` checks that: it looks for each word of the sessions in
a report, except the words that a report of no session has too.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from rich.progress import TextColumn

from tui_agent.models.prices import all_models
from tui_agent.replay.command import progress
from tui_agent.replay.many import (
    RecordingFile,
    Result,
    Results,
    executor_of,
    find,
    run,
    tasks,
    usable_cores,
    version_of,
)
from tui_agent.replay.plot import Dot, frontier, plot
from tui_agent.replay.recorded import AS_RECORDED
from tui_agent.replay.replaying import OWN, priced_profile
from tui_agent.replay.script import text_of
from tui_agent.replay.simulation import NAMES, policies
from tui_agent.replay.tables import aligned
from tui_agent.settings import Settings
from tui_agent.storage.recordings.reading import FOLDERS, read_recording
from tui_agent.storage.recordings.recording import EXPECTED, UnreadableRecording

DEFAULT: Final = "balanced"
BASELINES: Final = (AS_RECORDED, "none")
"""What a session is compared with: what it cost, else what it would have cost if nothing had been left out."""
CLOSE: Final = 0.03
ERRORS: Final = {"cost": "cost", "sent": "sent", "read": "read", "rest": "cost after the first third"}
"""The errors of a prediction, and their headings."""
_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)")
_WORD: Final = re.compile(r"[^\W\d_]{3,}")
_HEADINGS: Final = ("cost $", "of the default", "evidence", "verbatim", "sum", "read again", "waits", "wait s")
_TITLE: Final = "Context policies, replayed"
_NOTE: Final = (
    "Only sessions that all policies of a table could replay are counted. of the default: cost as a share of that\n"
    "of balanced. evidence: of the names and numbers an answer used and a tool had told, the share in view;\n"
    "verbatim: the share in view where it was said. sum: compactions. read again: results fetched again.\n"
    "*: no other policy is cheaper and keeps more verbatim."
)


class PolicySums(msgspec.Struct, frozen=True):
    """A policy over all sessions. `share`: its cost as one of the default's (0: not replayed); `survived`: shares."""

    policy: str
    on_frontier: bool
    cost_usd: float
    share: float
    evidence: float
    verbatim: float
    compactions: int
    read_again: int
    waits: int
    wait_s: float
    calls_over_window: int
    survived: dict[str, float]


class Panel(msgspec.Struct, frozen=True):
    """All policies on one model at one window, and the dollars of each session by policy."""

    model: str
    window: int
    sessions: int
    calls: int
    saved_usd: float
    policies: tuple[PolicySums, ...]
    each: dict[str, dict[str, float]]


class Summary(msgspec.Struct, frozen=True):
    """A whole report. `errors`: of predicted costs and tokens; `problems`: how many were not replayed, by reason."""

    version: str
    recordings: int
    formats: dict[str, int]
    panels: tuple[Panel, ...]
    errors: dict[str, dict[str, float]]
    problems: dict[str, int]


def saved(results: Iterable[Result]) -> float:
    """The dollars that the default saves against what each session cost, else against leaving nothing out."""
    costs: dict[tuple[str, str, int], dict[str, float]] = {}
    for each in results:
        if not each.problem:
            costs.setdefault((each.recording, each.model, each.window), {})[each.policy] = each.cost_usd
    return sum(_saved(policies) for policies in costs.values())


def _saved(policies: Mapping[str, float]) -> float:
    base = next((policies[name] for name in BASELINES if name in policies), None)
    return base - policies[DEFAULT] if base is not None and DEFAULT in policies else 0.0


def summarise(results: Sequence[Result], version: str) -> Summary:
    """The figures of all results."""
    usable = [each for each in results if not each.problem]
    asked = dict.fromkeys((each.model, each.window) for each in usable)
    panels = [_panel([each for each in usable if (each.model, each.window) == one]) for one in asked]
    own = {each.recording: each for each in usable if each.errors}
    errors = {
        name: {
            "sessions": len(values),
            "median": median(map(abs, values)),
            "within_3_percent": sum(abs(value) <= CLOSE for value in values) / len(values),
            "largest": max(map(abs, values)),
        }
        for name in ERRORS
        if (values := [each.errors[name] for each in own.values() if name in each.errors])
    }
    formats = Counter({each.recording: each.format for each in usable}.values())
    problems = Counter(why for _, why in sorted({(each.recording, each.problem) for each in results if each.problem}))
    return Summary(version, len({each.recording for each in results}), formats, tuple(panels), errors, problems)


def _panel(results: Sequence[Result]) -> Panel:
    sessions: dict[str, dict[str, Result]] = {}
    for each in results:
        sessions.setdefault(each.recording, {})[each.policy] = each
    names = sorted({each.policy for each in results} - {AS_RECORDED}, key=NAMES.index)
    whole = {content: policies for content, policies in sessions.items() if set(names) <= set(policies)}
    costs = {name: sum(policies[name].cost_usd for policies in whole.values()) for name in names}
    rows = [_sums(name, [policies[name] for policies in whole.values()], costs.get(DEFAULT, 0.0)) for name in names]
    best = {dot.policy for dot in frontier(_dots("", 0, rows))}
    rows = [msgspec.structs.replace(row, on_frontier=row.policy in best) for row in rows]
    on = {(each.on, each.tokens) for each in results}
    model, window = next(iter(on)) if len(on) == 1 else ("each session's own", results[0].window)
    first = [next(iter(policies.values())) for policies in whole.values()]
    spent = {
        content: {name: result.cost_usd for name, result in policies.items()} for content, policies in whole.items()
    }
    gained = sum(_saved(policies) for policies in spent.values())
    return Panel(model, window, len(whole), sum(each.calls for each in first), gained, tuple(rows), spent)


def _sums(name: str, results: Sequence[Result], default: float) -> PolicySums:
    needed = sum(each.needed for each in results)
    survived: dict[str, tuple[int, int]] = {}
    for each in results:
        for kind, (wanted, seen) in each.survived.items():
            before = survived.get(kind, (0, 0))
            survived[kind] = before[0] + wanted, before[1] + seen
    cost = sum(each.cost_usd for each in results)
    return PolicySums(
        name,
        on_frontier=False,
        cost_usd=cost,
        share=cost / default if default else 0.0,
        evidence=sum(each.in_view for each in results) / needed if needed else 1.0,
        verbatim=sum(each.verbatim for each in results) / needed if needed else 1.0,
        compactions=sum(each.compactions for each in results),
        read_again=sum(each.read_again for each in results),
        waits=sum(each.waits for each in results),
        wait_s=sum(each.wait_s for each in results),
        calls_over_window=sum(each.calls_over_window for each in results),
        survived={kind: seen / wanted for kind, (wanted, seen) in sorted(survived.items())},
    )


def _dots(model: str, window: int, rows: Iterable[PolicySums]) -> list[Dot]:
    return [Dot(row.policy, model, window, row.cost_usd, row.verbatim, not row.calls_over_window) for row in rows]


def as_json(summary: Summary) -> str:
    return msgspec.json.format(msgspec.json.encode(summary), indent=2).decode()


def as_text(summary: Summary) -> str:
    """The report as tables of at most 100 columns."""
    lines: list[str] = []
    for title, headings, rows in _tables(summary):
        lines += [title, *aligned([headings, *rows] if any(headings) else rows), ""]
    return "\n".join([*lines, _NOTE])


def as_page(summary: Summary) -> Iterator[str]:
    """The report as a self-contained page."""
    yield f"<!doctype html><html lang=en><meta charset=utf-8><title>{_TITLE}</title><style>{_STYLE}</style>"
    yield f"<main><h1>{_TITLE}</h1><p>{_NOTE}</p>"
    yield as_picture(summary)
    for title, headings, rows in _tables(summary, each=True):
        yield f"<h2>{escape(title)}</h2><table><tr>{''.join(f'<th>{escape(each)}' for each in headings)}"
        for row in rows:
            yield f"<tr>{''.join(f'<td>{escape(cell)}' for cell in row)}"
        yield "</table>"
    yield "</main></html>\n"


def as_picture(summary: Summary) -> str:
    """The frontier of each model as SVG."""
    dots = [dot for panel in summary.panels for dot in _dots(panel.model, panel.window, panel.policies)]
    return plot(f"{summary.recordings:,} sessions", dots)


_STYLE: Final = """\
:root { color-scheme: light dark } body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem }
table { border-collapse: collapse; display: block; overflow-x: auto }
td, th { padding: .15rem .7rem; text-align: right }
td:first-child, th:first-child { text-align: left } tr:nth-child(even) { background: #8881 } svg { max-width: 100% }"""

_Table = tuple[str, Sequence[str], list[Sequence[str]]]


def _tables(summary: Summary, *, each: bool = False) -> Iterator[_Table]:
    """The tables of a report: titles, headings, rows. `each`: also the dollars of each session."""
    formats = ", ".join(f"{count:,} {form}" for form, count in summary.formats.items())
    unused = ", ".join(f"{count:,} {problem}" for problem, count in summary.problems.items())
    heads = [("recordings", f"{summary.recordings:,}"), ("formats", formats), ("left out", unused)]
    yield f"{_TITLE} (version {summary.version})", ("", ""), [row for row in heads if row[1]]
    for panel in summary.panels:
        place = f"{panel.model}, window {panel.window:,}" if panel.window else f"{panel.model}, own window"
        title = f"{place}: {panel.sessions:,} sessions, {panel.calls:,} calls; balanced saves ${panel.saved_usd:,.2f}"
        yield title, ("policy", *_HEADINGS), [_row(row) for row in panel.policies]
        kinds = sorted({kind for row in panel.policies for kind in row.survived})
        lasting = [(row.policy, *(f"{row.survived.get(kind, 1.0):.3f}" for kind in kinds)) for row in panel.policies]
        yield f"{place}: still in view when needed again", ("policy", *kinds), list(lasting)
        if each:
            names = [AS_RECORDED, *(row.policy for row in panel.policies)]
            costs = [
                (content[:8], *(f"{spent[name]:.2f}" if name in spent else "" for name in names))
                for content, spent in panel.each.items()
            ]
            yield f"{place}: dollars of each session", ("session", *names), list(costs)
    if summary.errors:
        rows = [
            (
                ERRORS[name],
                f"{of['sessions']:.0f}",
                f"{of['median']:.1%}",
                f"{of['within_3_percent']:.0%}",
                f"{of['largest']:.1%}",
            )
            for name, of in summary.errors.items()
        ]
        yield "prediction of the recorded usage", ("", "sessions", "median error", "within 3%", "largest"), list(rows)


def _row(row: PolicySums) -> Sequence[str]:
    return (
        f"{row.policy}{' *' if row.on_frontier else ''}",
        f"{row.cost_usd:,.2f}",
        f"{row.share:.3f}",
        f"{row.evidence:.3f}",
        f"{row.verbatim:.3f}",
        f"{row.compactions:,}",
        f"{row.read_again:,}",
        f"{row.waits:,}",
        f"{row.wait_s:,.0f}",
    )


def leaks(report: str, found: Iterable[RecordingFile], own: Iterable[str] = ()) -> list[str]:
    """The words of these sessions, their paths and names that stand in a report and are not a report's own; the words
    of `own` texts count as its own too.

    A word is three letters or more in a row; numbers are what a report is made of, and are not looked at.
    """
    sample = Result(recording="", policy=DEFAULT, model="", window=0, version="", problem="")
    kinds = dict.fromkeys(("path", "name", "error", "number", "link", "hash", "command", "user's words"), (1, 1))
    sample = msgspec.structs.replace(sample, survived=kinds, errors=dict.fromkeys(ERRORS, 0.0))
    problems = ("not readable", "prices not known", "no usage recorded")
    empty = summarise([sample, *(msgspec.structs.replace(sample, problem=problem) for problem in problems)], "")
    formats = (*FOLDERS, "neutral", "session", "opencode", "atif")
    own = [
        *own,
        *as_page(empty),
        as_json(empty),
        as_text(empty),
        *NAMES,
        *formats,
        AS_RECORDED,
        *all_models(),
        *Result.__struct_fields__,
    ]
    known = {word.casefold() for text in own for word in _WORD.findall(text)}
    for _, content in found:
        report = report.replace(content, "").replace(content[:8], "")
    left = {word.casefold() for word in _WORD.findall(report)} - known
    leaked: set[str] = set()
    for path, _ in found:
        if not left:
            break
        leaked |= left & _words_of(path)
    return sorted(leaked)


def _words_of(path: Path) -> set[str]:
    texts = [str(path), _ESCAPE.sub(" ", path.read_bytes().decode(errors="replace"))]
    try:
        recording = read_recording(str(path), path.parent)
        texts += [recording.model, *(text_of(message.blocks) for message in recording.messages)]
    except UnreadableRecording:
        pass  # its raw text has been read
    return {word.casefold() for text in texts for word in _WORD.findall(text)}


class ReplayRequest(msgspec.Struct, frozen=True):
    """What is to be replayed: recordings and agents, policies, models and windows (empty: all; each one's own)."""

    named: Sequence[str]
    agents: Sequence[str] = ()
    policies: Sequence[str] = ()
    models: Sequence[str] = ()
    windows: Sequence[int] = ()
    shard: tuple[int, int] = (0, 1)


def replay_many(
    wanted: ReplayRequest, home: Path, settings: Settings, *, results: Path, jobs: int = 0, executor: str = ""
) -> Summary:
    """Replay all that has no result yet, and report on all that was wanted.

    Raises `UnreadableRecording`, `Stopped`, `OSError`.
    """
    found = recordings_of(wanted, home)
    names = [AS_RECORDED, *policies(wanted.policies, settings)]
    models = [priced_profile(settings, model).name for model in wanted.models] or [OWN]
    windows = wanted.windows or [max(0, settings.context.context_window)]
    kept = Results(results)
    left = list(tasks(found, kept.known, settings, names=names, models=models, windows=windows))
    version, contents = version_of(settings), {each.hash for each in found}

    def current() -> list[Result]:
        return [
            each
            for each in kept.known.values()
            if each.version == version
            and each.recording in contents
            and each.policy in names
            and each.model in models
            and each.window in windows
        ]

    if left:
        total = sum(len(task.policies) for task in left)
        money = saved(current())
        with progress(TextColumn("${task.fields[money]:,.2f} saved")) as bar:
            task = bar.add_task("replaying", total=total, money=money)
            with executor_of(executor, min(jobs or usable_cores(), len(left))) as (pool, workers):
                for done in run(left, pool, workers):
                    kept.write(done)
                    money += saved(done)
                    bar.update(task, advance=len(done), money=money)
    return summarise(current(), version)


def recordings_of(wanted: ReplayRequest, home: Path) -> list[RecordingFile]:
    """The recordings of this shard. Raises `UnreadableRecording` if there are none."""
    found = find(wanted.named, wanted.agents, home)
    if not found:
        raise UnreadableRecording(
            f"There are no recordings in {', '.join((*wanted.named, *wanted.agents))}. {EXPECTED}"
        )
    number, shards = wanted.shard
    return [each for each in found if int(each.hash, 16) % shards == number % shards]
