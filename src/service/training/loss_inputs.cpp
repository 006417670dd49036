#include "service/training/loss_inputs.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "numerics/accumulator.h"

namespace lockstep {
namespace {

struct LossRow {
  const char* name;
  LossKind kind;
  std::vector<std::string> needs;  // beside target_tokens
  std::vector<std::string> takes;
  std::vector<std::string> settings;
};
const std::vector<LossRow>& loss_rows() {
  static const std::vector<LossRow> rows = {
      {"cross_entropy", LossKind::cross_entropy, {}, {"weights"}, {}},
      {"ppo", LossKind::policy, {"logprobs", "advantages"}, {"mask"}, {"clip_low_threshold", "clip_high_threshold"}},
  };
  return rows;
}

const LossRow& loss_row(const std::string& name) {
  std::vector<std::string> names;
  for (const LossRow& row : loss_rows()) {
    if (name == row.name) return row;
    names.push_back(row.name);
  }
  fail(ErrorCode::invalid_argument, "loss_fn is '{}', allowed are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names));
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

const NamedTensor& need(const TrainingDatum& datum, const std::string& name, const std::string& where, const LossRow& row) {
  const auto found = datum.inputs.find(name);
  if (found != datum.inputs.end()) return found->second;
  std::vector<std::string> missing;
  std::vector<std::string> all = row.needs;
  all.insert(all.begin(), "target_tokens");
  for (const std::string& one : all)
    if (!datum.inputs.contains(one)) missing.push_back(one);
  fail(ErrorCode::invalid_argument, "{}.loss_fn_inputs has no {}, which the loss {} needs", where, fmt::join(missing, " and no "), row.name);
}

std::vector<float> floats_of(const NamedTensor& tensor, const std::string& where, const std::vector<std::int64_t>& shape) {
  if (tensor.shape != shape) fail(ErrorCode::invalid_argument, "{} has shape {}, allowed is {}, the shape of target_tokens", where, shape_text(tensor.shape), shape_text(shape));
  std::vector<float> values = tensor.floats;
  if (!tensor.is_float) values.assign(tensor.integers.begin(), tensor.integers.end());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i])) fail(ErrorCode::invalid_argument, "{}[{}] is not a finite number", where, i);
  return values;
}

double number_setting(const LossRequest& loss, const std::string& name, double standard) {
  const auto found = loss.config.find(name);
  if (found == loss.config.end()) return standard;
  if (const double* value = std::get_if<double>(&found->second); value && std::isfinite(*value)) return *value;
  fail(ErrorCode::invalid_argument, "loss_fn_config.{} is not a finite number", name);
}

}  // namespace

PreparedBatch prepare_batch(const TrainingBatch& batch, const BatchLimits& limits) {
  const LossRow& row = loss_row(batch.loss.name);
  for (const auto& [name, value] : batch.loss.config)
    if (std::find(row.settings.begin(), row.settings.end(), name) == row.settings.end())
      fail(ErrorCode::invalid_argument, "loss_fn_config.{} is not known to the loss {}, {}", name, row.name,
           row.settings.empty() ? std::string("which has no settings") : fmt::format("allowed are {}{}", fmt::join(row.settings, ", "), did_you_mean(name, row.settings)));
  PreparedBatch out;
  out.elementwise_loss = row.kind == LossKind::cross_entropy;
  out.loss.kind = row.kind;
  out.loss.normaliser = 1;
  if (row.kind == LossKind::policy) {
    const double low = number_setting(batch.loss, "clip_low_threshold", 0.8), high = number_setting(batch.loss, "clip_high_threshold", 1.2);
    if (low < 0 || high < low) fail(ErrorCode::invalid_argument, "loss_fn_config.clip_low_threshold is {} and clip_high_threshold is {}, allowed are ratios, 0 <= low <= high", low, high);
    out.loss.clip_low = static_cast<float>(1 - low);
    out.loss.clip_high = static_cast<float>(high - 1);
  }
  if (batch.data.empty()) fail(ErrorCode::invalid_argument, "data is empty, allowed is at least one datum");
  for (std::size_t d = 0; d < batch.data.size(); ++d) {
    const TrainingDatum& datum = batch.data[d];
    const std::string where = fmt::format("data[{}]", d);
    const auto tokens = static_cast<std::int64_t>(datum.tokens.size());
    if (tokens == 0 || tokens > limits.max_positions)
      fail(ErrorCode::invalid_argument, "{}.model_input has {} tokens, allowed is 1 to {}", where, tokens, limits.max_positions);
    for (std::int64_t i = 0; i < tokens; ++i)
      if (datum.tokens[static_cast<std::size_t>(i)] < 0 || datum.tokens[static_cast<std::size_t>(i)] >= limits.vocabulary)
        fail(ErrorCode::invalid_argument, "{}.model_input token {} is {}, allowed are ids from 0 to {}", where, i, datum.tokens[static_cast<std::size_t>(i)], limits.vocabulary - 1);
    const NamedTensor& targets = need(datum, "target_tokens", where, row);
    const std::string target_name = where + ".loss_fn_inputs.target_tokens";
    if (targets.shape.size() != 1)
      fail(ErrorCode::unsupported, "{} has shape {}, allowed is one target a position", target_name, shape_text(targets.shape));
    if (targets.shape[0] != tokens)
      fail(ErrorCode::invalid_argument, "{} has {} values, allowed is {}, one a token of model_input", target_name, targets.shape[0], tokens);
    if (targets.is_float) fail(ErrorCode::invalid_argument, "{} is float32, allowed is int64", target_name);
    TrainSequence sequence;
    sequence.tokens = datum.tokens;
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t target = targets.integers[static_cast<std::size_t>(i)];
      if (target < 0 || target >= limits.vocabulary)
        fail(ErrorCode::invalid_argument, "{}[{}] is {}, allowed are ids from 0 to {}", target_name, i, target, limits.vocabulary - 1);
      sequence.targets.push_back(static_cast<std::int32_t>(target));
    }
    sequence.weights.assign(static_cast<std::size_t>(tokens), 1.0f);
    const auto read = [&](const char* name, std::vector<float>& into) {
      if (const auto found = datum.inputs.find(name); found != datum.inputs.end())
        into = floats_of(found->second, fmt::format("{}.loss_fn_inputs.{}", where, name), targets.shape);
    };
    for (const std::string& name : row.needs) need(datum, name, where, row);
    if (row.kind == LossKind::cross_entropy) {
      read("weights", sequence.weights);
    } else {
      read("advantages", sequence.advantages);
      read("logprobs", sequence.old_logprobs);
      read("mask", sequence.weights);
    }
    out.sequences.push_back(std::move(sequence));
    out.shapes.push_back(targets.shape);
  }
  return out;
}

TrainingOutput training_output(const PreparedBatch& batch, const ForwardBackwardResult& result) {
  TrainingOutput out;
  ExactSum sum;
  bool summed = false;
  for (std::size_t s = 0; s < batch.sequences.size(); ++s) {
    DatumOutput datum;
    datum.shape = batch.shapes[s];
    datum.logprobs = result.logprobs[s];
    if (batch.elementwise_loss) {
      summed = true;
      for (std::size_t i = 0; i < datum.logprobs.size(); ++i) {
        const float weight = batch.sequences[s].weights[i];
        datum.elementwise_loss.push_back(weight == 0 ? 0.0f : 0.0f - weight * datum.logprobs[i]);
        sum.add(static_cast<double>(datum.elementwise_loss.back()));
      }
    }
    out.data.push_back(std::move(datum));
  }
  out.metrics["loss:sum"] = summed ? sum.total() : result.loss;
  return out;
}

}  // namespace lockstep
