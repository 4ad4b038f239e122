"""Chromium without a screen, over its DevTools protocol on a pipe: Python's
standard library is enough.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time

PATIENCE = 120  # seconds; a browser that starts on a loaded machine is slow


def program():
    """Chromium's path; None: it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One tab. Collects what its console says and what fails to load."""

    def __init__(self, folder):
        to_read, self.to_write = os.pipe()
        self.to_read, to_write = os.pipe()

        def give_pipes():
            # Above what they are moved to, so that none is overwritten.
            high = [os.dup2(to_read, 103), os.dup2(to_write, 104)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.log = open(folder / "chromium.log", "w")
        self.process = subprocess.Popen(
            [program(), "--headless", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--remote-debugging-pipe",
             f"--user-data-dir={folder / 'profile'}", "about:blank"],
            stdout=self.log, stderr=self.log, pass_fds=(3, 4), preexec_fn=give_pipes)
        os.close(to_read)
        os.close(to_write)
        self.number, self.buffer, self.session = 0, b"", None
        self.complaints = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"],
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        os.close(self.to_read)
        os.close(self.to_write)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            answer = self._next(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self, end):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.to_read], [], [], max(0, end - time.monotonic()))
            piece = os.read(self.to_read, 1 << 20) if ready else b""
            if not piece:
                raise TimeoutError("the browser does not answer")
            self.buffer += piece
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, about):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {about['exceptionDetails']}")
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console: {about['type']} {about['args']}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"log: {about['entry']['text']} {about['entry'].get('url')}")
        elif method == "Network.requestWillBeSent":
            self.requests = getattr(self, "requests", []) + [about["request"]["url"]]

    def open(self, url):
        self.requests = []
        self.call("Page.navigate", url=url)

    def run(self, expression):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression,
                           returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def look_as(self, width, height, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def screenshot(self, path):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        image = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip={
            "x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 4000),
            "scale": 1})
        path.write_bytes(base64.b64decode(image["data"]))

    def accessible(self):
        """(role, name) of each node that a screen reader would tell of."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", ""))
                for node in nodes if not node["ignored"]]
