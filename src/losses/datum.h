// Training data as clients of a training API send it: tokens and named tensors per datum, and a loss by name. Plain values.
//   TrainingDatum datum{.tokens = {1, 5, 7}}; datum.inputs["weights"] = NamedTensor{.shape = {3}, .floats = {0, 1, 1}};
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "train/losses.h"

namespace lockstep {

// Row-major; floats or integers, as the client said. `shape` has one or two dimensions.
struct NamedTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> floats;
  std::vector<std::int64_t> integers;
  bool is_float = true;
  std::size_t size() const { return is_float ? floats.size() : integers.size(); }
};

struct TrainingDatum {
  std::vector<std::int32_t> tokens;  // of the model's input
  std::map<std::string, NamedTensor> inputs;
  std::vector<std::string> routing_matrices = {};  // one per token (host/routing_matrix.h); empty: none were sent
};

// The two SDKs have different defaults under the same names (docs/losses.md).
enum class LossDialect { tinker, fireworks };

struct LossRequest {
  std::string name;
  std::map<std::string, LossValue> config;
  LossDialect dialect = LossDialect::tinker;
};

struct TrainingBatch {
  std::vector<TrainingDatum> data;
  LossRequest loss;
  bool forward_only = false;
  std::shared_ptr<const void> held = {};  // what counts its memory, as long as it lives
};

// One datum's tensors, all over its targets.
struct DatumOutput {
  std::vector<std::int64_t> shape;  // of the targets
  std::vector<float> logprobs;
  bool values = false;                  // they are a critic's values
  std::vector<float> elementwise_loss;  // empty: the loss has none
  // The likeliest tokens of each row and their log-probabilities, [rows, top_k], descending; 0: not asked for.
  std::int64_t top_k = 0;
  std::vector<std::int64_t> top_k_indices;
  std::vector<float> top_k_logprobs;
};

struct TrainingOutput {
  std::vector<DatumOutput> data;
  std::map<std::string, double> metrics;  // "name:reduction"
};

}  // namespace lockstep
