"""The built program, a headless Chromium, and a real run for the tests of the live page.

LOCKSTEP_BINARY names the program (default build/lockstep). Without chromium and chromedriver (tools/browser-packages.txt) the
tests are skipped, unless LOCKSTEP_BROWSER_REQUIRED is set, as in CI: then they fail.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "models/countdown-glm"
START_SECONDS = 120
WAIT_SECONDS = 60


def missing_browser():
    missing = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    try:
        import selenium  # noqa: F401
    except ImportError:
        missing.append("selenium")
    return missing


def pytest_collection_modifyitems(items):
    missing = missing_browser()
    if missing and not os.environ.get("LOCKSTEP_BROWSER_REQUIRED"):
        for item in items:
            item.add_marker(pytest.mark.skip(reason=f"no browser: {', '.join(missing)} (tools/browser-packages.txt)"))


def binary():
    path = Path(os.environ.get("LOCKSTEP_BINARY", REPOSITORY / "build" / "lockstep")).resolve()
    if not os.access(path, os.X_OK) or path.is_dir():
        pytest.fail(f"there is no lockstep binary at {path}; build it or set LOCKSTEP_BINARY")
    return str(path)


class Program:
    """A running `lockstep`, and the address that it printed."""

    def __init__(self, *arguments, address=r"(?:listening on|watch it live:) (http://127\.0\.0\.1:\d+)"):
        self.lines, self.url, found = [], None, threading.Event()
        self.process = subprocess.Popen([binary(), *map(str, arguments)], cwd=REPOSITORY, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")

        def read():
            for line in self.process.stdout:
                self.lines.append(line)
                if not self.url and (match := re.search(address, line)):
                    self.url = match[1]
                    found.set()
            found.set()

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        if not found.wait(START_SECONDS) or not self.url:
            self.stop()
            pytest.fail("no address was printed:\n" + "".join(self.lines))

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            status = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail("the program did not stop within 60 seconds")
        self.reader.join(timeout=5)
        return status


def rl_arguments(runs, name, steps, **settings):
    values = {"steps": steps, "problems": 4, "rollouts": 8, "warmup": 0, "checkpoint_every": 0, "threads": 2, "name": name, "runs": runs, **settings}
    words = ["train", "rl", "--config", "recipes/countdown_rl.toml", "--page-port", "0"]
    for key, value in values.items():
        words += ["--set", f"{key}={value}"]
    return words


class Browser:
    """Chromium with what these tests ask of it; self.driver is selenium's."""

    def __init__(self):
        from selenium import webdriver

        self.profile = tempfile.mkdtemp(prefix="lockstep-chromium-")
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
                         "--no-first-run", "--disable-background-networking", f"--user-data-dir={self.profile}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        self.driver.set_script_timeout(WAIT_SECONDS)
        # A page without the focus tells nobody of focus(); whether Chromium gives it some differs by machine.
        self.driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})

    def close(self):
        self.driver.quit()
        shutil.rmtree(self.profile, ignore_errors=True)

    def fresh(self):
        """As a person who was never here: no logs, no memory, a desktop in light."""
        self.driver.get("about:blank")
        self.size(1280, 860)
        self.scheme("light")
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1})
        self.console()
        self.requests()
        self.allowed = None  # a part of what the console may say

    def size(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})

    def scheme(self, name):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def open(self, url):
        self.driver.get("about:blank")  # a change of the fragment alone would not load the page
        self.driver.get(url)
        self.js("localStorage.clear(); sessionStorage.clear()")
        self.wait("document.querySelector('main')?.childElementCount > 0", "a view")

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition, what, seconds=WAIT_SECONDS):
        """Until the JavaScript expression is true; returns it."""
        end = time.monotonic() + seconds
        while not (value := self.js(f"return ({condition})")):
            assert time.monotonic() < end, f"{what} did not come within {seconds} s: {condition}\n{self.js('return document.body.innerText')[:2000]}"
            time.sleep(0.05)
        return value

    def press(self, *keys):
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def focused(self):
        return self.js("const e = document.activeElement; return [e.tagName, e.textContent.slice(0, 40), getComputedStyle(e).outlineStyle, e.getAttribute('aria-label') || '']")

    def console(self):
        return [entry for entry in self.driver.get_log("browser")
                if entry["level"] in ("SEVERE", "WARNING") and not (self.allowed and self.allowed in entry["message"])]

    def requests(self):
        import json

        sent = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        return [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="session")
def chromium():
    if missing := missing_browser():
        pytest.fail(f"no browser: {', '.join(missing)}; tools/browser-packages.txt lists the packages")
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium):
    """No test may leave an error or a warning on the console (a refused script or style would be one)."""
    chromium.fresh()
    yield chromium
    chromium.driver.get("about:blank")
    assert chromium.console() == []


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder with a real run of 6 steps, `short`, and beside it what parity says of the model, in a context that is short too: the page shows what it is told."""
    folder = tmp_path_factory.mktemp("runs")
    words = rl_arguments(folder, "short", 6)
    done = subprocess.run([binary(), *map(str, words)], cwd=REPOSITORY, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    model = tmp_path_factory.mktemp("parity") / MODEL.name
    shutil.copytree(MODEL, model)
    (model / "config.json").write_text(json.dumps(json.loads((MODEL / "config.json").read_text()) | {"max_position_embeddings": 40}))
    parity = subprocess.run([binary(), "parity", "--model", str(model), "--fuzz", "0", "--json"], capture_output=True, text=True, timeout=600)
    (folder / "short/parity.json").write_text(parity.stdout)
    return folder


@pytest.fixture(scope="session")
def server(runs):
    program = Program("serve", "--model", MODEL, "--port", "0", "--threads", "2", "--runs", runs)
    yield program
    assert program.stop() == 0, "".join(program.lines)


@pytest.fixture
def started():
    """A function that starts programs of the test's own."""
    programs = []

    def start(*arguments, **options):
        programs.append(Program(*arguments, **options))
        return programs[-1]

    yield start
    for program in programs:
        program.stop(signal.SIGKILL)
