"""Converting a page in a process of its own: a page made to be slow can be given up, and holds up nothing meanwhile."""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from tui_agent.tools.base import ToolFailure
from tui_agent.tools.shell.environment import child_environment
from tui_agent.tools.web.html import WebPage, to_markdown

PATIENCE_S = 30.0
"""Seconds a page may take; 5 MB of an ordinary one take about three."""
MEMORY = 2_000_000_000
"""Bytes of address space the process may take."""

_PACKAGES = str(Path(__file__).resolve().parents[3])


async def convert(source: str, url: str, patience_s: float = PATIENCE_S) -> WebPage:
    """A page that was found at `url` as Markdown. When cancelled, the process is gone too. Raises ToolFailure."""
    environment = child_environment(os.environ)
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([_PACKAGES, *([inherited] if inherited else [])])
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise _unfit(error.strerror or str(error)) from error
    try:
        async with asyncio.timeout(patience_s):
            answer, _ = await process.communicate(msgspec.json.encode((url, source)))
    except TimeoutError:
        raise _unfit(f"that took longer than {patience_s:g} seconds") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    try:
        return msgspec.json.decode(answer, type=WebPage)
    except msgspec.DecodeError as error:
        raise _unfit("its markup is too much for the converter") from error


def _unfit(reason: str) -> ToolFailure:
    return ToolFailure(
        f"The page could not be turned into text: {reason}.", "Save it with a command such as curl if it is needed."
    )


def main() -> None:
    """Read an address and a page from standard input, and write the title and the Markdown to standard output."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    url, source = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[str, str])
    sys.stdout.buffer.write(msgspec.json.encode(to_markdown(source, url)))


if __name__ == "__main__":
    main()
