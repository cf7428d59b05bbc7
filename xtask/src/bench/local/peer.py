"""Continues a text with llama-cpp-python and tells how fast that was, as `hermes-local measure` does."""

import json
import sys
import time

model, threads, prompt, tokens, rounds = sys.argv[1:6]
threads, tokens, rounds = int(threads), int(tokens), int(rounds)

from llama_cpp import Llama

started = time.perf_counter()
llama = Llama(
    model_path=model,
    n_ctx=4096,
    n_threads=threads,
    n_threads_batch=threads,
    verbose=False,
)
load = time.perf_counter() - started
text = open(prompt, "rb").read()
ids = llama.tokenize(text, add_bos=False, special=True)
prefill, decode, answer = [], [], []
for _ in range(rounds):
    llama.reset()
    started = time.perf_counter()
    llama.eval(ids)
    read = time.perf_counter()
    answer = []
    while len(answer) < tokens:
        token = int(llama.sample(temp=0.0))
        if token == llama.token_eos():
            break
        answer.append(token)
        if len(answer) < tokens:
            llama.eval([token])
    done = time.perf_counter()
    prefill.append(len(ids) / (read - started))
    decode.append((len(answer) - 1) / (done - read))
print(
    json.dumps(
        {
            "load_seconds": load,
            "prompt": ids,
            "prefill": prefill,
            "decode": decode,
            "answer": answer,
            "text": llama.detokenize(answer).decode("utf-8", "replace"),
            "quantisation": "as in the file",
        }
    )
)
