"""Clients that train sample from the model's own distribution, whatever its folder's generation_config.json says of temperature and top_p."""
import json
import shutil

import tinker
from conftest import Server, _api

PROMPT, LENGTH = [3, 7, 12, 48], 12


def sampled(folder, tmp_path, **settings):
    server = Server("--training", "--state", str(tmp_path / f"state-{folder.name}-{len(settings)}"), "--name", "base", model=folder)
    try:
        client = tinker.ServiceClient(base_url=server.url, api_key="tml-own").create_sampling_client(base_model="base")
        parameters = tinker.SamplingParams(max_tokens=LENGTH, seed=5, **settings)
        answer = client.sample(tinker.ModelInput.from_ints(PROMPT), num_samples=1, sampling_params=parameters).result(timeout=60)
        return answer.sequences[0].tokens
    finally:
        assert server.stop() == 0, "".join(server.errors)


def test_training_clients_sample_from_the_models_own_distribution(tmp_path):
    plain, told = tmp_path / "plain", tmp_path / "told"
    for folder in (plain, told):
        shutil.copytree(_api.MODEL, folder)
    (told / "generation_config.json").write_text(json.dumps({"temperature": 20.0, "top_k": 1000, "top_p": 0.3}))
    (plain / "generation_config.json").unlink(missing_ok=True)
    without = sampled(plain, tmp_path)
    assert sampled(told, tmp_path) == without
    assert sampled(told, tmp_path, temperature=20.0) != without  # the control: it would be seen
