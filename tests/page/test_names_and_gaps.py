"""What the live page does with runs that are not as ours: names of any kind, numbers that are none, text that turns its direction."""
import json
import urllib.parse

import pytest

# A name from elsewhere: blanks, what an address gives a meaning, other scripts.
NAMES = ["with space", "50% done", "a#b?c&d", "ünïcöde 训练", "plus+plus"]


def write_run(folder, name="run", lines=(), transcripts=(), config=None):
    run = folder / name
    run.mkdir()
    (run / "metrics.jsonl").write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    if transcripts:
        (run / "transcripts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in transcripts))
    if config:
        (run / "config.json").write_text(json.dumps(config))
    return run


def transcript(**fields):
    return {"step": 1, "weights_version": 0, "group": 0, "rollout": 0, "reward": 1, "finish": "stop", "prompt": ["p"], "prompt_ids": [1], "tokens": ["t"], "ids": [2],
            "sampling_logprobs": [-1], "logprobs": [-1], "entropies": [0], "advantages": [0], "weights": [1], **fields}


@pytest.fixture
def many(started, tmp_path):
    for at, name in enumerate(NAMES):
        write_run(tmp_path, name, [{"step": 1, "reward": at}, {"step": 2, "reward": at}], [transcript(tokens=[f"of {name}"])])
    return started("watch", tmp_path, "--port", "0")


def test_runs_of_any_name_are_listed_and_open(many, browser):
    browser.open(many.url)
    browser.wait(f"document.querySelectorAll('.run').length === {len(NAMES)}", "the list")
    assert set(browser.js("return [...document.querySelectorAll('.run')].map((e) => e.dataset.run)")) == set(NAMES)
    for at, name in enumerate(NAMES):
        browser.js("[...document.querySelectorAll('.run')].find((e) => e.dataset.run === arguments[0]).click()", name)
        browser.wait(f"document.querySelector('.board h2')?.textContent === {json.dumps(name)} && document.querySelector('[data-key=reward] .value')?.textContent === '{at}'", name)
        # The address is one to send to somebody else.
        address = browser.driver.current_url
        browser.open(address)
        browser.wait(f"document.querySelector('[data-key=reward] .value')?.textContent === '{at}'", f"{name} by its address")
        browser.open(f"{many.url}/#/transcripts/{urllib.parse.quote(name, safe='')}")
        browser.wait(f"document.querySelector('.entry')?.textContent.includes({json.dumps('of ' + name)})", f"the transcripts of {name}")
        browser.open(many.url)
        browser.wait(f"document.querySelectorAll('.run').length === {len(NAMES)}", "the list")


# What reinforcement learning with a reference, several updates and redraws writes beside the rest, and distillation from teachers.
LEARNING = {"reference_k1": "KL k1 to the reference", "reference_k3": "KL k3 to the reference", "groups_redrawn": "Groups drawn again", "groups_dropped": "Groups dropped",
            "unanswered": "Unanswered", "unjudged_tokens": "Unjudged tokens", "divergence_sums": "Divergence from sums", "divergence_of 2": "Divergence from of 2", "rate_sort": "Rate of sort",
            "mtp_variation": "Drafts' loss of overlap", "mtp_loss_2": "Drafts' loss, depth 2", "mtp_overlap_1": "Drafts' overlap, depth 1"}  # fmt: skip
OPTIMISER = {"updates": "Updates", "policy_k3": "KL k3 within the step", "policy_clipped": "Clipped within the step", "mini_batches_skipped": "Mini-batches skipped"}


# Of a run that keeps forwards, and of one that publishes its weights: groups of their own, in this order.
KEPT = {"rows_sampled": "Rows sampled", "rows_asked": "Rows asked for", "rows_kept": "Rows kept", "rows_computed": "Rows computed", "rows_recomputed": "Rows computed again",
        "kept_rows_dropped": "Kept rows dropped", "kept_rows_compared": "Kept rows compared", "kept_bytes": "Memory of kept rows"}  # fmt: skip
PUBLISHING = {"publish_seconds": "Waited for publishing", "publish_beside_seconds": "Publishing", "publish_bytes": "Published", "publish_full_bytes": "Whole weights", "publish_sequence": "Snapshot"}


def test_what_learning_tells_has_its_meaning_and_its_group(started, tmp_path, browser):
    keys = {**LEARNING, **OPTIMISER, **KEPT, **PUBLISHING, "proximal_forwards": "Proximal forwards", "completions": "Completions", "seconds": "Step"}
    write_run(tmp_path, "run", [{"step": step, "reward": 1, **dict.fromkeys(keys, step)} for step in (1, 2)])
    write_run(tmp_path, "strange", [{"step": step, "reward": 1, "nobody_knows": step} for step in (1, 2)])
    server = started("watch", tmp_path, "--port", "0")
    groups = lambda: browser.js("return Object.fromEntries([...document.querySelectorAll('.group')].map((g) => [g.querySelector('h2').textContent, [...g.querySelectorAll('.curve')].map((c) => c.dataset.key)]))")  # noqa: E731
    browser.open(f"{server.url}/#/runs/run")
    browser.wait("document.querySelector('[data-key=divergence_sums]')", "the curves")
    shown = groups()
    assert "Other" not in shown and set(LEARNING) < set(shown["Learning"]) and set(OPTIMISER) <= set(shown["Optimiser"]), shown
    assert shown["Kept forwards"] == [*KEPT] and shown["Publishing"] == [*PUBLISHING], shown
    titles = browser.js("return Object.fromEntries([...document.querySelectorAll('.curve')].map((c) => [c.dataset.key, c.textContent]))")
    assert all(title in titles[key] for key, title in keys.items()), titles
    browser.open(f"{server.url}/#/runs/strange")
    browser.wait("document.querySelector('[data-key=nobody_knows]')", "the other run's curves")
    assert groups()["Other"] == ["nobody_knows"]  # the control


@pytest.mark.parametrize("view", ["runs", "transcripts"])
def test_an_unknown_run_is_said_to_be_unknown(many, browser, view):
    browser.open(f"{many.url}/#/{view}/no-such%20run")
    browser.wait("document.querySelector('main').textContent.includes('There is no run “no-such run” here')", "the word")
    assert browser.js("return document.querySelectorAll('.curve, .entry').length") == 0
    if view == "runs":  # the others are one click away
        browser.js("document.querySelector('.run').click()")
        browser.wait("document.querySelector('.curve')", "a run that there is")


def test_a_run_that_comes_later_is_shown(started, browser, tmp_path):
    write_run(tmp_path, "first", [{"step": 1, "reward": 0.5}])
    watch = started("watch", tmp_path, "--port", "0")
    browser.open(f"{watch.url}/#/runs/second")
    browser.wait("document.querySelector('main').textContent.includes('There is no run “second” here')", "the word")
    write_run(tmp_path, "second", [{"step": 1, "reward": 0.75}])
    browser.wait("document.querySelector('[data-key=reward] .value')?.textContent === '0.7500'", "the run")


def test_parity_of_an_unknown_run(started, browser, tmp_path):
    run = write_run(tmp_path, "measured", [{"step": 1, "reward": 0.5}])
    (run / "parity.json").write_text(json.dumps({"passed": True, "engagement": {"x": 1}, "control": {}, "places": []}))
    write_run(tmp_path, "plain", [{"step": 1, "reward": 0.5}])
    watch = started("watch", tmp_path, "--port", "0")
    browser.open(f"{watch.url}/#/parity/nobody")
    browser.wait("document.querySelector('main').textContent.includes('There is no run “nobody” here')", "the word")
    assert browser.js("return document.querySelector('.counters')") is None
    browser.open(f"{watch.url}/#/parity/plain")
    browser.wait("document.querySelector('main').textContent.includes('The run “plain” has no result; this is “measured”')", "the word")


def test_settings_of_a_run_are_shown(browser, server):
    browser.open(f"{server.url}/#/runs/short")
    browser.wait("document.querySelector('.settings td')", "the settings")
    browser.js("document.querySelector('.settings summary').click()")
    shown = dict(browser.js("return [...document.querySelectorAll('.settings tr')].map((r) => [r.children[0].textContent, r.children[1].textContent])"))
    assert shown["problems"] == "4" and shown["rollouts"] == "8" and shown["environment"] == "countdown" and shown["name"] == "short", shown
    assert "/" not in shown["runs"].removeprefix(".../"), shown["runs"]  # where it lay on this machine is nobody's


def test_what_is_no_number_is_a_gap(started, browser, tmp_path):
    lines = [{"step": step, "reward": 0.5} for step in range(1, 11)]
    lines[4]["reward"] = lines[5]["reward"] = float("nan")  # json.dumps writes NaN, as Python programs do
    lines[7]["reward"] = None
    lines += ['{"step":11,"reward":null}\n']
    write_run(tmp_path, "run", lines, [transcript(reward=None, advantages=[None])])
    watch = started("watch", tmp_path, "--port", "0")
    browser.open(watch.url)
    canvas = "document.querySelector('[data-key=reward] canvas')"
    browser.wait(f"{canvas} && {canvas}.width > 100", "the drawing")
    assert browser.js("return document.querySelector('[data-key=reward] .value').textContent") == "–"
    assert "no number at step 11" in browser.js(f"return {canvas}.getAttribute('aria-label')")
    browser.js("const s = document.querySelector('input[type=range]'); s.value = 0; s.dispatchEvent(new Event('input'))")
    # Columns of the picture that hold the curve's colour: a run of them, a gap, a run, a gap, a run.
    pieces = browser.wait(f"""(() => {{
      const c = {canvas}, g = c.getContext('2d'), d = g.getImageData(0, 0, c.width, c.height).data;
      const colour = getComputedStyle(document.documentElement).getPropertyValue('--arm-0').trim();
      const n = parseInt(colour.slice(1), 16), want = [n >> 16, (n >> 8) & 255, n & 255], found = [];
      for (let x = 0; x < c.width; ++x) for (let y = 0; y < c.height; ++y) {{
        const i = 4 * (y * c.width + x);
        if (d[i + 3] > 100 && Math.abs(d[i] - want[0]) + Math.abs(d[i + 1] - want[1]) + Math.abs(d[i + 2] - want[2]) < 40) {{ found.push(x); break; }}
      }}
      const parts = [];
      for (const x of found) if (parts.length && x - parts[parts.length - 1][1] < 5) parts[parts.length - 1][1] = x; else parts.push([x, x]);
      return parts.length ? parts : null;
    }})()""", "the curve")
    assert len(pieces) == 3, pieces  # steps 1-4, the lone 7, 9-10; step 11 is none
    browser.open(f"{watch.url}/#/transcripts")
    browser.wait("document.querySelector('.entry .badge')", "the rollout")
    assert browser.js("return document.querySelector('.entry .badge').textContent") == "reward –"


def test_axes_have_units(browser, server):
    browser.open(f"{server.url}/#/runs/short")
    browser.wait("document.querySelectorAll('.curve').length > 10", "the curves")
    units = browser.js("return Object.fromEntries([...document.querySelectorAll('.curve')].map((e) => [e.dataset.key, e.dataset.unit]))")
    assert units["tokens_per_second"] == "tokens/s" and units["rollout_seconds"] == "s" and units["k3"] == "nats" and units["pass_at_1"] == "share"
    assert all(units.values()), units  # every number that we write ourselves has one
    titles = browser.js("return [...document.querySelectorAll('.curve h3')].map((e) => e.textContent)")
    assert not [t for t in titles if "_" in t or t == t.lower() and " " not in t and not t.startswith("pass@")], titles


@pytest.mark.parametrize("finish, words", [("stop", "ended"), ("length", "cut off at the limit"), ("truncated", "cut off at the limit"), ("who_knows", "ended otherwise")])
def test_ends_are_words(started, browser, tmp_path, finish, words):
    write_run(tmp_path, "run", [{"step": 1, "reward": 1}], [transcript(finish=finish)])
    watch = started("watch", tmp_path, "--port", "0")
    browser.open(f"{watch.url}/#/transcripts")
    browser.wait("document.querySelector('.entry header')", "the rollout")
    head = browser.js("return document.querySelector('.entry header').textContent")
    assert words in head and "who_knows" not in head and "truncated" not in head and "max_tokens" not in head, head


def test_direction_controls_are_marks(started, browser, tmp_path):
    turned = "abc\u202edcba\u202c"
    write_run(tmp_path, f"run {turned}", [{"step": 1, "reward": 1, f"key{turned}": 2}], [transcript(tokens=[turned, "\u2066x\u2069"], ids=[2, 3], sampling_logprobs=[-1, -1], logprobs=[-1, -1],
              entropies=[0, 0], advantages=[0, 0], weights=[1, 1])], {"note": turned})
    watch = started("watch", tmp_path, "--port", "0")
    shown = "abc⟨U+202E⟩dcba⟨U+202C⟩"
    for view, condition in (("runs", "document.querySelectorAll('.curve').length === 2 && document.querySelector('.settings td')"), ("transcripts", "document.querySelector('.entry')")):
        browser.open(f"{watch.url}/#/{view}")
        browser.wait(condition, view)
        text = browser.js("return document.documentElement.textContent + [...document.querySelectorAll('*')].map((e) => (e.getAttribute('aria-label') || '') + (e.title || '')).join()")
        assert shown in text and not set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    browser.js("document.querySelectorAll('.entry .token')[1].focus()")
    assert shown in browser.js("return document.querySelector('.strip .token-text').textContent")
