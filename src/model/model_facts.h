// What a model is, in numbers that others go by: the engine, trainers, memory plans, reports. Read from config.json and counted from the
// tensors by whoever makes the model; fixed from then on. Plain values.
//   const ModelFacts& facts = model->facts();
#pragma once
#include <cstdint>
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
  std::vector<std::int64_t> eos_tokens;
  ParameterId head = 0;                 // unembedding [vocabulary, hidden]
  std::int64_t attention_heads = 0;     // query heads of a layer
  std::int64_t select_top_k = 0;        // keys a row attends to at most; 0: dense
  std::int64_t active_size = 0;         // weights used per token, input embedding not counted
  std::int64_t sparse_layers = 0, expert_count = 0, experts_a_token = 0;  // 0: no experts
  std::vector<ParameterId> router_biases;  // that training moves by loads, one a sparse layer
  ExpertShape expert_shape() const { return {sparse_layers, experts_a_token, expert_count}; }
};

}  // namespace lockstep
