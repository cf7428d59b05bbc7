"""OpenAI's Python client talks to a server that answers "You said: …", runs a tool on "tool …",
fails on "fail" and breaks off on "half". Arguments: base URL, key."""

import sys

import openai

url, key = sys.argv[1:3]
client = openai.OpenAI(base_url=url, api_key=key, max_retries=2, timeout=20)


def user(text):
    return {"role": "user", "content": text}


# Models.
names = [model.id for model in client.models.list()]
assert names == ["hermes-agent"], names
assert client.models.retrieve("hermes-agent").owned_by == "hermes"

# A completion in one piece, and the next one of the same conversation.
raw = client.chat.completions.with_raw_response.create(model="hermes-agent", messages=[user("one")])
session = raw.headers["x-hermes-session-id"]
first = raw.parse()
answer = first.choices[0].message.content
assert answer == "You said: one", answer
assert first.choices[0].finish_reason == "stop"
assert first.usage.prompt_tokens == 10 and first.usage.total_tokens == 15
assert first.usage.prompt_tokens_details.cached_tokens == 3
raw = client.chat.completions.with_raw_response.create(
    model="hermes-agent",
    messages=[user("one"), {"role": "assistant", "content": answer}, user("past")],
)
assert raw.headers["x-hermes-session-id"] == session
assert raw.parse().choices[0].message.content == "[user=one|assistant=You said: one]"

# Bit by bit, with a tool that runs on the server, as plain chunks.
text, usage, finish, progress = "", None, None, 0
for chunk in client.chat.completions.create(
    model="hermes-agent",
    messages=[user("tool ls")],
    stream=True,
    stream_options={"include_usage": True},
):
    progress += getattr(chunk, "toolCallId", None) is not None
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
assert text == "I look. There is a.txt.", text
assert finish == "stop" and usage.completion_tokens == 5 and progress == 2

# Bit by bit, with the helper that puts the answer together.
with client.chat.completions.stream(model="hermes-agent", messages=[user("hello")]) as stream:
    deltas = [event.delta for event in stream if event.type == "content.delta"]
    final = stream.get_final_completion()
assert "".join(deltas) == final.choices[0].message.content == "You said: hello"

# Pictures.
picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
seen = client.chat.completions.create(
    model="hermes-agent", messages=[user([{"type": "text", "text": "look"}, picture])]
)
assert seen.choices[0].message.content == "You said: look"

# Errors.
try:
    client.chat.completions.create(model="hermes-agent", messages=[user("fail")])
    raise SystemExit("no error")
except openai.InternalServerError as error:
    assert error.status_code == 502 and error.code == "agent_incomplete", error
try:
    for _ in client.chat.completions.create(
        model="hermes-agent", messages=[user("fail")], stream=True
    ):
        pass
    raise SystemExit("no error")
except openai.APIError as error:
    assert "no credit left" in str(error), error
try:
    client.chat.completions.create(model="hermes-agent", messages=[])
    raise SystemExit("no error")
except openai.BadRequestError as error:
    assert error.param == "messages", error
try:
    openai.OpenAI(base_url=url, api_key="wrong").models.list()
    raise SystemExit("no error")
except openai.AuthenticationError as error:
    assert error.code == "invalid_api_key", error

# Responses.
first = client.responses.create(model="hermes-agent", input="one", instructions="Be brief.")
assert first.output_text == "You said: one" and first.status == "completed"
second = client.responses.create(
    model="hermes-agent", input="past", previous_response_id=first.id
)
assert second.output_text == "[user=one|assistant=You said: one]", second.output_text
assert client.responses.retrieve(first.id).output_text == first.output_text
client.responses.delete(first.id)
try:
    client.responses.retrieve(first.id)
    raise SystemExit("no error")
except openai.NotFoundError as error:
    assert error.code == "response_not_found", error
with client.responses.stream(model="hermes-agent", input="tool ls") as stream:
    kinds = [event.type for event in stream]
    final = stream.get_final_response()
assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
assert "response.output_text.delta" in kinds
assert [item.type for item in final.output] == [
    "message",
    "function_call",
    "function_call_output",
    "message",
]
assert final.output_text == "I look. There is a.txt.", final.output_text
assert final.usage.input_tokens == 10
raw = client.responses.with_raw_response.create(
    model="hermes-agent", input="past", extra_body={"session_id": session}
)
assert raw.headers["x-hermes-session-id"] == session

# A key by which a request may be sent again.
twice = [
    client.chat.completions.create(
        model="hermes-agent", messages=[user("hello")], extra_headers={"Idempotency-Key": "k"}
    ).id
    for _ in range(2)
]
assert twice[0] == twice[1]

print("all is well")
