"""Plays people through the control address of the fake, and holds what both programs share."""

import json
import sys
import urllib.request

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


def control(**order):
    request = urllib.request.Request(
        sys.argv[4], json.dumps(order).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        result = json.load(answer)
    assert not (isinstance(result, dict) and "error" in result), result
    return result


def shown(chat):
    return control(do="shown", chat=chat)


def base():
    """Address of methods, address of files, token."""
    return sys.argv[1], sys.argv[2], sys.argv[3]


def settle():
    control(do="person", id=7, name="Ada")
    control(do="group", id=-50, title="Club", kind="group")
    control(do="group", id=-100900, title="Forum", forum=True)
