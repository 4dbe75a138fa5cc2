"""A process that has a summary written and shown, to be killed before it is accepted. Arguments: folder, session."""

import asyncio
import sys
from pathlib import Path

from tests.agent.talking import talking
from tui_agent.context.compaction.draft import Draft


async def run(folder: Path, name: str) -> None:
    async with talking(folder, resume=name) as session:
        draft = await session.agent.context.draft()
        if not isinstance(draft, Draft):
            sys.exit(draft.reason)
        sys.stdout.write(f"{draft.after}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), sys.argv[2]))
