"""Where the money went over days, from the logs of all sessions: `tui-agent usage` and `/usage`.

A log is summed up once; the sums are kept in a file that may be lost at any time, with the time and size of the log, so
only sessions that have changed are read again. A model call belongs to the day on which it ended. Its cost belongs to
the tools whose results it was the first to read, by their length; if there are none, to the user's prompt.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import lru_cache
from operator import add
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from tui_agent.context.cache_watch import SLACK_SHARE, SLACK_TOKENS, WORDING, Part
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, Checkpointed, ContextEntry, Message, Prefix, Summarized, model_call
from tui_agent.conversation.profile import MILLION, Rates
from tui_agent.models.base import UnknownModel
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.prices import look_up
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import log_file, read_entries, read_summary
from tui_agent.storage.sessions import stamped_logs
from tui_agent.system.durable import write_file
from tui_agent.system.lenient import decoded, decoded_file
from tui_agent.text import compact_count, counted, money_text, one_line
from tui_agent.tools.mcp.known import PREFIX

By: TypeAlias = Literal["model", "tool", "server", "project", "day", "command"]
GROUPS: Final[tuple[By, ...]] = get_args(By)
SUMS_NAME: Final = "usage-sums.json"
SHOWN: Final = 30
"""The most lines of a table; JSON has all."""
LONGEST_NAME: Final = 40
"""Characters of the longest name in a table."""
PROMPT, SUMMARIES, OWN_TOOLS = "(prompt)", "(summaries)", "(built in)"
CACHE_S: Final = 300
"""Seconds after which a cache counts as expired: a log does not tell for how long it was written."""


Kind: TypeAlias = Literal["model", "tool", "command", "miss", "saved"]
"""What is added up: ``model``, ``tool`` and ``command`` each have all of a day's cost; ``miss`` is the part of it that
missed caches cost, by reason; ``saved`` is what changes to the context have saved."""


class Sums(msgspec.Struct, frozen=True, array_like=True):
    """`calls`: of a model, or uses of what is named; of a missed cache, `input_tokens` are those that it lacked."""

    calls: float = 0.0
    usd: float = 0.0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, more: "Sums") -> "Sums":
        return Sums(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(more)))


Row: TypeAlias = tuple[str, Kind, str, Sums]
"""Sums of a day of one session: the day, what is added up, and its name."""


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    stamp: tuple[int, ...]
    project: str
    rows: tuple[Row, ...]


class SpendingLine(msgspec.Struct, frozen=True):
    """What one model, tool, server, project, day or command cost."""

    name: str
    calls: int
    usd: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int


class Miss(msgspec.Struct, frozen=True):
    """How often caches were missed for one reason, the tokens that were read anew, and what that cost more."""

    reason: str
    calls: int
    tokens: int
    usd: float


class Spending(msgspec.Struct, frozen=True):
    """What was spent in the last `days` (0: ever). `saved_usd`: by clearing and compaction, after their own cost."""

    days: int
    by: By
    sessions: int
    usd: float
    lines: tuple[SpendingLine, ...]
    misses: tuple[Miss, ...]
    saved_usd: float
    unreadable: int = 0


def spending(home: Path, *, days: int, by: By, today: date | None = None) -> Spending:
    """Sum up all sessions and subtasks. Slow the first time; afterwards only what has changed is read.

    Raises `StorageError` if the sessions cannot be listed.
    """
    kept, unreadable = _sums(home)
    first = str((today or date.today()) - timedelta(days=days - 1)) if days else ""
    wanted = "tool" if by in ("tool", "server") else "command" if by == "command" else "model"
    lines, misses = defaultdict[str, Sums](Sums), defaultdict[str, Sums](Sums)
    usd = saved_usd = 0.0
    for project, (day, kind, name, sums) in ((each.project, row) for each in kept for row in each.rows):
        if day < first:
            continue
        if kind == wanted:
            server = name.split("__")[1] if name.startswith(PREFIX) else OWN_TOOLS
            groups: dict[By, str] = {"project": project or "(unknown)", "day": day, "server": server}
            lines[groups.get(by, name)] += sums
        if kind == "miss":
            misses[name] += sums
        usd += sums.usd if kind == "model" else 0.0
        saved_usd += sums.usd if kind == "saved" else 0.0
    found = (
        SpendingLine(name, round(sums.calls), sums.usd, sums.input_tokens, sums.cached_tokens, sums.output_tokens)
        for name, sums in lines.items()
    )
    missed = (Miss(reason, round(sums.calls), sums.input_tokens, sums.usd) for reason, sums in misses.items())
    return Spending(
        days,
        by,
        sum(any(day >= first for day, *_ in each.rows) for each in kept),
        usd,
        tuple(sorted(found, key=lambda line: (0.0 if by == "day" else -line.usd, line.name))),
        tuple(sorted(missed, key=lambda miss: -miss.usd)),
        saved_usd,
        unreadable,
    )


def _sums(home: Path) -> tuple[list[_Kept], int]:
    """The sums of each session and subtask, and how many logs could not be read."""
    path, unreadable = home / SUMS_NAME, 0
    known, now = decoded_file(path, dict[str, _Kept]) or {}, dict[str, _Kept]()
    for folder, stamp in stamped_logs(home):
        each = known.get(folder.name)
        if each is None or each.stamp != stamp:
            try:
                project = read_summary(log_file(folder)).meta.get("cwd", "")
                each = _Kept(stamp, project, tuple(rows_of(read_entries(log_file(folder)))))
            except StorageError:
                unreadable += 1
                continue
        now[folder.name] = each
    if now != known:
        with suppress(OSError):
            write_file(path, msgspec.json.encode(now))
    return list(now.values()), unreadable


def rows_of(entries: Iterable[AnyEntry]) -> Iterator[Row]:
    sums = defaultdict[tuple[str, Kind, str], Sums](Sums)
    called: dict[str, ToolCall] = {}
    arrived: list[tuple[str, str, int]] = []
    last: Message | None = None
    changed: Part | None = None
    saving = 0.0
    for entry in entries:
        day = datetime.fromtimestamp(entry.time).strftime("%Y-%m-%d")
        if isinstance(entry, Message):
            for block in entry.blocks:
                if isinstance(block, ToolCall):
                    called[block.id] = block
                elif isinstance(block, ToolResult) and entry.kind == "tool_result" and block.call_id in called:
                    call = called[block.call_id]
                    arrived.append((call.name, _program(call), max(1, len(block.text))))
        elif isinstance(entry, Prefix):
            changed = changed or "system"
        elif isinstance(entry, ContextEntry):
            changed = "messages"
            sums[day, "saved", ""] += Sums(1, entry.saved_usd)
            # A boundary replaces what earlier steps have made smaller.
            saving = entry.saving_usd + (0.0 if isinstance(entry, Summarized | Checkpointed) else saving)
        call_made = model_call(entry)
        if call_made is None:
            continue
        used, usd = call_made.usage, call_made.cost_usd or 0.0
        whole = Sums(1, usd, used.input_tokens, used.cache_read_tokens, used.output_tokens)
        sums[day, "model", call_made.model] += whole
        if not isinstance(entry, Message):
            sums[day, "tool", SUMMARIES] += whole
            sums[day, "command", SUMMARIES] += whole
            # What wrote a summary is part of what the step cost.
            sums[day, "saved", ""] += Sums(0, -usd)
            continue
        length = sum(each for _, _, each in arrived)
        for tool, program, own in arrived or [(PROMPT, PROMPT, 1)]:
            share = own / length if length else 1.0
            tokens = (used.input_tokens, used.cache_read_tokens, used.output_tokens)
            part = Sums(1, usd * share, *(round(each * share) for each in tokens))
            sums[day, "tool", tool] += part
            sums[day, "command", program or tool] += part
        if (miss := _miss(last, entry, changed)) is not None:
            sums[day, "miss", miss[0]] += miss[1]
        sums[day, "saved", ""] += Sums(0, saving)
        arrived, last, changed = [], entry, None
    for (day, kind, name), found in sums.items():
        rounded = msgspec.structs.replace(found, usd=round(found.usd, 8), calls=round(found.calls, 4))
        yield day, kind, name, rounded


def _miss(last: Message | None, now: Message, changed: Part | None) -> tuple[str, Sums] | None:
    """Why a call read less from the cache than the call before it had left there, and what it cost more.

    Only of providers that charge for what they write there; others promise nothing.
    """
    if last is None or last.usage is None or now.usage is None or not last.usage.cache_write_tokens:
        return None
    expected = min(last.usage.cache_read_tokens + last.usage.cache_write_tokens, now.usage.input_tokens)
    missed = expected - now.usage.cache_read_tokens
    if missed <= max(SLACK_TOKENS, expected * SLACK_SHARE):
        return None
    rates = _rates(now.model)
    usd = missed * max(0.0, rates.write - rates.read) * rates.input_usd / MILLION if rates is not None else 0.0
    idle = now.time - now.duration_ms / 1000 - last.time
    part: Part = "model" if last.model != now.model else changed or ("expired" if idle >= CACHE_S else "provider")
    return WORDING[part], Sums(1, usd, missed)


@lru_cache
def _rates(model: str) -> Rates | None:
    try:
        return look_up(CATALOGUE.quick_profile(model)).rates(0)
    except UnknownModel:
        return None


class _Run(msgspec.Struct):
    command: str = ""


def _program(call: ToolCall) -> str:
    """The program that a command starts, without variables before it; empty if the tool runs none."""
    run = decoded(call.arguments, _Run) or _Run()
    return next((Path(word).name for word in run.command.split() if "=" not in word), "")


def as_json(found: Spending) -> str:
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def as_text(found: Spending) -> str:
    when = f"the last {found.days:,} days" if found.days else "all days"
    lines = [f"{money_text(found.usd)} in {when}, {counted(found.sessions, 'session')}", ""]
    shown = found.lines[-SHOWN:] if found.by == "day" else found.lines[:SHOWN]
    names = [one_line(line.name, LONGEST_NAME) for line in shown]
    width = max(len(found.by), *map(len, names), 0)
    most = max([line.usd for line in shown], default=0.0)
    lines.append(f"{found.by:<{width}}  {'cost':>10}  {'calls':>7}  {'in':>7}  {'cached':>6}  {'out':>6}")
    for name, line in zip(names, shown, strict=True):
        cached = line.cached_tokens / line.input_tokens if line.input_tokens else 0.0
        bar = "▇" * round(20 * line.usd / most) if most > 0 else ""
        figures = f"{compact_count(line.input_tokens):>7}  {cached:>6.0%}  {compact_count(line.output_tokens):>6}"
        lines.append(f"{name:<{width}}  {money_text(line.usd):>10}  {line.calls:>7,}  {figures}  {bar}".rstrip())
    if len(found.lines) > len(shown):
        lines.append(f"and {len(found.lines) - len(shown):,} more")
    if found.misses:
        lines += ["", f"Missed caches cost {money_text(sum(miss.usd for miss in found.misses))} more:"]
        lines += [
            f"  {money_text(miss.usd):>9}  {counted(miss.calls, 'call')}, "
            f"{compact_count(miss.tokens)} tokens: {miss.reason}"
            for miss in found.misses
        ]
    usd, saved = money_text(abs(found.saved_usd)), found.saved_usd >= 0
    gained = f"saved {usd}, after their own cost" if saved else f"have cost {usd} more than they saved so far"
    lines += ["", f"Clearing and compaction {gained}."]
    if found.unreadable:
        lines.append(f"{counted(found.unreadable, 'session')} could not be read.")
    return "\n".join(lines)
