"""Running a module of this package in a process of its own: what it computes holds up nothing here, and what it
allocates goes with it.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from tui_agent.system.programs import search_path
from tui_agent.tools.environment import child_environment

_PACKAGES: Final = str(Path(__file__).resolve().parents[2])


async def in_own_process(module: str, given: bytes) -> bytes:
    """What a module, run as a script with `given` as its input, prints; cancelling ends it. Raises OSError."""
    environment = child_environment(os.environ)
    inherited = search_path(environment.get("PYTHONPATH", ""))
    environment["PYTHONPATH"] = os.pathsep.join([_PACKAGES, *([inherited] if inherited else [])])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        return (await process.communicate(given))[0]
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
