"""A process that runs one turn of a session, to be killed while it compacts. Arguments: folder, session, prompt, and
the settings as JSON (by default `SETTINGS`).
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.agent.talking import say, talking

SETTINGS = {
    "model.id": "claude-opus-5-5",
    # Not the catalogue's, where the server's own word comes too late for a busy machine.
    "context.context_window": "200000",
    "compaction.threshold_by_tier.frontier": "0.15",
    "clearing.by_price": "false",
    "compaction.background": "false",
}
"""Of a window of 200,000 tokens 30,000 are enough for a compaction."""


async def run(folder: Path, name: str, prompt: str, settings: Mapping[str, str]) -> None:
    async with talking(folder, settings, resume=name) as session:
        await say(session, prompt)


if __name__ == "__main__":
    given = json.loads(sys.argv[4]) if len(sys.argv) > 4 else SETTINGS
    asyncio.run(run(Path(sys.argv[1]), sys.argv[2], sys.argv[3], given))
