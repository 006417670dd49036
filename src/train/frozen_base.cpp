#include "train/frozen_base.h"

#include "base/error.h"
#include "model/rank_work.h"
#include "numerics/low_bit.h"
#include "train/adapter_trainer.h"

namespace lockstep {

FrozenBase::FrozenBase(Runtime& runtime, const std::shared_ptr<const WeightSet>& weights, const TrainerOptions& options, std::shared_ptr<RankRuntimes> ranks)
    : runtime_(runtime),
      options_(options),
      ranks_(RankRuntimes::given_or_threads(std::move(ranks), runtime, options.ranks)),
      parts_(static_cast<std::size_t>(this->ranks().local())) {
  if (options.train_indexer) fail(ErrorCode::unsupported, "train_indexer with adapters: the weights are frozen, the indexer's too; allowed is false");
  if (options.ranks.replica() > 1 && low_bit_format_of(runtime.profile.weight_bits) == LowBitFormat::mxfp8_both)
    fail(ErrorCode::unsupported,
         "adapters over {} ranks under profile '{}': ranks make their weights from the forward's numbers, which are not those that the input gradient reads; "
         "allowed are ranks of dp alone",
         options.ranks.size(), runtime.profile.name);
  Backend& like = runtime_.backend;
  const Manifest& manifest = runtime_.model->manifest();
  WeightImages images;  // of what ranks cut; a device that only counts has no values
  if (options.ranks.replica() > 1)
    images = like.device().counting() ? WeightImages(manifest.parameters().size()) : weight_images(like, manifest, *weights, runtime_.profile);
  else if (options.ranks.size() > 1) like.stream().synchronize();  // they copy the weights from there
  this->ranks().run([&](int local) {
    parts_[static_cast<std::size_t>(local)] =
        std::make_unique<BaseRank>(ranks_->runtime(local), local == 0, weights, images, options_, this->ranks().place(local));
  });
}

std::vector<std::vector<float>> FrozenBase::score(const std::vector<TrainSequence>& data) {
  return std::move(AdapterTrainer::score_together(*this, {{nullptr, &data}})[0]);
}

void FrozenBase::evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
  AdapterTrainer::evaluate(*this, nullptr, batch, places, piece);
}

ForwardCounts FrozenBase::work() const {
  return work_of_ranks(ranks(), [&](int local) { return rank(local).work(); });
}

}  // namespace lockstep
