"""The few plain requests to a server outside the measured load: health, state, flush."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from harness.errors import ServerError


def request(
    url: str,
    *,
    post: bool = False,
    content: Mapping[str, Any] | None = None,
    timeout_s: float = 30.0,
) -> tuple[int, bytes]:
    """Status and body of one request to a loopback server; status 0 when there was no reply.

    content: JSON to post.
    """
    # Proxies of the environment would send loopback traffic elsewhere.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    if content is None:
        message = urllib.request.Request(url, data=b"" if post else None)
    else:
        headers = {"Content-Type": "application/json"}
        message = urllib.request.Request(url, json.dumps(content).encode(), headers)
    try:
        with opener.open(message, timeout=timeout_s) as reply:
            return int(reply.status), reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except (OSError, ValueError):
        return 0, b""


def get_json(url: str, timeout_s: float = 60.0) -> dict[str, Any]:
    """The JSON object behind a URL. Raises ServerError when there is none."""
    status, body = request(url, timeout_s=timeout_s)
    if status != 200:
        raise ServerError(f"GET {path_of(url)} failed: {describe(status)}")
    try:
        value = json.loads(body)
    except ValueError:
        raise ServerError(f"GET {path_of(url)} did not answer with JSON") from None
    if not isinstance(value, dict):
        raise ServerError(f"GET {path_of(url)} did not answer with a JSON object")
    return value


def path_of(url: str) -> str:
    """The path of a URL, to name it without its address."""
    return "/" + url.split("/", 3)[-1]


def describe(status: int) -> str:
    """A status in words."""
    return f"status {status}" if status else "no reply"
