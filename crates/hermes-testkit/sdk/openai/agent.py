"""OpenAI's Python client talks to an agent behind the API server. Arguments: base URL, key.

The model behind it reads note.txt when told to "read", runs a command that needs a permission when
told to "delete", and else repeats what was said."""

import json
import sys
import urllib.request

import openai

url, key = sys.argv[1:3]
client = openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=30)
model = client.models.list().data[0].id


def user(text):
    return {"role": "user", "content": text}


# An answer bit by bit, while a tool runs on the server.
text, tools = "", []
for chunk in client.chat.completions.create(model=model, messages=[user("read")], stream=True):
    if getattr(chunk, "toolCallId", None):
        tools.append((chunk.tool, chunk.status))
    for choice in chunk.choices:
        text += choice.delta.content or ""
assert tools == [("read_file", "running"), ("read_file", "completed")], tools
assert "the tide is high" in text, text

# A session by its name, and what was said in it.
for words in ["first", "second"]:
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=[user(words)], extra_headers={"X-Hermes-Session-Id": "book"}
    )
    assert raw.headers["x-hermes-session-id"] == "book"
    assert raw.parse().choices[0].message.content == f"You said: {words}"

# Responses that go on from each other.
one = client.responses.create(model=model, input="one", instructions="Be brief.")
two = client.responses.create(model=model, input="two", previous_response_id=one.id)
assert (one.output_text, two.output_text) == ("You said: one", "You said: two")

# A failure of the model's provider is one here.
try:
    client.chat.completions.create(model=model, messages=[user("forbidden")])
    raise SystemExit("no error")
except openai.APIStatusError as error:
    assert error.status_code == 502, error


# A run that asks before it acts.
def call(path, body=None, events=False):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Authorization": f"Bearer {key}"})
    answer = urllib.request.urlopen(request, timeout=30)
    return answer if events else json.load(answer)


run = call("/runs", {"input": "delete", "session_id": "book"})["run_id"]
seen = []
for line in call(f"/runs/{run}/events", events=True):
    if not line.startswith(b"data: "):
        continue
    event = json.loads(line[6:])
    seen.append(event["event"])
    last = event
    if event["event"] == "approval.request":
        assert "rm -rf" in event["command"], event
        call(f"/runs/{run}/approval", {"choice": "deny"})
assert "approval.request" in seen and seen[-1] == "run.completed", (seen, last)
again = [line for line in call(f"/runs/{run}/events", events=True) if line.startswith(b"data: ")]
assert [json.loads(line[6:])["event"] for line in again] == seen

print("all is well")
