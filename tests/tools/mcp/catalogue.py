"""300 tools of ten servers, named and described as real servers do, and twenty plain descriptions of some of them."""

import json
from pathlib import Path
from typing import Final

from tests.tools.mcp.connecting import faulty
from tui_agent.settings import ToolServer
from tui_agent.tools.mcp.known import KnownTool
from tui_agent.tools.mcp.search import SearchableTool

_SERVERS: Final = {
    "github": "issue pull_request repository branch commit release workflow_run gist code_review label",
    "jira": "issue sprint board epic worklog attachment comment project version watcher",
    "slack": "message channel user reaction reminder file thread usergroup bookmark emoji",
    "postgres": "table row index view schema query_plan role extension lock backup",
    "notion": "page database block comment user property template workspace relation view",
    "calendar": "event calendar attendee free_time reminder recurrence room invitation timezone holiday",
    "mail": "email draft folder attachment filter signature contact label rule vacation_reply",
    "kubernetes": "pod deployment service node namespace config_map secret job ingress log",
    "browser": "tab cookie screenshot element form network_request console_log bookmark download viewport",
    "sentry": "error_event alert_rule release project team dashboard replay trace metric monitor",
}
_VERBS: Final = {
    "list": "List all {things} that match a filter, page by page.",
    "get": "Get the details of one {thing} by its identifier.",
    "create": "Create a new {thing}.",
}
ASKED: Final = {
    "show me the open pull requests": "github/list_pull_request",
    "open a new ticket in jira": "jira/create_issue",
    "post a message to a slack channel": "slack/create_message",
    "which tables are in the database": "postgres/list_table",
    "look at one notion page": "notion/get_page",
    "schedule a meeting event": "calendar/create_event",
    "write an email draft": "mail/create_draft",
    "what pods are running": "kubernetes/list_pod",
    "take a screenshot of the browser": "browser/create_screenshot",
    "list error events": "sentry/list_error_event",
    "when do people have free time": "calendar/list_free_time",
    "set a vacation reply": "mail/create_vacation_reply",
    "how is a query planned in postgres": "postgres/get_query_plan",
    "add an emoji reaction in slack": "slack/create_reaction",
    "kubernetes config maps": "kubernetes/list_config_map",
    "cookies of the page in the browser": "browser/list_cookie",
    "log work on a jira issue": "jira/create_worklog",
    "publish a new release on github": "github/create_release",
    "make a dashboard in sentry": "sentry/create_dashboard",
    "find the workflow runs": "github/list_workflow_run",
}
"""What somebody may want, and the tool for it."""


def three_hundred() -> list[SearchableTool]:
    found = []
    for server, things in _SERVERS.items():
        for thing in things.split():
            plain = thing.replace("_", " ")
            for verb, text in _VERBS.items():
                described = f"{text.format(thing=plain, things=f'{plain}s')} Works on {server.title()}. " + _DETAIL
                properties = {name: {"type": "string", "description": f"The {name} to use."} for name in _ARGUMENTS}
                schema = json.dumps({"type": "object", "properties": properties})
                found.append(SearchableTool(server, KnownTool(f"{verb}_{thing}", described, schema)))
    return found


def ten_servers(folder: Path) -> dict[str, ToolServer]:
    """The ten servers, as processes of the tests' own server."""
    found: dict[str, ToolServer] = {}
    for server in _SERVERS:
        tools = [
            {"name": each.tool.name, "description": each.tool.description, "inputSchema": json.loads(each.tool.schema)}
            for each in three_hundred()
            if each.server == server
        ]
        path = folder / f"{server}.json"
        path.write_text(json.dumps(tools))
        found[server] = faulty(f"tools={path}")
    return found


_DETAIL: Final = (
    "Answers with a JSON object. Fails where the identifier is unknown, where the token has no access to it, or where "
    "the service is out of reach; then it says so, and nothing was changed."
)
_ARGUMENTS: Final = ("workspace", "identifier", "filter", "cursor")
