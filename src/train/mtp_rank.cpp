#include "train/mtp_rank.h"

#include <algorithm>

#include "base/byte_record.h"
#include "base/error.h"
#include "kernels/launch.h"
#include "model/compute_copy.h"
#include "model/sharding.h"
#include "numerics/exact_sum.h"
#include "train/gradient_norm.h"
#include "train/loss_columns.h"
#include "train/micro_batch.h"
#include "train/mtp_depth.h"
#include "train/mtp_joint.h"
#include "train/rank_record.h"

namespace lockstep {

namespace {
std::vector<TrainedParameter> parameters_of_layer(const Manifest& manifest, bool train_indexer) {
  std::vector<TrainedParameter> all;
  for (const Parameter& p : manifest.parameters()) {
    const bool matrix = p.layout == ParameterLayout::packed && p.outputs > 1 && p.inputs > 1;
    all.push_back({p.trained && (!p.indexer || train_indexer), true, {p.outputs > 1, matrix}, gradient_group(p)});
  }
  return all;
}

// The layer is whole on a rank, so the others that matter to it are those which have other sequences; whole ones, also where the model's own step cuts
// them into pieces.
RankPlace among_data_ranks(const RankPlace& place) {
  RankPlace own;
  own.layout.dp = place.layout.data();
  own.rank = place.data_rank();
  if (own.layout.dp > 1) own.world = own.data = place.data;
  return own;
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

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum.total();
}

// All ranks' values, one after another.
template <class T>
void append(std::vector<T>& all, ByteReader& in) {
  const std::vector<T> theirs = in.values<T>();
  all.insert(all.end(), theirs.begin(), theirs.end());
}
}  // namespace

MtpRank::Layer::Layer(Runtime& runtime, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options, const RankPlace& place)
    : rows(runtime.backend, runtime.model->mtp()->manifest(), place, &runtime.profile, options.optimizer.whole_matrices),
      gradients(runtime.backend, rows, {.always_bins = true}),  // every depth adds to the same parameters
      state(runtime.backend, rows, &runtime.profile, parameters_of_layer(rows.manifest(), training.train_indexer), masters, options.optimizer, options),
      loads(runtime.backend, runtime.model->mtp()->router_biases(), runtime.model->facts().expert_count, place) {
  publish();
}

void MtpRank::Layer::publish() {
  auto set = std::make_shared<WeightSet>();
  set->version = static_cast<std::uint64_t>(state.steps());
  set->parameters = state.weights();
  weights = std::move(set);
}

MtpRank::MtpRank(Runtime& runtime, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options, const RankPlace& place)
    : runtime_(runtime),
      training_(training),
      options_(options),
      place_(place),
      sharding_(place.layout.replica() > 1 ? std::make_unique<const Sharding>(*runtime.model, runtime.profile, place) : nullptr),
      no_cache_(runtime.backend, {}, runtime.profile, 0, options.page_size) {
  if (!sharding_ || sharding_->last_stage()) layer_ = std::make_unique<Layer>(runtime, masters, training, options, among_data_ranks(place));
}

MtpResult MtpRank::forward_backward(const TrunkShare& trunk, const std::vector<TrainSequence>& data) {
  const RankPlace others = among_data_ranks(place_);
  const std::vector<std::size_t> own = deal_sequences(data, others.layout)[static_cast<std::size_t>(others.rank)].whole;
  if (layer_) {
    layer_->gradients.open({});
    layer_->loads.clear();
  }
  std::vector<std::size_t> all(data.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  std::vector<double> chains;
  for (const DraftChain& chain : draft_chains(data, all, training_.depths)) chains.push_back(static_cast<double>(chain.weight));
  const auto divisor = [](double weights) { return weights > 0 ? weights : 1; };  // none: nothing is trained
  const Normalisers normalisers{divisor(loss_normaliser(data, LossOptions())), divisor(sum_of(chains))};
  std::int64_t rows = 0;
  for (const TrainSequence& d : data) rows += static_cast<std::int64_t>(d.tokens.size());
  Values values(training_.depths);
  const std::shared_ptr<const WeightSet> whole = gathered(trunk);
  TrunkShare read = trunk;
  if (whole) read.weights = whole.get();
  for (const auto& part : micro_batches(data, own, static_cast<std::size_t>(options_.micro_batch))) run(read, data, part, normalisers, values);
  leave_gradients(trunk);
  if (!layer_) return {};
  layer_->gradients.close();
  return result_of(values, rows);
}

// As the model's own trainer deals them; frozen weights under an adapter have no optimizer.
RankRows MtpRank::rows_of_trunk(const TrunkShare& trunk) const {
  const bool whole_items = options_.optimizer.whole_matrices && !trunk.adapter;
  return {runtime_.backend, sharding_ ? sharding_->manifest() : runtime_.model->manifest(), place_, &runtime_.profile, whole_items};
}

void MtpRank::leave_gradients(const TrunkShare& trunk) const {
  if (!trunk.gradients || !place_.layout.shards_weights()) return;
  const RankRows rows = rows_of_trunk(trunk);
  for (std::size_t i = 0; i < rows.manifest().parameters().size(); ++i)
    if (rows.keeps_rows(i)) rows.join(*trunk.gradients, i);
}

std::shared_ptr<const WeightSet> MtpRank::gathered(const TrunkShare& trunk) const {
  if (!place_.layout.shards_weights()) return nullptr;
  const RankRows rows = rows_of_trunk(trunk);
  const Manifest& manifest = rows.manifest();
  auto whole = std::make_shared<WeightSet>();
  whole->version = trunk.weights->version;
  whole->parameters = trunk.weights->parameters;
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    if (p.count == 0 || !rows.keeps_rows(i)) continue;
    const View kept = whole->parameters[i].view();
    if (kept.rows != rows.own_rows(i).second)
      fail(ErrorCode::internal, "{}: {} rows of the model's weights are here, and this rank has {}", p.name, kept.rows, rows.own_rows(i).second);
    const Buffer all = allocate_compute_copy(runtime_.backend, p, runtime_.profile);
    rows.start_gather(i, kept, all.view());
    rows.finish_gather(i);
    whole->parameters[i] = all;
  }
  return whole;
}

MtpResult MtpRank::result_of(Values& values, std::int64_t rows) const {
  if (place_.layout.data() > 1) {
    ByteWriter mine;
    for (const auto* of_depth : {&values.entropies, &values.overlaps})
      for (const std::vector<double>& one : *of_depth) mine.values(one);
    mine.values(values.variation), mine.values(values.index), mine.values(values.targets);
    const auto depths = static_cast<std::size_t>(training_.depths);
    values = Values(training_.depths);
    for (const std::string& record : place_.data->gather_host(mine.bytes())) {
      ByteReader in(record);
      for (auto* of_depth : {&values.entropies, &values.overlaps})
        for (std::vector<double>& one : *of_depth) append(one, in);
      append(values.variation, in), append(values.index, in);
      const auto targets = in.values<std::int64_t>();
      for (std::size_t k = 0; k < depths; ++k) values.targets[k] += targets[k];
    }
  }
  MtpResult result;
  for (const std::vector<double>& one : values.entropies) result.of_depth.push_back(sum_of(one));
  for (const std::vector<double>& one : values.overlaps) result.overlap.push_back(sum_of(one));
  result.variation = sum_of(values.variation);
  result.targets = values.targets;
  result.index_loss = sum_of(values.index) / static_cast<double>(std::max<std::int64_t>(rows, 1));
  for (const double of : result.of_depth) result.loss += of / static_cast<double>(training_.depths);
  result.loss += result.variation;
  return result;
}

void MtpRank::run(const TrunkShare& trunk, const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, const Normalisers& normalisers,
                  Values& values) {
  Backend& backend = runtime_.backend;
  Device& device = backend.device();
  const Model& model = *runtime_.model;
  const MtpLayer& layer = *model.mtp();
  std::int32_t pages = 0;
  const std::vector<SequenceSlice> slices = slices_of(data, part, options_.page_size, pages);
  const std::unique_ptr<Joint> joint = trunk.gradients ? std::make_unique<Joint>(runtime_, *trunk.gradients, sharding_.get()) : nullptr;
  const Tensor hidden = trunk_states(trunk, data, part, slices, pages, joint.get());
  const auto spoken = [&](std::int64_t ahead) {  // the rows with the tokens of a depth
    std::vector<SequenceSlice> of_depth = slices;
    for (SequenceSlice& slice : of_depth)
      for (std::size_t p = 0; p < slice.tokens.size(); ++p) {
        const std::size_t at = p + static_cast<std::size_t>(ahead);
        slice.tokens[p] = at < slice.tokens.size() ? slice.tokens[at] : 0;
      }
    return of_depth;
  };
  if (!layer_) {
    for (std::int64_t ahead = 0; ahead < training_.depths; ++ahead) embedded(trunk, spoken(ahead), joint.get(), nullptr);
    if (joint) joint->backward(nullptr, slices);
    return;
  }

  const Batch rows(backend, slices, options_.page_size, true);
  const std::int64_t count = rows.count();
  // The model's hidden states, each in the row behind its own; the row of position 0 has its own, which nobody sees.
  Tensor carried{device.allocate(DType::f32, count, model.facts().hidden, MemoryCategory::activations)};
  std::vector<std::int32_t> before;
  for (const SequenceSlice& slice : slices)
    for (std::size_t p = 0; p < slice.tokens.size(); ++p) before.push_back(static_cast<std::int32_t>(before.size()) - (p > 0 ? 1 : 0));
  const Buffer index = device.upload(before, count, 1, MemoryCategory::activations);
  backend.launch(&KernelTable::gather_rows, GatherRows{carried.view(), hidden.view(), index.view()});

  ForwardOptions options;
  options.counts = false;
  options.index_loss = training_.train_indexer;
  std::int64_t all_rows = 0;
  for (const TrainSequence& d : data) all_rows += static_cast<std::int64_t>(d.tokens.size());
  options.index_loss_weight = static_cast<float>(1.0 / static_cast<double>(all_rows));
  if (!layer_->loads.buffers().empty()) options.router_loads = &layer_->loads.buffers();
  Tape tape(backend, layer_->gradients.set());
  if (joint) carried.node = joint->hidden_input(tape);
  std::vector<Depth> depths(static_cast<std::size_t>(training_.depths));
  MtpLayer::Keys keys;
  KvCache layer_cache(backend, runtime_.mtp_cache_shapes(), runtime_.profile, pages, options_.page_size);
  std::vector<KvCache> own_caches;  // of depths that share no keys, of each behind the first
  own_caches.reserve(depths.size());
  Context model_rows = trunk_context(trunk, rows);
  const std::int64_t chunk = std::min(count, std::max<std::int64_t>(192, (std::int64_t{1} << 20) / model.facts().vocabulary));
  const Buffer logits = device.allocate(DType::f32, chunk, model_rows.packed(model.facts().head).outputs, MemoryCategory::workspace);
  for (std::int64_t ahead = 0; ahead < training_.depths; ++ahead) {
    Depth& depth = depths[static_cast<std::size_t>(ahead)];
    const Tensor tokens = embedded(trunk, spoken(ahead), joint.get(), &tape);
    const bool shares = layer.shares_keys();
    if (!shares && ahead > 0) own_caches.emplace_back(backend, runtime_.mtp_cache_shapes(), runtime_.profile, pages, options_.page_size);
    KvCache& seen = shares || ahead == 0 ? layer_cache : own_caches.back();
    depth.context = std::unique_ptr<Context>(new Context(runtime_.mtp_context(*layer_->weights, seen, rows, ahead, options, &tape)));
    Context& ctx = *depth.context;
    const MtpLayer::Depth said = !shares      ? layer.own_depth(ctx, tokens, carried)
                                 : ahead == 0 ? layer.first(ctx, tokens, carried, keys)
                                              : layer.next(ctx, tokens, carried, keys);
    depth.normed = said.normed;
    carried = layer.state(said);
    if (training_.loss == MtpLoss::tv) continue;
    add_cross_entropy(model_rows, trunk, ctx, depth, ahead, data, part, normalisers.targets, logits, values);
    tape.contribute(depth.normed.node, depth.dx);
  }
  if (training_.loss != MtpLoss::ce)
    add_variation(model_rows, trunk, tape, depths, hidden.view(), draft_chains(data, part, training_.depths), normalisers.chains, values, joint.get());
  tape.backward();
  if (joint) joint->backward(&tape, slices);

  for (std::size_t k = 0; k < depths.size(); ++k) {
    const std::vector<std::int32_t> flags = backend.stream().read_ints(depths[k].context->flags()).get();
    if (const auto bad = std::find_if(flags.begin(), flags.end(), [](std::int32_t f) { return f != 0; }); bad != flags.end())
      fail(ErrorCode::numeric, "a value of depth {} of multi-token prediction is not a number or not finite (row {} of its micro-batch, flags {})", k + 1,
           bad - flags.begin(), *bad);
    if (depths[k].loss)
      for (const float x : backend.stream().read(depths[k].loss.view()).get())
        values.entropies[k].push_back(static_cast<double>(x) * static_cast<double>(training_.depths));
    for (const Buffer& index_loss : depths[k].context->losses())
      for (const float kl : backend.stream().read(index_loss.view()).get()) values.index.push_back(static_cast<double>(kl));
  }
}

void MtpRank::abandon_gradients() {
  if (layer_) layer_->gradients.abandon();
}

OptimResult MtpRank::optim_step(const AdamParameters& adam) {
  if (!layer_) return {};
  const OptimResult result = layer_->state.step(layer_->gradients.take(), adam, [&] {
    layer_->loads.move(adam.router_bias_rate, layer_->state);
    layer_->publish();
  });
  layer_->gradients.drop();
  return result;
}

void MtpRank::restore(const TrainerState& state) {
  if (!layer_) return;
  layer_->gradients.abandon();
  layer_->state.restore(reader_of(state), state.step, [this] { layer_->publish(); });
}

}  // namespace lockstep
