#include "train/mtp_trainer.h"

#include "base/byte_record.h"
#include "base/error.h"
#include "model/sharding.h"
#include "train/image_record.h"

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

// What the rank that answers tells the other processes: a record of at least one byte.
void put_answer(ByteWriter& out, const MtpResult& result) {
  for (const double number : {result.loss, result.variation, result.index_loss}) out.value(number);
  out.values(result.of_depth), out.values(result.overlap), out.values(result.targets);
}
void take_answer(ByteReader& in, MtpResult& result) {
  for (double* number : {&result.loss, &result.variation, &result.index_loss}) *number = in.value<double>();
  result.of_depth = in.values<double>(), result.overlap = in.values<double>(), result.targets = in.values<std::int64_t>();
}

void put_answer(ByteWriter& out, const OptimResult& result) {
  out.value(result.gradient_norm), out.value(result.version), out.value(result.elements);
  out.value(static_cast<std::uint64_t>(result.group_norms.size()));
  for (const auto& [name, norm] : result.group_norms) out.text(name), out.value(norm);
}
void take_answer(ByteReader& in, OptimResult& result) {
  result.gradient_norm = in.value<double>(), result.version = in.value<std::uint64_t>(), result.elements = in.value<std::int64_t>();
  result.group_norms.clear();
  for (auto left = in.value<std::uint64_t>(); left > 0; --left) {
    std::string name = in.text();
    result.group_norms.emplace_back(std::move(name), in.value<double>());
  }
}

void put_answer(ByteWriter& out, const WeightImages& images) { put_images(out, images); }
void take_answer(ByteReader& in, WeightImages& images) { images = taken_images(in); }
}  // namespace

MtpTrainer::MtpTrainer(Runtime& runtime, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options,
                       std::shared_ptr<RankRuntimes> ranks)
    : runtime_(runtime), training_(training), options_(options) {
  check_layer(runtime, training);
  ranks_ = RankRuntimes::given_or_threads(std::move(ranks), runtime, options.ranks);
  if (options.ranks.pp > 1) first_has_layer_ = Sharding(*runtime.model, runtime.profile, {options.ranks, 0}).last_stage();
  parts_.resize(static_cast<std::size_t>(ranks_->ranks().local()));
  ranks_->ranks().run([&](int local) {
    parts_[static_cast<std::size_t>(local)] = std::make_unique<MtpRank>(ranks_->runtime(local), masters, training, options, ranks_->ranks().place(local));
  });
}

template <class T>
void MtpTrainer::tell(int local, T&& own, T& answer) const {
  const bool answers = part(local).answers();
  if (ranks_->ranks().all_here()) {
    if (answers) answer = std::forward<T>(own);
    return;
  }
  ByteWriter mine;
  if (answers) put_answer(mine, own);
  for (const std::string& told : ranks_->ranks().place(local).world->gather_host(mine.bytes())) {
    if (local != 0 || told.empty()) continue;
    ByteReader in(told);
    take_answer(in, answer);
  }
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
    ranks_->ranks().run([&](int local) { tell(local, part(local).forward_backward(trunk[static_cast<std::size_t>(local)], data), result); });
  } catch (...) {
    for (const auto& own : parts_) own->abandon_gradients();
    throw;
  }
  return result;
}

OptimResult MtpTrainer::optim_step(const AdamParameters& adam) {
  OptimResult result;
  ranks_->ranks().run([&](int local) { tell(local, part(local).optim_step(adam), result); });
  steps_ = static_cast<std::int64_t>(result.version);
  return result;
}

std::shared_ptr<const WeightSet> MtpTrainer::weights() {
  if (first_has_layer_) return parts_[0]->has_layer() ? parts_[0]->weights() : nullptr;
  const auto version = static_cast<std::uint64_t>(step());
  return whole_.of(version, ranks_->ranks().all_here(),
                   [&] { return make_weight_set(runtime_.backend, runtime_.model->mtp()->manifest(), master_images(), runtime_.profile, version); });
}

template <class F>
WeightImages MtpTrainer::images_by(const F& of) {
  WeightImages whole;
  ranks_->ranks().run([&](int local) {
    MtpRank& own = part(local);
    tell(local, own.has_layer() ? of(own) : WeightImages(), whole);
  });
  return whole;
}

WeightImages MtpTrainer::images(StatePart of) {
  return images_by([of](MtpRank& rank) { return rank.images(of); });
}

WeightImages MtpTrainer::gradient_images() {
  return images_by([](MtpRank& rank) { return rank.gradient_images(); });
}

TrainerState MtpTrainer::state() { return {images(StatePart::master), images(StatePart::first_moment), images(StatePart::second_moment), step()}; }

void MtpTrainer::restore(const TrainerState& state) {
  ranks_->ranks().run([&](int local) { part(local).restore(state); });
  steps_ = state.step;
  whole_.forget();
}

}  // namespace lockstep
