// Divergences over a whole vocabulary of any size: teachers give hidden states and their heads, and the trainer's own head computes value and gradient a chunk
// of rows at a time (kernels/head/teacher.h).
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/seconds.h"
#include "jobs/distill_work.h"
#include "losses/distillation.h"

namespace lockstep {

namespace {
// The targets are the tokens that the student wrote: their log-probabilities are compared with the sampler's, and their weights are the rows'.
TrainSequence taught_sequence(const std::vector<std::int32_t>& tokens, std::size_t first, float weight) {
  TrainSequence sequence = TrainSequence::next_token(tokens);
  for (std::size_t row = 0; row + 1 < first; ++row) sequence.targets[row] = -1;
  for (std::size_t row = 0; row < sequence.weights.size(); ++row) sequence.weights[row] = row + 1 < first ? 0.0f : weight;
  return sequence;
}
}  // namespace

double DistillWork::learn_in_head(const std::vector<Written>& written, const std::vector<Lesson>& lessons, std::int64_t tokens) {
  LossOptions loss;
  loss.kind = LossKind::divergence;
  loss.averaging = LossAveraging::sum;
  loss.normaliser = 1;
  loss.parameters.divergence = divergence_by_name(settings_.divergence);
  BatchPlan plan{.sequences = lessons.size()};
  for (const Lesson& lesson : lessons) plan.rows += std::ssize(written[lesson.written].tokens) - 1;
  LocalTrainer& trainer = stack_.trainer();
  const auto weight_of = [&](const Lesson& lesson) { return static_cast<float>(lesson.share / static_cast<double>(tokens)); };
  ForwardBackwardResult result;
  try {
    trainer.with_model([&](TrainedModel& model) { model.begin(plan, loss); });
    // Teachers of one folder are asked at once, and learned from in a piece each. Their head leaves memory behind the last of them, before the next one comes.
    for (const std::vector<std::size_t>& asked : teachers_.together()) {
      std::vector<TeacherQuestion> questions;
      for (const std::size_t t : asked)
        for (const Lesson& lesson : lessons)
          if (lesson.teacher == t) questions.push_back({t, {written[lesson.written].tokens, written[lesson.written].first}});
      if (questions.empty()) continue;
      const auto begin = std::chrono::steady_clock::now();
      TeacherStates told = teachers_.states(questions);
      teacher_seconds_ += seconds_since(begin);
      std::size_t next = 0;  // of the states, which are in the order of the lessons below
      for (const std::size_t t : asked) {
        std::vector<std::size_t> places;
        std::vector<TrainSequence> piece;
        for (std::size_t i = 0; i < lessons.size(); ++i) {
          if (lessons[i].teacher != t) continue;
          const Written& one = written[lessons[i].written];
          places.push_back(i);
          TrainSequence& taught = piece.emplace_back(taught_sequence(one.tokens, one.first, weight_of(lessons[i])));
          taught.teacher = told.head, taught.teacher_states = std::move(told.states[next++]);
        }
        if (!places.empty()) trainer.with_model([&](TrainedModel& model) { model.add(places, piece); });
      }
    }
    result = trainer.with_model([](TrainedModel& model) { return model.finish(); });
  } catch (...) {
    trainer.abandon_gradients();
    throw;
  }
  double sum = 0;
  for (std::size_t i = 0; i < lessons.size(); ++i) {
    const Written& one = written[lessons[i].written];
    double own = 0;
    compare(one, {result.logprobs[i].begin() + static_cast<std::ptrdiff_t>(one.first - 1), result.logprobs[i].end()});
    for (std::size_t t = 0; t < one.logprobs.size(); ++t) own += static_cast<double>(result.losses[i][one.first - 1 + t]);
    sum += own;
    sums_[lessons[i].teacher] += own / static_cast<double>(weight_of(lessons[i]));
    counts_[lessons[i].teacher] += static_cast<double>(one.logprobs.size());
  }
  if (!std::isfinite(sum)) fail(ErrorCode::numeric, "the divergence is {}", sum);
  return sum;
}

}  // namespace lockstep
