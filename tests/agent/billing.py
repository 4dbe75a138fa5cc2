"""The bill by the servers' own counts: what each model's calls cost at the catalogue's prices."""

from tests.servers.recording import Answer
from tests.servers.server import ProtocolServer
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import Prices
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.usage import cost_usd


async def billed(*servers: ProtocolServer) -> dict[str, float]:
    """US dollars per ``provider:id``, of every answer the servers gave."""
    costs: dict[str, float] = {}
    prices: dict[str, Prices | None] = {}
    for server in servers:
        asked = {request.number: request for request in server.model_requests}
        for answer in server.answers:
            request = asked.get(answer.number)
            if request is None or not answer.usage:
                continue
            named = request.json["model"] if server.name == "anthropic" and request.json else request.path
            name = f"{server.name}:{named.rpartition('/')[2].partition(':')[0]}"
            if name not in prices:
                model = CATALOGUE.create_model(name)
                prices[name] = (await model.describe()).prices
                await model.close()
            costs[name] = costs.get(name, 0.0) + (cost_usd(counted(answer), prices[name]) or 0.0)
    return costs


def counted(answer: Answer) -> Usage:
    """What a server counted of one call."""
    used = answer.usage
    if "promptTokenCount" in used:
        whole, read = used["promptTokenCount"], used.get("cachedContentTokenCount", 0)
        thought = used.get("thoughtsTokenCount", 0)
        return Usage(whole, read, 0, used.get("candidatesTokenCount", 0) + thought, thought)
    read, written = used.get("cache_read_input_tokens", 0), used.get("cache_creation_input_tokens", 0)
    return Usage(used["input_tokens"] + read + written, read, written, used["output_tokens"])
