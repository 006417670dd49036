"""Clients that train sample from the model's own distribution, whatever its folder's generation_config.json says of temperature and top_p."""
import json
import shutil
from pathlib import Path

import tinker

MODEL = Path(__file__).resolve().parents[2] / "models/countdown-glm"
PROMPT, LENGTH = [3, 7, 12, 48], 12


def sampled(server_class, folder, tmp_path, **settings):
    server = server_class("--training", "--state", str(tmp_path / f"state-{folder.name}-{len(settings)}"), "--name", "base", model=folder)
    try:
        client = tinker.ServiceClient(base_url=server.url, api_key="tml-own").create_sampling_client(base_model="base").result()
        parameters = tinker.SamplingParams(max_tokens=LENGTH, seed=5, **settings)
        answer = client.sample(tinker.ModelInput.from_ints(PROMPT), num_samples=1, sampling_params=parameters).result(timeout=60)
        return answer.sequences[0].tokens
    finally:
        assert server.stop() == 0, "".join(server.errors)


def test_training_clients_sample_from_the_models_own_distribution(training_server, tmp_path):
    server = type(training_server)
    plain, told = tmp_path / "plain", tmp_path / "told"
    for folder in (plain, told):
        shutil.copytree(MODEL, folder)
    (told / "generation_config.json").write_text(json.dumps({"temperature": 20.0, "top_k": 1000, "top_p": 0.3}))
    (plain / "generation_config.json").unlink(missing_ok=True)
    without = sampled(server, plain, tmp_path)
    assert sampled(server, told, tmp_path) == without
    assert sampled(server, told, tmp_path, temperature=20.0) != without  # the control: it would be seen
