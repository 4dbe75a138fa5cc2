"""A written summary, checked and completed, with the entries that would replace the turns."""

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec
from msgspec import structs

from tui_agent.context.compaction.facts import listing, missing
from tui_agent.context.compaction.forms import ARCHIVE_LINE, SummaryForm, completed, framed, sections
from tui_agent.context.compaction.material import Material
from tui_agent.context.compaction.plan import Plan, facts_room
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import Boundary, Checkpointed, Restored, Summarized, Undone, Usage
from tui_agent.conversation.sizes import TextSize, size_of_text

_LEAST_LETTERS: Final = 20


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A written summary or completion record that is not entered yet, with its exact figures.

    Nothing of it is in the log until it is accepted, so dropping it, or a crash, leaves the view unchanged.

    text: what the model would be shown for the older turns, including facts but not the first line and path; untrusted.
    boundary: its entry. facts_missing: how many facts the writer left out; facts_appended: how many of them were
    appended to the text. sections_added: the sections it lacked. how: the way it was written; failures: those before
    it, untrusted texts of providers. spent_usd: the cost of writing it, including failures; None if a price is unknown.
    seen: the newest entry when the figures were computed.
    """

    plan: Plan
    material: Material
    text: str
    boundary: Boundary
    facts_missing: int
    facts_appended: int
    sections_added: tuple[str, ...]
    how: str = "an extract, without a model"
    failures: tuple[str, ...] = ()
    spent_usd: float | None = 0.0
    seen: int = 0

    @property
    def entries(self) -> tuple[Summarized | Checkpointed | Restored | Undone, ...]:
        """The entries to append together: the boundary, then those that keep only the newest request in view."""
        plan, after = self.plan, self.after
        found: tuple[Summarized | Checkpointed | Restored | Undone, ...] = (self.boundary,)
        # A request that would have been carried behind a signed summary; a pin is shown anyway.
        if back := plan.brought_back or (() if self.boundary.signed else plan.carried):
            why = "The newest request stays word for word."
            found += (Restored(items=back, texts=("",) * len(back), reason=why, before=after, after=after),)
        for seq in plan.lapsed:
            found += (Undone(target=seq, reason="A newer request came since.", before=after, after=after),)
        return found

    @property
    def step(self) -> Literal["summary", "checkpoint"]:
        return self.plan.step

    @property
    def before(self) -> int:
        """Tokens of the next request without it."""
        return self.plan.before

    @property
    def after(self) -> int:
        """Tokens of the next request with it."""
        return self.boundary.after

    @property
    def model(self) -> str:
        """The model that wrote it; empty for an extract."""
        return self.boundary.model

    @property
    def facts_left_out(self) -> int:
        """How many facts are still missing: there was no room, or the user deleted them."""
        return self.facts_missing - self.facts_appended

    def as_trace(self) -> Mapping[str, object]:
        """Its details for the session's trace, whether it is accepted or not."""
        return {
            "drafted": self.step,
            "before": self.before,
            "after": self.after,
            "how": self.how,
            "failures": self.failures,
            "cost_usd": self.spent_usd,
        }


def accept(
    plan: Plan,
    material: Material,
    text: str,
    *,
    path: str,
    tokens_of: Callable[[TextSize], int],
    model: str = "",
    usage: Usage | None = None,
    cost_usd: float | None = None,
    signed: str = "",
    depth: int = 1,
) -> Draft | Refusal:
    """Complete and check a written text; or why it is rejected.

    `path`: of the archive, relative to the session's folder. Facts take at most half of what the summary frees. `model`
    (empty: an extract), `usage`, `cost_usd`: who wrote it. `signed`: the text as the provider signed it, which stays as
    it is: the facts and the path follow behind the kept messages. `depth`: how many times its content was summarised.
    """
    if complaint := _unusable(text):
        return Refusal(complaint)
    body = text.strip() if signed else completed(plan.form, text, material.extract)
    bare = tokens_of(size_of_text(*_shown(plan, body, "", path, signed))) + plan.growth
    if bare >= plan.replaced:
        return _too_long(bare, plan)
    lost = missing(material.facts, "\n".join((body, *(each.text for each in plan.words))))
    facts = listing(lost, limit=facts_room(plan.facts_limit, plan.replaced - bare), tokens_of=tokens_of, where=path)
    shown, behind = _shown(plan, body, facts, path, signed)
    size = tokens_of(size_of_text(shown, behind)) + plan.growth
    if size >= plan.replaced:
        return _too_long(size, plan)
    kind = Checkpointed if plan.step == "checkpoint" else Summarized
    boundary = kind(
        first=plan.first,
        last=plan.last,
        text=shown,
        path=path,
        model=model,
        usage=usage,
        cost_usd=cost_usd,
        words=plan.words,
        state=plan.state,
        depth=plan.depth if signed else depth,
        signed=signed,
        through=plan.through,
        facts=behind,
        left_out=plan.left_out,
        carried=plan.carried if signed else (),
        reason=plan.reason,
        before=plan.before,
        after=plan.before - plan.replaced + size,
    )
    return Draft(
        plan=plan,
        material=material,
        text=f"{body}\n\n{facts}" if facts else body,
        boundary=structs.replace(boundary, **{"note" if plan.step == "checkpoint" else "focus": plan.subject}),
        facts_missing=len(lost),
        facts_appended=len(lost) - len(missing(lost, facts)),
        sections_added=() if signed else _added(plan.form, text, body),
    )


def _shown(plan: Plan, body: str, facts: str, path: str, signed: str) -> tuple[str, str]:
    """The text of a summary, and what follows a signed one behind the kept messages."""
    if not signed:
        return framed(plan.form, f"{body}\n\n{facts}" if facts else body, path), ""
    where = f"{ARCHIVE_LINE}{path}" if path else ""
    return f"{plan.form.prefix}\n\n{body}", "\n\n".join(filter(None, (facts, where)))


def _too_long(size: int, plan: Plan) -> Refusal:
    return Refusal(f"The summary takes {size:,} tokens, the turns it replaces only {plan.replaced:,}.")


def accept_anew(plan: Plan, draft: Draft, text: str, *, tokens_of: Callable[[TextSize], int]) -> Draft | Refusal:
    """`draft` with a text that the user edited, or with the same text for the present `plan`; or why not.

    The text is taken as it is: the user knows best what the model needs, so sections and facts that they deleted are
    not restored. It is rejected if it is empty or frees nothing, and the facts that it lacks are counted. Once edited,
    it is no longer signed by the provider that wrote it.
    """
    text, old = text.strip(), draft.boundary
    if not text:
        return Refusal("The summary is empty.")
    edited = text != draft.text
    signed = "" if edited else old.signed
    shown, behind = (old.text, old.facts) if signed else (framed(plan.form, text, old.path), "")
    size = tokens_of(size_of_text(shown, behind)) + plan.growth
    if size >= plan.replaced:
        return _too_long(size, plan)
    boundary = structs.replace(
        old,
        text=shown,
        words=plan.words,
        state=plan.state,
        signed=signed,
        through=plan.through if signed else "",
        facts=behind,
        left_out=plan.left_out if signed else 0,
        carried=plan.carried if signed else (),
        reason=f"{plan.reason}, edited" if edited else old.reason,
        before=plan.before,
        after=plan.before - plan.replaced + size,
    )
    lacking = (len(missing(draft.material.facts, text)), 0) if edited else (draft.facts_missing, draft.facts_appended)
    return structs.replace(
        draft, plan=plan, text=text, boundary=boundary, facts_missing=lacking[0], facts_appended=lacking[1]
    )


def _unusable(text: str) -> str:
    """Why a text cannot be a summary; empty if it can."""
    if sum(character.isalpha() for character in text[:4_000]) < _LEAST_LETTERS:
        return "The summary is empty." if not text.strip() else "The summary says nothing."
    words = text.split()
    if len(words) > 200 and len(set(words)) * 20 < len(words):
        return "The summary repeats itself."
    return ""


def _added(form: SummaryForm, text: str, body: str) -> tuple[str, ...]:
    """The sections of `body` that `text` lacks; text before the first heading is the first section."""
    before, after = sections(form, text), sections(form, body)
    return tuple(
        name
        for position, name in enumerate(form.sections)
        if after.get(name) and not before.get(name) and not (position == 0 and before.get(""))
    )
