#include "host/batch_loss_parts.h"

#include <algorithm>

#include "base/choice.h"
#include "base/error.h"
#include "host/shared_prompts.h"
#include "train/value_loss.h"

namespace lockstep {
namespace {
double number_option(const std::string& name, const LossValue& value) {
  const auto* number = std::get_if<double>(&value);
  if (!number) fail(ErrorCode::invalid_argument, "{} is no number, allowed is one", name);
  return *number;
}
}  // namespace

void wrong_option(const std::string& loss, const std::string& name, std::vector<std::string> names) {
  names.emplace_back(kSharePrompts);
  fail(ErrorCode::invalid_argument, "'{}' is no option of the loss {}, {}", name, loss, allowed_are(name, names));
}

PreparedBatch prepare_plain(const TrainingBatch& batch, const BatchLimits& limits, const std::string& why,
                            const std::function<bool(const std::string&)>& stays) {
  TrainingBatch plain;
  plain.loss.name = limits.values ? std::string(kValueLossName) : "cross_entropy";
  plain.forward_only = limits.values;  // which needs no returns
  for (std::size_t d = 0; d < batch.data.size(); ++d) {
    const TrainingDatum& datum = batch.data[d];
    for (const char* name : {"kept_tokens", "kept_by_rank"})
      if (datum.inputs.contains(name)) fail(ErrorCode::unsupported, "data[{}].loss_fn_inputs.{} is given, and {}", d, name, why);
    plain.data.push_back({datum.tokens, {}, datum.routing_matrices});
    for (const auto& input : datum.inputs)
      if (stays(input.first)) plain.data.back().inputs.insert(input);
  }
  PreparedBatch prepared = prepare_batch(plain, limits);
  if (limits.values) {  // of values it is -w v
    prepared.loss = loss_by_name("cross_entropy");
    prepared.loss.normaliser = 1;
  }
  prepared.elementwise_loss = false;
  return prepared;
}

std::string whole_vocabulary(const std::string& loss) { return fmt::format("the loss {} is of log-probabilities over the whole vocabulary", loss); }

bool read_preference_options(const LossRequest& wanted, const PreferenceRow& row, const std::string& mean, PreferenceSettings& settings) {
  struct Option {
    const char* name;
    unsigned group;
    double PreferenceSettings::*value;
  };
  static constexpr Option kOptions[] = {{"beta", kBeta, &PreferenceSettings::beta},
                                        {"label_smoothing", kLabelSmoothing, &PreferenceSettings::label_smoothing},
                                        {"gamma", kGamma, &PreferenceSettings::gamma},
                                        {"alpha", kAlpha, &PreferenceSettings::alpha},
                                        {"desirable_weight", kLabelWeights, &PreferenceSettings::desirable_weight},
                                        {"undesirable_weight", kLabelWeights, &PreferenceSettings::undesirable_weight}};
  settings.beta = row.beta;
  bool is_mean = false;
  std::vector<std::string> names{"averaging"};
  for (const Option& option : kOptions)
    if (row.options & option.group) names.emplace_back(option.name);
  for (const auto& [name, value] : wanted.config) {
    if (std::find(names.begin(), names.end(), name) == names.end()) wrong_option(wanted.name, name, names);
    if (name == "averaging") {
      is_mean = text_option(name, value, {"sum", mean}) == mean;
      continue;
    }
    for (const Option& option : kOptions)
      if (name == option.name) settings.*option.value = number_option(name, value);
  }
  check(settings);
  return is_mean;
}

void check_references(const TrainingBatch& batch, const PreferenceRow& row) {
  if (!row.reference) return;
  for (std::size_t d = 0; d < batch.data.size(); ++d)
    if (!batch.data[d].inputs.contains("reference_logprobs"))
      fail(ErrorCode::invalid_argument, "data[{}].loss_fn_inputs has no reference_logprobs, which the loss {} needs", d, row.name);
}

void check_inputs(const TrainingBatch& batch, const std::vector<std::string>& names) {
  for (std::size_t d = 0; d < batch.data.size(); ++d)
    for (const auto& [name, tensor] : batch.data[d].inputs)
      if (std::find(names.begin(), names.end(), name) == names.end())
        fail(ErrorCode::invalid_argument, "data[{}].loss_fn_inputs.{} is nothing that the loss {} takes, {}", d, name, batch.loss.name,
             allowed_are(name, names));
}

void check_trained_tokens(const PreparedBatch& prepared) {
  for (std::size_t d = 0; d < prepared.sequences.size(); ++d)
    if (!(answer_score(prepared.sequences[d], std::vector<float>(prepared.sequences[d].targets.size(), 0.0f), 0).weight > 0))
      fail(ErrorCode::invalid_argument, "data[{}].loss_fn_inputs.weights sum to 0 or less, allowed are answers with a trained token", d);
}

}  // namespace lockstep
