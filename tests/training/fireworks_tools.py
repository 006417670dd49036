"""What the tests with the `fireworks-ai` package share."""
import asyncio
import contextlib
import struct
import warnings

import fireworks.training.sdk.types as types
from fireworks.training.sdk import FiretitanServiceClient
from fireworks.training.sdk.client import FiretitanSamplingClient
from fireworks.training.sdk.deployment import DeploymentConfig, DeploymentManager
from fireworks.training.sdk.sampling import DeploymentSampler

BASE = "countdown-glm"
TOKENS = [1, 5, 7, 9, 11, 13, 8, 6, 3, 2]
OTHER = [2, 2, 7, 1, 4, 12, 10]


def tensor(values, dtype):
    return types.TensorData(data=list(values), dtype=dtype, shape=[len(values)])


def datum(tokens=TOKENS, routing=None, **floats):
    inputs = {"target_tokens": tensor(tokens[1:], "int64")}
    inputs.update({name: tensor(values, "float32") for name, values in floats.items()})
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1], routing_matrices=routing), loss_fn_inputs=inputs)


def logprobs_of(result, index=0):
    return list(result.loss_fn_outputs[index]["logprobs"].data)


def bits(values):
    return [struct.pack("<f", v) for v in values]


def scored(client, tokens=TOKENS):
    return logprobs_of(client.forward([datum(tokens)], "cross_entropy").result())


def trained(client, steps=2, rate=1e-2, tokens=TOKENS):
    losses = []
    for _ in range(steps):
        losses.append(client.forward_backward([datum(tokens)], "cross_entropy").result().metrics["loss:sum"])
        client.optim_step(types.AdamParams(learning_rate=rate)).result()
    return losses


def client_of(url, key, **arguments):
    """A training client on a service (and session) of its own."""
    return FiretitanServiceClient(base_url=url, api_key=key).create_training_client(base_model=BASE, **arguments)


class Deployed:
    """A deployment, hot-loaded by hand."""

    def __init__(self, url, key, name, base_model=BASE):
        self.url, self.key, self.name, self.base_model = url, key, name, base_model
        self.manager = DeploymentManager(api_key=key, base_url=url, inference_url=url, hotload_api_url=url)
        self.manager.create_or_get(DeploymentConfig(deployment_id=name, base_model=base_model, accept_shapeless_risk=True))
        self.model = f"accounts/{self.manager.account_id}/deployments/{name}"

    def load(self, snapshot):
        assert self.manager.hotload_and_wait(deployment_id=self.name, base_model=self.base_model, snapshot_identity=snapshot)

    def replica(self):
        return self.manager.hotload_check_status(self.name, self.base_model)["replicas"][0]

    def score(self, tokens=TOKENS):
        """Log-probabilities of all tokens but the first."""
        with warnings.catch_warnings(), FiretitanSamplingClient.create(inference_url=self.url, model=self.model, api_key=self.key) as client:
            warnings.simplefilter("ignore")
            return client.compute_logprobs(types.ModelInput.from_ints(tokens)).result()[1:]

    def sample(self, **arguments):
        return sample(self.url, self.key, self.model, **arguments)


def sample(url, key, model, prompt=TOKENS[:4], **arguments):
    sampler = DeploymentSampler(inference_url=url, model=model, api_key=key)
    settings = {"n": 1, "max_tokens": 6, "temperature": 0.7, "seed": 5, "logprobs": True, **arguments}
    return asyncio.run(sampler.sample_with_prompt_tokens(prompt, **settings))[0]


@contextlib.contextmanager
def served(like, folder, scratch):
    """Another server, on a model's folder."""
    server = type(like)("--training", "--state", str(scratch / "other-state"), model=folder)
    try:
        yield server
    finally:
        server.stop()


def same_bits(client, completion, prompt=TOKENS[:4]):
    """Whether the trainer scores a completion with the bits that its sampler gave."""
    return bits(completion.inference_logprobs) == bits(scored(client, list(completion.full_tokens))[len(prompt) - 1:])
