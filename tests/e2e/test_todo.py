"""The task list through each provider's real SDK: kept in plan mode, and there again in the next process."""

from pathlib import Path

import pytest

from tests.e2e.program import WITH_LOCAL, Program
from tests.servers.running import in_process
from tests.servers.script import Call, Script, Step

LIST = [{"text": "read calc.py", "state": "done"}, {"text": "mend it", "state": "in_progress"}]
SCRIPT = Script.of(
    Step(calls=(Call("todo", {"items": LIST}),)),
    Step(calls=(Call("todo", {"items": [{"text": "mend it", "state": "finished"}]}),)),
    Step(text="It is planned."),
)


@pytest.mark.parametrize("provider", WITH_LOCAL)
def test_the_list_is_kept_and_no_rule_broken(provider: str, tmp_path: Path) -> None:
    with in_process(provider, tmp_path, SCRIPT) as server:
        program = Program.in_folder(tmp_path, server.environment)
        answer = program.ask("-p", "Plan it.", "--model", WITH_LOCAL[provider], "--ask", "plan")
        assert server.violations == []
        assert (answer["exit"], answer["result"].strip()) == (0, "It is planned.")
        shown = program.run("-c", "-p", "/todo")
        assert shown.stdout.splitlines() == ["Task list: 1 of 2 done", "[x] read calc.py", "[>] mend it"]
