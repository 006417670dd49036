// How files may hold a model's weights, as JSON for docs/models.md and `lockstep info --families`: formats of few bits, types of GGUF, and under which
// profiles the numbers of a format are computed with as they stand. What `lockstep info DIR` says of one folder follows from the same rule
// (checkpoint/stored_form.h).
//   print(few_bits_json().dump()); print(exact_under_json(*make_model(config)).dump());
#pragma once
#include "model/model.h"

namespace lockstep {

// [{"name", "bits_a_weight", "tensors": [{"name", "holds"}], "numbers", "quantization_config"}], of a matrix X.weight; of MXFP4 a tensor X of all
// experts. `quantization_config` is what `lockstep convert --profile` writes.
Json few_bits_json();
// [{"type", "bits_a_weight"}]
Json gguf_types_json();
// [{"format", "scales", "of", "profiles": [names]}]: the profiles under which a model computes with the file's numbers. `scales`: what must be true of
// them, or null; `of`: which tensors are stored so. What the model's files cannot hold so has no row.
Json exact_under_json(const Model& model);

}  // namespace lockstep
