"""A small MCP server on the Python SDK, either generation, for tests and the soak.

server.py stdio|streamable-http|sse PORT EFFECTS

Every run of `bump` appends a line to the file EFFECTS before it answers, so that effects can be
counted across restarts. `POST /forget` makes the HTTP server forget its sessions.
"""

import asyncio
import sys

transport, port, effects = sys.argv[1], int(sys.argv[2]), sys.argv[3]

try:
    from mcp.server import MCPServer

    server = MCPServer("py-modern")
    options = {} if transport == "stdio" else {"port": port}
except ImportError:
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("py-legacy", port=port, log_level="WARNING")
    options = {}


def note(text: str) -> None:
    with open(effects, "a", encoding="utf-8") as file:
        file.write(text + "\n")


@server.tool()
def echo(text: str) -> str:
    """Says the text again."""
    return text


@server.tool()
def bump(token: str) -> str:
    """Leaves a mark. Every run is an effect."""
    note(token)
    return token


@server.tool()
async def slow(token: str, seconds: float) -> str:
    """Leaves a mark, waits, answers."""
    note(token)
    await asyncio.sleep(seconds)
    return token


@server.resource("note://one")
def one() -> str:
    """A note."""
    return "a note"


@server.prompt()
def greet(who: str) -> str:
    """Greets somebody."""
    return f"Greet {who}"


if transport == "streamable-http":
    from starlette.responses import PlainTextResponse

    @server.custom_route("/forget", methods=["POST"])
    async def forget(request):  # noqa: ARG001
        known = server.session_manager._server_instances
        count = len(known)
        known.clear()
        return PlainTextResponse(str(count))


server.run(transport, **options)
