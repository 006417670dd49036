// On-policy distillation as a RunWork (runs/run.h): the student samples answers, teachers give their distributions at each of its tokens, and the
// student is trained towards these. A step is a function of (settings, step number, weights), so checkpoints resume to the same bits. One thread.
//   DistillWork work(stack, teachers, prompts, settings, stop); run.go(work, {.label = "distill", .steps = settings.steps});
#pragma once
#include <algorithm>
#include <functional>

#include "jobs/far_teacher.h"
#include "rl/kl.h"
#include "runs/distillation/teachers.h"
#include "runs/rank_traffic.h"
#include "runs/rl_stack.h"
#include "runs/run.h"
#include "train/data.h"
#include "train/schedule.h"

namespace lockstep {

struct DistillSettings {
  std::int64_t steps = 100, prompts = 32, rollouts = 1;  // a step: prompts x rollouts completions
  std::int64_t max_tokens = 16;
  double temperature = 1;              // of the student's writing
  std::string divergence = "reverse";  // losses/distillation.h
  std::string over = "vocabulary";     // vocabulary, top (of the teacher's likeliest), sampled (the student's own token as an advantage)
  std::int64_t teacher_top_k = 20;     // of over top
  double learning_rate = 1e-3;         // the peak
  std::string schedule = "constant";
  std::int64_t warmup = 0;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, max_norm = 1;
  std::uint64_t seed = 0;  // of prompts and sampling
};
// invalid_argument with the setting, the value and what is allowed.
void check(const DistillSettings& settings);
// Over the vocabulary, teachers tell log-probabilities of all tokens where there are at most so many; of more the divergence is computed in the head.
inline constexpr std::int64_t kMostToldTokens = Request::kMaxPromptTargets;
std::vector<std::string> distill_places();  // of DistillSettings::over

struct DistillPrompt {
  std::vector<std::int32_t> tokens;
  std::string domain;
};
// Gives the `count` prompts of a step (steps count from 0), the same ones every time.
using DistillPrompts = std::function<std::vector<DistillPrompt>(std::int64_t step, std::int64_t count)>;

struct DistillTotals {
  std::int64_t steps = 0, tokens = 0;  // in this process
  KlSums kl;                           // sampler against training forward, of over vocabulary and sampled
  std::vector<double> divergences;     // of the last step, by teacher: means over its tokens; NaN where it had none
};

class DistillWork final : public RunWork {
 public:
  // All but settings outlive this object.
  DistillWork(RlStack& stack, Teachers& teachers, DistillPrompts prompts, const DistillSettings& settings, StopToken stop);
  // Resumes from the newest checkpoint of a run, or begins with the weights of another's.
  void restore(const RunDirectory& run);
  void begin_from(const std::filesystem::path& checkpoint) { stack_.trainer().begin_from(checkpoint); }
  // Where a token with two log-probabilities leaves its case (runs/difference_folder.h); nowhere before it is called.
  void leave_differences_in(const std::filesystem::path& folder) { differences_ = folder; }

  std::int64_t step() const override { return stack_.trainer().step(); }
  bool finished() const override { return step() >= settings_.steps; }
  // Errors: those of sampling, of Teachers::ask and states, of FarTeacher::ask and of the trainer; io when no remote teacher gave any answer; internal, before
  // anything is learned from it, for a token whose log-probability differs from the sampler's in a bit: step, completion, token and both numbers are named.
  RunStep take_step() override;
  void save(const RunDirectory& run, std::int64_t keep_last) override;
  void finish_save() override;
  const DistillTotals& totals() const { return totals_; }

 private:
  struct Written {
    std::vector<std::int32_t> tokens;  // prompt and completion
    std::size_t first = 0;             // token of the completion
    std::vector<float> logprobs;       // the sampler's, of the completion's tokens
    std::string domain;
    std::size_t place = 0;  // among the step's
  };
  std::vector<Written> write(std::int64_t number);
  // A teacher's answers for the completions of its domains, each with its share of the completion's loss.
  struct Lesson {
    std::size_t written = 0, teacher = 0;
    double share = 1;
    TeacherAnswer answer;
  };
  std::vector<Lesson> lessons_of(const std::vector<Written>& written) const;  // without answers
  std::vector<Lesson> ask(const std::vector<Written>& written);
  // Completions for which a remote teacher gave no answer are left out, or asked for again until it answers, as its settings say.
  bool any_far() const {
    return std::any_of(far_.begin(), far_.end(), [](const auto& one) { return one != nullptr; });
  }
  std::vector<FarAnswer> ask_far(std::size_t teacher, const std::vector<TeacherText>& texts);
  double learn_distributions(const std::vector<Written>& written, const std::vector<Lesson>& lessons, std::int64_t tokens);
  // The same over the whole vocabulary of any size, teacher after teacher, of which the lessons have no answers (jobs/distill_in_head.cpp).
  double learn_in_head(const std::vector<Written>& written, const std::vector<Lesson>& lessons, std::int64_t tokens);
  double learn_sampled(const std::vector<Written>& written, const std::vector<Lesson>& lessons, std::int64_t tokens);
  // `trained`: the training forward's log-probabilities of the completion's tokens.
  void compare(const Written& one, const std::vector<float>& trained);
  [[noreturn]] void refuse_difference(const Written& one, const std::vector<float>& trained, std::size_t token);

  RlStack& stack_;
  RankTraffic traffic_;
  Teachers& teachers_;
  DistillPrompts prompts_;
  DistillSettings settings_;
  DistillTotals totals_;
  bool in_head_ = false;                                // divergences are computed in the head, and no teacher tells log-probabilities
  double teacher_seconds_ = 0;                          // of a step, of what teachers compute there
  std::vector<double> sums_, counts_;                   // of a step, by teacher
  std::vector<std::unique_ptr<const FarTeacher>> far_;  // by teacher; null: it is in this process
  std::int64_t unanswered_ = 0, unjudged_ = 0;          // of a step: completions of a teacher that failed; tokens that no teacher judged
  std::filesystem::path differences_;
  StopToken stop_;
};

}  // namespace lockstep
