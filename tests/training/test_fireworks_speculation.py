"""Fireworks' words for guesses ahead (docs/speculation.md): `speculation`, `prediction`, and deployments that were made without them."""
import requests

from fireworks.training.sdk.deployment import DeploymentConfig, DeploymentManager

from fireworks_tools import BASE, TOKENS

KEY = "speculates"


def completion(server, model=BASE, **fields):
    answer = requests.post(server.url + "/inference/v1/completions", json={"model": model, "prompt": TOKENS, "max_tokens": 32, "ignore_eos": True, "seed": 2, "raw_output": True, "logprobs": True,
                                                                           "perf_metrics_in_response": True, **fields}, headers={"X-API-Key": KEY}, timeout=120)  # fmt: skip
    assert answer.status_code == 200, answer.text
    return answer.json()


def told(answer):
    return answer["choices"][0]["raw_output"], answer["choices"][0]["logprobs"]["content"]


def right(answer):
    return answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]


def test_speculation_is_a_text_or_ids(training_server):
    plain = completion(training_server, speculative={"mode": "off"})
    ids, text = plain["choices"][0]["raw_output"]["completion_token_ids"], plain["choices"][0]["text"]
    assert "completion_tokens_details" not in plain["usage"] and "speculation-prompt-matched-tokens" not in plain["perf_metrics"]
    for fields in ({"speculation": ids}, {"speculation": text}, {"prediction": text}, {"prediction": {"type": "content", "content": text}}):
        answer = completion(training_server, speculative={"mode": "prediction", "tokens": 8}, **fields)
        assert told(answer) == told(plain), fields
        assert answer["perf_metrics"]["speculation-prompt-matched-tokens"] == str(right(answer))
    assert right(completion(training_server, speculative={"mode": "prediction"}, speculation=ids)) >= 20


def test_a_deployment_without_guesses(training_server):
    # The package's own manager, as users of the hosted service make one.
    manager = DeploymentManager(api_key=KEY, base_url=training_server.url, inference_url=training_server.url)
    for name, without in (("guesses", False), ("never-guesses", True)):
        manager._create_deployment(DeploymentConfig(deployment_id=name, base_model=BASE, disable_speculative_decoding=without))
    ids = completion(training_server)["choices"][0]["raw_output"]["completion_token_ids"]
    ask = {"speculation": ids, "speculative": {"tokens": 5}}
    plain = completion(training_server, "accounts/local/deployments/never-guesses", **ask)
    assert plain["usage"]["completion_tokens_details"] == {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    guessed = completion(training_server, "accounts/local/deployments/guesses", **ask)
    assert right(guessed) > 0 and told(guessed) == told(plain)
    asked = completion(training_server, "accounts/local/deployments/never-guesses", speculation=ids, speculative={"mode": "prediction"})
    assert right(asked) > 0 and told(asked) == told(plain)
