"""A scripted model that is asked for summaries, too."""

from collections.abc import Callable

from tests.servers.script import ParsedRequest, Step

HANDOVER = "# Current state\nThe files are being read one by one.\n\n# Exact next steps\n1. Go on."


def asks_for_summary(request: ParsedRequest) -> bool:
    """Whether the request is not the conversation's own: a summary at its end, or one by a separate model."""
    newest = next(said for name in ("messages", "input", "contents") if (said := request.body.get(name)))[-1]
    return not request.tools or "Stop the work here for one message" in str(newest)


class Reader:
    """Answers the conversation by `step`, and requests for a summary by `summary`; keeps both kinds apart."""

    def __init__(
        self,
        step: Callable[[ParsedRequest], Step],
        summary: Callable[[ParsedRequest], Step] | None = None,
    ) -> None:
        self._step = step
        self._summary = summary or (lambda _: Step(text=HANDOVER))
        self.own: list[ParsedRequest] = []
        self.summaries: list[ParsedRequest] = []

    def __call__(self, request: ParsedRequest) -> Step:
        if asks_for_summary(request):
            self.summaries.append(request)
            return self._summary(request)
        self.own.append(request)
        return self._step(request)
