#include "runs/preferences/preference_step.h"

#include "base/error.h"

namespace lockstep {

TrainSequence reward_sequence(const TrainSequence& answer, std::int64_t max_positions) {
  TrainSequence whole;
  whole.tokens = answer.tokens;
  whole.tokens.push_back(answer.targets.back());
  if (std::ssize(whole.tokens) > max_positions)
    fail(ErrorCode::corrupt_file, "an answer with its prompt has {} tokens, the model's context is {}", whole.tokens.size(), max_positions);
  whole.targets.assign(whole.tokens.size(), -1);
  whole.weights.assign(whole.tokens.size(), 0.0f);
  whole.targets.back() = whole.tokens.back();
  whole.weights.back() = 1.0f;
  return whole;
}

PreferenceBatch preference_batch(const std::vector<PreferenceItem>& items, const std::vector<std::size_t>& places,
                                 const std::vector<ReferenceScores>& references, bool pairs) {
  PreferenceBatch batch;
  batch.pairs = pairs;
  for (const std::size_t place : places) {
    const PreferenceItem& item = items[place];
    batch.trained.push_back(item.chosen);
    (pairs ? batch.trained : batch.mismatched).push_back(item.rejected);
    batch.references.push_back(references.empty() ? ReferenceScores{} : references[place]);
    batch.desirable.push_back(item.desirable);
  }
  return batch;
}

namespace {
// One where the first is higher, half where they are equal.
double told_apart(double higher, double lower) { return higher > lower ? 1 : higher == lower ? 0.5 : 0; }

PreferenceFigures of_pairs(const PreferenceSettings& settings, PreferenceBatch& batch, const std::vector<std::vector<float>>& logprobs, bool weigh) {
  PreferenceFigures sum;
  const auto count = static_cast<double>(batch.references.size());
  for (std::size_t i = 0; i < batch.references.size(); ++i) {
    TrainSequence &c = batch.trained[2 * i], &r = batch.trained[2 * i + 1];
    const AnswerScore chosen = answer_score(c, logprobs[2 * i], batch.references[i].chosen);
    const AnswerScore rejected = answer_score(r, logprobs[2 * i + 1], batch.references[i].rejected);
    const PreferenceValue v = preference_loss(settings, chosen, rejected);
    sum.loss += v.loss;
    sum.accuracy += told_apart(v.chosen_reward, v.rejected_reward);
    sum.chosen_reward += v.chosen_reward, sum.rejected_reward += v.rejected_reward;
    sum.chosen_logprob += chosen.logprob, sum.rejected_logprob += rejected.logprob;
    if (weigh) weigh_answer(c, v.chosen_slope / count), weigh_answer(r, v.rejected_slope / count);
  }
  for (double* one : {&sum.loss, &sum.accuracy, &sum.chosen_reward, &sum.rejected_reward, &sum.chosen_logprob, &sum.rejected_logprob}) *one /= count;
  return sum;
}

PreferenceFigures of_labels(const PreferenceSettings& settings, PreferenceBatch& batch, const std::vector<std::vector<float>>& logprobs,
                            const std::vector<std::vector<float>>& mismatched, bool weigh) {
  PreferenceFigures sum;
  const auto count = static_cast<double>(batch.references.size());
  std::vector<AnswerScore> others;
  for (std::size_t i = 0; i < batch.mismatched.size(); ++i) others.push_back(answer_score(batch.mismatched[i], mismatched[i], batch.references[i].rejected));
  sum.shift = kto_shift(others);
  std::vector<double> good, bad;  // rewards
  for (std::size_t i = 0; i < batch.references.size(); ++i) {
    const bool desirable = batch.desirable[i];
    const AnswerScore answer = answer_score(batch.trained[i], logprobs[i], batch.references[i].chosen);
    const PreferenceValue v = labelled_loss(settings, answer, desirable, sum.shift);
    sum.loss += v.loss / count;
    (desirable ? good : bad).push_back(v.chosen_reward);
    (desirable ? sum.chosen_logprob : sum.rejected_logprob) += answer.logprob;
    if (weigh) weigh_answer(batch.trained[i], v.chosen_slope / count);
  }
  const LabelledRewards told = labelled_rewards(good, bad);
  sum.accuracy = told.accuracy, sum.chosen_reward = told.good, sum.rejected_reward = told.bad;
  if (!good.empty()) sum.chosen_logprob /= static_cast<double>(good.size());
  if (!bad.empty()) sum.rejected_logprob /= static_cast<double>(bad.size());
  return sum;
}
}  // namespace

PreferenceFigures preference_figures(const PreferenceSettings& settings, PreferenceBatch& batch, const std::vector<std::vector<float>>& trained,
                                     const std::vector<std::vector<float>>& mismatched, bool weigh) {
  return batch.pairs ? of_pairs(settings, batch, trained, weigh) : of_labels(settings, batch, trained, mismatched, weigh);
}

}  // namespace lockstep
