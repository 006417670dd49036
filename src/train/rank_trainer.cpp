#include "train/rank_trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "model/rank_head.h"
#include "parallel/collectives.h"
#include "tensor/file_memory.h"
#include "train/loss_columns.h"
#include "train/losses.h"
#include "train/micro_batch.h"
#include "train/rank_record.h"

namespace lockstep {

TrainSequence TrainSequence::next_token(const std::vector<std::int32_t>& tokens) {
  TrainSequence s;
  if (tokens.size() < 2) fail(ErrorCode::invalid_argument, "a sequence has {} tokens, at least 2 are needed", tokens.size());
  s.tokens.assign(tokens.begin(), tokens.end() - 1);
  s.targets.assign(tokens.begin() + 1, tokens.end());
  s.weights.assign(s.tokens.size(), 1.0f);
  return s;
}

namespace {
// Places for the results of so many sequences.
void make_room(std::size_t sequences, const LossOptions& loss, ForwardBackwardResult& result) {
  result.logprobs.resize(sequences);
  result.entropies.resize(sequences);
  if (loss.kind != LossKind::none) result.losses.resize(sequences);
  if (loss.kind != LossKind::none && loss.kind != LossKind::cross_entropy) result.marks.resize(sequences);
}
}  // namespace

RankTrainer::RankTrainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, const RankPlace& place)
    : runtime_(runtime), options_(options), place_(place),
      sharding_(place.layout.model() > 1 ? std::make_unique<const Sharding>(*runtime.model, runtime.profile, place) : nullptr),
      manifest_(sharding_ ? sharding_->manifest() : runtime.model->manifest()) {
  for (std::size_t i = 0; i < manifest_.parameters().size(); ++i)
    shares_.push_back(parameter_share(manifest_.parameters()[i], static_cast<ParameterId>(i), place_.data_rank(), place_.layout.dp));
  use_bins(several_parts());
  if (!options.optimizer_folder.empty()) reserve_state_file();
  upload_masters(masters);
  for (std::size_t i = 0; i < manifest_.parameters().size(); ++i) {
    const auto moments = [&] {
      if (!moves(manifest_.parameters()[i])) return Buffer();
      Buffer b = allocate_state(i, MemoryCategory::optimizer);
      runtime.backend.stream().fill_zero(b.view());
      return b;
    };
    first_moments_.push_back(moments());
    second_moments_.push_back(moments());
  }
  for (std::size_t i = 0; i < runtime.model->router_biases.size(); ++i)
    router_loads_.push_back(runtime.backend.device().allocate_zero(DType::i32, 1, runtime.model->expert_count, MemoryCategory::workspace));
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
  return runtime_.backend.device().allocate_in(state_file_, DType::f32, rows, cols, MemoryCategory::optimizer_file);
}

// All of it before anything is computed: a disk without room is an error now.
void RankTrainer::reserve_state_file() {
  const Device& device = runtime_.backend.device();
  if (device.counting()) return;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < manifest_.parameters().size(); ++i) {
    const auto [rows, cols] = own_shape(i);
    const std::size_t blocks = (moves(manifest_.parameters()[i]) ? 2 : 0) + (separate_master(i) ? 1 : 0);
    bytes += blocks * device.file_bytes(DType::f32, rows * cols);
  }
  state_file_ = std::make_shared<FileMemory>(options_.optimizer_folder, bytes);
}

void RankTrainer::use_bins(bool bins) {
  if (gradients_ && bins_ == bins) return;
  if (gradients_) gradients_->clear();  // its memory first
  gradients_ = std::make_unique<GradientSet>(runtime_.backend, manifest_, bins, place_.layout.dp > 1 ? &shares_ : nullptr);
  bins_ = bins;
}

void RankTrainer::write_rows(std::size_t i, const View& view, const std::vector<float>& image) {
  if (!shared_out(i) || runtime_.backend.device().counting()) return runtime_.backend.stream().write(view, image);
  const ParameterShare& share = shares_[i];
  const auto begin = image.begin() + share.begin() * share.width;
  runtime_.backend.stream().write(view, std::vector<float>(begin, begin + share.count() * share.width));
}

bool RankTrainer::shares_head() const {
  return sharding_ && manifest_.parameter(runtime_.model->head).split == ParameterSplit::vocabulary;
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
    }
    set->parameters.push_back(std::move(compute));
  }
  masters_ = std::move(next);
  weights_ = std::move(set);
}

void RankTrainer::check(const std::vector<TrainSequence>& data, const LossOptions& loss, bool index_loss) const {
  if (loss.kind != LossKind::none) check_trainable(runtime_.profile);
  check_loss_options(loss);
  const auto wrong = [](std::size_t s, const std::string& what) { fail(ErrorCode::invalid_argument, "sequence {}: {}", s, what); };
  for (std::size_t s = 0; s < data.size(); ++s) {
    const TrainSequence& d = data[s];
    const std::size_t n = d.tokens.size();
    if (n == 0) wrong(s, "no tokens");
    if (static_cast<std::int64_t>(n) > runtime_.max_positions)
      wrong(s, fmt::format("{} tokens, allowed are at most {}", n, runtime_.max_positions));
    for (std::size_t i = 0; i < n; ++i)
      if (d.tokens[i] < 0 || d.tokens[i] >= runtime_.model->vocabulary)
        wrong(s, fmt::format("token {} is {}, allowed are 0 to {}", i, d.tokens[i], runtime_.model->vocabulary - 1));
    check_loss_data(d, s, loss, runtime_.model->vocabulary);
  }
  check_declared_prefixes(data);
  if (loss.kind != LossKind::none) loss_normaliser(data, loss);
  const bool declared = std::any_of(data.begin(), data.end(), [](const TrainSequence& d) { return d.shared_prefix > 0; });
  if (declared && loss.kind != LossKind::none && !options_.declared_prefixes)
    fail(ErrorCode::invalid_argument, "sequences declare a shared_prefix, which changes bits of gradients; allowed with TrainerOptions::declared_prefixes alone");
  if (declared && index_loss)
    fail(ErrorCode::unsupported, "the index loss is not made over prefixes that are shared in the backward (shared_prefix); allowed is one of the two");
}

ForwardBackwardResult RankTrainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) {
  double rows = 0;
  for (const TrainSequence& d : data) rows += static_cast<double>(d.tokens.size());
  const double normaliser = loss_normaliser(data, loss);
  ForwardBackwardResult result;
  open_gradients(false);
  make_room(data.size(), loss, result);
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
}

void RankTrainer::open_gradients(bool in_pieces) {
  dealt_tokens_.clear();
  if (pending_calls_ == 0) {
    use_bins(in_pieces || several_parts());
    gradients_->clear();
    for (const Buffer& loads : router_loads_) runtime_.backend.stream().fill_zero(loads.view());
  }
  ++pending_calls_;
}

void RankTrainer::deposit(const std::vector<TrainSequence>& piece, const LossOptions& loss, const IndexTraining& index, double normaliser, double index_weight,
                          ForwardBackwardResult& result, RowSums& sums) {
  make_room(piece.size(), loss, result);
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
}

std::vector<std::vector<float>> RankTrainer::score(const std::vector<TrainSequence>& data) {
  LossOptions none;
  none.kind = LossKind::none;
  ForwardBackwardResult result;
  make_room(data.size(), none, result);
  RowSums sums;
  for_each_micro_batch(data, result, sums, nullptr,
                       [&](const std::vector<std::size_t>& part) { run_micro_batch(data, part, none, 1.0, 0.0, {}, false, result, sums); });
  return result.logprobs;
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
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  const RowPlan plan = plan_rows(data, part, options_.page_size, options_.share_prefixes);
  const std::int64_t pages = (plan.pages * plan.page_size + options_.page_size - 1) / options_.page_size;
  if (!cache_ || cache_->pages < pages)
    cache_ = std::make_unique<KvCache>(backend, sharding_ ? sharding_->cache_shapes(model) : model.cache_shapes(), runtime_.profile, pages + pages / 4, options_.page_size);
  const Batch batch(backend, plan.slices, plan.page_size, true);

  ForwardOptions options;
  options.dense_attention = index.dense_attention;
  options.index_loss = index.index_loss && gradient;
  options.index_loss_weight = static_cast<float>(index_weight);
  options.checkpoint = options_.checkpoint_activations;
  if (gradient) options.router_loads = &router_loads_;
  Tape tape(backend, *gradients_);
  Context ctx = runtime_.context(*weights_, *cache_, batch, options, gradient ? &tape : nullptr, sharding_.get());
  const Tensor hidden = model.forward(ctx);

  const std::int64_t rows = batch.tape_count();
  Device& device = backend.device();
  LossColumns columns(device, data, plan, loss, normaliser);
  const std::int64_t width = columns.targets_per_row();
  const auto output = [&](std::int64_t cols) { return device.allocate(DType::f32, rows, cols, MemoryCategory::activations); };
  const bool trains = loss.kind != LossKind::none, marked = trains && loss.kind != LossKind::cross_entropy;
  const Buffer logprob = output(width), entropy = output(1), row_loss = trains ? output(width) : Buffer();
  const Buffer marks = marked ? device.allocate(DType::i32, rows, width, MemoryCategory::activations) : Buffer();
  // The logits of a chunk of rows, never of all: about 4 MB, and enough rows to read the weight for.
  const std::int64_t chunk = std::min(rows, std::max<std::int64_t>(192, (std::int64_t{1} << 20) / model.vocabulary));
  const Buffer logits = device.allocate(DType::f32, chunk, manifest_.parameter(model.head).outputs, MemoryCategory::workspace);
  HeadLoss head;
  head.logprob = logprob.view();
  const View row_flags = ctx.taped_flags();
  head.flags = row_flags;
  head.x = ctx.taped(hidden);
  head.w = ctx.packed(model.head);
  head.round_input_bf16 = runtime_.profile.bf16_activations;
  head.target = columns.target();
  head.logits_chunk = logits.view();
  const auto launch_head = [&] {
    if (shares_head()) head_loss_of_ranks(ctx, head, model.head);
    else backend.launch(&KernelTable::head_loss, head);
  };
  // Ratios of whole sequences want all their log-probabilities first.
  if (trains && columns.needs_logprobs()) {
    launch_head();
    columns.set_logprobs(backend.stream().read(logprob.view()).get());
  }
  head.objective = columns.objective();
  head.entropy = entropy.view();
  head.loss = row_loss.view();
  if (marked) head.marks = marks.view();
  Buffer dx, log_sum, slope, entropy_slope;
  if (columns.entropy_bonus()) {
    entropy_slope = output(1);
    head.entropy_slope = entropy_slope.view();
  }
  if (gradient) {
    dx = device.allocate(DType::f32, rows, hidden.view().cols, MemoryCategory::activations);
    log_sum = output(1), slope = output(width);
    head.dx = dx.view();
    head.log_sum = log_sum.view();
    head.slope = slope.view();
  }
  launch_head();
  if (gradient) {
    tape.contribute(hidden.node, dx);
    tape.backward();
    // Last, when the activations are gone.
    if (head.w.outputs > 0) {
      const Buffer table_dy = tape.take_table_gradient();
      backend.launch(&KernelTable::head_weight,
                     HeadWeight{gradients_->gradient(model.head), gradients_->bins(model.head), gradients_->finish_at_once(model.head), head.x, head.w,
                                shares_head() ? sharding_->begin(model.head) : 0, head.round_input_bf16, head.target, head.log_sum, head.slope,
                                batch.tape_rows().segment, head.entropy, head.entropy_slope, table_dy.view(), batch.tape_rows().token});
    }
  }

  // The record of this micro-batch: everything that goes back to the host.
  const std::vector<float> logprobs = backend.stream().read(logprob.view()).get();
  const std::vector<float> entropies = backend.stream().read(entropy.view()).get();
  const std::vector<float> losses = trains ? backend.stream().read(row_loss.view()).get() : std::vector<float>();
  const std::vector<std::int32_t> what_happened = marked ? backend.stream().read_ints(marks.view()).get() : std::vector<std::int32_t>();
  const std::vector<std::int32_t> flags = backend.stream().read_ints(row_flags).get();
  for (std::size_t k = 0; k < plan.slices.size(); ++k) {
    const RowPlan::Origin& origin = plan.origins[k];
    const std::int64_t first = plan.slices[k].begin, begin = batch.row_begin()[k], end = batch.row_begin()[k + 1];
    for (std::int64_t r = begin; r < end; ++r)
      if (flags[static_cast<std::size_t>(r)])
        fail(ErrorCode::numeric, "sequence {}, token {}: a value is not a number or not finite (flags {})", origin.sequence, first + r - begin,
             flags[static_cast<std::size_t>(r)]);
    if (origin.prefix) continue;
    const std::vector<std::int32_t>& targets = data[origin.sequence].targets;
    result.scored += std::count_if(targets.begin(), targets.end(), [](std::int32_t id) { return id >= 0; });
    // `own` values a row, of the `all` that a row has here.
    const auto keep = [&](auto& to, const auto& from, std::int64_t own, std::int64_t all) {
      to.assign(static_cast<std::size_t>(first * own), {});  // a declared prefix is not scored
      for (std::int64_t r = begin; r < end; ++r) to.insert(to.end(), from.begin() + r * all, from.begin() + r * all + own);
    };
    const std::int64_t own = data[origin.sequence].targets_per_row;
    keep(result.logprobs[origin.sequence], logprobs, own, width);
    keep(result.entropies[origin.sequence], entropies, 1, 1);
    if (trains) keep(result.losses[origin.sequence], losses, own, width);
    if (marked) keep(result.marks[origin.sequence], what_happened, own, width);
    result.rows += first + end - begin;
  }
  for (const Buffer& buffer : ctx.index_losses())
    for (const float kl : backend.stream().read(buffer.view()).get())
      sums.index_losses.push_back(static_cast<double>(kl) / static_cast<double>(ctx.index_losses().size()));
}

}  // namespace lockstep
