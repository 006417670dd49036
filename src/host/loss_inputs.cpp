#include "host/loss_inputs.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <string_view>

#include "base/choice.h"
#include "base/error.h"
#include "host/batch_loss.h"
#include "host/batch_pieces.h"
#include "host/routing_matrix.h"
#include "host/shared_prompts.h"
#include "model/runtime.h"
#include "numerics/exact_sum.h"
#include "train/kept_rows.h"
#include "train/loss_input_names.h"
#include "train/value_loss.h"

namespace lockstep {
namespace {

std::string tensor_shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// What every datum must bring beside its targets.
std::vector<const char*> needed_inputs(const LossOptions& loss) {
  if (loss.kind == LossKind::value) return value_clip(loss) > 0 ? std::vector<const char*>{"returns", "values"} : std::vector<const char*>{"returns"};
  if (!is_policy(loss.kind)) return {};
  const LossParameters& p = loss.parameters;
  std::vector<const char*> names;
  if (loss.kind != LossKind::reinforce && p.anchor == RatioAnchor::sampler) names.push_back("logprobs");
  if (p.anchor == RatioAnchor::proximal) names.push_back("proximal_logprobs");
  names.push_back("advantages");
  if (p.kl != KlEstimator::none && p.kl_coefficient != 0) names.push_back("reference_logprobs");
  return names;
}

std::vector<float> floats_of(const NamedTensor& tensor, const std::string& where, const std::vector<std::int64_t>& shape) {
  if (tensor.shape != shape)
    fail(ErrorCode::invalid_argument, "{} has shape {}, allowed is {}, the shape of target_tokens", where, tensor_shape_text(tensor.shape),
         tensor_shape_text(shape));
  std::vector<float> values = tensor.floats;
  if (!tensor.is_float) values.assign(tensor.integers.begin(), tensor.integers.end());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i])) fail(ErrorCode::invalid_argument, "{}[{}] is not a finite number", where, i);
  return values;
}

// What log-probabilities are of, and how they are computed: options of a batch beside those of its loss.
struct Support {
  bool sampled = false;  // of the tokens that sampling kept: a datum may have kept_tokens
  float temperature = 1;
  bool shares_backward = false;  // equal prompts are one sequence in the backward too
};
constexpr std::string_view kSupportOptions[] = {"target_logprob_support", "temperature", kSharePrompts};

Support support_of(const LossRequest& wanted) {
  Support support;
  support.shares_backward = shares_backward(wanted);
  for (const auto& [name, value] : wanted.config) {
    if (name == "target_logprob_support") support.sampled = text_option(name, value, {"full_vocabulary", "sampling_support"}) == "sampling_support";
    if (name == "temperature") {
      const auto* number = std::get_if<double>(&value);
      if (!number || !(*number >= 1e-6 && *number <= 100))
        fail(ErrorCode::invalid_argument, "temperature is {}, allowed are numbers from 0.000001 to 100", number ? fmt::format("{}", *number) : "no number");
      support.temperature = static_cast<float>(*number);
    }
  }
  return support;
}

std::vector<std::int64_t> integers_of(const NamedTensor& tensor, const std::string& where) {
  if (tensor.is_float) fail(ErrorCode::invalid_argument, "{} is float32, allowed is int64", where);
  return {tensor.integers.begin(), tensor.integers.end()};
}

// Takes the inputs of a datum that say what its tokens were drawn from.
void take_support(const TrainingDatum& datum, const Support& support, std::int64_t vocabulary, const std::string& where, TrainSequence& sequence) {
  sequence.temperature = support.temperature;
  const auto kept = datum.inputs.find("kept_tokens"), by_rank = datum.inputs.find("kept_by_rank");
  const std::string inputs = where + ".loss_fn_inputs.";
  if (kept == datum.inputs.end()) {
    if (by_rank != datum.inputs.end()) fail(ErrorCode::invalid_argument, "{}kept_by_rank is given without kept_tokens", inputs);
    return;
  }
  if (!support.sampled)
    fail(ErrorCode::invalid_argument, "{}kept_tokens is given and target_logprob_support is full_vocabulary; allowed is with sampling_support", inputs);
  const NamedTensor& ids = kept->second;
  const std::int64_t tokens = std::ssize(sequence.tokens);
  if (ids.shape.size() != 2 || ids.shape[0] != tokens || ids.shape[1] < 1)
    fail(ErrorCode::invalid_argument, "{}kept_tokens has shape {}, allowed is [{}, M]: M ids a token of model_input, -1 in places that are not used", inputs,
         tensor_shape_text(ids.shape), tokens);
  if (by_rank != datum.inputs.end() && by_rank->second.shape != std::vector<std::int64_t>{tokens})
    fail(ErrorCode::invalid_argument, "{}kept_by_rank has shape {}, allowed is [{}], one a token of model_input", inputs,
         tensor_shape_text(by_rank->second.shape), tokens);
  sequence.kept_tokens = kept_rows(integers_of(ids, inputs + "kept_tokens"), sequence.tokens.size(),
                                   by_rank == datum.inputs.end() ? std::vector<std::int64_t>() : integers_of(by_rank->second, inputs + "kept_by_rank"),
                                   vocabulary, inputs + "kept_tokens");
}

// A critic's. A forward of data without returns has none: it tells their values.
LossOptions critic_loss(const TrainingBatch& batch) {
  const LossRequest& wanted = batch.loss;
  if (wanted.name != kValueLossName) refuse_loss(wanted.name, true);
  LossConfig config(wanted.config.begin(), wanted.config.end());
  std::erase_if(config, [](const auto& one) { return one.first == kSharePrompts; });
  LossOptions loss = value_loss(config);
  const std::vector<const char*> needed = needed_inputs(loss);
  const bool complete = std::all_of(batch.data.begin(), batch.data.end(), [&](const TrainingDatum& datum) {
    return std::all_of(needed.begin(), needed.end(), [&](const char* name) { return datum.inputs.contains(name); });
  });
  if (batch.forward_only && !complete) loss.kind = LossKind::none;
  return loss;
}

LossOptions loss_options(const LossRequest& wanted) {
  if (wanted.name == "stable_reinforce")
    fail(ErrorCode::unsupported,
         "loss_fn is 'stable_reinforce', whose objective is not public; allowed are {}; loss_fn=importance_sampling is what most recipes want instead",
         fmt::join(loss_names(), ", "));
  if (const std::vector<std::string> names = loss_names(); std::find(names.begin(), names.end(), wanted.name) == names.end()) refuse_loss(wanted.name, false);
  LossConfig config;
  // What each SDK means where nothing is said, beside the table of train/losses.cpp.
  if (wanted.dialect == LossDialect::tinker) {
    if (wanted.name == "cispo") config = {{"clip_low_threshold", 0.0}, {"clip_high_threshold", 4.0}};
    if (wanted.name == "dro") config = {{"gate_zero_advantage", false}};
  } else if (wanted.name == "importance_sampling") {
    config = {{"ratio_log_cap", 20.0}};
  }
  for (const auto& [name, value] : wanted.config) {
    if (std::find(std::begin(kSupportOptions), std::end(kSupportOptions), name) != std::end(kSupportOptions)) continue;  // support_of
    std::erase_if(config, [&name = name](const auto& one) { return one.first == name; });
    config.emplace_back(name, value);
  }
  return loss_by_name(wanted.name, config);
}

// Counts of the whole batch, which its pieces are divided by.
double normaliser_of(const LossOptions& loss, const std::vector<TrainSequence>& data) {
  if (loss.averaging == LossAveraging::sum) return 1;
  double weights = 0, sequences = 0;
  for (const TrainSequence& d : data) {
    bool trains = false;
    for (const float w : d.weights) weights += static_cast<double>(w), trains = trains || w != 0;
    sequences += trains;
  }
  const double count = loss.averaging == LossAveraging::token_mean ? weights : sequences;
  if (!(count > 0)) fail(ErrorCode::invalid_argument, "the weights sum to {}, which averaging divides by; allowed are sums above 0", count);
  return count;
}

// Rows of all tokens; empty where the trainer routes every one.
std::vector<std::int32_t> given_experts(const TrainingDatum& datum, const ExpertShape& shape, const std::string& where) {
  const std::vector<std::string>& matrices = datum.routing_matrices;
  if (matrices.empty()) return {};
  if (matrices.size() != datum.tokens.size())
    fail(ErrorCode::invalid_argument, "{}.model_input.routing_matrices has {} texts, allowed is one a token, {}", where, matrices.size(), datum.tokens.size());
  if (std::all_of(matrices.begin(), matrices.end(), [](const std::string& text) { return text.empty(); })) return {};
  std::vector<std::int32_t> experts;
  experts.reserve(matrices.size() * static_cast<std::size_t>(shape.row()));
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const std::vector<std::int32_t> row = experts_of_matrix(shape, matrices[i], fmt::format("{}.model_input.routing_matrices[{}]", where, i));
    experts.insert(experts.end(), row.begin(), row.end());
  }
  return experts;
}

}  // namespace

std::string text_option(const std::string& name, const LossValue& value, const std::vector<std::string>& names) {
  const auto* text = std::get_if<std::string>(&value);
  if (!text || std::find(names.begin(), names.end(), *text) == names.end())
    fail(ErrorCode::invalid_argument, "{} is {}, {}", name, text ? "'" + *text + "'" : std::string("no text"), allowed_are(text ? *text : "", names));
  return *text;
}

BatchLimits batch_limits(const Runtime& runtime) { return {runtime.model->facts().vocabulary, runtime.max_positions, runtime.model->facts().expert_shape()}; }

PreparedBatch prepare_batch(const TrainingBatch& batch, const BatchLimits& limits) {
  PreparedBatch out;
  out.values = limits.values;
  out.loss = out.values ? critic_loss(batch) : loss_options(batch.loss);
  const Support support = out.values ? Support{.shares_backward = shares_backward(batch.loss)} : support_of(batch.loss);
  const auto known = out.values ? std::span<const LossInputName>(kValueInputNames) : std::span<const LossInputName>(kLossInputNames);
  out.elementwise_loss = out.loss.kind == LossKind::cross_entropy;
  const std::vector<const char*> needed = needed_inputs(out.loss);
  if (batch.data.empty()) fail(ErrorCode::invalid_argument, "data is empty, allowed is at least one datum");
  for (std::size_t d = 0; d < batch.data.size(); ++d) {
    const TrainingDatum& datum = batch.data[d];
    const std::string where = fmt::format("data[{}]", d);
    const auto tokens = static_cast<std::int64_t>(datum.tokens.size());
    if (tokens == 0 || tokens > limits.max_positions)
      fail(ErrorCode::invalid_argument, "{}.model_input has {} tokens, allowed is 1 to {}", where, tokens, limits.max_positions);
    for (std::int64_t i = 0; i < tokens; ++i)
      if (datum.tokens[static_cast<std::size_t>(i)] < 0 || datum.tokens[static_cast<std::size_t>(i)] >= limits.vocabulary)
        fail(ErrorCode::invalid_argument, "{}.model_input token {} is {}, allowed are ids from 0 to {}", where, i, datum.tokens[static_cast<std::size_t>(i)],
             limits.vocabulary - 1);
    std::vector<std::string> missing;
    if (!datum.inputs.contains("target_tokens") && !out.values) missing.push_back("target_tokens");
    for (const char* name : needed)
      if (!datum.inputs.contains(name)) missing.push_back(name);
    if (!missing.empty())
      fail(ErrorCode::invalid_argument, "{}.loss_fn_inputs has no {}, which the loss {} needs", where, fmt::join(missing, " and no "), batch.loss.name);
    // A value is of a state, whatever comes next.
    NamedTensor states{.shape = {tokens}, .floats = {}, .integers = {}, .is_float = false};
    if (out.values) states.integers.assign(datum.tokens.begin(), datum.tokens.end());
    const NamedTensor& targets = out.values ? states : datum.inputs.at("target_tokens");
    const std::string target_name = where + ".loss_fn_inputs.target_tokens";
    if (targets.is_float) fail(ErrorCode::invalid_argument, "{} is float32, allowed is int64", target_name);
    if (targets.shape[0] != tokens || targets.integers.empty())
      fail(ErrorCode::invalid_argument, "{} has shape {}, allowed is [{}] or [{}, K], one row a token of model_input", target_name,
           tensor_shape_text(targets.shape), tokens, tokens);
    TrainSequence sequence;
    sequence.tokens = datum.tokens;
    sequence.experts = given_experts(datum, limits.experts, where);
    sequence.targets_per_row = targets.shape.size() == 2 ? targets.shape[1] : 1;
    for (std::size_t i = 0; i < targets.integers.size(); ++i) {
      const std::int64_t target = targets.integers[i];
      if (target < 0 || target >= limits.vocabulary)
        fail(ErrorCode::invalid_argument, "{}[{}] is {}, allowed are ids from 0 to {}", target_name, i, target, limits.vocabulary - 1);
      sequence.targets.push_back(static_cast<std::int32_t>(target));
    }
    sequence.weights.assign(sequence.targets.size(), 1.0f);
    if (datum.inputs.contains("mask") && datum.inputs.contains("weights"))
      fail(ErrorCode::invalid_argument, "{}.loss_fn_inputs has mask and weights, which are one input by two names; allowed is one of them", where);
    for (const auto& [name, tensor] : datum.inputs) {
      if (name == "target_tokens" && tensor.shape != targets.shape)
        fail(ErrorCode::invalid_argument, "{} has shape {}, allowed is {}: a row has one value", target_name, tensor_shape_text(tensor.shape),
             tensor_shape_text(targets.shape));
      if (name == "target_tokens" || (!out.values && (name == "kept_tokens" || name == "kept_by_rank"))) continue;
      const std::string_view same = name == "mask" ? "weights" : std::string_view(name);
      const auto row = std::find_if(known.begin(), known.end(), [&](const LossInputName& r) { return same == r.name; });
      if (row == known.end()) {
        std::vector<std::string> names{"target_tokens", "mask"};
        if (!out.values) names.insert(names.end(), {"kept_tokens", "kept_by_rank"});
        for (const LossInputName& r : known) names.emplace_back(r.name);
        fail(ErrorCode::invalid_argument, "{}.loss_fn_inputs.{} is not known, {}", where, name, allowed_are(name, names));
      }
      sequence.*(row->values) = floats_of(tensor, fmt::format("{}.loss_fn_inputs.{}", where, name), targets.shape);
    }
    if (!out.values) take_support(datum, support, limits.vocabulary, where, sequence);
    check_loss_data(sequence, d, out.loss, limits.vocabulary);
    out.sequences.push_back(std::move(sequence));
    out.shapes.push_back(targets.shape);
  }
  if (out.loss.normaliser == 0) out.loss.normaliser = normaliser_of(out.loss, out.sequences);
  if (support.shares_backward) {
    share_prompts(batch, out.loss, out.sequences);
    check_uncut(out.sequences, limits.max_positions);
    out.declares = std::any_of(out.sequences.begin(), out.sequences.end(), [](const TrainSequence& one) { return one.shared_prefix > 0; });
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
    datum.values = batch.values;
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
  for (const auto& [name, value] : result.metrics) out.metrics[name] = value;
  if (!out.metrics.contains("loss:sum") && batch.loss.kind != LossKind::none) out.metrics["loss:sum"] = summed ? sum.total() : result.loss;
  return out;
}

}  // namespace lockstep
