"""Large models' tensors, as tests/system/real_sizes.json lists them, are those of transformers' classes on the meta device."""

import json

import make_real_sizes
import pytest


@pytest.mark.parametrize("path", sorted((make_real_sizes.ROOT / "shapes/configs").glob("*.json")), ids=lambda path: path.stem)
def test_the_list_is_transformers(path):
    assert json.loads(make_real_sizes.OUT.read_text())[path.stem] == make_real_sizes.sizes_of(path)
