// Requests of clients about models and checkpoints, decoded from a wire. Plain values.
//   CreateModel wanted{.session = session, .number = 0, .settings = settings};
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/training_records.h"
#include "train/trainer.h"

namespace lockstep {

// `from`: a checkpoint's path; then settings that are not given come from it. Empty: a new model.
struct CreateModel {
  std::string session;
  std::int64_t number = 0;
  ModelSettings settings;
  std::string from;
  bool with_optimizer = false;
};

// What gradients are divided by: the number of loss tokens or of sequences in all forward_backward calls since the last step.
enum class GradientDivisor { none, loss_tokens, sequences };
enum class GradientNorms { off, basic, detailed };

struct OptimizerRequest {
  AdamParameters adam;              // of dimuon: learning_rate, beta1, max_norm
  std::string optimizer = "adamw";  // must be the model's
  GradientDivisor divisor = GradientDivisor::none;
  GradientNorms norms = GradientNorms::off;
};

struct OptimizerOutput {
  std::uint64_t version = 0;
  std::vector<std::pair<std::string, double>> metrics;
};

struct SaveRequest {
  std::string kind = "weights", name;
  bool overwrite = false;
  std::optional<double> ttl_seconds;
  TrainingJson user_metadata = TrainingJson::object();
  // For a sampler: base, delta, merged_base (an adapter merged into whole weights); empty: not given.
  std::string type;
  std::string precision;  // of merged_base: source (the base's, also where it is empty), bf16
};

// A copy of a checkpoint, in a session's model slot or (session empty) in a run of its own.
struct CopyRequest {
  std::string source, session, idempotency_key;
  std::string project;  // of a run of its own
  std::int64_t number = 0;
  std::optional<double> ttl_seconds;
};

}  // namespace lockstep
