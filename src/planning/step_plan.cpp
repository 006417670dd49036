#include "planning/step_plan.h"

#include <algorithm>

#include "model/forward_counts.h"
#include "model/low_bit_weights.h"
#include "model/sharding.h"
#include "numerics/flop.h"
#include "planning/rank_alone.h"
#include "planning/token_flop.h"
#include "train/adapter_trainer.h"
#include "train/rank_record.h"
#include "train/sequence_place.h"
#include "train/trainer.h"

namespace lockstep {
namespace {
constexpr double kGradientBytes = 4, kStateBytes = 2 * (4 + 8), kAccumulatorBytes = 24;  // fp32; master and two moments, read and written

// This rank's part of an attention's heads.
double share_of_heads(const Model& model, const Sharding* sharding, const CacheShape& cache) {
  if (!sharding) return 1;
  const std::int64_t heads = cache.heads > 0 ? cache.heads : model.facts().attention_heads;
  return static_cast<double>(sharding->dealt(heads)) / static_cast<double>(heads);
}

// This stage's part of the layers.
double share_of_layers(const Model& model, const Sharding* sharding) {
  if (!sharding) return 1;
  std::int64_t own = 0;
  for (std::int64_t layer = 0; layer < model.facts().layers; ++layer) own += sharding->segments().holds(model.segment_of(layer));
  return static_cast<double>(own) / static_cast<double>(model.facts().layers);
}

// The adapter that is trained; null: none is.
std::shared_ptr<const AdapterLayout> adapter_of(const Model& model, const StepPlan& plan) {
  return plan.adapter ? std::make_shared<const AdapterLayout>(model.manifest(), *plan.adapter) : nullptr;
}

// The small products of an adapter, its accumulators and its optimizer; all in fp32.
void add_adapter(const Model& model, const StepPlan& plan, const Sharding* sharding, int data_rank, double batches, RankWork& work) {
  const std::shared_ptr<const AdapterLayout> whole = adapter_of(model, plan);
  if (!whole) return;
  const std::unique_ptr<const Sharding> share = sharding ? std::make_unique<const Sharding>(*whole, *sharding) : nullptr;
  const Manifest& manifest = share ? share->manifest() : whole->manifest();
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    const double forward = product_flop(static_cast<double>(work.tokens), weights_a_row(p, model.facts()));
    work.forward += forward;
    if (p.split == ParameterSplit::experts) work.experts += forward;
    work.backward += (plan.trainer.checkpoint_activations ? 3 : 2) * forward;
    const auto size = static_cast<double>(p.size());
    work.weight_bytes += size * kGradientBytes * batches;
    work.accumulator_bytes += 2 * size * kAccumulatorBytes * batches;
    const ParameterShare rows = parameter_share(p, static_cast<ParameterId>(i), data_rank, plan.trainer.ranks.data());
    if (rows.total() > 0) work.optimizer_bytes += static_cast<double>(rows.count()) / static_cast<double>(rows.total()) * size * (kGradientBytes + kStateBytes);
  }
}

// An adapter's trainer keeps the same rows on all ranks of a replica.
RankLayout layout_of(const StepPlan& plan) {
  RankLayout layout = plan.trainer.ranks;
  if (plan.adapter) layout.rows = ReplicaRows::shared;
  return layout;
}

std::vector<DealtData> dealt_to(const StepPlan& plan) { return deal_sequences(plan.sequences, layout_of_sequences(layout_of(plan))); }

// Of the sequences whose rows a rank's experts may get: its own, or where rows are dealt (rows=dealt) those of all ranks with which it shares experts.
std::int64_t rows_for_experts(const StepPlan& plan, const std::vector<DealtData>& dealt, int rank) {
  const RankLayout layout = layout_of(plan);
  if (!layout.deals_rows()) return dealt[static_cast<std::size_t>(layout.data_of(rank))].tokens(plan.sequences);
  std::int64_t rows = 0;
  for (int other = 0; other < layout.ep; ++other) rows += dealt[static_cast<std::size_t>(rank - layout.model_of(rank) + other)].tokens(plan.sequences);
  return rows;
}

// Of a parameter's compute copy; `size`: its weights.
double copy_bytes(const Parameter& p, const Profile& profile, double size) {
  if (weight_bits(p, profile)) return static_cast<double>(p.count * item_bytes(p, profile));
  return size * (compute_dtype(p, profile) == DType::bf16 ? 2 : 4);
}

// Attention's and the index scores' part.
void add_attention(const Model& model, const Profile& profile, const StepPlan& plan, const DealtData& own, const Sharding* sharding, RankWork& work) {
  ForwardCounts counts;
  for (const DealtData::Part& part : own.parts(plan.sequences)) counts.expect(model, part.begin, part.end);
  const CacheShape cache = model.cache_shapes(profile).front();
  const KeyWork keys = key_work(model, profile);
  const double layers = share_of_layers(model, sharding), pairs = static_cast<double>(counts.pairs_selected) * layers;
  const double share = share_of_heads(model, sharding, cache);
  const double forward = attention_flop(pairs * share, keys.key, keys.value);
  work.forward += forward;
  // The latent's backward is on every rank whole (docs/ranks.md).
  work.backward += attention_backward_flop(pairs * (keys.latent ? 1 : share), keys.key, keys.value) + (plan.trainer.checkpoint_activations ? forward : 0);
  // Every visible key has an index score, of every index head; whole on every rank. Nothing is selected twice.
  work.forward += product_flop(visible_keys(model, counts), keys.index) * layers;
}

RankWork work_with(const Model& model, const Profile& profile, const StepPlan& plan, const std::vector<DealtData>& dealt, int rank) {
  const RankLayout layout = layout_of(plan), of_sequences = layout_of_sequences(layout);
  const DealtData& own = dealt[static_cast<std::size_t>(of_sequences.data_of(rank))];
  const CountedRank ranks(layout, rank, std::vector<std::size_t>(static_cast<std::size_t>(layout.size())));
  const std::unique_ptr<const Sharding> sharding = layout.replica() > 1 ? std::make_unique<const Sharding>(model, profile, ranks.place(0)) : nullptr;
  const Manifest& manifest = sharding ? sharding->manifest() : model.manifest();
  const bool again = plan.trainer.checkpoint_activations;
  const auto batches = static_cast<double>(pass_parts(plan.sequences, own, plan.trainer.micro_batch, layout.pp).size());
  const bool accumulates = of_sequences.data() > 1 || layout.pp > 1 || plan.trainer.micro_batch > 0;

  RankWork work;
  work.tokens = own.tokens(plan.sequences);
  work.backward_passes = again ? 2 : 1;
  work.batches = batches;
  if (sharding && batches > 0) work.turns = (batches + sharding->stages() - 1) / batches;
  const auto tokens = static_cast<double>(work.tokens), of_experts = static_cast<double>(rows_for_experts(plan, dealt, rank));
  const ModelFacts& facts = model.facts();
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    const double size = static_cast<double>(p.count) * static_cast<double>(p.outputs) * static_cast<double>(p.inputs);
    const double copy = copy_bytes(p, profile, size);
    const bool experts = p.split == ParameterSplit::experts;
    const bool moves = !plan.adapter && p.trained && (!p.indexer || plan.trainer.train_indexer);
    if (p.layout == ParameterLayout::packed) {
      const bool looked_up = p.tied && sharding && !sharding->last_stage();  // the head is another stage's
      const double forward = looked_up ? 0 : product_flop(experts ? of_experts : tokens, weights_a_row(p, facts));
      work.forward += forward;
      if (experts) work.experts += forward;
      const bool computed_again = again && (!p.indexer || plan.trainer.train_indexer);                       // the forward's selection stays
      work.backward += (p.indexer ? 0 : (plan.adapter ? 1 : 2) * forward) + (computed_again ? forward : 0);  // a frozen weight has no gradient of its own
      work.weight_bytes += copy * batches;
    }
    if (!moves) continue;
    if (accumulates) work.accumulator_bytes += 2 * size * kAccumulatorBytes * batches;
    const RankLayout& holders = experts ? layout : of_sequences;
    const ParameterShare share = share_of_scales(p, static_cast<ParameterId>(i), holders.data_of(rank), holders.data(), profile);
    const double rows = share.total() > 0 ? static_cast<double>(share.count()) / static_cast<double>(share.total()) : 0;
    const bool is_master = compute_dtype(p, profile) == DType::f32;  // the compute copy is no other
    work.optimizer_bytes += rows * (size * (kGradientBytes + kStateBytes) + (is_master ? 0 : copy));
  }
  add_adapter(model, plan, sharding.get(), layout.data_of(rank), batches, work);
  add_attention(model, profile, plan, own, sharding.get(), work);
  return work;
}
}  // namespace

RankWork work_of(const Model& model, const Profile& profile, const StepPlan& plan, int rank) { return work_with(model, profile, plan, dealt_to(plan), rank); }

std::vector<RankWork> works_of(const Model& model, const Profile& profile, const StepPlan& plan) {
  const std::vector<DealtData> dealt = dealt_to(plan);
  std::vector<RankWork> all;
  for (int rank = 0; rank < plan.trainer.ranks.size(); ++rank) all.push_back(work_with(model, profile, plan, dealt, rank));
  return all;
}

RankStep plan_step(const std::shared_ptr<const Model>& model, const Profile& profile, const StepPlan& plan, int rank) {
  auto ranks = rank_alone(plan.sequences, plan.trainer.ranks, rank, plan.processes);
  const CountedRank& counted = *ranks;
  BackendOptions options;
  options.kind = BackendKind::counting;
  options.threads = 1;
  std::int64_t longest = 0;
  for (const TrainSequence& s : plan.sequences) longest = std::max(longest, static_cast<std::int64_t>(s.tokens.size()));
  Runtime runtime(options, model, profile, longest);
  const auto runtimes = std::make_shared<RankRuntimes>(runtime, plan.trainer.ranks, std::move(ranks));
  const WeightImages none(model->manifest().parameters().size());
  RankStep step;
  step.rank = rank;
  const auto take_steps = [&](auto& trainer) {
    for (int i = 0; i < 2; ++i) {  // the first one allocates what the second has
      const RankExchanges before = exchanges_of(counted.place(0));
      trainer.forward_backward(plan.sequences, {});
      trainer.optim_step(plan.adam);
      step.exchanges = exchanges_of(counted.place(0)) - before;
    }
    step.memory = memory_of(runtimes->memory(0));
  };
  if (const std::shared_ptr<const AdapterLayout> adapter = adapter_of(*model, plan)) {
    Runtime elsewhere(options, model, profile, longest);  // the whole weights that shares are cut from are no rank's
    const bool in_shares = plan.trainer.ranks.replica() > 1 || plan.trainer.ranks.shards_weights();
    Backend& of_whole = in_shares ? elsewhere.backend : runtime.backend;
    const auto base = std::make_shared<FrozenBase>(runtime, make_weight_set(of_whole, model->manifest(), none, profile, 0), plan.trainer, runtimes);
    AdapterTrainer trainer(base, adapter, WeightImages(adapter->manifest().parameters().size()), plan.trainer.optimizer);
    take_steps(trainer);
    step.memory.parameters = trained_size(adapter->manifest());
  } else {
    Trainer trainer(runtime, none, plan.trainer, runtimes);
    take_steps(trainer);
    step.memory.parameters = trained_size(model->manifest());
  }
  step.work = work_of(*model, profile, plan, rank);
  return step;
}

}  // namespace lockstep
