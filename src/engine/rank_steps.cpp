#include "engine/rank_steps.h"

namespace lockstep {

RankSteps::RankSteps(Runtime& runtime, const EngineOptions& options)
    : runtime_(runtime), ranks_({options.ranks.tp, 1, options.ranks.ep}), parts_(static_cast<std::size_t>(ranks_.size())) {
  ranks_.run([&](int rank) {
    Rank& part = parts_[static_cast<std::size_t>(rank)];
    Backend& like = runtime_.backend;
    if (rank > 0)
      part.runtime = std::make_unique<Runtime>(BackendOptions{like.device().kind(), like.isa(), like.device().threads().threads()},
                                               runtime_.model, runtime_.profile, runtime_.max_positions);
    if (ranks_.size() > 1) part.sharding = std::make_unique<const Sharding>(*runtime_.model, runtime_.profile, place_of(ranks_, rank));
    part.runner = std::make_unique<StepRunner>(runtime_of(rank), options.cache_pages, options.page_size, part.sharding.get());
  });
}

void RankSteps::set_weights(std::shared_ptr<const WeightSet> weights) {
  if (ranks_.size() == 1) {
    parts_[0].weights = std::move(weights);
    return;
  }
  // A device that only counts has no values, and takes no memory of the host for them.
  const WeightImages whole = runtime_.backend.device().counting()
                                 ? WeightImages(runtime_.model->manifest().parameters().size())
                                 : weight_images(runtime_.backend, runtime_.model->manifest(), *weights, runtime_.profile);
  ranks_.run([&](int rank) {
    Rank& part = parts_[static_cast<std::size_t>(rank)];
    part.weights = make_weight_set(runtime_of(rank).backend, part.sharding->manifest(), part.sharding->shares_of(whole), runtime_.profile,
                                   weights->version);
  });
}

void RankSteps::run(const std::vector<PlannedSlice>& plan, StepResult& result) {
  const WeightSet* own = plan[0].sequence->weights.get();
  std::vector<StepResult> others(parts_.size());
  ranks_.run([&](int rank) {
    Rank& part = parts_[static_cast<std::size_t>(rank)];
    part.runner->run(own ? *own : *part.weights, plan, rank == 0 ? result : others[static_cast<std::size_t>(rank)]);
  });
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    const ForwardCounts& work = others[static_cast<std::size_t>(rank)].work;
    if (rank < ranks_.layout().tp) result.work.pairs_read += work.pairs_read;  // expert-parallel ranks attend alike
    result.work.expert_rows += work.expert_rows;
  }
}

CommunicatorCounters RankSteps::traffic() const {
  CommunicatorCounters sum;
  for (int rank = 0; rank < ranks_.size(); ++rank)
    for (const Communicator* group : {&ranks_.tensor(rank), &ranks_.model(rank)}) {
      sum.calls += group->counters().calls;
      sum.bytes += group->counters().bytes;
    }
  return sum;
}

}  // namespace lockstep
