#include "train/frozen_base.h"

#include "base/error.h"
#include "model/rank_work.h"
#include "train/adapter_trainer.h"

namespace lockstep {

namespace {
// Rows are dealt in steps that move all weights alone.
RankPlace with_shared_rows(RankPlace place) {
  place.layout.rows = ReplicaRows::shared;
  return place;
}
}  // namespace

FrozenBase::FrozenBase(Runtime& runtime, const std::shared_ptr<const WeightSet>& weights, const TrainerOptions& options, std::shared_ptr<RankRuntimes> ranks)
    : runtime_(runtime),
      options_(options),
      ranks_(RankRuntimes::given_or_threads(std::move(ranks), runtime, options.ranks)),
      parts_(static_cast<std::size_t>(this->ranks().local())) {
  if (options.train_indexer) fail(ErrorCode::unsupported, "train_indexer with adapters: the weights are frozen, the indexer's too; allowed is false");
  if (!this->ranks().all_here()) options_.kept_forwards = nullptr;  // they are in this process's memory
  Backend& like = runtime_.backend;
  HostCopy whole;  // what ranks cut their shares from
  if (options.ranks.replica() > 1) whole = host_copy(like, *weights);
  else if (options.ranks.size() > 1) like.stream().synchronize();  // they copy the weights from there
  this->ranks().run([&](int local) {
    parts_[static_cast<std::size_t>(local)] =
        std::make_unique<BaseRank>(ranks_->runtime(local), local == 0, weights, whole, options_, with_shared_rows(this->ranks().place(local)));
  });
}

std::vector<std::vector<float>> FrozenBase::score(const std::vector<TrainSequence>& data, std::uint64_t owner) {
  return std::move(AdapterTrainer::score_together(*this, {{nullptr, &data, owner}})[0]);
}

void FrozenBase::evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece,
                          const std::function<const AdapterWeights*(int local)>& adapter, std::uint64_t owner, std::uint64_t whole_adapter) {
  batch.check(places, piece);
  check_data(runtime_, piece, batch.loss(), false, options_.declared_prefixes);
  BaseRank::Outcome outcome;
  each([&](int local, BaseRank& rank) {
    auto done = rank.run({}, {{&piece, &batch.loss(), batch.loss().normaliser, adapter ? adapter(local) : nullptr, nullptr, owner, whole_adapter}}, nullptr);
    if (local == 0) outcome = std::move(done[0]);
  });
  batch.put(places, piece, std::move(outcome.result), {});
}

ForwardCounts FrozenBase::work() const {
  return work_of_ranks(ranks(), [&](int local) { return rank(local).work(); });
}

}  // namespace lockstep
