"""OpenAI's client against the local model: models, an answer, a stream, tools."""

import json
import sys

from openai import BadRequestError, OpenAI

client = OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0, timeout=300)

models = client.models.list().data
assert len(models) == 1, models
model = models[0].id
assert client.models.retrieve(model).id == model

asked = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
whole = client.chat.completions.create(
    model=model, messages=asked, temperature=0, max_tokens=40, seed=1
)
assert "Paris" in whole.choices[0].message.content, whole
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens

stream = client.chat.completions.create(
    model=model,
    messages=asked,
    temperature=0,
    max_tokens=40,
    seed=1,
    stream=True,
    stream_options={"include_usage": True},
)
text, usage, finish = "", None, None
for chunk in stream:
    if chunk.usage:
        usage = chunk.usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
assert text == whole.choices[0].message.content, (text, whole)
assert finish == whole.choices[0].finish_reason
assert usage.completion_tokens == whole.usage.completion_tokens
assert usage.prompt_tokens_details.cached_tokens > 0, usage

tools = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "maxLength": 40},
                    "unit": {"enum": ["celsius", "fahrenheit"]},
                    "days": {"type": "integer", "minimum": 1, "maximum": 14},
                },
                "required": ["city", "unit"],
                "additionalProperties": False,
            },
        },
    }
]
ask = [{"role": "user", "content": "How is the weather in Zurich today?"}]
called = client.chat.completions.create(
    model=model, messages=ask, tools=tools, tool_choice="required", max_tokens=200, seed=3,
    parallel_tool_calls=False,
)
choice = called.choices[0]
assert choice.finish_reason == "tool_calls", called
(call,) = choice.message.tool_calls
assert call.function.name == "get_weather"
arguments = json.loads(call.function.arguments)
assert arguments["unit"] in ("celsius", "fahrenheit") and isinstance(arguments["city"], str)

followed = client.chat.completions.create(
    model=model,
    messages=ask
    + [choice.message.model_dump(exclude_none=True)]
    + [{"role": "tool", "tool_call_id": call.id, "content": "Sunny, 21 degrees."}],
    tools=tools,
    tool_choice="none",
    max_tokens=40,
    temperature=0,
)
assert followed.choices[0].message.content
assert not followed.choices[0].message.tool_calls

with client.chat.completions.stream(
    model=model, messages=ask, tools=tools, tool_choice="required", max_tokens=200, seed=3,
    parallel_tool_calls=False,
) as events:
    for _ in events:
        pass
    final = events.get_final_completion()
streamed = final.choices[0].message.tool_calls[0].function
assert json.loads(streamed.arguments) == arguments, streamed

try:
    client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "word " * 20000}]
    )
    raise AssertionError("a conversation that is too long was taken")
except BadRequestError as error:
    assert error.code == "context_length_exceeded", error

print("all is well")
