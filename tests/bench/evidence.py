"""Writes `docs/evidence.md` from public recordings, and the paragraph of the README that rests on it.

    python -m tests.bench.evidence CACHE [--mirror FOLDER] [--jobs N]

CACHE is the folder for what is fetched and for the results; a second run works out only what is new. Both texts have
figures only: that no word of a session stands in them is checked before they are written.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CalledProcessError
from typing import Final, NamedTuple

from tests.bench.public_sessions import SOURCES, Source, fetch
from tui_agent.replay.many import Result, Results, find, hash_of, version_of
from tui_agent.replay.policies import COMPARED
from tui_agent.replay.recorded import AS_RECORDED
from tui_agent.replay.replaying import OWN
from tui_agent.reports.replays import DEFAULT, ERRORS, Panel, PolicySums, ReplayRequest, leaks, replay_many, summarise
from tui_agent.settings import Settings

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "evidence.md"
README: Final = ROOT / "README.md"
BEGIN, END = "<!-- evidence: written by `python -m tests.bench.evidence` -->\n", "<!-- end -->\n"

MODELS: Final = ("anthropic:claude-opus-5-5", "openai:gpt-5.5")
WINDOWS: Final = (64_000, 200_000)
CELLS: Final = tuple((model, window) for model in MODELS for window in WINDOWS)
POLICIES: Final = (DEFAULT, "none", *COMPARED)
KINDS: Final = {"command": "commands", "path": "paths", "number": "numbers", "user's words": "user's words"}
"""What is followed, and its heading."""


class Rival(NamedTuple):
    """What a compared policy does by default, and where that is written."""

    does: str
    where: str


def _at(repository: str, commit: str, path: str, more: str = "") -> str:
    place = f"https://github.com/{repository}/blob/{commit}/{path}"
    return f"[{repository}@{commit}]({place}), `{path.rpartition('/')[2]}`{more}"


_DOCS: Final = "https://platform.claude.com/docs/en/build-with-claude"
RIVALS: Final[Mapping[str, Rival]] = {
    "summary-85": Rival("compacts at 85% of the window and keeps the newest 20,000 tokens", "of no one system"),
    "langchain": Rival(
        "results above 20,000 tokens go to a file; above 100,000 tokens clears all but 3 results; compacts at 85% and "
        "keeps a tenth of the window",
        _at(
            "langchain-ai/deepagents",
            "d8b7d747dfd949cbcbddd2ca6db0c7ed2b1a8a2a",
            "libs/deepagents/deepagents/middleware/summarization.py",
            ", with langchain's `ContextEditingMiddleware`",
        ),
    ),
    "opencode": Rival(
        "compacts 20,000 tokens below the window and keeps 8,000; clears results only where it is told to",
        _at(
            "anomalyco/opencode", "8b9b5784164ba1fbdc21be26608bdb9b88f50874", "packages/core/src/session/compaction.ts"
        ),
    ),
    "gemini-cli": Rival(
        "clears results older than the newest 50,000 tokens of them, 30,000 or more at once; compacts at half of the "
        "window in two passes and keeps 30%",
        _at(
            "google-gemini/gemini-cli",
            "5411f113cafae26161b4969b0237b8e1e024e2c2",
            "packages/core/src/context/chatCompressionService.ts",
            " and `toolOutputMaskingService.ts`",
        ),
    ),
    "codex": Rival(
        "compacts at 90% and keeps the newest 20,000 tokens of the user's own messages",
        _at(
            "openai/codex",
            "0100b103625752f6a10c21b79a8c423761dc4c6a",
            "codex-rs/core/src/compact.rs",
            "; `openai_models.rs` at 0d4367d0",
        ),
    ),
    "pi": Rival(
        "compacts 16,384 tokens below the window and keeps 20,000",
        _at(
            "badlogic/pi-mono",
            "83378aad7e74a0e2bb8f37c007a9685fb4609d8a",
            "packages/coding-agent/src/core/compaction/compaction.ts",
        ),
    ),
    "claude-api": Rival(
        "above 100,000 tokens clears all but 3 results; compacts at 150,000 and keeps nothing verbatim",
        f"Claude's pages on [context editing]({_DOCS}/context-editing) and [compaction]({_DOCS}/compaction)",
    ),
}

_OPENING: Final = """\
# Evidence

How well does the context engine do on work that others recorded? {sessions} sessions of {agents} agents were replayed
under our default policy and under policies modelled on other agents ([how a replay works](replay.md), and what it
assumes). Everything on this page, and what the README says of it, is written by one command from the commits named
below:

```text
python -m tests.bench.evidence CACHE
```

It needs git, fetches only these files, and takes some minutes. The same commits give the same page, byte for byte. No
recording is part of this repository, and no word of one is on this page: the command checks that."""
_PREDICTION: Final = """\
## Is the bill right?

Where a recording has its provider's usage, each call's usage is predicted and compared with it
([how](replay.md#how-accurate-is-it)): the error of a session's dollars, of the tokens sent, and of those read from the
cache. How often a session lost its cache beyond the rules is taken from the session itself. If only its first third is
known, the dollars of the rest are farther off: a cache lost once or twice decides them, and that cannot be
foreseen. The policies below are billed by the rules alone, so none of them pays for such losses."""
_DOLLARS: Final = """\
## Dollars, and what they keep

*Of the default*: cost as a share of that of `balanced`. *Evidence*: of the names, paths and numbers that an answer uses
and a tool reported first, the share still in view. *Verbatim*: the share in view where it was said. *Read again*:
results that an answer uses after they have left, each billed as one more call by one rule for all policies. *Waits*:
calls that had to wait for a summary. *Too large*: calls that would not have fitted the window. An asterisk marks a
policy than which none is cheaper and keeps more verbatim."""
_SURVIVAL: Final = """\
## What survives

The share of what was needed again that was still in view: commands that are run again, paths, numbers, and at the end
of the session the user's own later messages, such as corrections."""
_THEMSELVES: Final = """\
## Against what the agents did themselves

Sessions in which the agent compacted its own context, at their own model and window: what they cost as recorded, and
the same sessions under our default policy and with nothing left out. The agents lost their cache more often than its
rules explain, and that is in their figure alone; so a part of the difference is not the policy's."""
_WORSE: Final = """\
## What we are worse at

Worked out by rule from the same results."""
_RIVALS: Final = """\
## The compared policies

Each is modelled after these sources at their defaults, and in its favour: its summariser reads the prompt from the
cache, and its summaries are as long and as dense as ours."""
_README: Final = """\
- **Steps are timed by cost.** Clearing and compaction happen when they save more than they cost at the model's prices,
  the prompt cache included. Replayed on {sessions} public recordings of {agents} agents, next to the cheapest of
  {rivals} policies modelled on other agents, the default policy costs
{costs}

  How this was measured, and what it is worse at: [evidence](docs/evidence.md)."""


class Measured(NamedTuple):
    """All results: at each session's own model and window, and in `CELLS`; and which recordings are of a source."""

    own: Sequence[Result]
    panels: Sequence[Panel]
    of: Mapping[Source, frozenset[str]]

    @property
    def counts(self) -> dict[str, int]:
        return {"sessions": sum(map(len, self.of.values())), "agents": len(self.of), "rivals": len(RIVALS)}


def measure(files: Mapping[Source, Sequence[Path]], results: Path, *, jobs: int = 0) -> Measured:
    """Replay all recordings that have no result yet, and take the figures of all."""
    settings = Settings()
    named = [str(path) for paths in files.values() for path in paths]
    for models, windows in (((), ()), (MODELS, WINDOWS)):
        wanted = ReplayRequest(named, policies=POLICIES, models=models, windows=windows)
        replay_many(wanted, results.parent, settings, results=results, jobs=jobs)
    of = {source: frozenset(map(hash_of, paths)) for source, paths in files.items()}
    contents, version = frozenset[str]().union(*of.values()), version_of(settings)
    known = sorted(Results(results).known.values(), key=lambda each: each.key)
    known = [each for each in known if each.recording in contents and each.version == version]
    return Measured([each for each in known if each.model == OWN], _panels(known), of)


def _panels(results: Sequence[Result]) -> list[Panel]:
    of = [[each for each in results if (each.model, each.window) == cell] for cell in CELLS]
    return [panel for each in of for panel in summarise(each, "").panels]


def page(measured: Measured) -> str:
    """The whole page."""
    sections = (
        [_OPENING.format(**measured.counts)],
        _sources(measured),
        _prediction(measured),
        _dollars(measured.panels),
        _survival(measured.panels),
        _themselves(measured),
        _worse(measured.panels),
        _rivals(),
    )
    return "\n".join(line for section in sections for line in (*section, "")).rstrip() + "\n"


def _sources(measured: Measured) -> Iterator[str]:
    yield from ("## What was measured", "")
    rows = []
    for source, contents in measured.of.items():
        own = {each.recording: each.calls for each in measured.own if each.recording in contents and not each.problem}
        place = f"[{source.repository}](https://github.com/{source.repository}/tree/{source.commit})"
        named = source.agent, place, f"`{source.commit[:8]}`", source.licence, source.chosen
        rows.append((*named, f"{len(own)}", f"{sum(own.values()):,}"))
    yield from _table(("Agent", "Repository", "Commit", "Licence", "Taken", "Sessions", "Calls"), rows)


def _prediction(measured: Measured) -> Iterator[str]:
    yield from (_PREDICTION, "")
    rows = []
    everything = frozenset[str]().union(*measured.of.values())
    for agent, contents in (*((source.agent, of) for source, of in measured.of.items()), ("all", everything)):
        errors = summarise([each for each in measured.own if each.recording in contents], "").errors
        for kind, of in errors.items():
            figures = f"{of['sessions']:.0f}", f"{of['median']:.1%}", f"{of['largest']:.1%}"
            rows.append((agent, ERRORS[kind], *figures, f"{of['within_3_percent']:.0%}"))
    yield from _table(("Agent", "Error of", "Sessions", "Median", "Largest", "Within 3%"), rows)


def _dollars(panels: Sequence[Panel]) -> Iterator[str]:
    yield _DOLLARS
    for panel in panels:
        rows = [
            (
                f"`{row.policy}`" + (r" \*" if row.on_frontier else ""),
                *(f"{row.cost_usd:,.2f}", f"{row.share:.2f}", f"{row.evidence:.3f}", f"{row.verbatim:.3f}"),
                *(f"{row.compactions:,}", f"{row.read_again:,}", f"{row.waits:,}", f"{row.calls_over_window:,}"),
            )
            for row in panel.policies
        ]
        yield from ("", f"### {_place(panel)}", "", f"{panel.sessions} sessions, {panel.calls:,} calls.", "")
        headings = "Cost $", "Of the default", "Evidence", "Verbatim", "Compactions", "Read again", "Waits", "Too large"
        yield from _table(("Policy", *headings), rows)


def _survival(panels: Sequence[Panel]) -> Iterator[str]:
    yield _SURVIVAL
    for panel in panels:
        rows = [(f"`{row.policy}`", *(f"{_kept(row, kind):.3f}" for kind in KINDS)) for row in panel.policies]
        yield from ("", f"### {_place(panel)}: survival", "")
        yield from _table(("Policy", *(heading.capitalize() for heading in KINDS.values())), rows)


def _themselves(measured: Measured) -> Iterator[str]:
    yield from (_THEMSELVES, "")
    rows = []
    for source, contents in measured.of.items():
        own: dict[str, dict[str, Result]] = {}
        for each in measured.own:
            if each.recording in contents and not each.problem:
                own.setdefault(each.recording, {})[each.policy] = each
        compacted = [each for each in own.values() if AS_RECORDED in each and each[AS_RECORDED].compactions]
        if compacted:
            times = sum(each[AS_RECORDED].compactions for each in compacted)
            sums = [sum(each[name].cost_usd for each in compacted) for name in (AS_RECORDED, DEFAULT, "none")]
            rows.append((source.agent, f"{len(compacted)}", f"{times}", *(f"{cost:,.2f}" for cost in sums)))
    yield from _table(("Agent", "Sessions", "Its compactions", "Recorded $", "`balanced` $", "`none` $"), rows)


def _worse(panels: Sequence[Panel]) -> Iterator[str]:
    yield _WORSE
    for panel in panels:
        ours, rivals = _ours(panel), _rivals_of(panel)
        cheaper = [row for row in rivals if row.cost_usd < ours.cost_usd]
        better = [row for row in cheaper if row.evidence >= ours.evidence]
        fuller = [row for row in rivals if row.verbatim > ours.verbatim and row.cost_usd <= 1.05 * ours.cost_usd]
        costs = [(each[DEFAULT], min(each[row.policy] for row in rivals)) for each in panel.each.values()]
        dearer = sum(default > 1.1 * cheapest for default, cheapest in costs)
        worst = max((_ratio(*each) for each in costs), default=1.0)
        most = max(rivals, key=lambda row: row.compactions)
        yield from ("", f"### {_place(panel)}: worse", "")
        yield f"- Cheaper than `{DEFAULT}`: {_named({row.policy: f'{row.share:.2f} of its cost' for row in cheaper})}."
        yield (
            f"- Cheaper, with as much evidence ({ours.evidence:.3f}): "
            f"{_named({row.policy: f'{row.evidence:.3f}' for row in better})}."
        )
        yield (
            f"- More verbatim ({ours.verbatim:.3f}) for at most 1.05 of its cost: "
            f"{_named({row.policy: f'{row.verbatim:.3f}' for row in fuller})}."
        )
        for kind, heading in KINDS.items():
            here = _kept(ours, kind)
            more = {row.policy: f"{_kept(row, kind):.3f}" for row in rivals if _kept(row, kind) > here + 0.005}
            yield f"- More of the {heading} ({here:.3f}): {_named(more)}."
        yield (
            f"- In {dearer} of {len(costs)} sessions, one of them is more than a tenth cheaper; at worst, "
            f"`{DEFAULT}` costs {worst:.2f} times the cheapest."
        )
        yield (
            f"- It compacts {ours.compactions:,} times (`{most.policy}`, the most often of the others: "
            f"{most.compactions:,})."
        )


def _rivals() -> Iterator[str]:
    yield from (_RIVALS, "")
    rows = [(f"`{name}`", rival.does, rival.where) for name, rival in RIVALS.items()]
    yield from _table(("Policy", "Does", "Source"), rows)


def paragraph(measured: Measured) -> str:
    """What the README says."""
    costs = []
    for panel in measured.panels:
        ours, rival = _ours(panel), min(_rivals_of(panel), key=lambda row: row.cost_usd)
        costs.append(
            f"  - {_place(panel)}: {_ratio(ours.cost_usd, rival.cost_usd):.2f} times as much, with {ours.evidence:.0%} "
            f"of what later answers need in view (`{rival.policy}`: {rival.evidence:.0%})"
        )
    return _README.format(**measured.counts, costs="\n".join(costs)) + "\n"


def blank(measured: Measured) -> Measured:
    """The same without a figure of any session: what its page says is the page's own."""

    def nothing(policy: str, model: str, window: int, on: str = "") -> Result:
        return Result(recording="", policy=policy, model=model, window=window, version="", on=on, tokens=window)

    results = [
        nothing(name, model, window, panel.model)
        for (model, window), panel in zip(CELLS, measured.panels, strict=True)
        for name in POLICIES
    ]
    recorded = dict.fromkeys(ERRORS, 0.0)
    own = [nothing(name, OWN, 0) for name in POLICIES]
    own.append(
        Result(recording="", policy=AS_RECORDED, model=OWN, window=0, version="", compactions=1, errors=recorded)
    )
    return Measured(own, _panels(results), {source: frozenset(("",)) for source in measured.of})


def leaks_of(text: str, measured: Measured, files: Mapping[Source, Sequence[Path]]) -> list[str]:
    """The words of the sessions that stand in this text and are not the page's own."""
    own = blank(measured)
    found = find([str(path) for paths in files.values() for path in paths], [], ROOT)
    return leaks(text, found, (page(own), paragraph(own)))


def _ours(panel: Panel) -> PolicySums:
    return next(row for row in panel.policies if row.policy == DEFAULT)


def _rivals_of(panel: Panel) -> list[PolicySums]:
    return [row for row in panel.policies if row.policy in RIVALS]


def _kept(row: PolicySums, kind: str) -> float:
    return row.survived.get(kind, 1.0)


def _ratio(one: float, other: float) -> float:
    return one / other if other else 1.0


def _place(panel: Panel) -> str:
    return f"{panel.model}, {panel.window:,} tokens"


def _named(told: Mapping[str, str]) -> str:
    return ", ".join(f"`{policy}` ({figure})" for policy, figure in told.items()) or "none"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def main() -> int:
    """Write the page and the paragraph; 1 if a word of a session stands in them."""
    parser = ArgumentParser(prog="python -m tests.bench.evidence", description=__doc__)
    parser.add_argument("cache", type=Path, metavar="CACHE", help="the folder for what is fetched and worked out")
    parser.add_argument("--mirror", type=Path, help="a folder of repositories (owner+name) to fetch from instead")
    parser.add_argument("--jobs", type=int, default=0, help="processes (default: one per core)")
    options = parser.parse_args()
    try:
        files = {source: fetch(source, options.cache, mirror=options.mirror) for source in SOURCES}
    except CalledProcessError as error:
        print(f"{' '.join(error.cmd)}: {error.stderr.decode(errors='replace').strip()}", file=sys.stderr)
        return 1
    measured = measure(files, options.cache / "results.jsonl", jobs=options.jobs)
    told, said = page(measured), paragraph(measured)
    if leaked := leaks_of(f"{told}\n{said}", measured, files):
        print(f"Nothing was written: words of the sessions stand in it: {', '.join(leaked)}", file=sys.stderr)
        return 1
    PAGE.write_text(told, encoding="utf-8")
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    README.write_text(f"{before}{BEGIN}{said}{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
