#include "train/trainer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "observe/trace.h"
#include "parallel/thread_ranks.h"
#include "train/gradient_file.h"
#include "train/loss_columns.h"
#include "train/loss_metrics.h"
#include "train/whole_images.h"

namespace lockstep {

Trainer::Trainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, std::unique_ptr<Ranks> ranks)
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

Trainer::~Trainer() = default;

void Trainer::check_usable() const {
  for (const auto& part : parts_) part->state().check_usable();
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

void Trainer::save_gradients(const std::filesystem::path& folder) {
  check_usable();
  if (!ranks_->all_here()) fail(ErrorCode::unsupported, "gradients of {} ranks of which {} are here, allowed is all of them", ranks_->size(), ranks_->local());
  AtomicFolder files(folder, AtomicFolder::Existing::replace);
  each([&](RankTrainer& part) {
    CheckedWriter file(gradient_file(files.partial(), part.rank()));
    part.write_gradients(file);
    file.commit();
  });
  files.commit();
}

void Trainer::load_gradients(const std::filesystem::path& folder) {
  check_usable();
  or_abandon([&] {
    each([&](RankTrainer& part) {
      CheckedReader file(gradient_file(folder, part.rank()));
      part.read_gradients(file);
      file.finish();
    });
  });
}

template <class F>
std::pair<ForwardBackwardResult, RowSums> Trainer::results(const F& work) {
  std::pair<ForwardBackwardResult, RowSums> first;
  each([&](RankTrainer& part) {
    std::pair<ForwardBackwardResult, RowSums> own;
    work(part, own.first, own.second);
    if (&part == parts_[0].get()) first = std::move(own);
  });
  return first;
}

std::shared_ptr<const std::vector<TrainSequence>> Trainer::held(const std::vector<TrainSequence>& data) const {
  if (!options().accumulate || !options().mostly_one_call || needs_accumulators(true)) return nullptr;
  return std::make_shared<const std::vector<TrainSequence>>(data);
}

ForwardBackwardResult Trainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) {
  const TraceSpan span("training", "forward and backward");
  check_no_batch();
  if (loss.kind != LossKind::none) check_trainable(runtime_.profile);
  parts_[0]->check(data, loss, index.index_loss);
  parts_[0]->gradients().check_may_open();
  double rows = 0;
  for (const TrainSequence& d : data) rows += static_cast<double>(d.tokens.size());
  const GradientCall call{loss, index, loss_normaliser(data, loss), index.index_loss ? 1.0 / rows : 0.0};
  const bool masked = call.normaliser == 0 && !index.index_loss;  // all targets are masked: no gradient, and nothing is computed
  ForwardBackwardResult result;
  or_abandon([&] {
    const auto again = masked ? nullptr : held(data);
    auto [own, sums] = results([&](RankTrainer& part, ForwardBackwardResult& r, RowSums& s) {
      part.open(call, true, again);
      r.make_room(data.size(), loss.kind);
      if (masked) return;
      part.deposit(call, data, r, s);
      part.close();
    });
    if (!masked) total_losses(sums, index.index_loss ? rows : 0.0, own);
    result = std::move(own);
  });
  LossMetricSums metrics(loss);
  if (result.rows > 0) metrics.add(data, result);
  result.metrics = metrics.metrics(result);
  return result;
}

void Trainer::begin_batch(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index) {
  check_no_batch();
  check_trainable(runtime_.profile);
  parts_[0]->check({}, loss, index.index_loss);
  parts_[0]->gradients().check_may_open();
  Batch& batch = batch_.emplace(Batch{OpenBatch(plan, loss, index), {}});
  batch.call = {batch.results.loss(), index, batch.results.loss().normaliser, batch.results.index_weight()};
}

void Trainer::add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
  check_usable();
  if (!batch_) fail(ErrorCode::invalid_argument, "no batch is open; begin_batch comes first");
  const TraceSpan span("training", "forward and backward of a piece");
  batch_->results.check(places, piece);
  const GradientCall& call = batch_->call;
  parts_[0]->check(piece, call.loss, call.index.index_loss);
  or_abandon([&] {
    const bool first = !std::exchange(batch_->begun, true), all = piece.size() == batch_->results.sequences();
    const auto again = first && all ? held(piece) : nullptr;
    auto [result, sums] = results([&](RankTrainer& part, ForwardBackwardResult& r, RowSums& s) {
      if (first) part.open(call, all, again);
      part.deposit(call, piece, r, s);
    });
    batch_->results.put(places, piece, std::move(result), sums);
  });
}

ForwardBackwardResult Trainer::finish_batch() {
  check_usable();
  if (!batch_) fail(ErrorCode::invalid_argument, "no batch is open; begin_batch comes first");
  batch_->results.check_complete();
  ForwardBackwardResult result;
  or_abandon([&] {
    each([](RankTrainer& part) { part.close(); });
    result = batch_->results.finish();
  });
  batch_.reset();
  return result;
}

void Trainer::drop_batch() {
  if (batch_) abandon_gradients();
}

std::vector<std::vector<float>> Trainer::score(const std::vector<TrainSequence>& data) {
  const TraceSpan span("training", "log-probabilities");
  check_usable();
  LossOptions none;
  none.kind = LossKind::none;
  parts_[0]->check(data, none, false);
  return results([&](RankTrainer& part, ForwardBackwardResult& r, RowSums&) { r.logprobs = part.score(data); }).first.logprobs;
}

void Trainer::evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
  check_usable();
  batch.check(places, piece);
  parts_[0]->check(piece, batch.loss(), false);
  const GradientCall call{batch.loss(), {}, batch.loss().normaliser};
  auto [result, sums] = results([&](RankTrainer& part, ForwardBackwardResult& r, RowSums& s) { part.evaluate(call, piece, r, s); });
  batch.put(places, piece, std::move(result), sums);
}

OptimResult Trainer::optim_step(const AdamParameters& adam) {
  const TraceSpan span("training", "optimizer step");
  check_no_batch();
  OptimResult result;
  const std::int64_t before = step();
  try {
    each([&](RankTrainer& part) {
      const OptimResult own = part.optim_step(adam);
      if (&part == parts_[0].get()) result = own;
    });
  } catch (...) {
    // A rank whose step count is one higher had begun to write, and may even be done: no rank can go on. How far the others are is unknown.
    const bool wrote = !ranks_->all_here() || std::any_of(parts_.begin(), parts_.end(), [&](const auto& part) { return part->state().steps() != before; });
    for (const auto& part : parts_)
      if (wrote) part->state().break_off();
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

template <class F>
WeightImages Trainer::images(const F& of) {
  check_usable();
  return whole_images(*ranks_, *runtime_.model, runtime_.profile, [&](int local) { return of(*parts_[static_cast<std::size_t>(local)]); });
}

WeightImages Trainer::gradient_images() {
  check_no_batch();
  return images([](RankTrainer& part) { return part.gradient_images(); });
}
WeightImages Trainer::master_images() {
  return images([](RankTrainer& part) { return part.state().images(StatePart::master); });
}
TrainerState Trainer::state() {
  return {master_images(), images([](RankTrainer& part) { return part.state().images(StatePart::first_moment); }),
          images([](RankTrainer& part) { return part.state().images(StatePart::second_moment); }), step()};
}

std::vector<float> Trainer::state_image(StatePart part, std::size_t parameter) {
  check_usable();
  if (ranks_->size() > 1) fail(ErrorCode::unsupported, "one parameter's state of {} ranks, allowed is one rank", ranks_->size());
  return parts_[0]->state().image(part, parameter);
}

void Trainer::restore(const TrainerState& state) {
  batch_.reset();
  for (const auto& part : parts_) part->state().break_off();  // until every rank is restored
  each([&](RankTrainer& part) { part.restore(state); });
  whole_weights_ = nullptr;
}

std::uint64_t Trainer::gradient_hash() { return images_hash(runtime_.model->manifest(), gradient_images()); }
std::uint64_t Trainer::master_hash() { return images_hash(runtime_.model->manifest(), master_images()); }

const MemoryAccounts& Trainer::memory(int local) const { return runtime_of(local).backend.device().memory(); }

ForwardCounts Trainer::work() const {
  const RankLayout& layout = ranks_->layout();
  const auto all = ranks_->gather<ForwardCounts>([&](int local) { return parts_[static_cast<std::size_t>(local)]->work(); });
  ForwardCounts sum;
  for (int rank = 0; rank < layout.size(); ++rank) {
    ForwardCounts own = all[static_cast<std::size_t>(rank)];
    const int place = layout.model_of(rank);
    if (place >= layout.tp) own.pairs_read = 0;  // expert-parallel ranks attend alike
    if (place > 0) own.pairs_visible = own.pairs_selected = own.expert_rows_chosen = 0, own.segment_rows = {};
    sum += own;
  }
  return sum;
}

CommunicatorCounters Trainer::traffic() const { return traffic_of(*ranks_); }

}  // namespace lockstep
