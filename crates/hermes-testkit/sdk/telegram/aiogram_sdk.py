"""aiogram takes the fake for Telegram: aiogram_sdk.py <base> <file base> <token> <control>."""

import asyncio
import io
import json

from aiogram import Bot, Dispatcher, F
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    TelegramBadRequest,
    TelegramConflictError,
    TelegramForbiddenError,
    TelegramMigrateToChat,
    TelegramNetworkError,
    TelegramRetryAfter,
    TelegramServerError,
    TelegramUnauthorizedError,
)
from aiogram.types import (
    BotCommand,
    BufferedInputFile,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaPhoto,
    ReactionTypeEmoji,
    ReplyParameters,
)

from people import PNG, base, control, settle, shown

BASE, FILES, TOKEN = base()


def bot(token=TOKEN):
    server = TelegramAPIServer.from_base(BASE.removesuffix("/bot"))
    return Bot(token, session=AiohttpSession(api=server))


async def refused(kind, words, call):
    try:
        await call
    except kind as error:
        assert words in str(error), (words, str(error))
        return error
    raise AssertionError(f"not refused: {words}")


async def calls(one):
    me = await one.get_me()
    assert me.is_bot and me.username == "hermes_test_bot"
    sent = await one.send_message(7, "*b* _i_", parse_mode="MarkdownV2")
    assert sent.text == "b i" and [e.type for e in sent.entities] == ["bold", "italic"]
    call = one.send_message(7, "1. x", parse_mode="MarkdownV2")
    await refused(TelegramBadRequest, "can't parse entities: Character '.' is reserved", call)
    reply = await one.send_message(7, "re", reply_parameters=ReplyParameters(message_id=sent.message_id))
    assert reply.reply_to_message.message_id == sent.message_id
    assert (await one.edit_message_text("new", chat_id=7, message_id=sent.message_id)).text == "new"
    call = one.edit_message_text("new", chat_id=7, message_id=sent.message_id)
    await refused(TelegramBadRequest, "message is not modified", call)
    assert await one.delete_message(7, sent.message_id)
    assert await one.send_message_draft(chat_id=7, draft_id=3, text="half")
    group = one.send_message_draft(chat_id=-50, draft_id=3, text="half")
    await refused(TelegramBadRequest, "private chats", group)
    assert await one.send_chat_action(7, "typing")
    assert await one.set_message_reaction(7, reply.message_id, [ReactionTypeEmoji(emoji="👍")])
    assert await one.set_my_commands([BotCommand(command="new", description="Begin anew")])
    assert (await one.get_my_commands())[0].command == "new"
    assert (await one.get_chat(7)).first_name == "Ada"
    topic = await one.create_forum_topic(-100900, "Plans")
    there = await one.send_message(-100900, "x", message_thread_id=topic.message_thread_id)
    assert there.message_thread_id == topic.message_thread_id


async def files(one):
    photo = await one.send_photo(7, BufferedInputFile(PNG, "p.png"), caption="c")
    assert photo.photo and photo.caption == "c"
    broken = one.send_photo(7, BufferedInputFile(b"no image", "p.png"))
    await refused(TelegramBadRequest, "IMAGE_PROCESS_FAILED", broken)
    document = await one.send_document(7, BufferedInputFile(b"words", "naïve name.txt"))
    assert document.document.file_name == "naïve name.txt", document.document
    assert (await one.send_voice(7, BufferedInputFile(b"OggS", "v.ogg"))).voice
    assert (await one.send_audio(7, BufferedInputFile(b"ID3", "a.mp3"))).audio
    assert (await one.send_video(7, BufferedInputFile(b"mp4", "v.mp4"))).video
    pictures = [InputMediaPhoto(media=BufferedInputFile(PNG, f"{n}.png")) for n in range(3)]
    assert len(await one.send_media_group(7, pictures)) == 3
    into = io.BytesIO()
    await one.download(document.document, into)
    assert into.getvalue() == b"words"


async def faults(one):
    stranger = bot("110201543:wrong")
    await refused(TelegramUnauthorizedError, "Unauthorized", stranger.get_me())
    await stranger.session.close()
    control(do="fault", method="sendMessage", fault="too_many", retry_after=9, times=1)
    error = await refused(TelegramRetryAfter, "retry after 9", one.send_message(7, "x"))
    assert error.retry_after == 9
    control(do="fault", method="sendMessage", fault="error", code=403, times=1,
            text="Forbidden: bot was blocked by the user")
    await refused(TelegramForbiddenError, "blocked", one.send_message(7, "x"))
    control(do="fault", method="sendMessage", fault="cut", times=1)
    await refused(TelegramNetworkError, "", one.send_message(7, "x"))
    control(do="fault", method="sendMessage", fault="error", code=502, text="Bad Gateway", times=1)
    await refused(TelegramServerError, "Bad Gateway", one.send_message(7, "x"))
    control(do="migrate", chat=-50, to=-100500)
    error = await refused(TelegramMigrateToChat, "", one.send_message(-50, "x"))
    assert error.migrate_to_chat_id == -100500
    older = asyncio.create_task(one.get_updates(offset=10**9, timeout=4))
    await asyncio.sleep(0.05)
    other = bot()
    newer = asyncio.create_task(other.get_updates(offset=10**9, timeout=1))
    await refused(TelegramConflictError, "terminated by other getUpdates", older)
    await newer
    await other.session.close()


async def loop(one):
    """The library's own loop: it polls, handlers answer."""
    dispatcher = Dispatcher()

    @dispatcher.message(F.voice)
    async def voice(message):
        into = io.BytesIO()
        await message.bot.download(message.voice, into)
        await message.answer(f"heard {into.getvalue().decode()}")

    @dispatcher.message()
    async def echo(message):
        key = InlineKeyboardButton(text="again", callback_data="again")
        await message.answer(
            "echo " + message.text, reply_markup=InlineKeyboardMarkup(inline_keyboard=[[key]])
        )

    @dispatcher.callback_query()
    async def pressed(query):
        await query.answer("ok")
        await query.message.edit_text("pressed")

    control(do="say", chat=7, text="loop")
    running = asyncio.create_task(
        dispatcher.start_polling(one, handle_signals=False, polling_timeout=2)
    )

    async def until(text):
        while shown(7)[-1]["text"] != text:
            assert not running.done(), running
            await asyncio.sleep(0.02)

    await until("echo loop")
    control(do="press", chat=7, message=shown(7)[-1]["id"], data="again")
    await until("pressed")
    control(do="say", chat=7, file={"kind": "voice", "name": "v.ogg", "mime": "audio/ogg",
            "content": "a voice"})
    await until("heard a voice")
    while control(do="pending"):
        await asyncio.sleep(0.02)
    await dispatcher.stop_polling()
    await running


async def main():
    settle()
    one = bot()
    await calls(one)
    await files(one)
    await faults(one)
    await loop(one)
    await one.session.close()
    print(json.dumps({"certified": "aiogram"}))


asyncio.run(main())
