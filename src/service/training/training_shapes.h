// The catalog of training shapes: which model is trained how, on what. One place: a shape is a row of training_shapes.cpp. Every
// full-parameter row has a forward-only reference beside it. Pure functions.
//   const TrainingShape* shape = find_training_shape("qwen3-8b-128k");
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct TrainingShape {
  std::string id, model, architecture;
  std::string mode;           // POLICY_TRAINER, LORA_TRAINER, FORWARD_ONLY
  std::int64_t context = 0;   // tokens
  std::string accelerator;
  std::int64_t accelerators = 0;
  std::int64_t nodes() const { return (accelerators + 7) / 8; }
};

const std::vector<TrainingShape>& training_shapes();
// Error not_found, with the nearest name.
const TrainingShape& training_shape(const std::string& id);

}  // namespace lockstep
