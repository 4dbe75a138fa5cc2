"""Logging internal errors to a file for a bug report, instead of showing a traceback."""

import os
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime

from tui_agent.settings.sources import home_folder
from tui_agent.version import __version__


def in_a_line(error: BaseException) -> str:
    """The error's name and the beginning of its message, without API keys."""
    from tui_agent.models.errors import plain

    return f"{type(error).__name__}: {plain(str(error))}"


def write_crash_log(error: BaseException, environ: Mapping[str, str]) -> str:
    """Write the traceback, without API keys, to a private file in `<TUI_AGENT_HOME>/logs`; returns a phrase that says
    where.
    """
    from tui_agent.models.errors import redact

    now = datetime.now(UTC)
    path = home_folder(environ) / "logs" / f"crash-{now:%Y%m%dT%H%M%SZ}-{os.getpid()}.txt"
    text = f"tui-agent {__version__}, {now.isoformat()}\n\n{redact(''.join(traceback.format_exception(error)))}"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text.encode("utf-8", "backslashreplace").decode())
    except OSError as refused:
        return f"no log could be written to {path.parent} ({refused.strerror}); TUI_AGENT_DEBUG=1 shows the details"
    return f"details are in {path}"
