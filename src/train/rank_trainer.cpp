#include "train/rank_trainer.h"

#include <algorithm>
#include <optional>

#include "train/dealt_passes.h"
#include "train/gradient_file.h"
#include "train/gradient_norm.h"
#include "train/kept_forward.h"
#include "train/leaving_gradients.h"
#include "train/rank_record.h"

namespace lockstep {

namespace {
std::vector<TrainedParameter> trained_parameters(const Model& model, const Manifest& own, const Sharding* sharding, const TrainerOptions& options) {
  std::vector<TrainedParameter> all;
  for (std::size_t i = 0; i < own.parameters().size(); ++i) {
    const Parameter &p = own.parameters()[i], &whole = model.manifest().parameters()[i];
    const auto id = static_cast<ParameterId>(i);
    const bool matrix = p.layout == ParameterLayout::packed && whole.outputs > 1 && whole.inputs > 1;  // of a share, too, which may be one row or none
    all.push_back({p.trained && (p.indexer ? options.train_indexer : !options.indexer_alone),
                   !sharding || sharding->answers_for(id),
                   {whole.outputs > 1, matrix && !p.tied && id != model.facts().head},
                   gradient_group(p)});
  }
  return all;
}

// Passes are kept by one rank with the whole model alone, and experts of other ranks have each sequence's own rows.
TrainerOptions options_of_rank(TrainerOptions options, const RankPlace& place, Backend& backend) {
  if (place.layout.size() > 1) options.kept = nullptr;
  options.kept_forwards = kept_over_ranks(options, place.layout, backend);
  if (place.layout.deals_rows()) options.share_prefixes = false;
  return options;
}

OptimizerState initial_state(Runtime& runtime, const RankRows& rows, const Sharding* sharding, const TrainerOptions& options, const WeightImages& masters) {
  const auto with = [&](const WeightImages& share) {
    return OptimizerState(runtime.backend, rows, &runtime.profile, trained_parameters(*runtime.model, rows.manifest(), sharding, options), share,
                          options.optimizer, options);
  };
  return sharding ? with(shares_of(*sharding, masters)) : with(masters);
}

// For Gradients::Settings; null: no other rank has a gradient of the same table.
std::function<void(GradientSet&)> tied_gradient(Runtime& runtime, const Sharding* sharding) {
  const ParameterId head = runtime.model->facts().head;
  if (!sharding || !runtime.model->manifest().parameter(head).tied) return nullptr;
  return [sharding, &backend = runtime.backend, head](GradientSet& set) { share_tied_gradient(*sharding, backend, set, head); };
}
}  // namespace

RankTrainer::RankTrainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, const RankPlace& place, bool moves_meanwhile)
    : runtime_(runtime),
      options_(options_of_rank(options, place, runtime.backend)),
      place_(place),
      sharding_(place.layout.replica() > 1 ? std::make_unique<const Sharding>(*runtime.model, runtime.profile, place) : nullptr),
      rows_(runtime.backend, sharding_ ? sharding_->manifest() : runtime.model->manifest(), place, &runtime.profile, options.optimizer.whole_matrices),
      pass_(runtime, options_, sharding_.get(), place.context),
      gathered_(rows_.shards_weights() ? std::make_unique<GatheredWeights>(runtime.backend, *runtime.model, runtime.profile, rows_, sharding_.get()) : nullptr),
      gradients_leave_(moves_meanwhile && place.layout.data() > 1 && !place.layout.deals_rows() && !gathered_ && !options.accumulate),
      router_loads_(runtime, rows_.place()),
      sampled_as_(options_.kept_forwards, place.rank),
      gradients_(runtime.backend, rows_, {options.accumulate, options.mostly_one_call, false, options_.kept, tied_gradient(runtime, sharding_.get())}),
      state_(initial_state(runtime, rows_, sharding_.get(), options_, masters)) {
  publish();
}

void RankTrainer::publish() {
  auto set = std::make_shared<WeightSet>();
  set->version = static_cast<std::uint64_t>(state_.steps());
  set->parameters = state_.weights();
  weights_ = std::move(set);
  sampled_as_.set(place_.layout.size() == 1 ? weights_->identity : 0);
}

std::function<void()> RankTrainer::again(const GradientCall& call, const std::shared_ptr<const std::vector<TrainSequence>>& data) {
  return [this, call, data] {
    ForwardBackwardResult result;
    RowSums sums;
    router_loads_.clear();
    deposit(call, *data, result, sums, false);
  };
}

void RankTrainer::open(const GradientCall& call, bool one_piece, const std::shared_ptr<const std::vector<TrainSequence>>& held) {
  Gradients::Call opened{one_backward(one_piece), {}};
  if (held) opened.again = again(call, held);
  dealt_tokens_.clear();
  if (gradients_.open(std::move(opened))) router_loads_.clear();
  held_.reset();
  if (gradients_.holds_call()) held_ = {call, held};
}

GradientSet* RankTrainer::more_gradients() {
  if (place_.layout.deals_rows() || !options_.accumulate) return nullptr;
  if (gradients_.open({})) router_loads_.clear();
  held_.reset();
  return gradients_.set();
}

void RankTrainer::abandon_gradients() {
  gradients_.abandon();
  held_.reset();
}

void RankTrainer::write_gradients(CheckedWriter& file) {
  file.value(held_.has_value());
  if (held_) {
    file.value(held_->call);
    write_sequences(file, *held_->data);
  }
  file.values(dealt_tokens_);
  for (const Buffer& loads : router_loads_.buffers()) write_view(file, runtime_.backend.stream(), loads.view());
  gradients_.write(file);
}

void RankTrainer::read_gradients(CheckedReader& file) {
  held_.reset();
  if (file.value<bool>()) {
    const auto call = file.value<GradientCall>();
    held_ = {call, std::make_shared<const std::vector<TrainSequence>>(read_sequences(file))};
  }
  dealt_tokens_ = file.values<std::size_t>();
  for (const Buffer& loads : router_loads_.buffers()) read_view(file, runtime_.backend.stream(), loads.view());
  gradients_.read(file, held_ ? again(held_->call, held_->data) : nullptr);
}

void RankTrainer::deposit(const GradientCall& call, const std::vector<TrainSequence>& piece, ForwardBackwardResult& result, RowSums& sums, bool last) {
  result.make_room(piece.size(), call.loss.kind);
  ForwardPass::Settings settings{true, gradients_.set(), &router_loads_.buffers(), call.index, call.index_weight};
  const SegmentRange segments = sharding_ ? sharding_->segments() : SegmentRange{0, runtime_.model->segments()};
  std::optional<LeavingGradients> leaving;
  if (last && gradients_leave_) settings.leaving = &leaving.emplace(rows_, segments, runtime_.model->facts().head, *gradients_.set());
  run(settings, piece, call.loss, call.normaliser, result, sums, &dealt_tokens_);
  if (leaving) gradients_.joined();
}

std::vector<std::vector<float>> RankTrainer::score(const std::vector<TrainSequence>& data) {
  ForwardPass::Settings settings;
  settings.gradients = gradients_.for_kept(one_backward(true));
  settings.keep = settings.gradients != nullptr;
  if (settings.keep) settings.router_loads = &router_loads_.buffers();
  LossOptions none;
  none.kind = LossKind::none;
  ForwardBackwardResult result;
  result.make_room(data.size(), none.kind);
  RowSums sums;
  run(settings, data, none, 1.0, result, sums);
  return result.logprobs;
}

void RankTrainer::evaluate(const GradientCall& call, const std::vector<TrainSequence>& piece, ForwardBackwardResult& result, RowSums& sums) {
  result.make_room(piece.size(), call.loss.kind);
  run({}, piece, call.loss, call.normaliser, result, sums);
}

void RankTrainer::run(const ForwardPass::Settings& settings, const std::vector<TrainSequence>& data, const LossOptions& loss, double normaliser,
                      ForwardBackwardResult& result, RowSums& sums, std::vector<std::size_t>* dealt_before) {
  const RankPlace& place = rows_.place();
  const std::vector<DealtData> dealt = deal_sequences(data, place.layout, dealt_before);
  const DealtData& own = dealt[static_cast<std::size_t>(place.data_rank())];
  const std::vector<PassPart> parts = pass_parts(data, own, options_.micro_batch, place.layout.pp);
  std::optional<DealtPasses> together;  // of the ranks that share experts and have sequences of their own
  if (place_.layout.deals_rows()) together.emplace(data, dealt, place_, options_.micro_batch);
  const auto jobs_of = [&](std::size_t i) {
    std::vector<ForwardPass::Job> jobs;
    if (i >= parts.size() && !together) return jobs;
    const PassPart part = i < parts.size() ? parts[i] : PassPart{};
    jobs.push_back({.data = &data,
                    .loss = &loss,
                    .normaliser = normaliser,
                    .part = part.sequences,
                    .result = &result,
                    .sums = &sums,
                    .cut = part.cut,
                    .kept = {sampled_as_.identity(), 0, options_.kept_owner}});
    if (together) jobs.back().dealt = together->rows(runtime_.backend, i);
    return jobs;
  };
  if (!gathered_) {
    ForwardPass::Settings leaving = settings;
    if (!parts.empty() && parts.back().cut) leaving.leaving = nullptr;  // a rank with other pieces has more passes, perhaps, and goes on with this one first
    pass_.run(*weights_, leaving, together ? together->count() : parts.size(), jobs_of);
    if (settings.leaving) settings.leaving->finish();
  } else {
    std::size_t passes = 0;  // the most that a rank has: all gather together
    for (const DealtData& theirs : dealt) passes = std::max(passes, pass_parts(data, theirs, options_.micro_batch, place.layout.pp).size());
    const GatheredWeights::InUse use(*gathered_, *weights_, settings.gradients);
    ForwardPass::Settings gathering = settings;
    gathering.gathered = gathered_.get();
    pass_.run(gathered_->whole(), gathering, passes, jobs_of);
    gathered_->finish();
  }
  if (place.layout.pp > 1) join_stages(*place.stages, sharding_->stages() - 1, own, data, result, sums);
  if (place.layout.data() > 1) join_records(*place.data, dealt, data, result, sums);
  count_moved(sums, result);
}

OptimResult RankTrainer::optim_step(const AdamParameters& adam) {
  const OptimResult result = state_.step(gradients_.take(), adam, [&] {
    router_loads_.move(adam.router_bias_rate, state_);
    publish();
  });
  gradients_.drop();
  held_.reset();
  return result;
}

WeightImages RankTrainer::gradient_images() { return gradients_.images(); }

void RankTrainer::restore(const StateReader& read, std::int64_t steps) {
  abandon_gradients();
  state_.restore(read, steps, [&] { publish(); });
}

}  // namespace lockstep
