#include "train/trainer.h"

#include <cmath>

#include "base/error.h"
#include "base/hash.h"
#include "numerics/accumulator.h"

namespace lockstep {

// Sums over the rows of all micro-batches, whatever their order.
struct Trainer::Sums {
  ExactSum loss, index_loss;
};

TrainSequence TrainSequence::next_token(const std::vector<std::int32_t>& tokens) {
  TrainSequence s;
  if (tokens.size() < 2) fail(ErrorCode::invalid_argument, "a sequence has {} tokens, at least 2 are needed", tokens.size());
  s.tokens.assign(tokens.begin(), tokens.end() - 1);
  s.targets.assign(tokens.begin() + 1, tokens.end());
  s.weights.assign(s.tokens.size(), 1.0f);
  return s;
}

Trainer::Trainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options) : runtime_(runtime), options_(options) {
  const Manifest& manifest = runtime.model->manifest();
  gradients_ = std::make_unique<GradientSet>(runtime.backend, manifest, options.accumulate || options.micro_batch > 0);
  upload_masters(masters);
  for (const Parameter& p : manifest.parameters()) {
    const auto moments = [&] {
      if (!moves(p)) return Buffer();
      Buffer b = allocate_parameter(runtime.backend, p, DType::f32, MemoryCategory::optimizer);
      runtime.backend.stream().fill_zero(b.view());
      return b;
    };
    first_moments_.push_back(moments());
    second_moments_.push_back(moments());
  }
  for (std::size_t i = 0; i < runtime.model->router_biases.size(); ++i)
    router_loads_.push_back(runtime.backend.device().allocate_zero(DType::i32, 1, runtime.model->expert_count, MemoryCategory::workspace));
}

Trainer::~Trainer() = default;

void Trainer::upload_masters(const WeightImages& masters) {
  const Manifest& manifest = runtime_.model->manifest();
  auto set = std::make_shared<WeightSet>();
  set->version = static_cast<std::uint64_t>(step_);
  masters_.clear();
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    masters_.push_back(allocate_parameter(runtime_.backend, p, DType::f32, MemoryCategory::weights));
    runtime_.backend.stream().write(masters_.back().view(), masters[i]);
    if (compute_dtype(p, runtime_.profile) == DType::f32) {
      set->parameters.push_back(masters_.back());  // the compute copy is the master; a step writes another buffer
    } else {
      set->parameters.push_back(allocate_parameter(runtime_.backend, p, DType::bf16, MemoryCategory::weights));
      runtime_.backend.stream().write(set->parameters.back().view(), masters[i]);
    }
  }
  weights_ = std::move(set);
}

void Trainer::check(const std::vector<TrainSequence>& data, const LossOptions& loss) const {
  const auto wrong = [](std::size_t s, const std::string& what) { fail(ErrorCode::invalid_argument, "sequence {}: {}", s, what); };
  for (std::size_t s = 0; s < data.size(); ++s) {
    const TrainSequence& d = data[s];
    const std::size_t n = d.tokens.size();
    if (n == 0) wrong(s, "no tokens");
    if (static_cast<std::int64_t>(n) > runtime_.max_positions)
      wrong(s, fmt::format("{} tokens, allowed are at most {}", n, runtime_.max_positions));
    if (d.targets.size() != n || d.weights.size() != n) wrong(s, fmt::format("{} tokens, {} targets and {} weights; allowed are equal numbers", n, d.targets.size(), d.weights.size()));
    if (loss.kind == LossKind::policy && (d.advantages.size() != n || d.old_logprobs.size() != n))
      wrong(s, fmt::format("{} tokens, {} advantages and {} old log-probabilities; allowed are equal numbers", n, d.advantages.size(), d.old_logprobs.size()));
    for (std::size_t i = 0; i < n; ++i) {
      if (d.tokens[i] < 0 || d.tokens[i] >= runtime_.model->vocabulary)
        wrong(s, fmt::format("token {} is {}, allowed are 0 to {}", i, d.tokens[i], runtime_.model->vocabulary - 1));
      if (d.targets[i] >= runtime_.model->vocabulary)
        wrong(s, fmt::format("target {} is {}, allowed are -1 to {}", i, d.targets[i], runtime_.model->vocabulary - 1));
      if (!std::isfinite(d.weights[i])) wrong(s, fmt::format("weight {} is not finite", i));
    }
  }
}

ForwardBackwardResult Trainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) {
  check(data, loss);
  if (pending_calls_ > 0 && !options_.accumulate)
    fail(ErrorCode::internal, "a second forward_backward before optim_step needs TrainerOptions::accumulate");
  ForwardBackwardResult result;
  ExactSum total_weight;  // whatever the order of the data
  double rows = 0;
  for (const TrainSequence& d : data) {
    rows += static_cast<double>(d.tokens.size());
    for (std::size_t i = 0; i < d.weights.size(); ++i)
      if (d.targets[i] >= 0) total_weight.add(static_cast<double>(d.weights[i]));
  }
  Sums sums;
  const double normaliser = loss.normaliser > 0 ? loss.normaliser : total_weight.total();
  result.logprobs.resize(data.size());
  result.entropies.resize(data.size());
  if (pending_calls_++ == 0) gradients_->clear();
  if (normaliser == 0 && !index.index_loss) return result;  // everything is masked: no gradient
  for_each_micro_batch(data, [&](const std::vector<const TrainSequence*>& part, std::size_t first) {
    run_micro_batch(part, loss, normaliser, index.index_loss ? 1.0 / rows : 0.0, index, true, result, first, sums);
  });
  result.loss = sums.loss.total();
  result.index_loss = index.index_loss ? sums.index_loss.total() / rows : 0.0;
  if (!options_.accumulate) gradients_->finish();
  return result;
}

std::vector<std::vector<float>> Trainer::score(const std::vector<TrainSequence>& data) {
  LossOptions none;
  none.kind = LossKind::none;
  check(data, none);
  ForwardBackwardResult result;
  result.logprobs.resize(data.size());
  result.entropies.resize(data.size());
  Sums sums;
  for_each_micro_batch(data, [&](const std::vector<const TrainSequence*>& part, std::size_t first) {
    run_micro_batch(part, none, 1.0, 0.0, {}, false, result, first, sums);
  });
  return result.logprobs;
}

template <class F>
void Trainer::for_each_micro_batch(const std::vector<TrainSequence>& data, F&& run) const {
  const std::size_t size = options_.micro_batch > 0 ? static_cast<std::size_t>(options_.micro_batch) : data.size();
  for (std::size_t begin = 0; begin < data.size(); begin += size) {
    std::vector<const TrainSequence*> part;
    for (std::size_t i = begin; i < std::min(data.size(), begin + size); ++i) part.push_back(&data[i]);
    run(part, begin);
  }
}

void Trainer::run_micro_batch(const std::vector<const TrainSequence*>& data, const LossOptions& loss, double normaliser, double index_weight,
                              const IndexTraining& index, bool gradient, ForwardBackwardResult& result, std::size_t first, Sums& sums) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  // Pages: each sequence owns as many as it needs, one after another.
  std::vector<SequenceSlice> slices;
  std::vector<std::int32_t> targets;
  std::vector<float> weights, advantages, old_logprobs;
  std::int32_t next_page = 0;
  for (const TrainSequence* d : data) {
    SequenceSlice slice;
    slice.tokens = d->tokens;
    for (std::int64_t p = 0; p < static_cast<std::int64_t>(d->tokens.size()); p += options_.page_size) slice.pages.push_back(next_page++);
    slices.push_back(std::move(slice));
    for (std::size_t i = 0; i < d->tokens.size(); ++i) {
      targets.push_back(d->targets[i]);
      weights.push_back(static_cast<float>(static_cast<double>(d->weights[i]) / normaliser));
      advantages.push_back(loss.kind == LossKind::policy ? d->advantages[i] : 0.0f);
      old_logprobs.push_back(loss.kind == LossKind::policy ? d->old_logprobs[i] : 0.0f);
    }
  }
  if (!cache_ || cache_->pages < next_page)
    cache_ = std::make_unique<KvCache>(backend, model.cache_shapes(), runtime_.profile, next_page + next_page / 4, options_.page_size);
  const Batch batch(backend, slices, options_.page_size, true);

  ForwardOptions options;
  options.dense_attention = index.dense_attention;
  options.index_loss = index.index_loss && gradient;
  options.index_loss_weight = static_cast<float>(index_weight);
  options.checkpoint = options_.checkpoint_activations;
  if (gradient) options.router_loads = &router_loads_;
  Tape tape(backend, *gradients_);
  Context ctx = runtime_.context(*weights_, *cache_, batch, options, gradient ? &tape : nullptr);
  const Tensor hidden = model.forward(ctx);

  const std::int64_t rows = batch.count();
  Device& device = backend.device();
  const auto column = [&](const auto& values) { return device.upload(values, rows, 1, MemoryCategory::activations); };
  const auto output = [&] { return device.allocate(DType::f32, rows, 1, MemoryCategory::activations); };
  const Buffer target = column(targets), weight = column(weights), advantage = column(advantages), old_logprob = column(old_logprobs);
  const Buffer logprob = output(), entropy = output(), row_loss = output();
  // The logits of a chunk of rows, never of all: about 4 MB, at least the longest gradient segment.
  const std::int64_t chunk = std::min(rows, std::max<std::int64_t>(batch.longest_segment(), (std::int64_t{1} << 20) / model.vocabulary));
  const Buffer logits = device.allocate(DType::f32, chunk, model.vocabulary, MemoryCategory::workspace);
  HeadLoss head;
  head.logprob = logprob.view();
  head.entropy = entropy.view();
  head.loss = row_loss.view();
  head.flags = ctx.flags();
  head.x = hidden.view();
  head.w = ctx.packed(model.head);
  head.round_input_bf16 = runtime_.profile.bf16_activations;
  head.target = target.view();
  head.kind = loss.kind;
  head.weight = weight.view();
  head.advantage = advantage.view();
  head.old_logprob = old_logprob.view();
  head.clip_low = loss.clip_low;
  head.clip_high = loss.clip_high;
  head.segment = batch.rows().segment;
  head.logits_chunk = logits.view();
  Buffer dx;
  if (gradient) {
    dx = device.allocate(DType::f32, rows, hidden.view().cols, MemoryCategory::activations);
    head.dx = dx.view();
    head.gradient = gradients_->gradient(model.head);
    head.bins = gradients_->bins(model.head);
    head.finish = gradients_->finish_at_once(model.head);
  }
  backend.launch(&KernelTable::head_loss, head);
  if (gradient) {
    tape.contribute(hidden.node, dx);
    tape.backward();
  }

  // The record of this micro-batch: everything that goes back to the host.
  const std::vector<float> logprobs = backend.stream().read(logprob.view()).get();
  const std::vector<float> entropies = backend.stream().read(entropy.view()).get();
  const std::vector<float> losses = backend.stream().read(row_loss.view()).get();
  const std::vector<std::int32_t> flags = backend.stream().read_ints(ctx.flags()).get();
  for (std::size_t s = 0; s < data.size(); ++s) {
    const auto begin = batch.row_begin()[s], end = batch.row_begin()[s + 1];
    for (std::int64_t r = begin; r < end; ++r) {
      if (flags[static_cast<std::size_t>(r)])
        fail(ErrorCode::numeric, "sequence {}, token {}: a value is not a number or not finite (flags {})", first + s, r - begin,
             flags[static_cast<std::size_t>(r)]);
      if (loss.kind != LossKind::none) sums.loss.add(static_cast<double>(losses[static_cast<std::size_t>(r)]));
      result.scored += targets[static_cast<std::size_t>(r)] >= 0;
    }
    result.logprobs[first + s].assign(logprobs.begin() + begin, logprobs.begin() + end);
    result.entropies[first + s].assign(entropies.begin() + begin, entropies.begin() + end);
  }
  result.rows += rows;
  for (const Buffer& buffer : ctx.index_losses())
    for (const float kl : backend.stream().read(buffer.view()).get())
      sums.index_loss.add(static_cast<double>(kl) / static_cast<double>(ctx.index_losses().size()));
}

OptimResult Trainer::optim_step(const AdamParameters& adam) {
  if (pending_calls_ == 0) fail(ErrorCode::invalid_argument, "optim_step without a forward_backward before it");
  Backend& backend = runtime_.backend;
  const Manifest& manifest = runtime_.model->manifest();
  if (options_.accumulate) gradients_->finish();
  pending_calls_ = 0;
  const Buffer norm = backend.device().allocate(DType::f32, 1, 1, MemoryCategory::workspace);
  SquareSum square_sum{norm.view(), {}};
  for (std::size_t i = 0; i < masters_.size(); ++i)
    if (moves(manifest.parameters()[i])) square_sum.gradients.push_back(gradients_->gradient(static_cast<ParameterId>(i)));
  backend.launch(&KernelTable::square_sum, square_sum);
  const double gradient_norm = backend.stream().read(norm.view()).get()[0];
  if (!std::isfinite(gradient_norm)) fail(ErrorCode::numeric, "the gradient norm of step {} is not finite; the weights are unchanged", step_);

  auto next = std::make_shared<WeightSet>();
  next->version = static_cast<std::uint64_t>(++step_);
  const auto power = [](double base, std::int64_t n) {
    double result = 1;
    for (; n > 0; n >>= 1, base *= base)
      if (n & 1) result *= base;
    return result;
  };
  const auto bias1 = static_cast<float>(1.0 - power(adam.beta1, step_)), bias2 = static_cast<float>(1.0 - power(adam.beta2, step_));
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    if (!moves(p)) {
      next->parameters.push_back(weights_->parameters[i]);
      continue;
    }
    const DType dtype = compute_dtype(p, runtime_.profile);
    Buffer compute = allocate_parameter(backend, p, dtype, MemoryCategory::weights);
    const auto flat = [](const Buffer& b) { return b.view().reshape(1, b.view().size()); };
    const bool separate = dtype != DType::f32;
    backend.launch(&KernelTable::adamw,
                   AdamW{flat(masters_[i]), flat(first_moments_[i]), flat(second_moments_[i]), separate ? flat(masters_[i]) : flat(compute),
                         separate ? flat(compute) : View{}, gradients_->gradient(static_cast<ParameterId>(i)).reshape(1, p.size()), norm.view(),
                         static_cast<float>(adam.learning_rate), static_cast<float>(adam.beta1), static_cast<float>(adam.beta2),
                         static_cast<float>(adam.eps), static_cast<float>(p.outputs > 1 ? adam.weight_decay : 0.0), bias1, bias2, static_cast<float>(adam.max_norm)});
    if (!separate) masters_[i] = compute;
    gradients_->drop(static_cast<ParameterId>(i));  // its memory is the next one's
    next->parameters.push_back(std::move(compute));
  }
  // Router biases: the aim is an even load; counted exactly, moved by a fixed rate.
  for (std::size_t layer = 0; layer < router_loads_.size(); ++layer) {
    if (adam.router_bias_rate > 0) {
      const std::vector<std::int32_t> load = backend.stream().read_ints(router_loads_[layer].view()).get();
      const auto id = static_cast<std::size_t>(runtime_.model->router_biases[layer]);
      std::vector<float> bias = backend.stream().read(masters_[id].view()).get();
      std::int64_t total = 0;
      for (const std::int32_t n : load) total += n;
      for (std::size_t e = 0; e < bias.size(); ++e) {
        const std::int64_t excess = total - static_cast<std::int64_t>(load[e]) * static_cast<std::int64_t>(bias.size());
        bias[e] += static_cast<float>(adam.router_bias_rate) * static_cast<float>((excess > 0) - (excess < 0));
      }
      masters_[id] = backend.device().upload(bias, 1, static_cast<std::int64_t>(bias.size()), MemoryCategory::weights);
      next->parameters[id] = masters_[id];
    }
    backend.stream().fill_zero(router_loads_[layer].view());
  }
  weights_ = std::move(next);
  return {gradient_norm, weights_->version};
}

WeightImages Trainer::download(const std::vector<Buffer>& buffers) {
  WeightImages images;
  for (const Buffer& buffer : buffers) images.push_back(buffer ? runtime_.backend.stream().read(buffer.view()).get() : std::vector<float>());
  return images;
}

WeightImages Trainer::gradient_images() {
  if (options_.accumulate) fail(ErrorCode::internal, "gradients are in the accumulator until optim_step");
  WeightImages images;
  for (std::size_t i = 0; i < masters_.size(); ++i)
    images.push_back(runtime_.backend.stream().read(gradients_->gradient(static_cast<ParameterId>(i))).get());
  return images;
}

WeightImages Trainer::master_images() { return download(masters_); }

TrainerState Trainer::state() { return {download(masters_), download(first_moments_), download(second_moments_), step_}; }

void Trainer::restore(const TrainerState& state) {
  step_ = state.step;
  pending_calls_ = 0;
  upload_masters(state.masters);
  for (std::size_t i = 0; i < first_moments_.size(); ++i) {
    if (!first_moments_[i]) continue;
    runtime_.backend.stream().write(first_moments_[i].view(), state.first_moments[i]);
    runtime_.backend.stream().write(second_moments_[i].view(), state.second_moments[i]);
  }
}

std::uint64_t Trainer::hash_images(const WeightImages& images) const {
  std::uint64_t hash = 0;
  std::vector<float> values;
  for (const FileTensor& file : runtime_.model->manifest().files()) {
    values.resize(static_cast<std::size_t>(file.size()));
    runtime_.model->manifest().gather(file, images, values.data());
    hash = xxh3(values.data(), values.size() * sizeof(float), hash);
  }
  return hash;
}

std::uint64_t Trainer::gradient_hash() { return hash_images(gradient_images()); }
std::uint64_t Trainer::master_hash() { return hash_images(master_images()); }

}  // namespace lockstep
