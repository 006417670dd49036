#include "train/trainer.h"

#include <utility>

#include "base/error.h"
#include "train/loss_metrics.h"

namespace lockstep {

Trainer::Trainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options)
    : runtime_(runtime), ranks_(options.ranks), runtimes_(static_cast<std::size_t>(ranks_.size() - 1)), parts_(static_cast<std::size_t>(ranks_.size())) {
  each([&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (rank > 0) {
      Backend& like = runtime_.backend;
      runtimes_[at - 1] = std::make_unique<Runtime>(BackendOptions{like.device().kind(), like.isa(), like.device().threads().threads()}, runtime_.model,
                                                    runtime_.profile, runtime_.max_positions);
    }
    parts_[at] = std::make_unique<RankTrainer>(rank > 0 ? *runtimes_[at - 1] : runtime_, masters, options,
                                               ranks_.size() > 1 ? place_of(ranks_, rank) : RankPlace());
  });
}

Trainer::~Trainer() = default;

void Trainer::check_usable() const {
  if (broken_off_)
    fail(ErrorCode::unsupported, "what followed step {} was broken off by an error and the weights are of no step; restore a checkpoint",
         steps_done_);
}

void Trainer::check_no_batch() const {
  check_usable();
  if (batch_) fail(ErrorCode::invalid_argument, "a batch is open; finish_batch or drop_batch comes first");
}

template <class F>
void Trainer::or_abandon(const F& work) {
  try {
    work();
  } catch (...) {
    abandon_gradients();
    throw;
  }
}

void Trainer::abandon_gradients() {
  batch_.reset();
  for (const auto& part : parts_) part->abandon_gradients();
}

ForwardBackwardResult Trainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) {
  check_no_batch();
  if (loss.kind != LossKind::none) check_trainable(runtime_.profile);
  parts_[0]->check(data, loss, index.index_loss);
  parts_[0]->check_may_begin();
  ForwardBackwardResult result;
  or_abandon([&] {
    each([&](int rank) {
      ForwardBackwardResult own = parts_[static_cast<std::size_t>(rank)]->forward_backward(data, loss, index);
      if (rank == 0) result = std::move(own);
    });
  });
  LossMetricSums metrics(loss);
  if (result.rows > 0) metrics.add(data, result);  // none: everything is masked, and nothing was computed
  result.metrics = metrics.metrics(result);
  return result;
}

void Trainer::begin_batch(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index) {
  check_no_batch();
  check_trainable(runtime_.profile);
  parts_[0]->check({}, loss, index.index_loss);
  parts_[0]->check_may_begin();
  batch_.emplace(plan, loss, index);
  or_abandon([&] { each([&](int rank) { parts_[static_cast<std::size_t>(rank)]->open_gradients(plan.alone); }); });
}

void Trainer::add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
  check_usable();
  if (!batch_) fail(ErrorCode::invalid_argument, "no batch is open; begin_batch comes first");
  batch_->check(places, piece);
  parts_[0]->check(piece, batch_->loss(), batch_->index().index_loss);
  or_abandon([&] {
    ForwardBackwardResult result;
    RowSums sums;
    each([&](int rank) {
      ForwardBackwardResult own;
      RowSums own_sums;
      parts_[static_cast<std::size_t>(rank)]->deposit(piece, batch_->loss(), batch_->index(), batch_->loss().normaliser, batch_->index_weight(), own, own_sums);
      if (rank == 0) result = std::move(own), sums = std::move(own_sums);
    });
    batch_->put(places, piece, std::move(result), sums);
  });
}

ForwardBackwardResult Trainer::finish_batch() {
  check_usable();
  if (!batch_) fail(ErrorCode::invalid_argument, "no batch is open; begin_batch comes first");
  batch_->check_complete();
  ForwardBackwardResult result;
  or_abandon([&] {
    each([&](int rank) { parts_[static_cast<std::size_t>(rank)]->close_gradients(); });
    result = batch_->finish();
  });
  batch_.reset();
  return result;
}

void Trainer::drop_batch() {
  if (batch_) abandon_gradients();
}

std::vector<std::vector<float>> Trainer::score(const std::vector<TrainSequence>& data, bool alone) {
  check_usable();
  LossOptions none;
  none.kind = LossKind::none;
  parts_[0]->check(data, none, false);
  std::vector<std::vector<float>> result;
  each([&](int rank) {
    auto own = parts_[static_cast<std::size_t>(rank)]->score(data, alone);
    if (rank == 0) result = std::move(own);
  });
  return result;
}

void Trainer::evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
  check_usable();
  batch.check(places, piece);
  parts_[0]->check(piece, batch.loss(), false);
  ForwardBackwardResult result;
  RowSums sums;
  each([&](int rank) {
    ForwardBackwardResult own;
    RowSums own_sums;
    parts_[static_cast<std::size_t>(rank)]->evaluate(piece, batch.loss(), batch.loss().normaliser, own, own_sums);
    if (rank == 0) result = std::move(own), sums = std::move(own_sums);
  });
  batch.put(places, piece, std::move(result), sums);
}

OptimResult Trainer::optim_step(const AdamParameters& adam) {
  check_no_batch();
  OptimResult result;
  steps_done_ = step();
  try {
    each([&](int rank) {
      const OptimResult own = parts_[static_cast<std::size_t>(rank)]->optim_step(adam);
      if (rank == 0) result = own;
    });
  } catch (...) {
    // A rank that counts one step more had begun to write.
    for (const auto& part : parts_) broken_off_ = broken_off_ || part->step() != steps_done_;
    abandon_gradients();
    throw;
  }
  return result;
}

const std::shared_ptr<const WeightSet>& Trainer::weights() {
  check_usable();
  if (!parts_[0]->sharding()) return parts_[0]->weights();
  const std::uint64_t version = parts_[0]->weights()->version;
  if (!whole_weights_ || whole_weights_->version != version)
    whole_weights_ = make_weight_set(runtime_.backend, runtime_.model->manifest(), master_images(), runtime_.profile, version);
  return whole_weights_;
}

// The ranks of the first replica have all there is of a model, each its share.
template <class F>
WeightImages Trainer::images(const F& of) {
  check_usable();
  std::vector<WeightImages> parts(static_cast<std::size_t>(ranks_.layout().model()));
  each([&](int rank) {
    WeightImages own = of(*parts_[static_cast<std::size_t>(rank)]);
    if (ranks_.layout().data_of(rank) == 0) parts[static_cast<std::size_t>(rank)] = std::move(own);
  });
  if (!parts_[0]->sharding()) return std::move(parts[0]);
  WeightImages whole;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) parts_[rank]->sharding()->put_into(whole, std::exchange(parts[rank], {}));
  return whole;
}

WeightImages Trainer::gradient_images() {
  check_no_batch();
  return images([](RankTrainer& part) { return part.gradient_images(); });
}
WeightImages Trainer::master_images() {
  return images([](RankTrainer& part) { return part.master_images(); });
}
TrainerState Trainer::state() {
  return {master_images(), images([](RankTrainer& part) { return part.first_moment_images(); }),
          images([](RankTrainer& part) { return part.second_moment_images(); }), step()};
}

void Trainer::restore(const TrainerState& state) {
  batch_.reset();
  steps_done_ = step();
  broken_off_ = true;  // until all of it is there
  each([&](int rank) { parts_[static_cast<std::size_t>(rank)]->restore(state); });
  whole_weights_ = nullptr;
  broken_off_ = false;
}

std::uint64_t Trainer::gradient_hash() { return images_hash(runtime_.model->manifest(), gradient_images()); }
std::uint64_t Trainer::master_hash() { return images_hash(runtime_.model->manifest(), master_images()); }

const MemoryAccounts& Trainer::memory(int rank) const {
  return (rank > 0 ? *runtimes_[static_cast<std::size_t>(rank - 1)] : runtime_).backend.device().memory();
}

ForwardCounts Trainer::work() const {
  const RankLayout& layout = ranks_.layout();
  ForwardCounts sum;
  for (int rank = 0; rank < layout.size(); ++rank) {
    ForwardCounts own = parts_[static_cast<std::size_t>(rank)]->work();
    const int place = layout.model_of(rank);
    if (place >= layout.tp) own.pairs_read = 0;  // expert-parallel ranks attend alike
    if (place > 0) own.pairs_visible = own.pairs_selected = own.expert_rows_chosen = 0;
    sum += own;
  }
  return sum;
}

CommunicatorCounters Trainer::traffic() {
  CommunicatorCounters sum;
  for (int rank = 0; rank < ranks_.size(); ++rank)
    for (const Communicator* group : {&ranks_.world(rank), &ranks_.tensor(rank), &ranks_.model(rank), &ranks_.data(rank)}) {
      sum.calls += group->counters().calls;
      sum.bytes += group->counters().bytes;
    }
  return sum;
}

}  // namespace lockstep
