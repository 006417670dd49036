#include "engine/passing_step.h"

namespace lockstep {

namespace {
std::vector<SequenceSlice> slices_of(const std::vector<PlannedSlice>& plan, std::vector<SequenceSlice> slices) {
  slices.resize(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlannedSlice& p = plan[i];
    const auto first = p.sequence->tokens.begin() + p.begin;
    slices[i].tokens.assign(first, first + p.count);
    slices[i].begin = p.begin;
    slices[i].pages.assign(p.sequence->pages.begin(), p.sequence->pages.end());
  }
  return slices;
}
}  // namespace

PassingStep::PassingStep(const Place& place, const WeightSet& weights, const std::vector<PlannedSlice>& plan, const StepWants& wants,
                         std::vector<AdapterRows> adapters, std::vector<SequenceSlice> slices, std::uint64_t whole, RowSource* read)
    : runtime_(place.runtime),
      weights_(weights),
      plan_(plan),
      wants_(wants),
      read_(read),
      adapters_(std::move(adapters)),
      slices_(slices_of(plan, std::move(slices))),
      batch_(runtime_.backend, slices_, place.cache.page_size, false),
      record_(runtime_.backend.device(), wants),
      kept_(runtime_.backend, read ? nullptr : place.kept_forwards, whole ? whole : weights.identity, plan),
      stages_(runtime_.backend, place.sharding, batch_, runtime_.model->facts().hidden),
      context_(runtime_.context(weights, place.cache, batch_, forward_options(place), nullptr, place.sharding)) {}

ForwardOptions PassingStep::forward_options(const Place& place) {
  ForwardOptions options;
  if (!adapters_.empty()) options.adapters = &adapters_;
  const bool tells = (!place.sharding || place.sharding->place().model_rank() == 0) && wants_.rows(Column::experts) > 0;  // of its stage's layers
  if (tells) {
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < plan_.size(); ++i)
      for (const std::int32_t row : wants_.of(i, Column::experts).rows) rows.push_back(static_cast<std::int32_t>(wants_.row_begin(i)) + row);
    expert_rows_ = runtime_.backend.device().upload(rows, wants_.rows(Column::experts), 1, MemoryCategory::activations);
    experts_ = record_.experts();
    options.expert_record = {experts_, expert_rows_.view()};
  }
  kept_.attach(options);
  if (read_) {
    options.row_values = place.kept_forwards->row_values();
    options.row_source = read_;
    options.entries_stand = true;
  }
  stages_.attach(options);
  return options;
}

void PassingStep::compute() {
  if (computes()) hidden_ = runtime_.model->forward(context_);
}

void PassingStep::send_on() {
  if (stages_.send_on(hidden_.view(), context_.flags(), experts_)) hidden_ = Tensor();
}

}  // namespace lockstep
