"""Every key of config.json that transformers knows is read, refused or harmless, as docs/models.md lists them, and the binary does so.

A key is tried with `lockstep plan`, which reads the config and no weights. The lists are docs/models.md's own tables.
"""

import dataclasses
import inspect
import json
import re
import subprocess

import make_goldens
import pytest
from transformers import CONFIG_MAPPING

FAMILIES = {
    "glm_moe_dsa": "glm_moe_dsa/sharing", "deepseek_v3": "deepseek_v3/groups", "kimi_k2": "kimi_k2/small", "deepseek_v32": "deepseek_v32/indexed",
    "llama": "llama/wide", "mistral": "mistral/window", "qwen2": "qwen2/wide", "qwen3": "qwen3/tied", "qwen3_moe": "qwen3_moe/between",
    "minimax_m2": "minimax_m2/norms", "gpt_oss": "gpt_oss/window",
}  # fmt: skip
GARBAGE = {"nonsense": 1}  # no key that is read may be this
# Names by which the class is also given its fields (attribute_map and __post_init__), and what every config may hold.
OLDER = {"torch_dtype", "rope_theta", "rope_scaling", "partial_rotary_factor", "per_layer_config", "output_attentions", "num_labels", "quantization_config", "auto_map"}


def tables():
    """Rows of the three tables: (keys, families, further cells)."""
    text = (make_goldens.FOLDER.parents[1] / "docs/models.md").read_text().split("## Every key of config.json")[1].split("\n## ")[0]
    lists = []
    for part in re.split(r"\n\|(?:---\|)+\n", text)[1:]:
        rows = []
        for line in part.split("\n\n")[0].splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            families = list(FAMILIES) if cells[1] == "all" else cells[1].split(", ")
            assert set(families) <= set(FAMILIES), line
            rows.append((re.findall(r"`(\w+)`", cells[0]), families, cells[2:]))
        lists.append(rows)
    assert len(lists) == 3, "docs/models.md no longer has the three tables"
    return lists


READ, REFUSED, HARMLESS = tables()


def of(rows, family):
    return [(key, cells) for keys, families, cells in rows if family in families for key in keys]


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def config(family):
    return json.loads((make_goldens.FOLDER / FAMILIES[family] / "config.json").read_text())


@pytest.fixture
def plan(lockstep, tmp_path):
    """plan(config): the plan as JSON, or the error's line."""

    def run(config):
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        done = subprocess.run([str(lockstep.binary), "plan", "--model", str(file), "--length", "8", "--memory-megabytes", "65536", "--json"], capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 1) and len(done.stderr.splitlines()) == done.returncode, done.stderr
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip()

    return run


def class_keys(family):
    """Every name that transformers' class takes, of its fields, its older names and its __post_init__."""
    kind = CONFIG_MAPPING[make_goldens.ORACLE_TYPES.get(family, family)]
    keys = {field.name for field in dataclasses.fields(kind)} | set(kind().to_dict()) | set(kind.attribute_map) | OLDER
    keys |= set(re.findall(r'kwargs\.(?:get|pop)\("(\w+)"', inspect.getsource(kind)))
    return {key for key in keys if not key.startswith("_")}


def test_every_key_of_the_class_is_in_one_list(family):
    lists = [{key for key, _ in of(rows, family)} for rows in (READ, REFUSED, HARMLESS)]
    for i, one in enumerate(lists):
        for other in lists[i + 1 :]:
            assert not one & other, f"in two lists: {one & other}"
    missing = class_keys(family) - set.union(*lists)
    assert not missing, f"transformers' {family} reads {sorted(missing)}, which docs/models.md does not list"


def test_what_is_read_is_read(family, config, plan):
    assert isinstance(plan(config), dict), plan(config)
    for key, _ in of(READ, family):
        lacking = {k: v for k, v in config.items() if k != {"rope_scaling": "rope_parameters", "rope_theta": "rope_parameters", "index_topk_pattern": "indexer_types"}.get(key)}
        answer = plan(lacking | {key: GARBAGE})
        assert isinstance(answer, str) and (key in answer or "nonsense" in answer), f"{key}: {answer}"


def test_what_is_refused_is_refused(family, config, plan):
    fine = {}
    for key, (allowed, refused) in of(REFUSED, family):
        answer = plan(config | {key: json.loads(refused)})
        assert isinstance(answer, str) and f"'{key}'" in answer and "allowed" in answer, f"{key}: {answer}"
        try:
            fine[key] = json.loads(allowed)
        except json.JSONDecodeError:
            pass  # said in words
    assert len(fine) > 20
    assert plan(config | fine) == plan(config | dict.fromkeys(fine)) == plan(config)


def test_what_is_harmless_changes_nothing(family, config, plan):
    want = plan(config)
    for value in (GARBAGE, 3, True, "other"):
        assert plan(config | {key: value for key, _ in of(HARMLESS, family)}) == want, value
