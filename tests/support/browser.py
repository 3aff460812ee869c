"""A headless Chromium for the tests, driven over WebDriver with the standard library alone."""

import base64
import json
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import urllib.request
import zlib


def missing():
    """Returns the names of missing programs; None if a browser can be driven."""
    if not shutil.which("chromedriver"):
        return "there is no chromedriver (Debian: chromium-driver)"
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        return "there is no Chromium"
    return None


class Browser:
    """One window. Use as a context."""

    def __init__(self, width=1100, height=900):
        self.size = {"width": width, "height": height}

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       text=True)
        try:
            self.base = f"http://127.0.0.1:{self.port()}"
            # No sandbox and little /dev/shm, because containers have no namespace for it; pages are our own.
            arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                         "--hide-scrollbars", f"--user-data-dir={self.profile.name}"]
            session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": {"args": arguments}, "timeouts": {"pageLoad": 60000, "script": 60000}}}})
            self.base += "/session/" + session["sessionId"]
            self.resize(**self.size)
        except BaseException:
            self.driver.kill()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(30)
            self.driver.stdout.close()
            self.profile.cleanup()

    def port(self):
        for line in self.driver.stdout:
            if match := re.search(r"started successfully on port (\d+)", line):
                return int(match[1])
        raise RuntimeError("chromedriver did not start")

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width, height):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                      mobile=False)

    def media(self, scheme="light", medium=""):
        """medium: "screen" or "print"; empty: the page's default."""
        self.devtools("Emulation.setEmulatedMedia", media=medium,
                      features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path):
        self.call("POST", "/url", {"url": pathlib.Path(path).resolve().as_uri()})

    def run(self, script, *arguments):
        """Returns the script's result."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def picture(self, path):
        """Saves the whole page as PNG."""
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))

    def pixels(self, left, top, width, height):
        """Returns rows of (red, green, blue), for a part of the page."""
        clip = {"x": left, "y": top, "width": width, "height": height, "scale": 1}
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return png_rows(base64.b64decode(shot["data"]))

    def printed(self, path):
        """Saves the page as PDF, on A4 with its colors."""
        sheet = self.devtools("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)
        pathlib.Path(path).write_bytes(base64.b64decode(sheet["data"]))


def png_rows(data):
    """Returns the pixels of a PNG with 8 bits a channel, the format that browsers write."""
    chunks, at = {}, 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        chunks[kind] = chunks.get(kind, b"") + data[at + 8:at + 8 + length]
        at += 12 + length
    width, height, depth, color = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    if depth != 8 or color not in (2, 6):
        raise ValueError(f"depth {depth}, color type {color}")
    step = 3 if color == 2 else 4
    raw, before, rows = zlib.decompress(chunks[b"IDAT"]), bytearray(step * width), []
    for y in range(height):
        start = y * (step * width + 1)
        line = unfiltered(raw[start], bytearray(raw[start + 1:start + 1 + step * width]), before, step)
        rows.append([tuple(line[x:x + 3]) for x in range(0, len(line), step)])
        before = line
    return rows


def unfiltered(method, line, before, step):
    for i in range(len(line)):
        left = line[i - step] if i >= step else 0
        above = before[i]
        if method == 1:
            line[i] = (line[i] + left) & 255
        elif method == 2:
            line[i] = (line[i] + above) & 255
        elif method == 3:
            line[i] = (line[i] + (left + above) // 2) & 255
        elif method == 4:
            corner = before[i - step] if i >= step else 0
            guess = left + above - corner
            line[i] = (line[i] + min((left, above, corner), key=lambda value: abs(guess - value))) & 255
    return line
