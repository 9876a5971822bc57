"""A headless Chromium, driven by the DevTools protocol over its WebSocket."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

SECONDS = 60.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
    "--remote-debugging-port=0", "about:blank",
)  # fmt: skip


def executable() -> str | None:
    """Where Chromium is; None if it is not installed."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    return None


class PageError(Exception):
    """JavaScript of a test that threw."""


class Page:
    """One tab."""

    def __init__(self, url: str) -> None:
        self._socket: ClientConnection = connect(url, max_size=None, proxy=None, ping_interval=None)
        self._ids = count(1)
        self.messages: list[str] = []
        """What the page wrote to the console as errors, its exceptions, and what its CSP blocked."""
        self.requested: list[str] = []
        """The URLs that the page requested."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(1280, 800)

    def call(self, method: str, **params: Any) -> Any:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=SECONDS))
            if message.get("id") == number:
                if "error" in message:
                    raise PageError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.messages.append(
                    details.get("exception", {}).get("description") or details["text"]
                )
            case "Runtime.consoleAPICalled" if params["type"] == "error":
                self.messages.append(
                    " ".join(str(each.get("value", each)) for each in params["args"])
                )
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.messages.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait(
            "document.documentElement.dataset.ready === 'true' && document.readyState === 'complete'"
        )

    def reload(self) -> None:
        self.run("document.documentElement.dataset.ready = 'old'")
        self.call("Page.reload")
        self.wait("document.documentElement.dataset.ready === 'true'")

    def run(self, code: str) -> Any:
        """The value of an expression, which may be a promise. Raises `PageError`."""
        result = self.call(
            "Runtime.evaluate",
            expression=code,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def wait(self, condition: str) -> Any:
        """Wait until an expression is true. Returns its value."""
        end = time.monotonic() + SECONDS
        while True:
            try:
                value = self.run(condition)
                if value not in (None, False, 0, ""):  # an element is {}
                    return value
            except PageError as error:
                if "context" not in str(error) and "null" not in str(error):
                    raise
            if time.monotonic() > end:
                shown = self.run("document.body.innerText.slice(0, 3000)")
                raise AssertionError(f"never true: {condition}\n{self.messages}\n{shown}")
            time.sleep(0.02)

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        """Click in the middle of an element with the mouse."""
        place = self.wait(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)}); if (!found) return null; "
            "found.scrollIntoView({block: 'center'}); const box = found.getBoundingClientRect(); "
            "return box.width ? [box.x + box.width / 2, box.y + box.height / 2] : null; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def type(self, selector: str, text: str) -> None:
        """Replace the text of a field as by the keyboard."""
        self.run(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)}); field.focus(); field.select(); }})()"
        )
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowRight": 39}
        text = {"Enter": "\r"}.get(key)
        more = {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=8 if shift else 0,
                windowsVirtualKeyCode=codes[key], **(more if kind == "keyDown" else {}),
            )  # fmt: skip

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=False,
        )  # fmt: skip

    def dark(self, on: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, file: Path) -> None:
        data = self.call("Page.captureScreenshot", format="png")["data"]
        file.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        self._socket.close()


class Chromium:
    """A browser. Each page has a context of its own: no storage is shared."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._browser = connect(url, max_size=None, proxy=None, ping_interval=None)
        self._ids = count(1)

    def _call(self, method: str, **params: Any) -> Any:
        number = next(self._ids)
        self._browser.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._browser.recv(timeout=SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    @contextmanager
    def page(self) -> Iterator[Page]:
        context = self._call("Target.createBrowserContext")["browserContextId"]
        target = self._call("Target.createTarget", url="about:blank", browserContextId=context)
        host = self._url.partition("/devtools/")[0]
        page = Page(f"{host}/devtools/page/{target['targetId']}")
        try:
            yield page
        finally:
            page.close()
            self._call("Target.disposeBrowserContext", browserContextId=context)

    def close(self) -> None:
        with suppress(ConnectionClosed, TimeoutError):
            self._call("Browser.close")
        self._browser.close()


@contextmanager
def run_chromium(folder: Path, wait: Callable[[float], None] = time.sleep) -> Iterator[Chromium]:
    """A Chromium with a new profile in `folder`. For tests that skip where it is not installed."""
    command = executable()
    assert command is not None, "Chromium is not installed"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [command, *FLAGS[:-1], f"--user-data-dir={folder / 'profile'}", FLAGS[-1]],
            stdout=log,
            stderr=log,
            env={**os.environ, "HOME": str(folder)},
        )
    try:
        announced = folder / "profile" / "DevToolsActivePort"
        end = time.monotonic() + SECONDS
        while not announced.exists() or len(announced.read_text().splitlines()) < 2:
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            assert time.monotonic() < end, (folder / "log").read_text()[-3000:]
            wait(0.05)
        port, path = announced.read_text().splitlines()[:2]
        browser = Chromium(f"ws://127.0.0.1:{port}{path}")
        yield browser
        browser.close()
    finally:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
