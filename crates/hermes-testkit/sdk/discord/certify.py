"""Drives the fake Discord with discord.py, which knows nothing of it, and checks what comes of it.

Usage: certify.py '{"root": ..., "api": ..., "gateway": ..., "token": ...}'
Prints the name of each check that held; ends with 0 when all did.
"""

import asyncio
import io
import json
import logging
import sys

import aiohttp
import discord
from discord.gateway import DiscordWebSocket
from yarl import URL

WHERE = json.loads(sys.argv[1])
discord.http.Route.BASE = WHERE["api"]
DiscordWebSocket.DEFAULT_GATEWAY = URL(WHERE["gateway"])
PATIENCE = 20
discord.utils.setup_logging(level=logging.WARNING)


async def order(**what):
    async with aiohttp.ClientSession() as session:
        async with session.post(WHERE["root"] + "/control", json=what) as answer:
            value = await answer.json()
            assert "error" not in value, value
            return value


class Client(discord.Client):
    def __init__(self):
        intents = discord.Intents.default()
        intents.message_content = True
        super().__init__(intents=intents)
        self.heard = asyncio.Queue()
        self.used = asyncio.Queue()
        self.back = asyncio.Queue()
        self.is_up = asyncio.Event()

    async def on_ready(self):
        self.is_up.set()
        await self.back.put("ready")

    async def on_resumed(self):
        await self.back.put("resumed")

    async def on_message(self, message):
        if message.author.id != self.user.id:
            await self.heard.put(message)

    async def on_interaction(self, interaction):
        await self.used.put(interaction)


async def soon(awaitable):
    return await asyncio.wait_for(awaitable, PATIENCE)


def held(name):
    print(name, flush=True)


async def talk(client, channel, ann):
    said = await order(do="say", channel=channel.id, user=ann, text=f"hi <@{client.user.id}>")
    message = await soon(client.heard.get())
    assert str(message.id) == said["id"] and message.content.startswith("hi")
    assert client.user in message.mentions and message.guild.name == "Workshop"
    held("a message in a channel")

    direct = await order(do="direct", user=ann)
    await order(do="say", channel=direct["id"], user=ann, text="psst")
    message = await soon(client.heard.get())
    assert isinstance(message.channel, discord.DMChannel) and message.content == "psst"
    await message.channel.send("yes?")
    held("a direct message")


async def write(client, channel):
    message = await channel.send("one", nonce="n1")
    assert message.content == "one" and message.author == client.user
    await message.edit(content="two")
    assert (await channel.fetch_message(message.id)).content == "two"
    await message.add_reaction("👀")
    fetched = await channel.fetch_message(message.id)
    assert [str(one.emoji) for one in fetched.reactions] == ["👀"] and fetched.reactions[0].me
    await message.remove_reaction("👀", client.user)
    assert (await channel.fetch_message(message.id)).reactions == []
    reply = await message.reply("an answer")
    assert reply.reference.message_id == message.id and reply.type is discord.MessageType.reply
    await reply.delete()
    try:
        await channel.fetch_message(reply.id)
        raise AssertionError("it was deleted")
    except discord.NotFound as error:
        assert error.code == 10008
    async with channel.typing():
        pass
    held("messages: send, edit, react, reply, delete, typing")

    marks = [(await channel.send(f"line {number}")).id for number in range(5)]
    after = [one.id async for one in channel.history(after=discord.Object(marks[1]), limit=100)]
    assert after == marks[2:], after
    before = [one.id async for one in channel.history(before=discord.Object(marks[3]), limit=2)]
    assert before == [marks[2], marks[1]], before
    held("history by id")

    for text, code in (("x" * 2001, 50035), ("", 50006)):
        try:
            await channel.send(text)
            raise AssertionError(f"accepted: {len(text)} characters")
        except discord.HTTPException as error:
            assert error.code == code, error
    held("what is too long or empty is refused")

    sent = await channel.send("a file", file=discord.File(io.BytesIO(b"\x00bytes\xff"), "a.bin"))
    assert sent.attachments[0].filename == "a.bin" and sent.attachments[0].size == 7
    assert await sent.attachments[0].read() == b"\x00bytes\xff"
    held("files both ways")

    thread = await sent.create_thread(name="aside")
    assert thread.parent_id == channel.id and thread.id == sent.id
    await thread.send("in the thread")
    assert [one.content async for one in thread.history()] == ["in the thread"]
    active = await channel.guild.active_threads()
    assert [one.id for one in active] == [thread.id]
    try:
        await sent.create_thread(name="again")
        raise AssertionError("two threads on one message")
    except discord.HTTPException as error:
        assert error.code == 160004, error
    held("threads")


async def nonces(client, channel):
    body = {"content": "once", "nonce": "0123456789abcdef01234567", "enforce_nonce": True}
    route = discord.http.Route("POST", "/channels/{channel_id}/messages", channel_id=channel.id)
    first = await client.http.request(route, json=body)
    second = await client.http.request(route, json=body)
    assert first["id"] == second["id"]
    body["nonce"] = "x" * 26
    try:
        await client.http.request(route, json=body)
        raise AssertionError("a nonce of 26")
    except discord.HTTPException as error:
        assert error.code == 50035
    held("a nonce that is enforced makes one message")


async def limits(client, channel):
    await order(do="limit", seconds=0.2)
    assert (await soon(channel.send("after the limit"))).content == "after the limit"
    await order(do="limit", seconds=0.2, **{"global": True})
    assert (await soon(channel.send("after the global limit"))).content
    texts = [one["content"] for one in await order(do="messages", channel=channel.id)]
    assert texts.count("after the limit") == 1 and texts.count("after the global limit") == 1
    held("rate limits are told and obeyed")


async def interactions(client, channel, ann):
    tree = discord.app_commands.CommandTree(client)

    @tree.command(name="status", description="how it goes")
    async def status(interaction: discord.Interaction, what: str = "all"):
        await interaction.response.defer(ephemeral=True)
        await interaction.edit_original_response(content=f"{what} is well")
        await interaction.followup.send("and more")

    synced = await tree.sync()
    assert [one.name for one in synced] == ["status"]
    assert [one.name for one in await tree.fetch_commands()] == ["status"]
    held("commands are registered")

    options = [{"name": "what", "type": 3, "value": "mail"}]
    await order(do="slash", channel=channel.id, user=ann, name="status", options=options)
    interaction = await soon(client.used.get())
    assert interaction.type is discord.InteractionType.application_command
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        texts = [one["content"] for one in await order(do="messages", channel=channel.id)]
        if "and more" in texts:
            break
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)
    held("a command is answered: deferred, edited, followed up")

    view = discord.ui.View(timeout=60)
    pressed = asyncio.Queue()

    async def on_press(interaction):
        await interaction.response.edit_message(content="pressed", view=None)
        await pressed.put(interaction)

    button = discord.ui.Button(label="Yes", custom_id="ok:1", style=discord.ButtonStyle.success)
    button.callback = on_press
    view.add_item(button)
    asked = await channel.send("sure?", view=view)
    await order(do="press", message=asked.id, user=ann, custom_id="ok:1")
    interaction = await soon(pressed.get())
    assert interaction.user.name == "ann" and interaction.message.id == asked.id
    now = await channel.fetch_message(asked.id)
    assert now.content == "pressed" and now.components == []
    try:
        await client.http.request(
            discord.http.Route(
                "POST",
                "/interactions/{i}/{t}/callback",
                i=interaction.id,
                t=interaction.token,
            ),
            json={"type": 6},
        )
        raise AssertionError("answered twice")
    except discord.HTTPException as error:
        assert error.code == 40060, error
    held("a button is pressed and answered once")


async def sockets(client, channel, ann):
    def drain(queue):
        while not queue.empty():
            queue.get_nowait()

    async def comes_back(how, **what):
        drain(client.back)
        before = len(await order(do="spoken"))
        await order(do=what.pop("do"), **what)
        missed = await order(do="say", channel=channel.id, user=ann, text=f"missed {how}")
        assert await soon(client.back.get()) == how
        if how == "resumed":
            message = await soon(client.heard.get())
            assert str(message.id) == missed["id"], "what was missed comes by itself"
        else:
            drain(client.heard)
        spoken = [one["what"] for one in (await order(do="spoken"))[before:]]
        assert ("resume" in spoken) == (how == "resumed"), spoken

    drain(client.heard)
    await comes_back("resumed", do="cut")
    held("a cut socket resumes, and what was missed is replayed")
    await comes_back("resumed", do="reconnect")
    held("opcode 7")
    await comes_back("ready", do="invalidate", resumable=False)
    held("an invalid session identifies anew")
    spoken = await order(do="spoken")
    assert any(one["what"] == "heartbeat" for one in spoken)
    held("heartbeats")


async def main():
    channel = await order(do="channel", name="general")
    ann = int((await order(do="user", name="ann"))["id"])
    client = Client()
    running = asyncio.create_task(client.start(WHERE["token"]))
    done, _ = await asyncio.wait(
        {running, asyncio.create_task(client.is_up.wait())},
        timeout=PATIENCE,
        return_when=asyncio.FIRST_COMPLETED,
    )
    assert done, "not ready"
    if running in done:
        running.result()
    held("login, hello, identify, ready")
    room = client.get_channel(int(channel["id"]))
    assert room is not None and room.name == "general"
    await talk(client, room, ann)
    await write(client, room)
    await nonces(client, room)
    await limits(client, room)
    await interactions(client, room, ann)
    await sockets(client, room, ann)
    await client.close()

    stranger = Client()
    try:
        await stranger.start("wrong")
        raise AssertionError("any token will do")
    except discord.LoginFailure:
        held("a wrong token is refused")
    finally:
        await stranger.close()
    held("all")


asyncio.run(main())
