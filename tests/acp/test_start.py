"""What the start of `tui-agent acp` imports."""

import subprocess
import sys
from pathlib import Path

CHECKED = """
import tui_agent.acp
from acp.schema import InitializeRequest
from pydantic import BaseModel, Field
print([field.description for field in InitializeRequest.model_fields.values() if field.description])

class Described(BaseModel, use_attribute_docstrings=True):
    one: int
    "Told."

print(Described.model_fields["one"].description)
"""


def test_the_messages_are_imported_without_reading_their_source_and_other_models_keep_their_descriptions(
    tmp_path: Path,
) -> None:
    script = tmp_path / "checked.py"
    script.write_text(CHECKED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nTold.\n"
