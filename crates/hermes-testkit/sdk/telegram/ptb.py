"""python-telegram-bot takes the fake for Telegram: ptb.py <base> <file base> <token> <control>."""

import asyncio
import http.server
import json
import threading
from datetime import timedelta

from telegram import (
    Bot,
    BotCommand,
    BotCommandScopeAllPrivateChats,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaPhoto,
    ReactionTypeEmoji,
    ReplyParameters,
    Update,
)
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TimedOut,
)
from telegram.ext import ApplicationBuilder, CallbackQueryHandler, MessageHandler, filters
from telegram.request import HTTPXRequest

from people import PNG, base, control, settle, shown

BASE, FILES, TOKEN = base()


def bot(token=TOKEN):
    return Bot(
        token,
        base_url=BASE,
        base_file_url=FILES,
        request=HTTPXRequest(read_timeout=5),
        get_updates_request=HTTPXRequest(read_timeout=5),
    )


async def refused(kind, words, call):
    try:
        await call
    except kind as error:
        assert words in str(error), (words, str(error))
        return error
    raise AssertionError(f"not refused: {words}")


async def polling(one):
    first = control(do="say", chat=7, text="one")["message_id"]
    control(do="say", chat=7, text="/start@hermes_test_bot now")
    seen = await one.get_updates(timeout=2)
    assert [u.message.text for u in seen] == ["one", "/start@hermes_test_bot now"], seen
    assert seen[0].message.message_id == first
    assert seen[0].effective_user.first_name == "Ada"
    assert seen[1].message.parse_entities() == {seen[1].message.entities[0]: "/start@hermes_test_bot"}
    again = await one.get_updates(timeout=2)
    assert [u.update_id for u in again] == [u.update_id for u in seen], "confirmed without an offset"
    rest = await one.get_updates(offset=seen[0].update_id + 1, timeout=2)
    assert [u.update_id for u in rest] == [seen[1].update_id]
    assert await one.get_updates(offset=seen[1].update_id + 1, timeout=0) == ()
    assert control(do="pending") == 0
    waiting = asyncio.create_task(one.get_updates(timeout=4))
    await asyncio.sleep(0.05)
    control(do="say", chat=7, text="late")
    (late,) = await waiting
    assert late.message.text == "late"
    await one.get_updates(offset=late.update_id + 1, timeout=0)
    # Only one may poll.
    older = asyncio.create_task(one.get_updates(timeout=4))
    await asyncio.sleep(0.05)
    newer = asyncio.create_task(bot().get_updates(timeout=4))
    await refused(Conflict, "terminated by other getUpdates", older)
    control(do="say", chat=7, text="for the newer")
    (update,) = await newer
    await one.get_updates(offset=update.update_id + 1, timeout=0)


async def messages(one):
    sent = await one.send_message(7, "*bold* `code` 😀 [x](https://x.test)", parse_mode="MarkdownV2")
    assert sent.text == "bold code 😀 x" and sent.from_user.is_bot
    found = {kind: text for e, text in sent.parse_entities().items() for kind in [e.type]}
    assert found == {"bold": "bold", "code": "code", "text_link": "x"}, found
    assert (await one.send_message(7, "<b>b</b>", parse_mode="HTML")).text == "b"
    for broken in ["1. one", "*open", "a-b", "x_y"]:
        error = one.send_message(7, broken, parse_mode="MarkdownV2")
        await refused(BadRequest, "Can't parse entities", error)
    assert (await one.send_message(7, "😀" * 2048)).text == "😀" * 2048
    await refused(BadRequest, "Message is too long", one.send_message(7, "😀" * 2048 + "x"))
    await refused(BadRequest, "Message text is empty", one.send_message(7, " "))
    await refused(BadRequest, "Chat not found", one.send_message(8, "x"))
    missing = ReplyParameters(message_id=9999)
    call = one.send_message(7, "x", reply_parameters=missing)
    await refused(BadRequest, "Message to be replied not found", call)
    call = one.send_message(-100900, "x", message_thread_id=77)
    await refused(BadRequest, "Message thread not found", call)
    reply = await one.send_message(7, "re", reply_parameters=ReplyParameters(sent.message_id))
    assert reply.reply_to_message.message_id == sent.message_id
    edited = await one.edit_message_text("new", 7, sent.message_id)
    assert edited.text == "new" and edited.edit_date
    call = one.edit_message_text("new", 7, sent.message_id)
    await refused(BadRequest, "Message is not modified", call)
    await refused(BadRequest, "Message to edit not found", one.edit_message_text("x", 7, 9999))
    assert await one.delete_message(7, sent.message_id)
    await refused(BadRequest, "Message to delete not found", one.delete_message(7, sent.message_id))
    assert await one.send_message_draft(7, 5, "half")
    assert await one.send_chat_action(7, "typing")
    mine = control(do="say", chat=7, text="react")["message_id"]
    assert await one.set_message_reaction(7, mine, ReactionTypeEmoji("👀"))
    unknown = ReactionTypeEmoji("🦀")
    await refused(BadRequest, "Reaction_invalid", one.set_message_reaction(7, mine, unknown))
    assert await one.set_message_reaction(7, mine)
    (update,) = await one.get_updates(timeout=1)
    await one.get_updates(offset=update.update_id + 1, timeout=0)


async def files(one):
    photo = await one.send_photo(7, PNG, caption="*c*", parse_mode="MarkdownV2")
    assert photo.caption == "c" and photo.photo[-1].width == 640
    document = await one.send_document(7, b"words", filename="a b.txt")
    assert document.document.file_name == "a b.txt", document
    assert (await one.send_voice(7, b"OggS", duration=3)).voice.duration == 3
    assert (await one.send_audio(7, b"ID3", filename="a.mp3")).audio.file_name == "a.mp3"
    assert (await one.send_video(7, b"mp4", filename="a.mp4")).video.file_id
    album = await one.send_media_group(7, [InputMediaPhoto(PNG, caption="1"), InputMediaPhoto(PNG)])
    assert len({m.media_group_id for m in album}) == 1 and album[0].caption == "1"
    handle = await one.get_file(document.document.file_id)
    assert bytes(await handle.download_as_bytearray()) == b"words"
    await refused(BadRequest, "Invalid file_id", one.get_file("nothing"))
    again = await one.send_document(7, document.document.file_id)
    assert again.document.file_id == document.document.file_id
    control(do="say", chat=7, text="look", file={"kind": "document", "name": "n.txt",
            "mime": "text/plain", "content": "from a person"})
    update = (await one.get_updates(timeout=2))[-1]
    theirs = await update.message.document.get_file()
    assert bytes(await theirs.download_as_bytearray()) == b"from a person"
    assert update.message.caption == "look"
    await one.get_updates(offset=update.update_id + 1, timeout=0)


async def buttons(one):
    keys = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="y" * 64)]])
    asked = await one.send_message(7, "Sure?", reply_markup=keys)
    assert asked.reply_markup.inline_keyboard[0][0].text == "Yes"
    long = InlineKeyboardMarkup([[InlineKeyboardButton("Yes", callback_data="y" * 65)]])
    await refused(BadRequest, "Button_data_invalid", one.send_message(7, "x", reply_markup=long))
    query = control(do="press", chat=7, message=asked.message_id, data="y" * 64)["id"]
    update = (await one.get_updates(timeout=2))[-1]
    assert update.callback_query.id == query and update.callback_query.data == "y" * 64
    assert update.callback_query.message.message_id == asked.message_id
    assert await one.answer_callback_query(query, text="done")
    await refused(BadRequest, "Query is too old", one.answer_callback_query("1"))
    assert (await one.edit_message_reply_markup(7, asked.message_id)).reply_markup is None
    await one.get_updates(offset=update.update_id + 1, timeout=0)


async def rest(one):
    scope = BotCommandScopeAllPrivateChats()
    assert await one.set_my_commands([BotCommand("new", "Begin anew")], scope=scope)
    assert [c.command for c in await one.get_my_commands(scope=scope)] == ["new"]
    await refused(BadRequest, "Bot_command_invalid", one.set_my_commands([("No-Dash", "x")]))
    assert (await one.get_chat(-50)).title == "Club"
    topic = await one.create_forum_topic(-100900, "Plans")
    sent = await one.send_message(-100900, "here", message_thread_id=topic.message_thread_id)
    assert sent.is_topic_message and sent.message_thread_id == topic.message_thread_id
    await refused(BadRequest, "The chat is not a forum", one.create_forum_topic(-50, "x"))


async def faults(one):
    await refused(InvalidToken, "Unauthorized", bot("110201543:wrong").get_me())
    control(do="fault", method="sendMessage", fault="too_many", retry_after=9, times=1)
    error = await refused(RetryAfter, "Flood control exceeded", one.send_message(7, "x"))
    assert error.retry_after in (9, timedelta(seconds=9))
    control(do="fault", method="sendMessage", fault="error", code=403, times=1,
            text="Forbidden: bot was blocked by the user")
    await refused(Forbidden, "blocked", one.send_message(7, "x"))
    before = len(shown(7))
    for fault in [{"fault": "cut"}, {"fault": "status", "status": 502}]:
        control(do="fault", method="sendMessage", times=1, **fault)
        await refused(NetworkError, "", one.send_message(7, "x"))
    assert len(shown(7)) == before
    control(do="fault", method="sendMessage", fault="cut_after", times=1)
    await refused(NetworkError, "", one.send_message(7, "landed"))
    assert shown(7)[-1]["text"] == "landed"
    control(do="fault", method="getUpdates", fault="hang", times=1)
    await refused(TimedOut, "", one.get_updates(timeout=0, read_timeout=0.2))
    control(do="migrate", chat=-50, to=-100500)
    error = await refused(ChatMigrated, "", one.send_message(-50, "x"))
    assert error.new_chat_id == -100500
    moved = await one.get_updates(timeout=1)
    assert moved[0].message.migrate_to_chat_id == -100500
    assert moved[1].message.migrate_from_chat_id == -50
    await one.get_updates(offset=moved[-1].update_id + 1, timeout=0)


async def webhook(one):
    got, answers = [], [500, 200]

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["X-Telegram-Bot-Api-Secret-Token"], json.loads(body)))
            self.send_response(answers[min(len(got), 2) - 1])
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    assert await one.set_webhook(f"http://127.0.0.1:{server.server_port}/t", secret_token="s3cret")
    await refused(Conflict, "webhook is active", one.get_updates())
    control(do="say", chat=7, text="hooked")
    while control(do="pending"):
        await asyncio.sleep(0.01)
    assert len(got) == 2 and got[0] == got[1], got
    assert got[0][0] == "s3cret" and Update.de_json(got[1][1], one).message.text == "hooked"
    assert (await one.get_webhook_info()).last_error_message.endswith("500")
    assert await one.delete_webhook()
    assert (await one.get_webhook_info()).url == ""
    server.shutdown()


async def application():
    """The library's own loop: it polls, handlers answer."""
    app = ApplicationBuilder().token(TOKEN).base_url(BASE).base_file_url(FILES).build()

    async def echo(update, _):
        key = InlineKeyboardButton("again", callback_data="again")
        await update.message.reply_text(
            "echo " + update.message.text, reply_markup=InlineKeyboardMarkup([[key]])
        )

    async def pressed(update, _):
        await update.callback_query.answer()
        await update.callback_query.edit_message_text("pressed")

    app.add_handler(MessageHandler(filters.TEXT, echo))
    app.add_handler(CallbackQueryHandler(pressed))
    await app.initialize()
    await app.start()
    await app.updater.start_polling(poll_interval=0, timeout=2)
    control(do="say", chat=7, text="loop")
    while shown(7)[-1]["text"] != "echo loop":
        await asyncio.sleep(0.02)
    control(do="press", chat=7, message=shown(7)[-1]["id"], data="again")
    while shown(7)[-1]["text"] != "pressed":
        await asyncio.sleep(0.02)
    await app.updater.stop()
    await app.stop()
    await app.shutdown()
    assert control(do="pending") == 0


async def main():
    settle()
    one = bot()
    await one.initialize()
    assert one.username == "hermes_test_bot" and (await one.get_me()).can_join_groups
    for part in [polling, messages, files, buttons, rest, faults, webhook]:
        await part(one)
        assert len(await one.get_updates(timeout=0)) == 0, part
    await application()
    await one.shutdown()
    print(json.dumps({"certified": "python-telegram-bot"}))


asyncio.run(main())
