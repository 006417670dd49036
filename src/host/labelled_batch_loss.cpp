// KTO over labelled answers: the data of a request are answers with the label 1 or 0, which are trained, and with the label -1 mismatched ones, of which only
// the shift is computed (losses/preference_losses.h). They may stand in any order; here mismatched ones come first, since every answer's loss needs the shift.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "host/batch_loss_parts.h"

namespace lockstep {
namespace {
constexpr const char kLabel[] = "label";
constexpr std::int64_t kMismatched = -1;

std::int64_t label_of(const TrainingDatum& datum, std::size_t d, const std::string& loss) {
  const char* const allowed = "1 for a good answer, 0 for a bad one, -1 for a mismatched one, which is not trained";
  const auto found = datum.inputs.find(kLabel);
  if (found == datum.inputs.end())
    fail(ErrorCode::invalid_argument, "data[{}].loss_fn_inputs has no {}, which the loss {} needs: {}", d, kLabel, loss, allowed);
  const NamedTensor& label = found->second;
  if (label.is_float || label.integers.size() != 1)
    fail(ErrorCode::invalid_argument, "data[{}].loss_fn_inputs.{} is {}, allowed is one of int64: {}", d, kLabel,
         label.is_float ? std::string("float32") : fmt::format("{} numbers", label.integers.size()), allowed);
  const std::int64_t value = label.integers[0];
  if (value < kMismatched || value > 1) fail(ErrorCode::invalid_argument, "data[{}].loss_fn_inputs.{} is {}, allowed are {}", d, kLabel, value, allowed);
  return value;
}

class LabelledBatchLoss final : public BatchLoss {
 public:
  LabelledBatchLoss(const TrainingBatch& batch, const BatchLimits& limits, PreparedBatch& prepared) {
    settings_.loss = batch.loss.name;
    const PreferenceRow& row = preference_row(settings_.loss);
    const bool divided = read_preference_options(batch.loss, row, "answer_mean", settings_);
    for (std::size_t d = 0; d < batch.data.size(); ++d) labels_.push_back(label_of(batch.data[d], d, batch.loss.name));
    untrained_ = static_cast<std::size_t>(std::count(labels_.begin(), labels_.end(), kMismatched));
    if (untrained_ == 0 || untrained_ == labels_.size())
      fail(ErrorCode::invalid_argument,
           "of {} datums {} have the {} {}; the loss {} needs mismatched answers, whose mean its shift is, and answers that are trained", labels_.size(),
           untrained_, kLabel, kMismatched, batch.loss.name);
    check_references(batch, row);
    prepared = prepare_plain(batch, limits, whole_vocabulary(batch.loss.name), [](const std::string& name) { return name != kLabel; });
    check_inputs(batch, {"target_tokens", "weights", "mask", "reference_logprobs", kLabel});
    check_trained_tokens(prepared);
    sort(prepared);
    if (divided) divisor_ = static_cast<double>(labels_.size() - untrained_);
  }
  std::size_t untrained() const override { return untrained_; }
  std::size_t datum(std::size_t place) const override { return order_[place]; }
  void compare(const PreparedBatch& prepared, std::size_t first, std::span<const std::vector<float>> logprobs) override {
    for (std::size_t i = 0; i < logprobs.size(); ++i) others_.push_back(scored(prepared.sequences[first + i], logprobs[i]));
  }
  void weigh(PreparedBatch& prepared, std::size_t first, std::span<const std::vector<float>> logprobs) override {
    if (!shift_) shift_ = kto_shift(others_);  // every mismatched answer was compared before
    for (std::size_t i = 0; i < logprobs.size(); ++i) {
      TrainSequence& answer = prepared.sequences[first + i];
      const std::size_t d = order_[first + i];
      const bool desirable = labels_[d] == 1;
      const PreferenceValue v = labelled_loss(settings_, scored(answer, logprobs[i]), desirable, *shift_);
      if (!std::isfinite(v.loss)) fail(ErrorCode::numeric, "data[{}]: the loss of the answer is {}", d, v.loss);
      loss_ += v.loss / divisor_;
      (desirable ? good_ : bad_).push_back(v.chosen_reward);
      weigh_answer(answer, v.chosen_slope / divisor_);
    }
  }
  std::map<std::string, double> metrics() const override {
    const LabelledRewards told = labelled_rewards(good_, bad_);
    return {{"loss:sum", loss_},
            {"accuracy:mean", told.accuracy},
            {"chosen_reward:mean", told.good},
            {"rejected_reward:mean", told.bad},
            {"margin:mean", told.good - told.bad},
            {"shift:mean", kto_shift(others_)}};
  }

 private:
  // Mismatched answers first, each kind in the order of the data.
  void sort(PreparedBatch& prepared) {
    order_.resize(labels_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_partition(order_.begin(), order_.end(), [&](std::size_t d) { return labels_[d] == kMismatched; });
    std::vector<TrainSequence> sequences;
    std::vector<std::vector<std::int64_t>> shapes;
    for (const std::size_t d : order_) {
      sequences.push_back(std::move(prepared.sequences[d]));
      shapes.push_back(std::move(prepared.shapes[d]));
    }
    prepared.sequences = std::move(sequences);
    prepared.shapes = std::move(shapes);
  }
  AnswerScore scored(const TrainSequence& answer, const std::vector<float>& logprobs) const {
    return answer_score(answer, logprobs, answer_score(answer, answer.reference_logprobs, 0).logprob);
  }

  PreferenceSettings settings_;
  std::vector<std::int64_t> labels_;  // by datum
  std::vector<std::size_t> order_;    // the datum of each prepared sequence
  std::size_t untrained_ = 0;
  std::vector<AnswerScore> others_;
  std::vector<double> good_, bad_;  // rewards
  std::optional<double> shift_;
  double divisor_ = 1, loss_ = 0;
};
}  // namespace

std::unique_ptr<BatchLoss> make_labelled_batch_loss(const TrainingBatch& batch, const BatchLimits& limits, PreparedBatch& prepared) {
  return std::make_unique<LabelledBatchLoss>(batch, limits, prepared);
}

}  // namespace lockstep
