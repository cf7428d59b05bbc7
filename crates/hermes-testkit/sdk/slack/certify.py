"""Slack's own SDK against the fake: `certify.py <api url> <control url>`.

Prints "certified" after every step went as it goes with Slack; any other end is a failure.
"""

import asyncio
import json
import sys
import urllib.request

from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

API, CONTROL = sys.argv[1:3]
APP_TOKEN, BOT_TOKEN = "xapp-1-A1-fake", "xoxb-T1"
PATIENCE = 20


def control(**command):
    body = json.dumps(command).encode()
    with urllib.request.urlopen(urllib.request.Request(CONTROL, body), timeout=PATIENCE) as answer:
        return json.load(answer)


async def do(**command):
    return await asyncio.to_thread(lambda: control(**command))


async def look(channel="C1"):
    return await do(do="look", channel=channel)


async def until(true):
    async with asyncio.timeout(PATIENCE):
        while not await true():
            await asyncio.sleep(0.02)


async def web_api(client):
    me = await client.auth_test()
    assert (me["team_id"], me["user_id"], me["bot_id"]) == ("T1", "UBOTT1", "BT1"), me
    sent = await client.chat_postMessage(
        channel="C1",
        text="one",
        metadata={"event_type": "hermes_delivery", "event_payload": {"key": "k1"}},
    )
    reply = await client.chat_postMessage(channel="C1", text="two", thread_ts=sent["ts"])
    assert sent["message"]["bot_id"] == "BT1"
    await client.chat_update(channel="C1", ts=sent["ts"], text="ONE")
    history = await client.conversations_history(channel="C1", include_all_metadata=True)
    assert [m["text"] for m in history["messages"]] == ["ONE"], history["messages"]
    assert history["messages"][0]["metadata"]["event_payload"] == {"key": "k1"}
    assert history["messages"][0]["reply_count"] == 1
    plain = await client.conversations_history(channel="C1")
    assert "metadata" not in plain["messages"][0]
    replies = await client.conversations_replies(channel="C1", ts=sent["ts"])
    assert [m["ts"] for m in replies["messages"]] == [sent["ts"], reply["ts"]]
    for number in range(5):
        await client.chat_postMessage(channel="C2", text=str(number))
    pages = []
    async for page in await client.conversations_history(channel="C2", limit=2):
        pages.append([m["text"] for m in page["messages"]])
    assert pages == [["4", "3"], ["2", "1"], ["0"]], pages
    await client.reactions_add(channel="C1", timestamp=sent["ts"], name="eyes")
    await client.reactions_remove(channel="C1", timestamp=sent["ts"], name="eyes")
    assert (await client.users_info(user="U1"))["user"]["profile"]["display_name"] == "alice"
    assert (await client.conversations_info(channel="D1"))["channel"]["is_im"] is True
    mine = await client.users_conversations(types="im,public_channel")
    assert {c["id"] for c in mine["channels"]} == {"C1", "C2", "D1"}
    await client.chat_postEphemeral(channel="C1", user="U1", text="psst")
    await client.assistant_threads_setStatus(
        channel_id="C1", thread_ts=sent["ts"], status="is thinking"
    )
    await client.chat_delete(channel="C1", ts=reply["ts"])
    uploaded = await client.files_upload_v2(
        channel="C1", content="some text", filename="a.txt", title="A", initial_comment="look"
    )
    assert uploaded["files"][0]["title"] == "A", uploaded
    shared = (await client.conversations_history(channel="C1", limit=1))["messages"][0]
    assert shared["files"][0]["name"] == "a.txt" and shared["text"] == "look"


async def refusals(client):
    async def error(call):
        try:
            await call
        except SlackApiError as refused:
            return refused.response["error"]
        raise AssertionError("it was not refused")

    assert await error(client.chat_postMessage(channel="C9", text="x")) == "channel_not_found"
    assert await error(client.chat_update(channel="C1", ts="1.0", text="x")) == "message_not_found"
    assert await error(AsyncWebClient(token="xoxb-no", base_url=API).auth_test()) == "invalid_auth"
    assert await error(client.apps_connections_open(app_token=BOT_TOKEN)) == "not_allowed_token_type"
    bad = [{"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3001}}]
    assert await error(client.chat_postMessage(channel="C1", text="x", blocks=bad)) == "invalid_blocks"
    # Its own handler waits for Retry-After and tries again.
    patient = AsyncWebClient(token=BOT_TOKEN, base_url=API)
    patient.retry_handlers.append(AsyncRateLimitErrorRetryHandler(max_retry_count=1))
    await do(do="fail", method="auth.test", fault={"rate_limited": 1})
    assert (await patient.auth_test())["ok"]


async def bolt(client):
    app = AsyncApp(client=client, process_before_response=True)
    heard = []

    @app.event("message")
    async def message(event, say):
        if event.get("bot_id") or event.get("subtype"):
            return
        heard.append(("message", event["text"], event["channel_type"]))
        await say(text=f"heard {event['text']}", thread_ts=event["ts"])

    @app.event("app_mention")
    async def mention(event):
        heard.append(("mention", event["text"]))

    @app.command("/hermes")
    async def command(ack, body):
        heard.append(("command", body["text"], body["user_id"]))
        await ack(text="running")

    @app.action("press-me")
    async def press(ack, body, respond):
        await ack()
        heard.append(("press", body["actions"][0]["value"], body["message"]["ts"]))
        await respond(text="pressed", replace_original=False)

    handler = AsyncSocketModeHandler(app, APP_TOKEN)
    handler.client.web_client = AsyncWebClient(token=APP_TOKEN, base_url=API)
    await handler.connect_async()
    await do(do="say", channel="D1", user="U1", text="hello")
    await until(lambda: heard_is(heard, ("message", "hello", "im")))
    await do(do="say", channel="C1", user="U1", text="<@UBOTT1> hi")
    await until(lambda: heard_is(heard, ("mention", "<@UBOTT1> hi")))
    await do(do="slash", channel="C1", user="U1", command="/hermes", text="status")
    await until(lambda: heard_is(heard, ("command", "status", "U1")))
    button = {"type": "button", "action_id": "press-me", "value": "v1",
              "text": {"type": "plain_text", "text": "Press"}}
    sent = await client.chat_postMessage(
        channel="C1", text="?", blocks=[{"type": "actions", "elements": [button]}]
    )
    await do(do="press", channel="C1", ts=sent["ts"], action="press-me", user="U1")
    await until(lambda: heard_is(heard, ("press", "v1", sent["ts"])))

    async def all_acked():
        return (await look())["unacked"] == 0

    await until(all_acked)
    acks = (await look())["acks"]
    assert {"kind": "slash_commands", "payload": {"text": "running"}} in acks, acks
    answers = [m["text"] for m in (await look("D1"))["messages"] if m.get("bot_id")]
    assert answers == ["heard hello"], answers
    await handler.close_async()


async def heard_is(heard, what):
    return what in heard


async def file_in(client):
    said = await do(do="say", channel="C1", user="U1", text="", file="n.txt", content="note")
    messages = (await client.conversations_history(channel="C1", limit=1))["messages"]
    assert messages[0]["ts"] == said["ts"]
    url = messages[0]["files"][0]["url_private"]

    def fetch(token):
        headers = {"Authorization": f"Bearer {token}"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.read()

    assert await asyncio.to_thread(fetch, BOT_TOKEN) == b"note"
    assert b"<!DOCTYPE" in await asyncio.to_thread(fetch, "xoxb-no")


async def sockets():
    """Connections that are told to go, cut, or left without acks."""
    requests, acknowledge = [], True
    web = AsyncWebClient(token=APP_TOKEN, base_url=API)
    client = SocketModeClient(app_token=APP_TOKEN, web_client=web, ping_interval=2)

    async def listen(client, request):
        requests.append(request)
        if acknowledge:
            await client.send_socket_mode_response(SocketModeResponse(request.envelope_id))

    client.socket_mode_request_listeners.append(listen)
    await client.connect()

    async def again(ever):
        return (await look())["sockets_ever"] > ever

    async def got(text):
        return any(text == r.payload["event"].get("text") for r in requests)

    for how in ({"do": "disconnect", "reason": "refresh_requested"}, {"do": "cut"}):
        ever = (await look())["sockets_ever"]
        await do(**how)
        await until(lambda: again(ever))
        text = f"after {how['do']}"
        await do(do="say", channel="D1", user="U1", text=text)
        await until(lambda: got(text))
    acknowledge = False
    requests.clear()
    await do(do="retry_after", ms=100)
    await do(do="say", channel="D1", user="U1", text="retry")

    async def retried():
        return any((r.retry_attempt or 0) > 0 for r in requests)

    await until(retried)
    first, second = requests[:2]
    assert first.envelope_id != second.envelope_id
    assert first.payload["event_id"] == second.payload["event_id"]
    assert second.retry_reason == "timeout"
    await client.close()


async def main():
    for command in (
        {"do": "user", "user": "U1", "name": "alice"},
        {"do": "channel", "channel": "C1", "kind": "channel"},
        {"do": "channel", "channel": "C2", "kind": "channel"},
        {"do": "channel", "channel": "D1", "kind": "im"},
    ):
        await do(**command)
    client = AsyncWebClient(token=BOT_TOKEN, base_url=API)
    await web_api(client)
    await refusals(client)
    await file_in(client)
    await bolt(client)
    await sockets()
    print("certified")


asyncio.run(main())
