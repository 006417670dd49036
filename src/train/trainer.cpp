#include "train/trainer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "observe/trace.h"
#include "train/gradient_file.h"
#include "train/loss_columns.h"
#include "train/loss_metrics.h"

namespace lockstep {

Trainer::Trainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, std::shared_ptr<RankRuntimes> ranks)
    : ranks_(runtime, masters, options, std::move(ranks)), state_(ranks_) {}

void Trainer::check_no_batch() const {
  ranks_.check_usable();
  if (batch_) fail(ErrorCode::invalid_argument, "a batch is open; finish_batch or abandon_gradients comes first");
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
  ranks_.abandon_gradients();
}

std::optional<Trainer::Batch> Trainer::save_gradients(const std::filesystem::path& folder) {
  ranks_.check_usable();
  const Ranks& ranks = ranks_.ranks();
  if (!ranks.all_here()) fail(ErrorCode::unsupported, "gradients of {} ranks of which {} are here, allowed is all of them", ranks.size(), ranks.local());
  AtomicFolder files(folder, AtomicFolder::Existing::replace);
  ranks_.each([&](RankTrainer& part) {
    CheckedWriter file(gradient_file(files.partial(), part.rank()));
    part.write_gradients(file);
    file.commit();
  });
  files.commit();
  return std::exchange(batch_, std::nullopt);
}

void Trainer::load_gradients(const std::filesystem::path& folder, std::optional<Batch>&& batch) {
  ranks_.check_usable();
  or_abandon([&] {
    ranks_.each([&](RankTrainer& part) {
      CheckedReader file(gradient_file(folder, part.rank()));
      part.read_gradients(file);
      file.finish();
    });
  });
  batch_ = std::move(batch);
}

std::shared_ptr<const std::vector<TrainSequence>> Trainer::held(const std::vector<TrainSequence>& data) const {
  if (!options().accumulate || !options().mostly_one_call || needs_accumulators(true)) return nullptr;
  return std::make_shared<const std::vector<TrainSequence>>(data);
}

ForwardBackwardResult Trainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) {
  const TraceSpan span("training", "forward and backward");
  check_no_batch();
  if (loss.kind != LossKind::none) check_trainable(ranks_.runtime().profile);
  ranks_.first().check(data, loss, index.index_loss);
  ranks_.first().gradients().check_may_open();
  double rows = 0;
  for (const TrainSequence& d : data) rows += static_cast<double>(d.tokens.size());
  const GradientCall call{loss, index, loss_normaliser(data, loss), index.index_loss ? 1.0 / rows : 0.0};
  const bool masked = call.normaliser == 0 && !index.index_loss;  // all targets are masked: no gradient, and nothing is computed
  ForwardBackwardResult result;
  or_abandon([&] {
    const auto again = masked ? nullptr : held(data);
    auto [own, sums] = ranks_.results([&](RankTrainer& part, ForwardBackwardResult& r, RowSums& s) {
      part.open(call, true, again);
      r.make_room(data.size(), loss.kind);
      if (masked) return;
      part.deposit(call, data, r, s, true);
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
  check_trainable(ranks_.runtime().profile);
  ranks_.first().check({}, loss, index.index_loss);
  ranks_.first().gradients().check_may_open();
  Batch& batch = batch_.emplace(Batch{OpenBatch(plan, loss, index), {}});
  batch.call = {batch.results.loss(), index, batch.results.loss().normaliser, batch.results.index_weight()};
}

void Trainer::add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
  ranks_.check_usable();
  if (!batch_) fail(ErrorCode::invalid_argument, "no batch is open; begin_batch comes first");
  const TraceSpan span("training", "forward and backward of a piece");
  batch_->results.check(places, piece);
  const GradientCall& call = batch_->call;
  ranks_.first().check(piece, call.loss, call.index.index_loss);
  or_abandon([&] {
    const bool first = !std::exchange(batch_->begun, true), all = piece.size() == batch_->results.sequences();
    const auto again = first && all ? held(piece) : nullptr;
    const bool last = batch_->results.missing() == piece.size();
    auto [result, sums] = ranks_.results([&](RankTrainer& part, ForwardBackwardResult& r, RowSums& s) {
      if (first) part.open(call, all, again);
      part.deposit(call, piece, r, s, last);
    });
    batch_->results.put(places, piece, std::move(result), sums);
  });
}

ForwardBackwardResult Trainer::finish_batch() {
  ranks_.check_usable();
  if (!batch_) fail(ErrorCode::invalid_argument, "no batch is open; begin_batch comes first");
  batch_->results.check_complete();
  ForwardBackwardResult result;
  or_abandon([&] {
    ranks_.each([](RankTrainer& part) { part.close(); });
    result = batch_->results.finish();
  });
  batch_.reset();
  return result;
}

std::vector<std::vector<float>> Trainer::score(const std::vector<TrainSequence>& data) {
  const TraceSpan span("training", "log-probabilities");
  ranks_.check_usable();
  LossOptions none;
  none.kind = LossKind::none;
  ranks_.first().check(data, none, false);
  return ranks_.results([&](RankTrainer& part, ForwardBackwardResult& r, RowSums&) { r.logprobs = part.score(data); }).first.logprobs;
}

void Trainer::evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
  ranks_.check_usable();
  batch.check(places, piece);
  ranks_.first().check(piece, batch.loss(), false);
  const GradientCall call{batch.loss(), {}, batch.loss().normaliser};
  auto [result, sums] = ranks_.results([&](RankTrainer& part, ForwardBackwardResult& r, RowSums& s) { part.evaluate(call, piece, r, s); });
  batch.put(places, piece, std::move(result), sums);
}

OptimResult Trainer::optim_step(const AdamParameters& adam) {
  const TraceSpan span("training", "optimizer step");
  check_no_batch();
  OptimResult result;
  const std::int64_t before = step();
  try {
    ranks_.each([&](RankTrainer& part) {
      const OptimResult own = part.optim_step(adam);
      if (&part == &ranks_.first()) result = own;
    });
  } catch (...) {
    // A rank whose step count is one higher had begun to write, and may even be done: no rank can go on. How far the others are is unknown.
    const auto& parts = ranks_.parts();
    const bool wrote = !ranks_.ranks().all_here() || std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part->state().steps() != before; });
    if (wrote) ranks_.break_off();
    abandon_gradients();
    throw;
  }
  return result;
}

std::shared_ptr<const WeightSet> Trainer::weights() {
  ranks_.check_usable();
  std::shared_ptr<const WeightSet> whole = ranks_.first().weights();
  if (ranks_.first().sharding() || options().ranks.shards_weights()) {
    const std::uint64_t version = whole->version;
    Runtime& runtime = ranks_.runtime();
    whole = whole_.of(version, ranks_.ranks().all_here(),
                      [&] { return make_weight_set(runtime.backend, runtime.model->manifest(), state_.masters(), runtime.profile, version); });
  }
  ranks_.sampled_as(whole->identity);
  return whole;
}

WeightImages Trainer::gradient_images() {
  check_no_batch();
  return ranks_.images([](RankTrainer& part) { return part.gradient_images(); });
}

void Trainer::restore(const TrainerState& state) {
  restore([&](const StateShare& share) { return share.reader(state); }, state.step);
}

void Trainer::restore(const std::function<StateReader(StateShare&)>& reader, std::int64_t steps) {
  batch_.reset();
  ranks_.break_off();  // until every rank is restored
  ranks_.each([&](RankTrainer& part) {
    StateShare share = part.share();
    part.restore(reader(share), steps);
  });
  whole_.forget();
}

void Trainer::each_share(const std::function<void(StateShare&)>& work) {
  ranks_.check_usable();
  ranks_.each([&](RankTrainer& part) {
    StateShare share = part.share();
    work(share);
  });
}

}  // namespace lockstep
