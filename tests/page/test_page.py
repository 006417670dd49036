"""The live page in a real browser, against a real server and real runs."""
import itertools
import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest

from conftest import MODEL, REPOSITORY, binary, rl_arguments

STEP_OF_REWARD = "Number((document.querySelector('[data-key=reward] canvas').getAttribute('aria-label').match(/step (\\d+)/) || [0, 0])[1])"
VIEWS = ("runs", "transcripts", "playground", "parity", "device", "gates")
CONTENT = {"runs": "document.querySelectorAll('.curve').length > 10", "transcripts": "document.querySelectorAll('.entry .token').length > 20",
           "playground": "document.querySelector('.models select')", "parity": "document.querySelector('.counters tr')",
           "device": "document.querySelectorAll('.classes tbody tr').length === 3",
           "gates": "document.querySelector('.gates .empty, .gates .card')", "fleet": "document.querySelector('.fleet .card')"}


def open_view(browser, server, view):
    browser.open(f"{server.url}/#/{view}")
    browser.wait(CONTENT[view], f"the content of {view}")


def test_curves_move_while_a_run_trains(started, browser, tmp_path):
    training = started(*rl_arguments(tmp_path, "moving", 100000))
    browser.open(training.url)
    browser.wait(f"document.querySelector('[data-key=reward]') && {STEP_OF_REWARD} >= 2", "two steps")
    first, picture = browser.js(f"return [{STEP_OF_REWARD}, document.querySelector('[data-key=reward] canvas').toDataURL()]")
    browser.wait(f"{STEP_OF_REWARD} >= {first + 2}", "two more steps")
    assert browser.js("return document.querySelector('[data-key=reward] canvas').toDataURL()") != picture
    shown = [browser.js("return arguments[0].dataset.key", card) for card in browser.driver.find_elements("css selector", ".curve")]
    written = json.loads((tmp_path / "moving/metrics.jsonl").read_text().splitlines()[0])
    assert set(shown) == set(written) - {"step"}
    for key in ("reward", "k1", "k2", "k3", "different_bits", "loss", "tokens_per_second", "learning_rate", "gradient_norm", "clipped"):
        assert key in shown
    assert "running" in browser.js("return document.querySelector('.facts').textContent")
    # The page is the run's: it asks for new lines alone.
    assert any(re.search(r"metrics\?arm=&from=[1-9]", url) for url in browser.requests())
    # The program ends: the page says so, and keeps what it has.
    training.stop()
    browser.wait("document.querySelector('.top').textContent.includes('cannot be reached')", "the word that it ended")
    browser.allowed = "ERR_CONNECTION_REFUSED"


def test_numbers_are_those_of_the_file(browser, server, runs):
    open_view(browser, server, "runs")
    lines = [json.loads(line) for line in (runs / "short/metrics.jsonl").read_text().splitlines()]
    url = f"{server.url}/api/runs/short/metrics"
    with urllib.request.urlopen(url) as answer:
        columns = json.load(answer)["columns"]
    for key in columns:
        assert columns[key] == {"x": [line["step"] for line in lines], "y": [line[key] for line in lines]}
    assert all(line["different_bits"] == 0 for line in lines)
    assert browser.js("return document.querySelector('[data-key=different_bits] .value').textContent") == "0"


def test_hover_and_smoothing(browser, server):
    from selenium.webdriver import ActionChains

    open_view(browser, server, "runs")
    canvas = browser.driver.find_element("css selector", "[data-key=reward] canvas")
    browser.wait("document.querySelector('[data-key=reward] canvas').width > 100", "the drawing")
    ActionChains(browser.driver).move_to_element_with_offset(canvas, -60, 0).perform()
    browser.wait(f"{STEP_OF_REWARD} > 0 && {STEP_OF_REWARD} < 6", "a value under the cursor")
    browser.wait("/step [1-5]\\b/.test(document.querySelector('[data-key=loss] canvas').getAttribute('aria-label'))", "the same step in another chart")
    before = browser.js("return document.querySelector('[data-key=reward] canvas').toDataURL()")
    browser.js("const s = document.querySelector('input[type=range]'); s.value = 0.95; s.dispatchEvent(new Event('input'))")
    assert browser.js("return document.querySelector('[data-key=reward] canvas').toDataURL()") != before


def test_transcripts(browser, server, runs):
    open_view(browser, server, "transcripts")
    written = [json.loads(line) for line in (runs / "short/transcripts.jsonl").read_text().splitlines()]
    last = [line for line in written if line["step"] == 6]
    assert len(last) == 8
    texts = browser.js("return [...document.querySelectorAll('.entry .tokens')].map((e) => [...e.children].map((t) => t.textContent))")
    assert texts == [[t or "∅" for t in line["prompt"] + line["tokens"]] for line in last]
    badges = browser.js("return [...document.querySelectorAll('.entry .badge')].map((e) => e.textContent)")
    assert badges == [f"reward {line['reward']:g}" for line in last]
    # Colours follow the choice; numbers stand in the strip.
    colours = {}
    for name in ("sampling", "logprob", "difference", "advantage", "mask", "version"):
        browser.js("const s = [...document.querySelectorAll('select')].pop(); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", name)
        colours[name] = browser.js("return [...document.querySelectorAll('.entry .token')].map((t) => t.style.backgroundColor)")
    assert colours["sampling"] == colours["logprob"]  # the same bits
    assert len({str(c) for c in colours.values()}) >= 4
    index = len(last[0]["prompt"])
    browser.js("document.querySelectorAll('.entry .token')[arguments[0]].focus()", index)
    strip = browser.js("return document.querySelector('.strip').textContent")
    assert str(last[0]["sampling_logprobs"][0]).replace("-", "−") in strip and "the same bits" in strip
    # Another step.
    browser.js("document.querySelector('[aria-label=\"The step before\"]').click()")
    browser.wait("document.querySelector('output.step').textContent.startsWith('5 ')", "step 5")


def ask(server, **fields):
    body = {"model": "countdown-glm", "prompt": "3 7 12=48:", "max_tokens": 16, "temperature": 0, **fields}
    request = urllib.request.Request(f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def open_playground(browser, server):
    open_view(browser, server, "playground")
    try:
        ask(server, logprobs=5)
    except urllib.error.HTTPError as refused:  # the page asks for the alternatives first, and the browser notes the refusal
        assert json.load(refused)["error"]["param"] == "logprobs"
        browser.allowed = "status of 400"


def test_playground_streams_log_probabilities(browser, server):
    open_playground(browser, server)
    browser.js("const [t] = document.getElementsByName('temperature'); t.value = 0; document.getElementsByName('max_tokens')[0].value = 16; document.getElementsByName('prompt')[0].value = '3 7 12=48:'")
    browser.js("document.querySelector('.primary').click()")
    browser.wait("document.querySelector('.answer [role=status]').textContent === 'done'", "the answer")
    text = browser.js("return [...document.querySelectorAll('.answer .token:not(.prompt)')].map((t) => t.textContent).join('')")
    plain = ask(server, logprobs=1)
    assert text == "".join(plain["choices"][0]["logprobs"]["tokens"])
    for i, logprob in enumerate(plain["choices"][0]["logprobs"]["token_logprobs"]):
        browser.js("document.querySelectorAll('.answer .token')[arguments[0]].focus()", i + 1)
        shown = browser.js("return [...document.querySelectorAll('.strip dl div')].find((d) => d.firstChild.textContent === 'log p').lastChild.textContent")
        assert float(shown.replace("−", "-")) == logprob
    assert browser.js("return document.querySelectorAll('.strip .alternatives li').length") >= 1
    facts = browser.js("return document.querySelector('.answer .facts').textContent")
    assert plain["profile"] in facts and "weights version" in facts


def test_playground_stops(browser, server):
    open_playground(browser, server)
    # A slow line, so that there is something to stop.
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {"offline": False, "latency": 50, "downloadThroughput": 1500, "uploadThroughput": -1})
    browser.js("document.getElementsByName('prompt')[0].value = '3 7 12=36:'; document.getElementsByName('top_p')[0].value = 1; document.getElementsByName('temperature')[0].value = 100; document.getElementsByName('max_tokens')[0].value = 400; document.querySelector('.primary').click()")
    browser.wait("document.querySelectorAll('.answer .token').length > 2", "some tokens")
    browser.js("[...document.querySelectorAll('button')].find((b) => b.textContent === 'Stop').click()")
    browser.wait("document.querySelector('.answer [role=status]').textContent === 'stopped'", "the stop")
    assert browser.js("return document.querySelector('.primary').disabled") is False


# A model that chats, whose tokens are not its message: a mark, halves of a character, the end.
CHATTY = """
const plain = window.fetch;
window.asked = [];
const token = (text) => ({ token: text, logprob: -0.5, bytes: [], top_logprobs: [] });
const said = [{ content: "", tokens: ["<think>"] }, { content: "h", tokens: ["h"] }, { content: "", tokens: ["\\ufffd"] }, { content: "\\u00e9", tokens: ["\\ufffd", "<|eos|>"] }];
window.fetch = async (path, options) => {
  if (String(path).endsWith("v1/models")) {
    const models = await (await plain(path, options)).json();
    return Response.json({ ...models, data: models.data.map((m) => ({ ...m, chat: true })) });
  }
  if (!String(path).endsWith("chat/completions")) return plain(path, options);
  window.asked.push(JSON.parse(options.body));
  const parts = said.map((s) => ({ choices: [{ index: 0, delta: { content: s.content }, logprobs: { content: s.tokens.map(token) }, finish_reason: null }] }));
  parts.push({ choices: [{ index: 0, delta: {}, logprobs: null, finish_reason: "stop" }] });
  return new Response(parts.map((p) => "data: " + JSON.stringify(p) + "\\n\\n").join("") + "data: [DONE]\\n\\n", { headers: { "Content-Type": "text/event-stream" } });
};
"""


def test_playground_tells_the_model_what_it_said(browser, server):
    script = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": CHATTY})["identifier"]
    try:
        open_view(browser, server, "playground")
        browser.js("const mode = [...document.querySelectorAll('.models select')].at(-1); mode.value = 'chat'; mode.dispatchEvent(new Event('change', { bubbles: true }))")
        for turn in (1, 2):
            browser.js("document.getElementsByName('prompt')[0].value = 'w?'; document.querySelector('.primary').click()")
            browser.wait(f"window.asked.length === {turn} && document.querySelector('.answer [role=status]').textContent === 'done'", "the answer")
        assert browser.js("return window.asked[1].messages") == [{"role": "user", "content": "w?"}, {"role": "assistant", "content": "hé"}, {"role": "user", "content": "w?"}]
        # A system prompt stands before what is said, and the chat begins anew with it.
        browser.js("const s = document.getElementsByName('system')[0]; s.value = 'Be brief.'; s.dispatchEvent(new Event('change')); document.getElementsByName('prompt')[0].value = 'w?'; document.querySelector('.primary').click()")
        browser.wait("window.asked.length === 3 && document.querySelector('.answer [role=status]').textContent === 'done'", "the answer")
        assert browser.js("return window.asked[2].messages") == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "w?"}]
        assert "<|eos|>" in browser.js("return document.querySelector('.answer').textContent")  # the tokens are shown as they are
    finally:
        browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script})


def test_playground_shows_the_servers_words(browser, server):
    open_view(browser, server, "playground")
    browser.js("document.getElementsByName('top_p')[0].value = 7; document.querySelector('form').noValidate = true; document.querySelector('.primary').click()")
    browser.wait("document.querySelector('.answer [role=status]').textContent.includes('top_p')", "the refusal")
    assert all("400" in entry["message"] for entry in browser.console())  # the browser itself notes the answer


def test_parity(browser, server, runs):
    open_view(browser, server, "parity")
    report = json.loads((runs / "short/parity.json").read_text())
    text = browser.js("return document.querySelector('.parity').innerText")
    assert "passed" in text
    assert len(browser.driver.find_elements("css selector", ".counters tr")) == len(report["engagement"])
    assert report["control"]["operation"] in text


def test_who_has_the_device_and_who_waits(started, browser, tmp_path):
    """The figures are those of /metrics; who waits for a place is there while it waits, and the view follows."""
    program = started("serve", "--model", MODEL, "--port", "0", "--threads", "2", "--cache-megabytes", "1", "--training", "--state", tmp_path / "state", "--shares", "live=50,rollouts=30,training=20")
    open_view(browser, program, "device")
    assert browser.js("return [...document.querySelectorAll('.classes tbody tr')].map((r) => [r.dataset.class, r.cells[1].textContent])") == [["live", "50 %"], ["rollouts", "30 %"], ["training", "20 %"]]
    assert "Nobody waits." in browser.js("return document.querySelector('.device').textContent")
    assert browser.js("return document.querySelector('.kept')") is None  # it keeps no forwards
    end = threading.Event()

    def loop(number):
        for seed in itertools.count(1000 * number):  # texts of their own: equal ones share pages, and all of them have room
            if end.is_set():
                return
            ask(program, max_tokens=400, ignore_eos=True, temperature=1, seed=seed)

    threads = [threading.Thread(target=loop, args=(i,)) for i in range(24)]  # the cache holds a fifth of what they need
    for thread in threads:
        thread.start()
    try:
        browser.wait("document.querySelector('.waiting tbody tr')?.textContent.includes('wait for a place in the batch')", "those who wait")
        assert browser.js("return document.querySelector('.waiting tbody tr').cells[0].textContent") == "live, (no name)"
        browser.wait("parseFloat(document.querySelector('.classes [data-class=live]').cells[3].textContent) > 20", "how much of the device they have now")
    finally:
        end.set()
        for thread in threads:
            thread.join()
    browser.wait("document.querySelector('.device').textContent.includes('Nobody waits.')", "the end of the waiting")
    with urllib.request.urlopen(f"{program.url}/metrics") as answer:
        told = float(re.search(r'lockstep_device_seconds_total\{class="live",key="\(no name\)"\} (\S+)', answer.read().decode())[1])
    assert told > 0
    # The view may be of a moment when nobody waited any more and the last ones were still answered: the next one is not.
    shown = "parseFloat([...document.querySelectorAll('.keys tbody tr')].find((r) => r.cells[0].textContent === '(no name)')?.cells[3].textContent)"
    browser.wait(f"Math.abs({shown} - {told}) <= 0.06", "the key's seconds")
    assert "forward" in browser.js("return [...document.querySelectorAll('.pieces tbody th')].map((c) => c.textContent)")


def test_rows_of_kept_forwards(started, browser, tmp_path):
    program = started("serve", "--model", MODEL, "--port", "0", "--threads", "2", "--training", "--state", tmp_path / "state", "--keep-forward", "all")
    open_view(browser, program, "device")
    told = browser.js("return [...document.querySelectorAll('.kept tbody tr')].map((r) => [r.cells[0].textContent, r.cells[1].textContent])")
    assert told == [["kept in sampling", "0"], ["read in training", "0"], ["computed beside those", "0"], ["dropped", "0"], ["compared", "0"], ["memory now", "0.0 MB"]]


def test_what_gates_found(browser, started):
    """Reports as /v1/gates tells them: one that failed, then one that was overruled, which comes by itself."""
    server = started("serve", "--model", MODEL, "--port", "0", "--threads", "2")
    open_view(browser, server, "gates")
    gate = {"environment": "countdown", "problems": 8, "max_tokens": 8, "company": 2}  # of a folder: without digests it fails

    def put(status, **more):
        request = urllib.request.Request(f"{server.url}/v1/aliases/gated", json.dumps({"deployments": "countdown-glm", "gate": gate, **more}).encode(), {"Content-Type": "application/json"}, method="PUT")
        try:
            with urllib.request.urlopen(request) as answer:
                assert answer.status == status
        except urllib.error.HTTPError as error:
            assert error.code == status, error.read()

    put(409)
    browser.wait("document.querySelectorAll('.gates .card').length === 1", "the report")
    assert browser.js("return document.querySelector('.gates .badge').textContent") == "failed"
    assert "was not made of a snapshot" in browser.js("return document.querySelector('[data-check=digests]').textContent")
    assert browser.js("return document.querySelector('[data-check=digests]').className") == "warn"
    put(200, force=True)
    browser.wait("document.querySelectorAll('.gates .card').length === 2", "the second report")
    browser.wait("document.querySelector('.gates .badge').textContent === 'failed, and was overruled'", "the word that it was overruled")  # when the alias has moved
    speed = browser.js("return document.querySelector('[data-check=speed]').textContent")
    assert "passed" in speed and "tokens per second: " in speed, speed


def test_the_replicas_of_a_fleet(browser, started, tmp_path):
    """Where each stands, and what came for each step: first nobody has said anything, then a snapshot is pushed, and one that no replica can take."""
    push = lambda *more: subprocess.run([str(binary()), "snapshot", "push", str(MODEL), str(tmp_path / "store"), "--channel", "chat", "--quiet", *more], check=True, capture_output=True)  # noqa: E731
    push("--profile", "cpu-bf16w")
    server = started("serve", "--model", MODEL, "--port", "0", "--threads", "2", "--follow", f"{tmp_path}/store/chat", "--replica", "here")
    open_view(browser, server, "fleet")
    browser.wait("document.querySelector('[data-replica=here] .badge')?.textContent === 'ready'", "the replica is ready")
    assert " of 1.35M (" in browser.js("return document.querySelector('[data-step=\"1\"] td').textContent")
    push("--profile", "cpu-f32", "--parent", "none")
    browser.wait("document.querySelector('[data-replica=here] .badge')?.textContent === 'error'", "the second is refused")
    assert "numerics profile" in browser.js("return document.querySelector('[data-replica=here]').textContent")


def test_by_keyboard_alone(browser, server):
    from selenium.webdriver.common.keys import Keys

    open_view(browser, server, "runs")
    browser.press(Keys.TAB)
    assert browser.focused()[1] == "To the content"
    seen = []
    for _ in range(13):
        browser.press(Keys.TAB)
        tag, text, outline, label = browser.focused()
        assert outline != "none", f"the focus on {tag} {text} cannot be seen"
        seen.append(f"{tag} {text or label}")
    for wanted in ("A Runs", "A Transcripts", "A Playground", "A Parity", "A Device", "A Gates", "BUTTON", "CANVAS"):
        assert any(s.startswith(wanted) for s in seen), f"{wanted} is not among {seen}"
    browser.js("document.querySelector('[data-key=reward] canvas').focus()")
    browser.press(Keys.HOME)
    browser.wait(f"{STEP_OF_REWARD} === 1", "the first step")
    browser.press(Keys.ARROW_RIGHT)
    browser.wait(f"{STEP_OF_REWARD} === 2", "the second step")
    browser.js("[...document.querySelectorAll('.tabs a')].find((a) => a.textContent === 'Transcripts').focus()")
    browser.press(Keys.ENTER)
    browser.wait(CONTENT["transcripts"], "the transcripts")
    browser.js("document.querySelector('.entry .token').focus()")
    browser.press(Keys.END)
    strip = browser.js("return document.querySelector('.strip').textContent")
    browser.press(Keys.ARROW_LEFT)
    assert browser.js("return document.querySelector('.strip').textContent") != strip
    # Every control has a name.
    for view in VIEWS:
        open_view(browser, server, view)
        nameless = browser.js("""return [...document.querySelectorAll('button, a, select, input, textarea, canvas')].filter((e) =>
            !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length))).map((e) => e.outerHTML.slice(0, 200))""")
        assert nameless == []


@pytest.mark.parametrize("view", VIEWS)
def test_fits_a_phone(browser, server, view):
    browser.size(360, 740)
    (open_playground if view == "playground" else lambda b, s: open_view(b, s, view))(browser, server)
    if view == "playground":
        browser.js("document.getElementsByName('prompt')[0].value = '3 7 12=36:'; document.querySelector('.primary').click()")
        browser.wait("document.querySelectorAll('.answer .token').length > 3", "tokens")
    width, outside = browser.js("""return [document.documentElement.scrollWidth, [...document.querySelectorAll('main *')].filter((e) => {
        for (let p = e.parentElement; p; p = p.parentElement) if (['auto', 'hidden', 'scroll'].includes(getComputedStyle(p).overflowX)) return false;
        return e.getBoundingClientRect().right > 361; }).map((e) => e.outerHTML.slice(0, 120))]""")
    assert width <= 360 and outside == []


def luminance(colour):
    r, g, b = (int(c) / 255 for c in re.findall(r"\d+", colour)[:3])
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (r, g, b)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_light_and_dark(browser, server):
    colours = "const s = getComputedStyle(document.body), q = document.querySelector('.sub, .quiet, dt'); return [s.backgroundColor, s.color, getComputedStyle(q).color]"
    found = {}
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        open_view(browser, server, "runs")
        found[scheme] = background, ink, faint = browser.js(colours)
        assert contrast(background, ink) > 7 and contrast(background, faint) > 4.5
    assert luminance(found["light"][0]) > 0.8 and luminance(found["dark"][0]) < 0.05
    # The button: as the system has it, light, dark.
    browser.js("document.querySelector('.theme').click()")
    assert browser.js(colours)[0] == found["light"][0]
    browser.js("document.querySelector('.theme').click()")
    browser.scheme("light")
    assert browser.js(colours)[0] == found["dark"][0]


def test_nothing_leaves_this_machine(browser, server):
    for view in VIEWS:
        open_view(browser, server, view)
    assert all(url.startswith((server.url, "data:", "about:")) for url in browser.requests())


def test_text_of_a_model_is_text(started, browser, tmp_path):
    evil = '<img src=x onerror="document.title=1">'
    run = tmp_path / "evil"
    run.mkdir()
    line = {"step": 1, "weights_version": 0, "group": 0, "rollout": 0, "reward": 1, "finish": "stop", "prompt": [evil], "prompt_ids": [1], "tokens": [evil, "</script>"],
            "ids": [2, 3], "sampling_logprobs": [-1, None], "logprobs": [-1, -1], "entropies": [0, 0], "advantages": [0, 0], "weights": [1, 1]}
    (run / "transcripts.jsonl").write_text(json.dumps(line) + "\n")
    (run / "metrics.jsonl").write_text(json.dumps({"step": 1, evil: 1, "__proto__": 2, "reward": None}) + "\n")
    (run / "parity.json").write_text(json.dumps({"passed": True, "engagement": {evil: 1}, "control": {}, "places": [evil]}))
    watch = started("watch", run, "--port", "0")
    for view, condition in (("runs", "document.querySelectorAll('.curve').length >= 2"), ("transcripts", "document.querySelector('.entry')"), ("parity", "document.querySelector('.counters')")):
        browser.open(f"{watch.url}/#/{view}")
        browser.wait(condition, view)
        assert evil in browser.js("return document.body.textContent")
        assert browser.js("return document.querySelectorAll('main img').length") == 0


def test_a_long_run_is_thinned(started, browser, tmp_path):
    run = tmp_path / "long"
    run.mkdir()
    with open(run / "metrics.jsonl", "w") as file:
        for step in range(1, 100001):
            file.write(f'{{"step":{step},"reward":{step % 97 / 97},"loss":{1 / step},"k1":0,"k2":0,"k3":0,"different_bits":0,"learning_rate":0.001,"tokens":{step}}}\n')
    watch = started("watch", tmp_path, "--port", "0")
    begin = time.monotonic()
    with urllib.request.urlopen(f"{watch.url}/api/runs/long/metrics") as answer:
        body = answer.read()
    print(f"100,000 lines: {len(body)} bytes in {time.monotonic() - begin:.2f} s")
    assert len(body) < 2_000_000
    browser.open(watch.url)
    browser.wait("document.body.textContent.includes('smallest and largest')", "the thinned curves")
    browser.wait(f"{STEP_OF_REWARD} > 99000", "the end of the run")
    # New lines come alone.
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step":100001,"reward":0.5}\n')
    browser.wait(f"{STEP_OF_REWARD} === 100001", "the new line")


def test_a_resumed_run_is_read_anew(started, browser, tmp_path):
    run = tmp_path / "again"
    run.mkdir()
    lines = [f'{{"step":{step},"reward":0.5}}\n' for step in range(1, 51)]
    (run / "metrics.jsonl").write_text("".join(lines))
    watch = started("watch", tmp_path, "--port", "0")
    browser.open(watch.url)
    browser.wait(f"document.querySelector('[data-key=reward]') && {STEP_OF_REWARD} === 50", "step 50")
    (tmp_path / "new").write_text("".join(lines[:20]))
    (tmp_path / "new").rename(run / "metrics.jsonl")
    browser.wait(f"{STEP_OF_REWARD} === 20", "the step that it went back to")


def test_report_opens_from_the_disk(browser, runs):
    report = runs / "short/report.html"
    assert report.stat().st_size < 1_500_000
    browser.open(report.as_uri())
    browser.wait(CONTENT["runs"], "the curves")
    assert browser.js(f"return {STEP_OF_REWARD}") == 6
    browser.wait("document.querySelector('[data-key=reward] canvas').width > 100", "the drawing")
    assert browser.js("return [...document.querySelectorAll('.tabs a')].map((a) => a.textContent)") == ["Runs", "Transcripts", "Parity"]
    browser.js("location.hash = '#/transcripts'")
    browser.wait(CONTENT["transcripts"], "the transcripts")
    assert {url.split(":")[0] for url in browser.requests()} <= {"file", "data", "about"}


def test_a_taken_port_is_said(started, tmp_path):
    first = started("watch", tmp_path, "--port", "0")
    port = first.url.rsplit(":", 1)[1]
    second = started(*rl_arguments(tmp_path, "second", 1000), "--page-port", port)
    assert second.url != first.url
    assert any(f"port {port} is taken" in line for line in second.lines)


def test_a_server_with_keys_is_given_one(started, browser, runs, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_API_KEY", "right-key-of-this-test")
    closed = started("serve", "--model", MODEL, "--port", "0", "--threads", "2", "--runs", runs)
    browser.allowed = "status of 401"
    browser.open(f"{closed.url}/#/runs")
    browser.wait("document.querySelector('.key input')", "the field for the key")
    assert browser.js("return document.querySelectorAll('.curve').length") == 0
    browser.js("document.querySelector('.key input').value = 'right-key-of-this-test'; document.querySelector('.key button').click()")
    browser.wait(CONTENT["runs"], "the curves")
    assert browser.js("return [sessionStorage.length, localStorage.getItem('lockstep-api-key')]") == [1, None]


def test_chat(started, browser, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    chatty = started("serve", "--model", MODEL, "--port", "0", "--threads", "2", "--chat-template", template)
    browser.open(f"{chatty.url}/#/playground")
    browser.wait("document.querySelectorAll('.models select').length === 2", "the choice of a mode")
    # It opens as a chat, without a prompt of ours, sampled as suits a talk; what its author says of it goes before.
    assert browser.js("return [...document.querySelectorAll('.models select')].at(-1).value") == "chat"
    values = "return ['prompt', 'system', 'temperature', 'top_p', 'max_tokens'].map((n) => document.getElementsByName(n)[0].value)"
    assert browser.js(values) == ["", "", "0.7", "0.9", "256"]
    browser.js("const s = document.getElementsByName('system')[0]; s.value = 'x'; s.dispatchEvent(new Event('change')); s.value = ''; document.getElementsByName('max_tokens')[0].value = 16")
    browser.js("document.getElementsByName('prompt')[0].value = '3 7 12=48:'; document.getElementsByName('temperature')[0].value = 0; document.querySelector('.primary').click()")
    browser.wait("document.querySelector('.answer [role=status]').textContent === 'done'", "the answer")
    tokens = browser.js("return [...document.querySelectorAll('.answer .token')].map((t) => t.textContent)")
    assert len(tokens) > 3 and "=48" in "".join(tokens)
    browser.js("document.querySelectorAll('.answer .token')[1].focus()")
    assert "log p" in browser.js("return document.querySelector('.strip').textContent")
    assert browser.js("return document.querySelectorAll('.strip .alternatives li').length") == 5


def test_another_host_name_is_refused(server):
    request = urllib.request.Request(f"{server.url}/api/runs", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 421


def test_transcripts_of_supervised_fine_tuning(started, browser, tmp_path):
    training = started("train", "sft", "--model", MODEL, "--environment", "countdown", "--runs", tmp_path, "--name", "learns", "--steps", "3", "--batch", "4",
                       "--transcripts", "2", "--transcripts-every", "2", "--quiet", "--page-port", "0")
    assert training.process.wait(timeout=120) == 0
    lines = [json.loads(line) for line in (tmp_path / "learns/transcripts.jsonl").read_text().splitlines()]
    assert [(line["step"], line["sequence"]) for line in lines] == [(1, 0), (1, 1), (3, 0), (3, 1)]
    watch = started("watch", tmp_path, "--port", "0")
    open_view(browser, watch, "transcripts")
    browser.wait("document.querySelectorAll('.entry').length === 2", "two sequences")
    texts = browser.js("return [...document.querySelectorAll('.entry .tokens')].map((e) => [...e.children].map((t) => t.textContent))")
    assert texts == [[t or "∅" for t in line["prompt"] + line["tokens"]] for line in lines[2:]]
    assert browser.js("return [...document.querySelectorAll('.entry .badge')].map((e) => e.textContent)") == ["sequence 0", "sequence 1"]
    assert browser.js("return [...[...document.querySelectorAll('select')].pop().options].map((o) => o.value)") == ["logprob", "mask"]
    colours = "return [...document.querySelectorAll('.entry .token')].map((t) => t.style.backgroundColor)"
    by_logprob = browser.js(colours)
    browser.js("const s = [...document.querySelectorAll('select')].pop(); s.value = 'mask'; s.dispatchEvent(new Event('change'))")
    assert browser.js(colours) != by_logprob
    browser.js("document.querySelectorAll('.entry .token')[arguments[0]].focus()", len(lines[2]["prompt"]))
    strip = browser.js("return document.querySelector('.strip').textContent")
    assert str(lines[2]["logprobs"][0]).replace("-", "−") in strip and "advantage" not in strip


def test_a_running_demo_is_seen_to_run(started, tmp_path):
    def live():
        with urllib.request.urlopen(watch.url + "/api/runs") as answer:
            return {run["name"]: run["live"] for run in json.load(answer)["runs"]}

    watch = started("watch", tmp_path, "--port", "0")
    demo = started("demo", "--quick", "--runs", tmp_path, "--page-port", "0")
    end = time.monotonic() + 60
    while not live().get("demo") and time.monotonic() < end:
        time.sleep(0.05)
    assert live() == {"demo": True}
    second = subprocess.run([binary(), "demo", "--quick", "--runs", str(tmp_path), "--no-page"], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert second.returncode == 1 and "in use by process" in second.stderr
    demo.stop()
    assert live() == {"demo": False}


def test_ranks_and_starts(started, browser, tmp_path):
    """Of a run over ranks what each did in the newest step, as metrics.jsonl says; and the starts that a launcher's record has."""
    training = started("train", "sft", "--model", MODEL, "--environment", "countdown", "--steps", "100000", "--batch", "4", "--ranks", "dp=2", "--threads", "2", "--runs", tmp_path,
                       "--name", "over", "--page-port", "0")  # fmt: skip
    browser.open(training.url)
    browser.wait("document.querySelectorAll('.rank-times tbody tr').length === 2", "two ranks")
    step, shown = browser.js("return [document.querySelector('.ranks h3').textContent, [...document.querySelectorAll('.rank-times tbody tr')].map((r) => [...r.querySelectorAll('.number')].map((c) => c.textContent))]")
    number = int(re.search(r"(\d+)$", step.replace("\u202f", ""))[1])
    [line] = [one for one in map(json.loads, (tmp_path / "over/metrics.jsonl").read_text().splitlines()[:number]) if one["step"] == number]
    for texts, rank in zip(shown, line["ranks_each"], strict=True):
        assert [text[:-2] for text in texts[:3]] == [f"{rank[part + '_seconds']:.3f}" for part in ("computed", "waited", "sent")], (texts, rank)
    assert browser.js("return [...document.querySelectorAll('.rank-times tr[data-rank=\"1\"] .bar-part')].some((p) => p.getBoundingClientRect().width > 1)")
    assert not browser.js("return document.querySelector('.ranks .starts')")
    events = [{"event": "start", "start": 1, "hosts": [{"name": "a", "slots": 2}], "processes": 2, "ranks": "dp=2", "step": 0},
              {"event": "loss", "words": "process 1 (host a, pid 9) ended without a word", "process": 1, "host": "a", "step": 8, "saved_step": 6},
              {"event": "start", "start": 2, "hosts": [{"name": "a", "slots": 1}], "processes": 1, "ranks": "dp=1", "step": 6}]  # fmt: skip
    (tmp_path / "over/launch.jsonl").write_text("".join(json.dumps({"time": 1, **event}) + "\n" for event in events))
    browser.wait("document.querySelectorAll('.ranks .starts tbody tr').length === 2", "two starts")
    rows = browser.js("return [...document.querySelectorAll('.starts tbody tr')].map((r) => r.textContent)")
    assert "dp=2" in rows[0] and "lost at step 8: process 1 (host a, pid 9) ended without a word" in rows[0] and "dp=1" in rows[1] and "runs" in rows[1], rows
