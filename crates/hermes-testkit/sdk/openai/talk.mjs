// OpenAI's client for Node talks to a server that answers "You said: …", runs a tool on "tool …"
// and fails on "fail". Arguments: base URL, key. OPENAI_NODE: where the client is installed.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.OPENAI_NODE}/none.js`);
const { OpenAI } = require("openai");
const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 2, timeout: 20_000 });
const model = "hermes-agent";
const user = (content) => ({ role: "user", content });

// Models.
const names = [];
for await (const one of client.models.list()) names.push(one.id);
assert.deepEqual(names, [model]);

// A completion in one piece, and the next one of the same conversation.
const { data: first, response } = await client.chat.completions
  .create({ model, messages: [user("one")] })
  .withResponse();
const session = response.headers.get("x-hermes-session-id");
assert.equal(first.choices[0].message.content, "You said: one");
assert.equal(first.usage.total_tokens, 15);
const next = await client.chat.completions
  .create({ model, messages: [user("one"), first.choices[0].message, user("past")] })
  .withResponse();
assert.equal(next.response.headers.get("x-hermes-session-id"), session);
assert.equal(next.data.choices[0].message.content, "[user=one|assistant=You said: one]");

// Bit by bit, with a tool that runs on the server.
let text = "";
let usage = null;
let progress = 0;
const chunks = await client.chat.completions.create({
  model,
  messages: [user("tool ls")],
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of chunks) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
  if (chunk.toolCallId) progress += 1;
}
assert.equal(text, "I look. There is a.txt.");
assert.equal(usage.completion_tokens, 5);
assert.equal(progress, 2);

// With the helper that puts the answer together.
const runner = client.chat.completions.stream({ model, messages: [user("hello")] });
assert.equal(await runner.finalContent(), "You said: hello");

// Errors.
await assert.rejects(client.chat.completions.create({ model, messages: [user("fail")] }), (error) => {
  assert.equal(error.status, 502);
  assert.equal(error.code, "agent_incomplete");
  return true;
});
await assert.rejects(client.chat.completions.create({ model, messages: [] }), (error) => {
  assert.equal(error.status, 400);
  assert.equal(error.param, "messages");
  return true;
});
const stranger = new OpenAI({ baseURL, apiKey: "wrong" });
await assert.rejects(stranger.models.list(), (error) => {
  assert.equal(error.status, 401);
  return true;
});
const broken = await client.chat.completions.create({ model, messages: [user("fail")], stream: true });
await assert.rejects(async () => {
  for await (const _ of broken);
}, /no credit left/);

// Responses.
const one = await client.responses.create({ model, input: "one" });
assert.equal(one.output_text, "You said: one");
const two = await client.responses.create({ model, input: "past", previous_response_id: one.id });
assert.equal(two.output_text, "[user=one|assistant=You said: one]");
assert.equal((await client.responses.retrieve(one.id)).output_text, "You said: one");
const stream = client.responses.stream({ model, input: "tool ls" });
const kinds = [];
for await (const event of stream) kinds.push(event.type);
const final = await stream.finalResponse();
assert.equal(final.output_text, "I look. There is a.txt.");
assert.deepEqual(
  final.output.map((item) => item.type),
  ["message", "function_call", "function_call_output", "message"],
);
assert.equal(kinds.at(-1), "response.completed");

// A client that goes away in the middle.
const left = await client.chat.completions.create({ model, messages: [user("wait")], stream: true });
for await (const chunk of left) {
  if (chunk.choices[0]?.delta?.content) break;
}

console.log("all is well");
