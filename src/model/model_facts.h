// Numbers of a model for engine, trainers, memory plans and reports, read from config.json and counted from the tensors when the model is made. Plain
// values.
//   const ModelFacts& facts = model->facts();
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/expert_shape.h"
#include "model/manifest.h"
#include "model/rope_table.h"

namespace lockstep {

struct ModelFacts {
  std::string_view model_type;  // of config.json: the family
  std::int64_t vocabulary = 0, hidden = 0, layers = 0, max_positions = 0;
  RopeSpec rope;
  std::optional<RopeSpec> index_rope;  // of the indexers, where it turns other columns than the attention's
  std::vector<std::int64_t> eos_tokens;
  ParameterId head = 0;                                                   // unembedding [vocabulary, hidden]
  std::int64_t attention_heads = 0;                                       // query heads of a layer
  bool latent_attention = false;                                          // whether keys and values are latents (blocks/latent_attention.h)
  std::int64_t select_top_k = 0;                                          // keys that an indexer selects for a row at most; 0: none is there
  std::int64_t window = 0, windowed_layers = 0;                           // the most keys of a row, and in how many layers; 0: all keys in all layers
  bool sinks = false;                                                     // whether heads have a logit that joins their softmax
  std::int64_t active_size = 0;                                           // weights used per token, input embedding not counted
  std::int64_t sparse_layers = 0, expert_count = 0, experts_a_token = 0;  // 0: no experts
  std::vector<ParameterId> router_biases;                                 // updated by expert loads in training, one per MoE layer
  // Keys that a row attends to at most, by selection or window, where a layer has them; 0: all.
  std::int64_t most_keys() const { return window > 0 ? window : select_top_k; }
  ExpertShape expert_shape() const { return {sparse_layers, experts_a_token, expert_count}; }
};

}  // namespace lockstep
