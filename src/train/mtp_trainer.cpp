#include "train/mtp_trainer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/launch.h"
#include "numerics/accumulator.h"
#include "train/gradient_norm.h"
#include "train/loss_columns.h"
#include "train/micro_batch.h"
#include "train/mtp_depth.h"

namespace lockstep {

namespace {
const MtpLayer& layer_to_train(const Runtime& runtime, const MtpTraining& training, const TrainerOptions& options) {
  check_trainable(runtime.profile);
  if (!runtime.model->mtp())
    fail(ErrorCode::invalid_argument,
         "a layer of multi-token prediction is to be trained, and the model's config.json has none; allowed are models with "
         "'num_nextn_predict_layers' 1");
  if (training.depths < 1 || training.depths > MtpTraining::kMostDepths)
    fail(ErrorCode::invalid_argument, "depths is {}, allowed is 1 to {}", training.depths, MtpTraining::kMostDepths);
  if (options.ranks.size() > 1)
    fail(ErrorCode::unsupported, "a layer of multi-token prediction is to be trained on {} ranks, allowed is one", options.ranks.size());
  return *runtime.model->mtp();
}

std::vector<TrainedParameter> parameters_of_layer(const Manifest& manifest, bool train_indexer) {
  std::vector<TrainedParameter> all;
  for (const Parameter& p : manifest.parameters()) {
    const bool matrix = p.layout == ParameterLayout::packed && p.outputs > 1 && p.inputs > 1;
    all.push_back({p.trained && (!p.indexer || train_indexer), true, {p.outputs > 1, matrix}, gradient_group(p)});
  }
  return all;
}

// Whole sequences, each in pages of its own.
std::vector<SequenceSlice> slices_of(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, std::int64_t page_size,
                                     std::int32_t& pages) {
  std::vector<SequenceSlice> slices;
  for (const std::size_t s : part) {
    SequenceSlice& slice = slices.emplace_back();
    slice.tokens = data[s].tokens;
    for (std::int64_t p = 0; p < static_cast<std::int64_t>(slice.tokens.size()); p += page_size) slice.pages.push_back(pages++);
  }
  return slices;
}
}  // namespace

MtpTrainer::MtpTrainer(Runtime& runtime, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options)
    : runtime_(runtime),
      layer_(layer_to_train(runtime, training, options)),
      training_(training),
      options_(options),
      rows_(runtime.backend, layer_.manifest()),
      gradients_(runtime.backend, rows_, {false, false, true, nullptr}),  // every depth adds to the same parameters
      state_(runtime.backend, rows_, &runtime.profile, parameters_of_layer(layer_.manifest(), training.train_indexer), masters, options.optimizer, options) {
  for (std::size_t i = 0; i < layer_.router_biases().size(); ++i)
    router_loads_.push_back(runtime.backend.device().allocate_zero(DType::i32, 1, runtime.model->facts().expert_count, MemoryCategory::workspace));
  publish();
}

void MtpTrainer::publish() {
  auto set = std::make_shared<WeightSet>();
  set->version = static_cast<std::uint64_t>(state_.steps());
  set->parameters = state_.weights();
  weights_ = std::move(set);
}

MtpResult MtpTrainer::forward_backward(const WeightSet& model_weights, const std::vector<TrainSequence>& data) {
  const LossOptions loss;  // cross-entropy
  check_data(runtime_, data, loss, false, true);
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
  result.of_depth.resize(static_cast<std::size_t>(training_.depths));
  result.targets.resize(result.of_depth.size());
  result.overlap.resize(result.of_depth.size());
  std::vector<std::size_t> all(data.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  gradients_.open({false, {}});
  for (const Buffer& loads : router_loads_) runtime_.backend.stream().fill_zero(loads.view());
  try {
    ExactSum chains;
    for (const DraftChain& chain : draft_chains(data, all, training_.depths)) chains.add(static_cast<double>(chain.weight));
    const auto divisor = [](double weights) { return weights > 0 ? weights : 1; };  // none: nothing is trained
    const Normalisers normalisers{divisor(loss_normaliser(data, loss)), divisor(chains.total())};
    std::int64_t rows = 0;
    for (const TrainSequence& d : data) rows += static_cast<std::int64_t>(d.tokens.size());
    for (const auto& part : micro_batches(data, all, static_cast<std::size_t>(options_.micro_batch))) run(model_weights, data, part, normalisers, result);
    result.index_loss /= static_cast<double>(std::max<std::int64_t>(rows, 1));
  } catch (...) {
    gradients_.abandon();
    throw;
  }
  gradients_.close();
  for (const double of : result.of_depth) result.loss += of / static_cast<double>(training_.depths);
  result.loss += result.variation;
  return result;
}

void MtpTrainer::run(const WeightSet& model_weights, const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part,
                     const Normalisers& normalisers, MtpResult& result) {
  Backend& backend = runtime_.backend;
  Device& device = backend.device();
  const Model& model = *runtime_.model;
  std::int32_t pages = 0;
  std::vector<SequenceSlice> slices = slices_of(data, part, options_.page_size, pages);
  const Batch rows(backend, slices, options_.page_size, true);
  const std::int64_t count = rows.count();
  KvCache layer_cache(backend, runtime_.mtp_cache_shapes(), runtime_.profile, pages, options_.page_size);

  // The model's hidden states, each in the row behind its own; the row of position 0 has its own, which nobody sees.
  Tensor carried{device.allocate(DType::f32, count, model.facts().hidden, MemoryCategory::activations)}, hidden;
  {
    std::vector<SequenceSlice> routed = slices;
    for (std::size_t i = 0; i < part.size(); ++i) routed[i].experts = data[part[i]].experts;
    const Batch batch(backend, routed, options_.page_size, false);
    KvCache cache(backend, model.cache_shapes(runtime_.profile), runtime_.profile, pages, options_.page_size);
    ForwardOptions options;
    options.counts = false;
    Context ctx = runtime_.context(model_weights, cache, batch, options);
    hidden = model.forward(ctx);
    std::vector<std::int32_t> before;
    for (const SequenceSlice& slice : slices)
      for (std::size_t p = 0; p < slice.tokens.size(); ++p) before.push_back(static_cast<std::int32_t>(before.size()) - (p > 0 ? 1 : 0));
    const Buffer index = device.upload(before, count, 1, MemoryCategory::activations);
    backend.launch(&KernelTable::gather_rows, GatherRows{carried.view(), hidden.view(), index.view()});
  }

  ForwardOptions options;
  options.counts = false;
  options.index_loss = training_.train_indexer;
  std::int64_t all_rows = 0;
  for (const TrainSequence& d : data) all_rows += static_cast<std::int64_t>(d.tokens.size());
  options.index_loss_weight = static_cast<float>(1.0 / static_cast<double>(all_rows));
  if (!router_loads_.empty()) options.router_loads = &router_loads_;
  Tape tape(backend, gradients_.set());
  std::vector<Depth> depths(static_cast<std::size_t>(training_.depths));
  MtpLayer::Keys keys;
  std::vector<KvCache> own_caches;  // of depths that share no keys, of each behind the first
  own_caches.reserve(depths.size());
  const std::int64_t chunk = std::min(count, std::max<std::int64_t>(192, (std::int64_t{1} << 20) / model.facts().vocabulary));
  const Buffer logits = device.allocate(DType::f32, chunk, model.facts().vocabulary, MemoryCategory::workspace);
  for (std::int64_t ahead = 0; ahead < training_.depths; ++ahead) {
    Depth& depth = depths[static_cast<std::size_t>(ahead)];
    std::vector<SequenceSlice> spoken = slices;
    for (SequenceSlice& slice : spoken)
      for (std::size_t p = 0; p < slice.tokens.size(); ++p) {
        const std::size_t at = p + static_cast<std::size_t>(ahead);
        slice.tokens[p] = at < slice.tokens.size() ? slice.tokens[at] : 0;
      }
    const Batch of_depth(backend, spoken, options_.page_size, false);
    Context of_model = runtime_.quiet_context(model_weights, layer_cache, of_depth);
    const Tensor embedded = model.embed(of_model);
    const bool shares = layer_.shares_keys();
    if (!shares && ahead > 0) own_caches.emplace_back(backend, runtime_.mtp_cache_shapes(), runtime_.profile, pages, options_.page_size);
    KvCache& seen = shares || ahead == 0 ? layer_cache : own_caches.back();
    depth.context = std::unique_ptr<Context>(new Context(runtime_.mtp_context(*weights_, seen, rows, ahead, options, &tape)));
    Context& ctx = *depth.context;
    const MtpLayer::Depth said = !shares      ? layer_.own_depth(ctx, embedded, carried)
                                 : ahead == 0 ? layer_.first(ctx, embedded, carried, keys)
                                              : layer_.next(ctx, embedded, carried, keys);
    carried = depth.normed = said.normed;
    if (training_.loss == MtpLoss::tv) continue;
    add_cross_entropy(of_model, ctx, depth, ahead, data, part, normalisers.targets, logits, result);
    tape.contribute(depth.normed.node, depth.dx);
  }
  if (training_.loss != MtpLoss::ce) {
    Context of_model = runtime_.quiet_context(model_weights, layer_cache, rows);
    add_variation(of_model, tape, depths, hidden.view(), draft_chains(data, part, training_.depths), normalisers.chains, result);
  }
  tape.backward();

  for (std::size_t k = 0; k < depths.size(); ++k) {
    const std::vector<std::int32_t> flags = backend.stream().read_ints(depths[k].context->flags()).get();
    if (const auto bad = std::find_if(flags.begin(), flags.end(), [](std::int32_t f) { return f != 0; }); bad != flags.end())
      fail(ErrorCode::numeric, "a value of depth {} of multi-token prediction is not a number or not finite (row {} of its micro-batch, flags {})", k + 1,
           bad - flags.begin(), *bad);
    if (depths[k].loss) {
      ExactSum sum;
      for (const float x : backend.stream().read(depths[k].loss.view()).get()) sum.add(static_cast<double>(x) * static_cast<double>(training_.depths));
      result.of_depth[k] += sum.total();
    }
    for (const Buffer& index_loss : depths[k].context->index_losses())
      for (const float kl : backend.stream().read(index_loss.view()).get()) result.index_loss += static_cast<double>(kl);
  }
}

OptimResult MtpTrainer::optim_step(const AdamParameters& adam) {
  const OptimResult result = state_.step(gradients_.take(), adam, [&] {
    for (std::size_t i = 0; adam.router_bias_rate > 0 && i < router_loads_.size(); ++i) {
      const ParameterId id = layer_.router_biases()[i];
      const std::vector<std::int32_t> load = runtime_.backend.stream().read_ints(router_loads_[i].view()).get();
      std::vector<float> bias = runtime_.backend.stream().read(state_.weights()[static_cast<std::size_t>(id)].view()).get();
      std::int64_t total = 0;
      for (const std::int32_t n : load) total += n;
      for (std::size_t e = 0; e < bias.size(); ++e) {
        const std::int64_t excess = total - load[e] * static_cast<std::int64_t>(load.size());
        bias[e] += static_cast<float>(adam.router_bias_rate) * static_cast<float>((excess > 0) - (excess < 0));
      }
      state_.replace(id, bias);
    }
    publish();
  });
  gradients_.drop();
  return result;
}

WeightImages MtpTrainer::gradient_images() { return gradients_.images(); }

TrainerState MtpTrainer::state() {
  return {state_.images(StatePart::master), state_.images(StatePart::first_moment), state_.images(StatePart::second_moment), state_.steps()};
}

void MtpTrainer::restore(const TrainerState& state) {
  gradients_.abandon();
  state_.restore(state, [&] { publish(); });
}

}  // namespace lockstep
