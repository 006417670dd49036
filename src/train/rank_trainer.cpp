#include "train/rank_trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "parallel/collectives.h"
#include "tensor/file_memory.h"
#include "train/kept_passes.h"
#include "train/loss_columns.h"
#include "train/micro_batch.h"
#include "train/rank_record.h"

namespace lockstep {

RankTrainer::RankTrainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, const RankPlace& place)
    : runtime_(runtime), options_(options), place_(place),
      sharding_(place.layout.model() > 1 ? std::make_unique<const Sharding>(*runtime.model, runtime.profile, place) : nullptr),
      manifest_(sharding_ ? sharding_->manifest() : runtime.model->manifest()), pass_(runtime, options, sharding_.get()) {
  if (options.optimizer == OptimizerFamily::dimuon && place.layout.size() > 1)
    fail(ErrorCode::unsupported, "the optimizer dimuon over {} ranks: it needs whole matrices; allowed is one rank", place.layout.size());
  for (std::size_t i = 0; i < manifest_.parameters().size(); ++i)
    shares_.push_back(parameter_share(manifest_.parameters()[i], static_cast<ParameterId>(i), place_.data_rank(), place_.layout.dp));
  if (!options.optimizer_folder.empty()) reserve_state_file();
  upload_masters(masters);
  for (std::size_t i = 0; i < manifest_.parameters().size(); ++i) {
    const auto moments = [&] {
      if (!moves(manifest_.parameters()[i])) return Buffer();
      Buffer b = allocate_state(i, MemoryCategory::optimizer);
      if (!state_file_) runtime.backend.stream().fill_zero(b.view());  // a file begins with zeros
      return b;
    };
    first_moments_.push_back(moments());
    second_moments_.push_back(muon_steps(i) ? Buffer() : moments());
  }
  for (std::size_t i = 0; i < runtime.model->facts().router_biases.size(); ++i)
    router_loads_.push_back(runtime.backend.device().allocate_zero(DType::i32, 1, runtime.model->facts().expert_count, MemoryCategory::workspace));
}

RankTrainer::~RankTrainer() { drop_kept(); }

void RankTrainer::drop_kept() {
  if (options_.kept && gradients_) options_.kept->drop(gradients_.get());
}

bool RankTrainer::muon_steps(std::size_t i) const {
  const Parameter& p = manifest_.parameters()[i];
  return options_.optimizer == OptimizerFamily::dimuon && moves(p) && p.layout == ParameterLayout::packed && p.outputs > 1 && p.inputs > 1 && !p.tied &&
         static_cast<ParameterId>(i) != runtime_.model->facts().head;
}

bool RankTrainer::shared_out(std::size_t i) const { return place_.layout.dp > 1 && manifest_.parameters()[i].trained; }

Buffer RankTrainer::allocate_rows(std::size_t i, MemoryCategory category) {
  const auto [rows, cols] = own_shape(i);
  return runtime_.backend.device().allocate(DType::f32, rows, cols, category);
}

std::pair<std::int64_t, std::int64_t> RankTrainer::own_shape(std::size_t i) const {
  const Parameter& p = manifest_.parameters()[i];
  if (shared_out(i)) return {shares_[i].count(), shares_[i].width};
  return p.layout == ParameterLayout::packed ? std::pair(std::int64_t{1}, p.size()) : std::pair(p.outputs, p.inputs);
}

View RankTrainer::master(std::size_t i) const {
  const View whole = masters_[i].view();
  return shared_out(i) && whole.size() == shares_[i].total() * shares_[i].width ? shares_[i].rows(whole) : whole;
}

Buffer RankTrainer::allocate_state(std::size_t i, MemoryCategory category) {
  if (options_.optimizer_folder.empty()) return allocate_rows(i, category);
  const auto [rows, cols] = own_shape(i);
  const std::size_t begin = state_file_ ? state_file_->taken() : 0;
  Buffer buffer = runtime_.backend.device().allocate_in(state_file_, DType::f32, rows, cols, MemoryCategory::optimizer_file);
  if (state_file_) state_blocks_[i].push_back({begin, state_file_->taken() - begin});
  return buffer;
}

void RankTrainer::advise_state(std::size_t i, void (FileMemory::*advice)(std::size_t, std::size_t) const) {
  if (!state_file_ || !options_.release_state) return;
  for (const StateBlock& block : state_blocks_[i])
    runtime_.backend.stream().enqueue([file = state_file_, block, advice] { (file.get()->*advice)(block.begin, block.bytes); });
}
void RankTrainer::fetch_state(std::size_t i) { advise_state(i, &FileMemory::prepare); }
void RankTrainer::leave_state(std::size_t i) { advise_state(i, &FileMemory::release); }

// All of it before anything is computed: a disk without room is an error now.
void RankTrainer::reserve_state_file() {
  const Device& device = runtime_.backend.device();
  if (device.counting()) return;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < manifest_.parameters().size(); ++i) {
    const auto [rows, cols] = own_shape(i);
    const std::size_t moments = moves(manifest_.parameters()[i]) ? (muon_steps(i) ? 1 : 2) : 0, blocks = moments + (separate_master(i) ? 1 : 0);
    bytes += blocks * device.file_bytes(DType::f32, rows * cols);
  }
  state_file_ = std::make_shared<FileMemory>(options_.optimizer_folder, bytes);
  state_blocks_.resize(manifest_.parameters().size());
}

bool RankTrainer::use_bins(bool bins) {
  if (gradients_ && bins_ == bins) return false;
  drop_kept();
  gradients_.reset();  // its memory first
  gradients_ = std::make_unique<GradientSet>(runtime_.backend, manifest_, bins, place_.layout.dp > 1 ? &shares_ : nullptr);
  bins_ = bins;
  return true;
}

void RankTrainer::write_rows(std::size_t i, const View& view, const std::vector<float>& image) {
  if (!shared_out(i) || runtime_.backend.device().counting()) return runtime_.backend.stream().write(view, image);
  const ParameterShare& share = shares_[i];
  const auto begin = image.begin() + share.begin() * share.width;
  runtime_.backend.stream().write(view, std::vector<float>(begin, begin + share.count() * share.width));
}

void RankTrainer::upload_masters(const WeightImages& whole) {
  const WeightImages shares = sharding_ ? sharding_->shares_of(whole) : WeightImages();
  const WeightImages& masters = sharding_ ? shares : whole;
  auto set = std::make_shared<WeightSet>();
  set->version = static_cast<std::uint64_t>(step_);
  std::vector<Buffer> next;
  for (std::size_t i = 0; i < manifest_.parameters().size(); ++i) {
    const Parameter& p = manifest_.parameters()[i];
    Buffer compute = make_compute_copy(runtime_.backend, p, runtime_.profile, masters[i]);
    if (compute.view().dtype == DType::f32) {
      next.push_back(compute);  // the compute copy is the master; a step writes another buffer
    } else {
      next.push_back(state_file_ && !masters_.empty() ? masters_[i] : allocate_state(i, MemoryCategory::weights));  // a file has room for one
      write_rows(i, next.back().view(), masters[i]);
      leave_state(i);
    }
    set->parameters.push_back(std::move(compute));
  }
  masters_ = std::move(next);
  weights_ = std::move(set);
}

ForwardBackwardResult RankTrainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) {
  double rows = 0;
  for (const TrainSequence& d : data) rows += static_cast<double>(d.tokens.size());
  const double normaliser = loss_normaliser(data, loss);
  ForwardBackwardResult result;
  open_gradients(!options_.accumulate);
  result.make_room(data.size(), loss.kind);
  if (normaliser == 0 && !index.index_loss) return result;  // everything is masked: no gradient
  RowSums sums;
  deposit(data, loss, index, normaliser, index.index_loss ? 1.0 / rows : 0.0, result, sums);
  total_losses(sums, index.index_loss ? rows : 0.0, result);
  close_gradients();
  return result;
}

void RankTrainer::check_may_begin() const {
  if (pending_calls_ > 0 && !options_.accumulate)
    fail(ErrorCode::internal, "a second forward_backward before optim_step needs TrainerOptions::accumulate");
  if (pending_calls_ > 0 && !bins_) fail(ErrorCode::internal, "a second forward_backward before optim_step, after one that was to be alone");
}

void RankTrainer::open_gradients(bool alone) {
  dealt_tokens_.clear();
  if (pending_calls_ == 0) {
    // Where passes were kept for accumulators, they are used.
    if (!use_bins(several_parts(alone) || (gradients_ && bins_))) gradients_->clear();
    for (const Buffer& loads : router_loads_) runtime_.backend.stream().fill_zero(loads.view());
  }
  ++pending_calls_;
}

void RankTrainer::deposit(const std::vector<TrainSequence>& piece, const LossOptions& loss, const IndexTraining& index, double normaliser, double index_weight,
                          ForwardBackwardResult& result, RowSums& sums) {
  result.make_room(piece.size(), loss.kind);
  for_each_micro_batch(piece, result, sums, &dealt_tokens_, [&](const std::vector<std::size_t>& part) {
    run_micro_batch(piece, part, loss, normaliser, index_weight, index, true, result, sums);
  });
}

void RankTrainer::close_gradients() {
  if (!options_.accumulate) finish_gradients();
}

void RankTrainer::abandon_gradients() {
  pending_calls_ = 0;
  try {
    runtime_.backend.stream().synchronize();
  } catch (const std::exception&) {  // of the work that is abandoned
  }
  drop_kept();
  gradients_.reset();
}

bool RankTrainer::keeps() const { return options_.kept && options_.kept->enabled() && place_.layout.size() == 1; }

std::vector<std::vector<float>> RankTrainer::score(const std::vector<TrainSequence>& data, bool alone) {
  if (keeps() && !gradients_) use_bins(several_parts(alone || !options_.accumulate));  // where what is kept will deposit
  LossOptions none;
  none.kind = LossKind::none;
  ForwardBackwardResult result;
  result.make_room(data.size(), none.kind);
  RowSums sums;
  for_each_micro_batch(data, result, sums, nullptr,
                       [&](const std::vector<std::size_t>& part) { run_micro_batch(data, part, none, 1.0, 0.0, {}, false, result, sums); });
  return result.logprobs;
}

void RankTrainer::evaluate(const std::vector<TrainSequence>& piece, const LossOptions& loss, double normaliser, ForwardBackwardResult& result, RowSums& sums) {
  result.make_room(piece.size(), loss.kind);
  for_each_micro_batch(piece, result, sums, nullptr,
                       [&](const std::vector<std::size_t>& part) { run_micro_batch(piece, part, loss, normaliser, 0.0, {}, false, result, sums); });
}

template <class F>
void RankTrainer::for_each_micro_batch(const std::vector<TrainSequence>& data, ForwardBackwardResult& result, RowSums& sums,
                                       std::vector<std::size_t>* dealt_before, const F& run) {
  const std::vector<std::vector<std::size_t>> dealt = deal_sequences(data, place_.layout.dp, dealt_before);
  const std::vector<std::size_t>& own = dealt[static_cast<std::size_t>(place_.data_rank())];
  for (const std::vector<std::size_t>& part : micro_batches(data, own, static_cast<std::size_t>(options_.micro_batch))) run(part);
  if (place_.layout.dp > 1) join_records(*place_.data, dealt, data, result, sums);
}

void RankTrainer::run_micro_batch(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, const LossOptions& loss, double normaliser,
                                  double index_weight, const IndexTraining& index, bool gradient, ForwardBackwardResult& result, RowSums& sums) {
  const bool keep = !gradient && gradients_ && keeps() && loss.kind == LossKind::none;
  ForwardPass::Settings settings{gradient, gradient || keep ? gradients_.get() : nullptr, gradient || keep ? &router_loads_ : nullptr, index, index_weight, keep};
  pass_.run(*weights_, settings, {{&data, &loss, normaliser, part, &result, &sums}});
}

}  // namespace lockstep
