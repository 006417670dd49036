"""`lockstep bench serve`: its classes are the server's, its counts are those of the server's own metrics, live answers come at the rate that was asked for, and who
is refused is told."""
import json
import re

import requests
from test_fleet import lockstep, wait_for


def bench(server, *options, status=0):
    done = lockstep("bench", "serve", "--url", server.url, "--warm-seconds", "0", "--seconds", "1", "--live-tokens", "8", "--rollout-tokens", "12", *options, status=status)
    return json.loads(done.stdout)["classes"] if "--json" in options and status == 0 else done


def metrics(server):
    return requests.get(server.url + "/metrics", timeout=30).text


def tokens(server, name):
    """Of all answers, when those that were cut off have ended here, too."""
    text = wait_for("the end of all answers", lambda: text if "lockstep_open_sequences 0\n" in (text := metrics(server)) else "")
    return int(re.search(rf'lockstep_class_tokens_total{{class="{name}"}} (\d+)', text)[1])


def test_it_measures_what_the_server_does(own_server):
    server = own_server("--live-token-ms", "40")
    found = bench(server, "--rate", "20", "--rollouts", "4", "--json")
    assert set(found) == {"live", "rollouts"}
    live, rollouts = found["live"], found["rollouts"]
    assert 6 <= live["answers"] <= 45 and live["refused"] == {} and rollouts["refused"] == {}  # 20 are expected
    for figures in found.values():
        for name in ("first_token_ms", "gap_ms", "answer_ms"):
            spread = list(figures[name].values())
            assert spread == sorted(spread) and spread[-1] > 0, (name, spread)
        assert figures["tokens_per_second"] == round(figures["tokens"], 1)
    # An answer that the end cuts off was generated a little further than anybody saw.
    for name, figures in found.items():
        assert figures["tokens"] <= tokens(server, name) <= figures["tokens"] + 2 * 12 * 70, (name, figures)
    before = tokens(server, "rollouts")
    assert "rollouts" in bench(server, "--rollouts", "2", "--classless", "--json") and tokens(server, "rollouts") == before
    shown = bench(server, "--load", "0.2", "--streams", "2", "--seed", "3").stdout
    assert re.search(r"^live +\d+ +0 ", shown, re.MULTILINE), shown


def test_who_is_refused_is_told(own_server):
    server = own_server("--max-open", "1")
    found = bench(server, "--rollouts", "6", "--json")["rollouts"]
    assert found["answers"] > 0 and found["refused"]["429"] > 0
    server.stop()
    assert "no answer" in bench(server, "--rate", "5", "--model", "m", status=1).stderr
    assert "allowed is one of the two" in bench(server, "--rate", "5", "--load", "1", status=2).stderr
    assert "there would be no request" in bench(server, status=2).stderr
