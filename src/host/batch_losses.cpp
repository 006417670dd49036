#include <algorithm>
#include <cmath>

#include "base/choice.h"
#include "base/error.h"
#include "host/batch_loss_parts.h"
#include "losses/custom_loss.h"
#include "losses/distillation.h"

namespace lockstep {
namespace {
constexpr const char kTeacher[] = "teacher_logprobs", kTeacherOption[] = "teacher";

class PreferenceBatchLoss final : public BatchLoss {
 public:
  PreferenceBatchLoss(const TrainingBatch& batch, const BatchLimits& limits, PreparedBatch& prepared) {
    settings_.loss = limits.values ? "reward" : batch.loss.name;
    const PreferenceRow& row = preference_row(settings_.loss);
    const bool mean = read_preference_options(batch.loss, row, "pair_mean", settings_);
    if (batch.data.size() % 2 != 0)
      fail(ErrorCode::invalid_argument,
           "data has {} datums, and the loss {} is of pairs, each a chosen answer and then a rejected one; allowed is an even number. A pair may not be cut by "
           "the "
           "end of a request: data[{}] is alone",
           batch.data.size(), batch.loss.name, batch.data.size() - 1);
    check_references(batch, row);
    std::vector<std::string> names{"target_tokens", "weights", "mask"};
    if (row.reference) names.emplace_back("reference_logprobs");
    if (limits.values) check_inputs(batch, names);
    prepared = prepare_plain(batch, limits, whole_vocabulary(batch.loss.name), [](const std::string&) { return true; });
    check_inputs(batch, names);
    for (std::size_t d = 0; limits.values && d < batch.data.size(); ++d) {
      if (batch.data[d].inputs.contains("weights") || batch.data[d].inputs.contains("mask")) continue;
      std::vector<float>& weights = prepared.sequences[d].weights;  // the value of its end is the answer's
      std::fill(weights.begin(), weights.end() - 1, 0.0f);
    }
    check_trained_tokens(prepared);
    if (mean) divisor_ = static_cast<double>(batch.data.size() / 2);
    reference_ = row.reference;
  }
  std::size_t together() const override { return 2; }
  void weigh(PreparedBatch& prepared, std::size_t first, std::span<const std::vector<float>> logprobs) override {
    for (std::size_t i = 0; i < logprobs.size(); i += 2) {
      TrainSequence &c = prepared.sequences[first + i], &r = prepared.sequences[first + i + 1];
      const AnswerScore chosen = scored(c, logprobs[i]), rejected = scored(r, logprobs[i + 1]);
      const PreferenceValue v = preference_loss(settings_, chosen, rejected);
      if (!std::isfinite(v.loss)) fail(ErrorCode::numeric, "data[{}]: the loss of the pair is {}", first + i, v.loss);
      loss_ += v.loss;
      ++pairs_;
      right_ += v.chosen_reward > v.rejected_reward ? 1 : v.chosen_reward == v.rejected_reward ? 0.5 : 0;
      chosen_ += v.chosen_reward, rejected_ += v.rejected_reward;
      weigh_answer(c, v.chosen_slope / divisor_);
      weigh_answer(r, v.rejected_slope / divisor_);
    }
  }
  std::map<std::string, double> metrics() const override {
    return {{"loss:sum", loss_ / divisor_},
            {"accuracy:mean", right_ / pairs_},
            {"chosen_reward:mean", chosen_ / pairs_},
            {"rejected_reward:mean", rejected_ / pairs_},
            {"margin:mean", (chosen_ - rejected_) / pairs_}};
  }

 private:
  AnswerScore scored(const TrainSequence& answer, const std::vector<float>& logprobs) const {
    return answer_score(answer, logprobs, reference_ ? answer_score(answer, answer.reference_logprobs, 0).logprob : 0);
  }

  PreferenceSettings settings_;
  bool reference_ = false;
  double divisor_ = 1, loss_ = 0, pairs_ = 0, right_ = 0, chosen_ = 0, rejected_ = 0;
};

class DistillBatchLoss final : public BatchLoss {
 public:
  DistillBatchLoss(const TrainingBatch& batch, const BatchLimits& limits, PreparedBatch& prepared) : vocabulary_(limits.vocabulary) {
    bool mean = false;
    const std::vector<std::string> names{"averaging", "divergence", kTeacherOption};
    for (const auto& [name, value] : batch.loss.config) {
      if (name == "averaging") mean = text_option(name, value, {"sum", "token_mean"}) == "token_mean";
      else if (name == "divergence") kind_ = divergence_by_name(text_option(name, value, divergence_names()));
      else if (name != kTeacherOption) wrong_option(batch.loss.name, name, names);
    }
    path_ = teacher_option(batch);
    for (std::size_t d = 0; d < batch.data.size(); ++d) {
      const bool told = batch.data[d].inputs.contains(kTeacher);
      if (!told && path_.empty())
        fail(
            ErrorCode::invalid_argument,
            "data[{}].loss_fn_inputs has no {}, which the loss {} needs: the teacher's of the same tokens; or its option {} is the path of a sampler's weights",
            d, kTeacher, kDistillLoss, kTeacherOption);
      if (told && !path_.empty())
        fail(ErrorCode::invalid_argument, "data[{}].loss_fn_inputs has {}, and the option {} is '{}'; allowed is one of them", d, kTeacher, kTeacherOption,
             path_);
    }
    prepared = prepare_plain(batch, limits, whole_vocabulary(batch.loss.name), [](const std::string& name) { return name != kTeacher; });
    check_inputs(batch, {"target_tokens", "weights", "mask", kTeacher});
    double tokens = 0;
    for (std::size_t d = 0; d < batch.data.size(); ++d) {
      const TrainSequence& sequence = prepared.sequences[d];
      const auto k = static_cast<std::size_t>(sequence.targets_per_row);
      for (std::size_t i = 0; i < sequence.weights.size(); ++i) {
        if (sequence.weights[i] != sequence.weights[i - i % k])
          fail(ErrorCode::invalid_argument, "data[{}].loss_fn_inputs.weights[{}] is {}, allowed is one weight for all tokens of a row, {}", d, i,
               sequence.weights[i], sequence.weights[i - i % k]);
        if (i % k == 0) tokens += static_cast<double>(sequence.weights[i]);
      }
      teacher_.push_back(path_.empty() ? told_by_client(batch.data[d].inputs.at(kTeacher), sequence, prepared.shapes[d], d) : std::vector<float>());
    }
    if (mean && !(tokens > 0)) fail(ErrorCode::invalid_argument, "the weights sum to {}, which averaging divides by; allowed are sums above 0", tokens);
    if (mean) scale_ = 1.0 / tokens;
  }
  void told(std::size_t first, std::vector<std::vector<float>>&& logprobs) override {
    std::move(logprobs.begin(), logprobs.end(), teacher_.begin() + static_cast<std::ptrdiff_t>(first));
  }
  void weigh(PreparedBatch& prepared, std::size_t first, std::span<const std::vector<float>> logprobs) override {
    for (std::size_t i = 0; i < logprobs.size(); ++i) {
      TrainSequence& sequence = prepared.sequences[first + i];
      with_context(fmt::format("data[{}]", first + i), [&] {
        loss_ += weigh_by_divergence({.kind = kind_, .rest = has_rest(sequence, vocabulary_)}, sequence, logprobs[i], teacher_[first + i], scale_);
      });
    }
  }
  std::map<std::string, double> metrics() const override { return {{"loss:sum", loss_ * scale_}}; }

 private:
  static std::vector<float> told_by_client(const NamedTensor& tensor, const TrainSequence& sequence, const std::vector<std::int64_t>& shape, std::size_t d) {
    if (!tensor.is_float || tensor.shape != shape)
      fail(ErrorCode::invalid_argument, "data[{}].loss_fn_inputs.{} must be float32 of the shape of target_tokens", d, kTeacher);
    for (std::size_t i = 0; i < tensor.floats.size(); ++i)
      if (sequence.weights[i] != 0 && !(tensor.floats[i] <= 0 && std::isfinite(tensor.floats[i])))
        fail(ErrorCode::invalid_argument, "data[{}].loss_fn_inputs.{}[{}] is {}, allowed are finite numbers up to 0", d, kTeacher, i, tensor.floats[i]);
    return tensor.floats;
  }

  std::int64_t vocabulary_;
  std::string path_;  // of the teacher; empty: the client tells its log-probabilities
  Divergence kind_ = Divergence::reverse;
  std::vector<std::vector<float>> teacher_;
  double scale_ = 1, loss_ = 0;
};

// The loss of each datum, as a number and as weights.
class CustomBatchLoss final : public BatchLoss {
 public:
  CustomBatchLoss(const TrainingBatch& batch, std::shared_ptr<const CustomLoss> loss, GraphRoom room)
      : batch_(batch), loss_(std::move(loss)), room_(std::move(room)) {}
  void weigh(PreparedBatch& prepared, std::size_t first, std::span<const std::vector<float>> logprobs) override {
    for (std::size_t i = 0; i < logprobs.size(); ++i) {
      const std::size_t d = first + i;
      try {
        const CustomLoss::Result result = loss_->run(logprobs[i], prepared.shapes[d], batch_.data[d].inputs, room_);
        total_ += result.loss;
        sums_.resize(result.metrics.size(), 0.0);
        for (std::size_t m = 0; m < result.metrics.size(); ++m) sums_[m] += result.metrics[m];
        if (prepared.sequences[d].shared_prefix > 0) check_prompt(prepared, d, logprobs[i], result);
        for (std::size_t t = 0; t < logprobs[i].size(); ++t) prepared.sequences[d].weights[t] = 0.0f - result.gradient[t];
      } catch (const Error& e) {
        fail(e.code(), "data[{}]: {}", d, e.message());
      }
    }
  }
  std::map<std::string, double> metrics() const override {
    std::map<std::string, double> out{{"loss:sum", total_}};
    const std::vector<std::string> names = loss_->metric_names();
    for (std::size_t m = 0; m < names.size() && m < sums_.size(); ++m)
      out[names[m]] = names[m].ends_with(":mean") ? sums_[m] / static_cast<double>(batch_.data.size()) : sums_[m];
    return out;
  }

 private:
  // Rows of a shared prompt are no targets, and their log-probabilities are 0: nothing of the loss may depend on them.
  void check_prompt(const PreparedBatch& prepared, std::size_t d, const std::vector<float>& logprobs, const CustomLoss::Result& result) const {
    const TrainSequence& sequence = prepared.sequences[d];
    const std::ptrdiff_t shared = sequence.shared_prefix * sequence.targets_per_row;
    std::vector<float> others = logprobs;
    std::fill_n(others.begin(), shared, -1.0f);
    const CustomLoss::Result other = loss_->run(others, prepared.shapes[d], batch_.data[d].inputs, room_);
    const bool derived = std::any_of(result.gradient.begin(), result.gradient.begin() + shared, [](float slope) { return slope != 0; });
    if (derived || other.loss != result.loss || other.gradient != result.gradient || other.metrics != result.metrics)
      fail(ErrorCode::invalid_argument,
           "share_prompts is 'backward', and the loss or a metric depends on log-probabilities of the prompt's rows, which are no targets then; allowed is one "
           "that takes them times weights of 0, or not at all");
  }

  const TrainingBatch& batch_;
  std::shared_ptr<const CustomLoss> loss_;
  const GraphRoom room_;
  double total_ = 0;
  std::vector<double> sums_;
};
}  // namespace

std::string teacher_option(const TrainingBatch& batch) {
  if (batch.loss.name != kDistillLoss) return {};
  for (const auto& [name, value] : batch.loss.config) {
    if (name != kTeacherOption) continue;
    const auto* path = std::get_if<std::string>(&value);
    if (!path || path->empty()) fail(ErrorCode::invalid_argument, "{} is no text, allowed is the path of a sampler's weights", name);
    return *path;
  }
  return {};
}

std::unique_ptr<BatchLoss> make_batch_loss(const TrainingBatch& batch, const BatchLimits& limits, PreparedBatch& prepared) {
  if (limits.values != (batch.loss.name == kPairwiseRewardLoss)) refuse_loss(batch.loss.name, limits.values);
  if (batch.loss.name == kDistillLoss) return std::make_unique<DistillBatchLoss>(batch, limits, prepared);
  if (!limits.values && !preference_row(batch.loss.name).pairs) return make_labelled_batch_loss(batch, limits, prepared);
  return std::make_unique<PreferenceBatchLoss>(batch, limits, prepared);
}

std::unique_ptr<BatchLoss> make_custom_batch_loss(const TrainingBatch& batch, std::shared_ptr<const CustomLoss> loss, bool weighs_prompts,
                                                  const BatchLimits& limits, PreparedBatch& prepared, std::function<void(std::int64_t bytes)> room) {
  if (limits.values) refuse_loss(batch.loss.name, true);
  prepared = prepare_plain(batch, limits,
                           "a custom loss is of log-probabilities over the whole vocabulary; allowed is a loss by name with "
                           "target_logprob_support=sampling_support",
                           [&](const std::string& name) { return name == "target_tokens" || (weighs_prompts && (name == "weights" || name == "mask")); });
  return std::make_unique<CustomBatchLoss>(batch, std::move(loss), std::move(room));
}

}  // namespace lockstep
