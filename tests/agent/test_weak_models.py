"""Sessions with models that call no tools, or write their calls as they please."""

from pathlib import Path

from tests.agent.serving import Serve
from tests.agent.talking import of, say, talking
from tests.servers.ollama import OllamaServer
from tests.servers.openai_chat import ChatServer
from tests.servers.script import Call, Fault, Script, Step, Turn
from tui_agent.agent import events
from tui_agent.agent.active_model import WITHOUT_TOOLS

IN_TEXT = 'I look.\n<tool_call>\n{"name": "list_dir", "arguments": {"path": ".",}}\n</tool_call>'
NO_TOOLS = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


def notices(told: list[events.AgentEvent]) -> list[str]:
    return [event.title for event in told if isinstance(event, events.Notice) and "calls no tools" in event.title]


async def test_a_model_without_tools_is_asked_as_a_chat(tmp_path: Path, serve: Serve) -> None:
    server = serve(OllamaServer(Script(after=Step(text="Hello."))))
    async with talking(tmp_path, {"model.id": "ollama:tinyllama"}) as session:
        told = await say(session, "Hi.")
        assert [event.text for event in of(events.TurnFinished, told)] == ["Hello."]
        assert notices(told) == ["tinyllama calls no tools"]
        assert notices(await say(session, "Hi again.")) == []
    asked = [each.json for each in server.requests if each.path == "/api/chat" and each.json]
    assert len(asked) == 2
    assert all(not body.get("tools") and WITHOUT_TOOLS in body["messages"][0]["content"] for body in asked)


async def test_a_server_that_refuses_tools_is_asked_without_and_sees_what_earlier_calls_came_to(
    tmp_path: Path, serve: Serve
) -> None:
    looks = Turn((Step(text="I look.", calls=(Call("list_dir", {}),)), Step(text="There it is.")), when="here")
    refused = Step(text="Hello.", fault=Fault(kind="bad_request", message=NO_TOOLS))
    server = serve(ChatServer(Script((looks,), after=refused), make="vllm"))
    async with talking(tmp_path, {"model.id": "vllm:qwen/qwen3-coder"}) as session:
        assert notices(await say(session, "What is here?")) == []
        told = await say(session, "Hi.")
        assert [event.text for event in of(events.TurnFinished, told)] == ["Hello."]
        assert len(notices(told)) == 1
    last = [each.json for each in server.requests if each.json][-1]
    assert last is not None
    assert "tools" not in last
    assert {message["role"] for message in last["messages"]} == {"system", "user", "assistant"}
    assert "I look.\\n\\n[called list_dir with {}]" in str(last["messages"])


async def test_a_call_in_the_text_is_done(tmp_path: Path, serve: Serve) -> None:
    serve(OllamaServer(Script.of(Step(text=IN_TEXT), Step(text="Done."))))
    async with talking(tmp_path, {"model.id": "ollama:qwen3:8b"}) as session:
        told = await say(session, "What is here?")
    (done,) = of(events.ToolFinished, told)
    assert (done.name, done.status) == ("list_dir", "ok")
    assert [event.text for event in of(events.AssistantMessage, told)] == ["I look.", "Done."]


async def test_a_call_that_cannot_be_read_is_answered_with_its_shape(tmp_path: Path, serve: Serve) -> None:
    broken = IN_TEXT.replace('.",}', '.", "depth": "x"}')
    serve(OllamaServer(Script.of(Step(text=broken), Step(text="Done."))))
    async with talking(tmp_path, {"model.id": "ollama:qwen3:8b"}) as session:
        told = await say(session, "What is here?")
    (done,) = of(events.ToolFinished, told)
    assert done.status == "error"
    assert "there is no argument `depth`" in done.text
    assert "Expected: list_dir(path: string" in done.text
    assert "For example" in done.text
