"""Harbor's own agent class for ACP with this machine as its environment, in a Python that has `harbor`.

Called with the folder for its files, and a JSON object on standard input: `entry`, `instruction`, `model`, `project`.
Prints the runner's summary. What Harbor would install into a container is there already.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class Here:
    """This machine, with the places that Harbor has in its containers below one folder."""

    def __init__(self, root: Path, project: Path) -> None:
        self.root, self.project = root, project
        self.default_user = None
        self.os = SimpleNamespace(value="linux")

    def _here(self, text: str) -> str:
        for place in ("/installed-agent", "/opt/harbor-acp-venv", "/logs"):
            text = text.replace(place, f"{self.root}{place}")
        return text

    async def exec(self, command: str, cwd: str | None = None, env: Any = None, **_: Any) -> Any:
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", self._here(command), cwd=cwd or self.project, env={**os.environ, **(env or {})}, stdout=-1
        )
        out = (await process.communicate())[0]
        return SimpleNamespace(stdout=out.decode(), stderr="", return_code=process.returncode)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = Path(self._here(target_path))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, target)


async def main(root: Path, given: dict[str, Any]) -> None:
    from harbor.agents.installed.acp import AcpAgent  # type: ignore[import-not-found, unused-ignore]
    from harbor.models.agent.context import AgentContext  # type: ignore[import-not-found, unused-ignore]

    logs, here = root / "logs/agent", Here(root, Path(given["project"]))
    logs.mkdir(parents=True, exist_ok=True)
    python = root / "opt/harbor-acp-venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    agent = AcpAgent(
        logs_dir=logs, registry_entry=given["entry"], model_name=given["model"], skip_install=True, auth_policy="auto"
    )
    context = AgentContext()
    await agent.configure(here)
    with contextlib.suppress(RuntimeError):  # it raises where its runner ends in an error, which the summary has
        await agent.run(given["instruction"], here, context)
    agent.populate_context_post_run(context)
    summary = json.loads((logs / "acp-summary.json").read_text())
    trajectory = logs / "trajectory.json"
    print(json.dumps({**summary, "trajectory": trajectory.exists() and json.loads(trajectory.read_text())}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.load(sys.stdin)))
