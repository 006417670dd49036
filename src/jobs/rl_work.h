// Reinforcement learning as a RunWork (runs/run.h): steps of PolicyTraining, their summary, and checkpoints that resume to the same bits.
// One thread.
//   RlWork work(*environment, stack, settings, {.transcripts = 8}); run.go(work, {.label = "rl", .steps = settings.steps});
#pragma once
#include <exception>

#include "rl/policy_training.h"
#include "runs/rank_traffic.h"
#include "runs/rl_stack.h"
#include "runs/run.h"

namespace lockstep {

// Summary of the steps in this process.
struct RlTotals {
  KlSums kl;
  std::int64_t steps = 0, tokens = 0;
  std::int64_t without_spread = 0;  // steps in which every group's rewards were equal
  std::int64_t unequal = 0;         // steps with a differing bit
  double ended = 0;                 // the share of rollouts that ended by themselves, summed over steps
  std::vector<double> rewards;      // the mean of each step
  double rollout_seconds = 0, train_seconds = 0;
  double mean_reward() const;  // 0 without steps
};

struct RlWorkOptions {
  std::int64_t transcripts = 8, transcripts_every = 1;  // how many rollouts of one group are written to transcripts.jsonl, every how many steps
  bool allow_profile_mix = false;
  bool stop_at_difference = true;  // PolicyTraining::step
  std::filesystem::path run = {};  // whose checkpoints an error of divergence names, and where a difference leaves its case; empty: nowhere
  // Called after each step; what it returns are metrics. If it throws, the step counts and is saved, and the run ends before the next one.
  std::function<nlohmann::ordered_json(bool last)> publish = {};
};

class RlWork final : public RunWork {
 public:
  // All but settings outlive this object. Errors: those of PolicyTraining.
  RlWork(const Environment& environment, RlStack& stack, const RlSettings& settings, const RlWorkOptions& options);
  // Resumes from the newest checkpoint of a run, or begins with the weights of another's. Errors: those of LocalTrainer::load and begin_from.
  void restore(const RunDirectory& run);
  void begin_from(const std::filesystem::path& checkpoint);
  // If a layer of multi-token prediction is trained: resumes it, or begins it as LocalMtp says. Call after restore() or begin_from().
  void begin_layer(const RunDirectory& run);

  std::int64_t step() const override { return step_; }
  bool finished() const override { return step_ >= settings_.steps; }
  RunStep take_step() override;
  void save(const RunDirectory& run, std::int64_t keep_last) override;
  void finish_save() override;
  const RlTotals& totals() const { return totals_; }
  // Throws what went wrong with publishing the last step.
  void check_published() const {
    if (publish_error_) std::rethrow_exception(publish_error_);
  }

 private:
  // Trains that layer; returns metrics.
  nlohmann::ordered_json train_layer(const std::vector<PolicyDatum>& rollouts);
  // Leaves what repeats a difference in the run's folder, and says where.
  std::string leave_case(const DifferentToken& token);
  // Of the step that was just taken, beside what was counted before it.
  void add_kept_metrics(nlohmann::ordered_json& metrics, const EngineCounters& counted);

  RlStack& stack_;
  RlSettings settings_;
  RlWorkOptions options_;
  PolicyTraining training_;
  RlTotals totals_;
  nlohmann::ordered_json layer_metrics_ = nlohmann::ordered_json::object();  // of the step that is being taken
  RankTraffic traffic_;
  EngineCounters counted_;
  SegmentRows trained_rows_;
  RlStack::KeptRows kept_rows_;
  std::int64_t step_ = 0;
  std::exception_ptr publish_error_;
};

// Learning rates after the warm-up (train/schedule.h): constant, linear, cosine.
std::vector<std::string> schedule_names();

}  // namespace lockstep
