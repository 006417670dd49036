"""Rollouts of many turns on the live page: an entry a context window, and between turns what the policy was shown, which nobody trained."""
from test_names_and_gaps import transcript, write_run


def test_a_rollout_of_two_windows(started, browser, tmp_path):
    columns = {name: [-1, -1, None, None, -1] for name in ("sampling_logprobs", "logprobs", "advantages", "values")}
    first = transcript(tokens=["3", "<end>", "7,", "F?", "2"], ids=[3, 9, 7, 8, 2], entropies=[0, 0, None, None, 0], weights=[1, 1, 0, 0, 1], chain=0, chains=2,
                       turns=[{"kind": "answer", "begin": 0, "end": 2, "reward": 0.5}, {"kind": "summary", "begin": 4, "end": 5, "reward": 0}], **columns)
    second = transcript(chain=1, chains=2, turns=[{"kind": "answer", "begin": 0, "end": 1, "reward": 1}])
    write_run(tmp_path, "run", [{"step": 1, "reward": 1, "turns": 3, "chains": 2}], [first, second, transcript(rollout=1)])
    watch = started("watch", tmp_path, "--port", "0")
    browser.open(f"{watch.url}/#/transcripts/run")
    browser.wait("document.querySelectorAll('.entry').length === 3", "three entries")
    heads = browser.js("return [...document.querySelectorAll('.entry header')].map((e) => e.textContent)")
    assert "context window 1 of 2" in heads[0] and "3 tokens" in heads[0] and "3/3 equal bits" in heads[0], heads
    assert "context window 2 of 2" in heads[1] and "context window" not in heads[2], heads
    kinds = browser.js("return [...document.querySelector('.entry').querySelectorAll('.token')].map((t) => t.classList.contains('prompt'))")
    assert kinds == [True, False, False, True, True, False], kinds  # the prompt, two written, two shown, one written
    for at, words in ((1, ["answer", "turn 0, reward 0.5", "value"]), (3, ["shown", "in the loss"]), (5, ["summary", "turn 1"])):
        browser.js("document.querySelectorAll('.entry .token')[arguments[0]].focus()", at)
        strip = browser.js("return document.querySelector('.strip').textContent")
        assert all(word in strip for word in words), (at, strip)
