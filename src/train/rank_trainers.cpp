#include "train/rank_trainers.h"

#include "base/error.h"
#include "parallel/thread_ranks.h"
#include "train/rank_work.h"

namespace lockstep {

RankTrainers::RankTrainers(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, std::unique_ptr<Ranks> ranks)
    : runtime_(runtime),
      ranks_(ranks ? std::move(ranks) : std::make_unique<ThreadRanks>(options.ranks)),
      runtimes_(static_cast<std::size_t>(ranks_->local() - 1)),
      parts_(static_cast<std::size_t>(ranks_->local())) {
  if (ranks_->layout() != options.ranks)
    fail(ErrorCode::invalid_argument, "ranks is {} and the ranks that were given are {}; allowed is one layout", options.ranks.text(), ranks_->layout().text());
  ranks_->run([&](int local) {
    Backend& like = runtime_.backend;
    if (local > 0)
      runtimes_[static_cast<std::size_t>(local - 1)] = std::make_unique<Runtime>(
          BackendOptions{like.device().kind(), like.isa(), like.device().threads().threads()}, runtime_.model, runtime_.profile, runtime_.max_positions);
    parts_[static_cast<std::size_t>(local)] = std::make_unique<RankTrainer>(runtime_of(local), masters, options, ranks_->place(local));
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

ForwardCounts RankTrainers::work() const {
  return work_of_ranks(*ranks_, [this](int local) { return parts_[static_cast<std::size_t>(local)]->work(); });
}

}  // namespace lockstep
