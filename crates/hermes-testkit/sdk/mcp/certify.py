"""The client of the Python SDK against the servers of the tests: certify.py http|sse URL

Makes a session and a call, prints a line and waits for one; then makes a call that may fail and
prints what came of it; then a call in a new session.
"""

import asyncio
import sys
from datetime import timedelta

from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamablehttp_client

kind, url = sys.argv[1], sys.argv[2]


def connect():
    return streamablehttp_client(url) if kind == "http" else sse_client(url)


async def bump(session, token):
    try:
        result = await session.call_tool(
            "bump", {"token": token}, read_timeout_seconds=timedelta(seconds=30)
        )
    except Exception as error:
        return f"error: {error}"
    return ("tool error: " if result.isError else "") + result.content[0].text


async def main():
    async with connect() as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        await session.send_ping()
        tools = await session.list_tools()
        assert any(tool.name == "bump" for tool in tools.tools)
        print(await bump(session, "before"), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        print(await bump(session, "lost"), flush=True)
    async with connect() as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        print(await bump(session, "after"), flush=True)


asyncio.run(main())
