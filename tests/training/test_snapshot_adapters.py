"""Adapters travel as models do: peft reads what `lockstep snapshot pull` writes, bit for bit."""
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from store_tools import run
from transformers import LlamaConfig, LlamaForCausalLM


def base_model():
    torch.manual_seed(5)
    return LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100))


@pytest.fixture
def steps(tmp_path):
    """Two folders as peft saves them, of an adapter before and after a step, and its logits at each."""
    model = get_peft_model(base_model(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    tokens, folders, logits = torch.arange(12).reshape(1, 12), [], []
    for step in range(2):
        if step:
            for name, value in model.named_parameters():
                if "lora_" in name:
                    value.data.reshape(-1)[::9] *= 1.5
        folders.append(tmp_path / f"adapter-{step}")
        model.save_pretrained(folders[-1])
        with torch.no_grad():
            logits.append(model(tokens).logits)
    return folders, logits, tokens


def test_an_adapter_comes_back_for_peft(steps, tmp_path):
    folders, logits, tokens = steps
    first = run("snapshot", "push", folders[0], tmp_path / "store", "--channel", "a", "--json")
    second = run("snapshot", "push", folders[1], tmp_path / "store", "--channel", "a", "--json")
    assert second["parent"] == first["id"] and second["payload_bytes"] < 0.5 * second["full_bytes"], second
    for id, wanted, folder in ((first["id"], logits[0], folders[0]), (second["id"], logits[1], folders[1])):
        out = tmp_path / f"out-{id[:6]}"
        run("snapshot", "pull", tmp_path / "store", id, out, "--json")
        assert (out / "adapter_config.json").read_bytes() == (folder / "adapter_config.json").read_bytes()
        with torch.no_grad():
            assert torch.equal(PeftModel.from_pretrained(base_model(), out)(tokens).logits, wanted)
    assert not torch.equal(logits[0], logits[1])


def test_an_adapter_is_no_child_of_a_model(steps, tmp_path):
    folders, _, _ = steps
    base_model().save_pretrained(tmp_path / "model")
    whole = run("snapshot", "push", tmp_path / "model", tmp_path / "store", "--channel", "m", "--json")["id"]
    refused = run("snapshot", "push", folders[0], tmp_path / "store", "--parent", whole, status=1).stderr
    assert "has adapter_config.json" in refused and "push it without a parent" in refused, refused
