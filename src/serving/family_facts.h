// Facts of a model's family that `lockstep info` shows beside its sizes: which keys a token attends to, the kind of RoPE, which layers have experts.
// Pure.
//   json.update(family_facts(*make_model(config)));
#pragma once
#include "model/model.h"

namespace lockstep {

// {"attention": {"heads", "key_value_heads" (null: one latent for all heads), "sliding_window" (keys that a token sees, its own included; null: all
// before it), "selected_keys" (of an indexer at most; null: there is none), "indexer_layers"},
//  "rope": {"scaling", "factor", "original_context", "turned_columns"}, "router": null without experts or {"sparse_layers", "correction_bias"},
//  "tied_head"}
Json family_facts(const Model& model);

}  // namespace lockstep
