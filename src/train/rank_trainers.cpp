#include "train/rank_trainers.h"

#include "model/rank_work.h"

namespace lockstep {

RankTrainers::RankTrainers(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, std::shared_ptr<RankRuntimes> ranks)
    : runtime_(runtime),
      ranks_(RankRuntimes::given_or_threads(std::move(ranks), runtime, options.ranks)),
      parts_(static_cast<std::size_t>(ranks_->ranks().local())) {
  TrainerOptions own = options;
  if (!ranks_->ranks().all_here()) own.kept_forwards = nullptr;  // they are in this process's memory
  ranks_->ranks().run([&](int local) {
    parts_[static_cast<std::size_t>(local)] =
        std::make_unique<RankTrainer>(ranks_->runtime(local), masters, own, ranks_->ranks().place(local), ranks_->ranks().moves_meanwhile());
  });
}

void RankTrainers::check_usable() const {
  for (const auto& part : parts_) part->state().check_usable();
}

void RankTrainers::break_off() const {
  for (const auto& part : parts_) part->state().break_off();
}

void RankTrainers::abandon_gradients() const {
  for (const auto& part : parts_) part->abandon_gradients();
}

void RankTrainers::sampled_as(std::uint64_t identity) const {
  for (const auto& part : parts_) part->sampled_as().set(identity);
}

ForwardCounts RankTrainers::work() const {
  if (ranks().layout().deals_rows()) {  // no rank repeats another's work
    ForwardCounts sum;
    for (const ForwardCounts& own : ranks_->ranks().gather<ForwardCounts>([this](int local) { return parts_[static_cast<std::size_t>(local)]->work(); }))
      sum += own;
    return sum;
  }
  return work_of_ranks(ranks_->ranks(), [this](int local) { return parts_[static_cast<std::size_t>(local)]->work(); });
}

}  // namespace lockstep
