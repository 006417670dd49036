#include "train/mtp_trainer.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

namespace {
void check_layer(const Runtime& runtime, const MtpTraining& training) {
  check_trainable(runtime.profile);
  if (!runtime.model->mtp())
    fail(ErrorCode::invalid_argument,
         "a layer of multi-token prediction is to be trained, and the model's config.json has none; allowed are models with "
         "'num_nextn_predict_layers' 1");
  if (training.depths < 1 || training.depths > MtpTraining::kMostDepths)
    fail(ErrorCode::invalid_argument, "depths is {}, allowed is 1 to {}", training.depths, MtpTraining::kMostDepths);
}

// Joint training, where the caller gives the model's gradients.
void check_joint(const Runtime& runtime, const TrunkShare& trunk, const RankLayout& ranks) {
  if (!trunk.gradients) return;
  if (ranks.deals_rows())
    fail(ErrorCode::unsupported,
         "ranks is {}, and a model is trained jointly with its layer of multi-token prediction, whose rows all ep ranks have alike; allowed is rows=shared",
         ranks.text());
  if (trunk.adapter)
    fail(ErrorCode::unsupported, "an adapter stands over a model that is trained jointly with its layer of multi-token prediction; allowed is none");
  if (runtime.model->manifest().parameter(runtime.model->facts().head).tied)
    fail(ErrorCode::unsupported,
         "the head of a model that is trained jointly with its layer of multi-token prediction is its input embedding ('tie_word_embeddings'); allowed is one "
         "of "
         "its own");
  if (trunk.gradients->finish_at_once()) fail(ErrorCode::internal, "the model's gradients have no accumulators, and a layer's losses are added to them");
}
}  // namespace

MtpTrainer::MtpTrainer(Runtime& runtime, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options,
                       std::shared_ptr<RankRuntimes> ranks)
    : runtime_(runtime), training_(training), options_(options) {
  check_layer(runtime, training);
  ranks_ = RankRuntimes::given_or_threads(std::move(ranks), runtime, options.ranks);
  if (!ranks_->ranks().all_here())
    fail(ErrorCode::unsupported, "a layer of multi-token prediction is to be trained on {} ranks, of which {} are in this process; allowed is one process",
         ranks_->ranks().size(), ranks_->ranks().local());
  parts_.resize(static_cast<std::size_t>(ranks_->ranks().local()));
  ranks_->ranks().run([&](int local) {
    parts_[static_cast<std::size_t>(local)] = std::make_unique<MtpRank>(ranks_->runtime(local), masters, training, options, ranks_->ranks().place(local));
  });
}

MtpRank& MtpTrainer::answering() const {
  return **std::find_if(parts_.begin(), parts_.end(), [](const auto& part) { return part->answers(); });
}

MtpResult MtpTrainer::forward_backward(const std::vector<TrunkShare>& trunk, const std::vector<TrainSequence>& data) {
  if (trunk.size() != parts_.size())
    fail(ErrorCode::internal, "the model's weights of {} ranks are given, and {} train its layer", trunk.size(), parts_.size());
  for (const TrunkShare& share : trunk) check_joint(runtime_, share, options_.ranks);
  check_data(runtime_, data, LossOptions(), false, true);
  for (std::size_t s = 0; s < data.size(); ++s) {
    const auto longest = static_cast<std::int64_t>(data[s].tokens.size()) + training_.depths - 1;
    if (longest > runtime_.max_positions)
      fail(ErrorCode::invalid_argument, "sequence {}: {} tokens, and depth {} turns {} positions further; allowed are at most {} in all", s,
           data[s].tokens.size(), training_.depths, training_.depths - 1, runtime_.max_positions);
    if (data[s].targets_per_row != 1)
      fail(ErrorCode::unsupported, "sequence {}: targets_per_row is {}, allowed is 1 where a layer of multi-token prediction is trained", s,
           data[s].targets_per_row);
  }
  MtpResult result;
  try {
    ranks_->ranks().run([&](int local) {
      MtpRank& part = *parts_[static_cast<std::size_t>(local)];
      MtpResult own = part.forward_backward(trunk[static_cast<std::size_t>(local)], data);
      if (part.answers()) result = std::move(own);
    });
  } catch (...) {
    for (const auto& part : parts_) part->abandon_gradients();
    throw;
  }
  return result;
}

OptimResult MtpTrainer::optim_step(const AdamParameters& adam) {
  OptimResult result;
  ranks_->ranks().run([&](int local) {
    MtpRank& part = *parts_[static_cast<std::size_t>(local)];
    const OptimResult own = part.optim_step(adam);
    if (part.answers()) result = own;
  });
  return result;
}

std::shared_ptr<const WeightSet> MtpTrainer::weights() {
  if (parts_[0]->has_layer()) return parts_[0]->weights();
  const auto version = static_cast<std::uint64_t>(step());
  return whole_.of(version, true,
                   [&] { return make_weight_set(runtime_.backend, runtime_.model->mtp()->manifest(), master_images(), runtime_.profile, version); });
}

template <class F>
WeightImages MtpTrainer::images_by(const F& of) {
  WeightImages whole;
  ranks_->ranks().run([&](int local) {
    MtpRank& part = *parts_[static_cast<std::size_t>(local)];
    if (!part.has_layer()) return;
    WeightImages own = of(part);
    if (part.answers()) whole = std::move(own);
  });
  return whole;
}

WeightImages MtpTrainer::images(StatePart part) {
  return images_by([part](MtpRank& rank) { return rank.images(part); });
}

WeightImages MtpTrainer::gradient_images() {
  return images_by([](MtpRank& rank) { return rank.gradient_images(); });
}

TrainerState MtpTrainer::state() { return {images(StatePart::master), images(StatePart::first_moment), images(StatePart::second_moment), step()}; }

void MtpTrainer::restore(const TrainerState& state) {
  ranks_->ranks().run([&](int local) { parts_[static_cast<std::size_t>(local)]->restore(state); });
  whole_.forget();
}

}  // namespace lockstep
