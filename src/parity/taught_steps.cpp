#include "parity/taught_steps.h"

#include <algorithm>
#include <utility>

#include "losses/preference_losses.h"
#include "train/teacher_head.h"

namespace lockstep {

void make_pairs(std::vector<TrainSequence>& data) {
  if (data.size() % 2 == 1) data.pop_back();
  for (std::size_t i = 0; i < data.size(); i += 2) {
    const std::vector<std::int32_t>& chosen = data[i].tokens;
    std::vector<std::int32_t> rejected = data[i + 1].tokens;
    rejected.push_back(data[i + 1].targets.back());
    const auto shared = static_cast<std::ptrdiff_t>(std::min(chosen.size(), rejected.size()) / 2);
    std::copy(chosen.begin(), chosen.begin() + shared, rejected.begin());
    data[i + 1] = TrainSequence::next_token(rejected);
  }
}

void weigh_pairs(std::vector<TrainSequence>& pairs, const std::vector<std::vector<float>>& logprobs) {
  const auto score = [&](std::size_t i) { return answer_score(pairs[i], logprobs[i], answer_score(pairs[i], pairs[i].reference_logprobs, 0).logprob); };
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    const PreferenceValue value = preference_loss({.loss = "dpo"}, score(i), score(i + 1));
    weigh_answer(pairs[i], value.chosen_slope);
    weigh_answer(pairs[i + 1], value.rejected_slope);
  }
}

void teach(const ParityModel& model, const Profile& profile, std::vector<TrainSequence>& data) {
  constexpr std::uint64_t kSeed = 13;
  constexpr double kDeviation = 0.05;
  std::size_t longest = 1;
  for (const TrainSequence& d : data) longest = std::max(longest, d.tokens.size());
  const auto runtime = std::make_shared<Runtime>(BackendOptions{.threads = 1}, model.model, profile, static_cast<std::int64_t>(longest));
  const Manifest& manifest = model.model->manifest();
  const std::shared_ptr<const WeightSet> weights = make_weight_set(runtime->backend, manifest, initial_weights(manifest, kSeed, kDeviation), profile, 0);
  std::vector<TaughtText> texts;
  for (const TrainSequence& d : data) texts.push_back({.tokens = d.tokens});
  std::vector<std::vector<float>> states = teacher_states(*runtime, *weights, texts);
  const auto head = std::make_shared<const TeacherHead>(teacher_head(runtime, weights));
  for (std::size_t s = 0; s < data.size(); ++s) {
    data[s].teacher = head;
    data[s].teacher_states = std::move(states[s]);
  }
}

}  // namespace lockstep
