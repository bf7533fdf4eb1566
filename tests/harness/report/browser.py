"""A page in Debian's headless chromium, driven over its debugging protocol; nothing else needed."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

START_S = 60.0
REPLY_S = 60.0
BINARIES = ("chromium", "chromium-browser")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--remote-debugging-port=0",
)


def binary() -> str | None:
    """The browser's path; None where none is installed."""
    return next((path for name in BINARIES if (path := shutil.which(name))), None)


class Page:
    """One tab. Every call runs on the browser's own thread and waits for the reply."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []

    async def connect(self, address: str) -> None:
        """Open a tab of the browser at a debugging address; listen to its console and network."""
        self._http = aiohttp.ClientSession()
        self._socket = await self._http.ws_connect(address, max_msg_size=0)
        self._listening = self._loop.create_task(self._listen())
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def close(self) -> None:
        """Stop listening."""
        self._listening.cancel()
        await self._http.close()

    async def _listen(self) -> None:
        """Sort replies from events until the browser goes away."""
        async for message in self._socket:
            said = json.loads(message.data)
            waiting = self._waiting.pop(said.get("id", 0), None)
            if waiting is not None:
                waiting.set_result(said)
            else:
                self._note(said.get("method", ""), said.get("params", {}))

    def _note(self, method: str, said: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(said["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.errors.append(json.dumps(said["args"])[:500])
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; raises RuntimeError when the browser refuses it."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        reply: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._waiting[self._count] = reply
        await self._socket.send_json(message)
        said = await asyncio.wait_for(reply, REPLY_S)
        if "error" in said:
            raise RuntimeError(f"{method}: {said['error']}")
        result: dict[str, Any] = said["result"]
        return result

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(REPLY_S)

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Like `call`, from the test's thread."""
        result: dict[str, Any] = self._do(self.call(method, **parameters))
        return result

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; raises RuntimeError for one that throws."""
        said = self.command(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in said:
            raise RuntimeError(json.dumps(said["exceptionDetails"])[:800])
        return said["result"].get("value")

    def open(self, path: Path) -> None:
        """Load a file and wait until it is complete."""
        self.command("Page.navigate", url=path.as_uri())
        deadline = time.monotonic() + START_S
        while self.run("document.readyState + location.protocol") != "completefile:":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path.name} did not load")
            time.sleep(0.05)

    def resize(self, width: int, height: int = 900) -> None:
        """Set the viewport in CSS pixels."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def media(self, kind: str = "", **features: str) -> None:
        """Emulate a medium (`print`) and media features such as prefers-color-scheme."""
        wanted = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.command("Emulation.setEmulatedMedia", media=kind, features=wanted)

    def press(self, key: str, code: int) -> None:
        """Press and release a key, as a user would."""
        text = "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            self.command(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )

    def fill(self, element: str, value: str | float) -> None:
        """Give a control a value and tell the page, as typing does."""
        self.run(
            f"(() => {{ const e = document.getElementById({element!r});"
            f" e.value = {json.dumps(str(value))};"
            " e.dispatchEvent(new Event('input', {bubbles: true}));"
            " e.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def text(self, element: str) -> str:
        """Text of the element of this id."""
        return str(self.run(f"document.getElementById({element!r}).textContent"))


@contextmanager
def browser() -> Iterator[Page]:
    """A fresh browser with an empty profile; ended with its children afterwards."""
    path = binary()
    assert path is not None
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        page = Page(loop)
        try:
            asyncio.run_coroutine_threadsafe(page.connect(_address(process)), loop).result(START_S)
            yield page
            asyncio.run_coroutine_threadsafe(page.close(), loop).result(START_S)
        finally:
            process.terminate()
            process.wait(20)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)


def _address(process: subprocess.Popen[str]) -> str:
    """The debugging address that the browser prints when it is ready."""
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"DevTools listening on (ws://\S+)", line):
            # Nothing more is read: the pipe is drained so that the browser cannot block on it.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return found[1]
    raise RuntimeError("the browser ended before it was ready")
