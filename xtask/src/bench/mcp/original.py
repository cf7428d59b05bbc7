"""Drives the MCP part of the original from outside, as examples/drive.rs drives ours.

original.py HOME SETUP: the same setup, the same lines on standard input and output. A batch may
carry `budget_s`: what is not answered by then counts as failed. SETUP's `packages` is where its MCP
library is installed.
"""

import concurrent.futures
import json
import os
import sys
import time

setup = json.loads(sys.argv[2])
sys.path.append(setup["packages"])
# Whatever the program prints must not get between our lines.
lines = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

from tools.mcp_tool import mcp_prefixed_tool_name, register_mcp_servers  # noqa: E402
from tools.registry import registry  # noqa: E402


def entry(server):
    config = {"timeout": setup.get("timeout_s", 300), "connect_timeout": 30,
              "supports_parallel_tool_calls": True}
    config.update({key: server[key] for key in ("url", "command", "args") if key in server})
    return config


servers = {server.get("name", "bench"): entry(server) for server in setup["servers"]}
register_mcp_servers(servers)
known = {name: mcp_prefixed_tool_name(name, "echo") for name in servers}
ready = all(registry.get_entry(tool) for tool in known.values())
print(json.dumps({"ready": ready}), file=lines)


def once(batch):
    started = time.perf_counter()
    name = mcp_prefixed_tool_name(batch.get("server", "bench"), batch.get("tool", "echo"))
    answer = registry.dispatch(name, batch.get("arguments", {}))
    value = json.loads(answer) if isinstance(answer, str) else answer
    return (time.perf_counter() - started) * 1e3, value.get("error")


for line in sys.stdin:
    batch = json.loads(line)
    count = batch.get("count", 1)
    started = time.perf_counter()
    done, waiting = [], []
    if batch.get("parallel", 1) == 1:
        done = [once(batch) for _ in range(count)]
    else:
        pool = concurrent.futures.ThreadPoolExecutor(batch["parallel"])
        calls = [pool.submit(once, batch) for _ in range(count)]
        finished, waiting = concurrent.futures.wait(calls, timeout=batch.get("budget_s", 60))
        done = [call.result() for call in finished]
    failed = [{"text": str(error), "unknown": False} for _, error in done if error is not None]
    failed += [{"text": "no answer in time", "unknown": True} for _ in waiting]
    print(json.dumps({"id": batch.get("id"), "ms": [ms for ms, _ in done],
                      "wall_ms": (time.perf_counter() - started) * 1e3,
                      "ok": count - len(failed), "failed": failed}), file=lines)
os._exit(0)
