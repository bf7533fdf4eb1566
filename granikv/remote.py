"""Declared prefixes of a running server, over its HTTP routes."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

TIMEOUT_S = 300


class RemoteError(RuntimeError):
    """The server could not be asked, or refused; one line."""


class Server:
    """One server and the admin key for it."""

    def __init__(self, url: str, admin_key: str) -> None:
        self._url = url.rstrip("/")
        self._admin_key = admin_key

    def pins(self) -> Any:
        """The declared prefixes: number, tokens, whether pinned, what is wrong."""
        return self._ask("GET", "/granikv/pins")

    def pin(self, prefix: dict[str, Any]) -> Any:
        """Declare a prefix: {"text": ...} or {"input_ids": [...]}."""
        return self._ask("POST", "/granikv/pins", prefix)

    def unpin(self, number: int) -> Any:
        """Release a declared prefix."""
        return self._ask("DELETE", f"/granikv/pins/{number}")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._admin_key}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise RemoteError(_reason(error)) from None
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise RemoteError(f"no server answers at {self._url}: {error}") from None


def read_prefix(text_file: str | None, ids_file: str | None) -> dict[str, Any]:
    """The prefix in one of the two files.

    Raises:
        RemoteError: the file cannot be read, or holds no list of token ids.
    """
    path = Path(text_file or ids_file or "")
    try:
        content = path.read_text()
        if text_file is not None:
            return {"text": content}
        ids = json.loads(content)
    except (OSError, ValueError) as error:
        raise RemoteError(f"{path} cannot be read: {error}") from None
    if not isinstance(ids, list) or not all(isinstance(i, int) for i in ids) or not ids:
        raise RemoteError(f"{path} holds no JSON list of token ids")
    return {"input_ids": ids}


def _reason(error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return "the server wants its admin key: start it with --admin-api-key and give --admin-key"
    if error.code == 404:
        return "no such pin, or a server without GraniKV"
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code}"
