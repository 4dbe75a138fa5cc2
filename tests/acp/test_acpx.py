"""A client of the protocol that nobody here wrote, and that opens a session anew between its commands: acpx."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.program import MODELS, Program
from tests.servers.anthropic import AnthropicServer
from tests.servers.coding_task import FIXED_CALC
from tests.servers.running import in_thread
from tests.servers.script import Call, Script, Step, Turn

CLIENT = "acpx@0.19.1"
EDIT = Call("edit_file", {"path": "calc.py", "old": "return a - b", "new": "return a + b"})
BACK = Call("edit_file", {"path": "calc.py", "old": "return a + b", "new": "return a - b"})
SCRIPT = Script(
    (
        Turn((Step(calls=(EDIT,)), Step(text="Mended.")), "mend"),
        Turn((Step(calls=(BACK,)), Step(text="I tried.")), "break"),
        Turn((Step(text="Hello."),), "hello"),
    )
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The client's command."""
    npm, place = shutil.which("npm"), tmp_path_factory.mktemp("acpx")
    if npm is None:
        pytest.skip("npm is not installed")
    done = subprocess.run([npm, "install", "--prefix", str(place), CLIENT], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"npm cannot install the client: {done.stderr[-500:]}")
    return str(place / "node_modules/.bin/acpx")


@pytest.mark.soak
def test_acpx_drives_a_session(tmp_path: Path, client: str) -> None:
    with in_thread(AnthropicServer(SCRIPT)) as server:
        program = Program.in_folder(tmp_path, {**server.environment, "HOME": str(tmp_path)})
        calc = program.project / "calc.py"
        broken = calc.read_text()
        agent = shlex.join([*program.command, "acp", "--ask", "ask", "--model", MODELS["anthropic"]])

        def acpx(*words: str, ends: int = 0) -> str:
            # It keeps a process for later prompts, until the session is closed.
            command = [client, "--agent", agent, *words]
            done = subprocess.run(
                command,
                check=False,
                cwd=program.project,
                env=program.environment,
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == ends, done.stdout + done.stderr
            return done.stdout

        # One prompt, as JSON: what is declined does not happen.
        told = acpx("--format", "json", "--deny-all", "exec", "mend it", ends=5).splitlines()
        assert calc.read_text() == broken
        assert any(json.loads(line).get("result", {}).get("stopReason") for line in told)

        # A session over several commands: approved, then in a mode that another command chose.
        acpx("sessions", "new", "--name", "one")
        assert "Hello." in acpx("prompt", "-s", "one", "hello")
        assert "Mended." in acpx("--approve-all", "prompt", "-s", "one", "mend it")
        assert calc.read_text() == FIXED_CALC
        acpx("set-mode", "-s", "one", "plan")
        assert "I tried." in acpx("--approve-all", "prompt", "-s", "one", "break it")
        assert calc.read_text() == FIXED_CALC
        acpx("sessions", "close", "one")
    assert server.violations == []
