#include "model/sharding.h"

#include <algorithm>

#include "model/adapter.h"
#include "model/low_bit_weights.h"
#include "numerics/form.h"

namespace lockstep {

namespace {
ColumnSplit scaled(std::vector<std::int64_t> bounds, std::int64_t width) {
  for (std::int64_t& b : bounds) b *= width;
  return std::make_shared<const std::vector<std::int64_t>>(std::move(bounds));
}
// The first expert of a part: part(e) = floor(parts e / E). Of kExpertGroups parts they are the groups.
std::int64_t first_expert(std::int64_t part, std::int64_t parts, std::int64_t experts) { return (part * experts + parts - 1) / parts; }
}  // namespace

Sharding::Sharding(const Model& model, const Profile& profile, const RankPlace& place, HeadStage head)
    : place_(place),
      whole_(model.manifest()),
      expert_groups_(deal(kExpertGroups, place.layout.model())),
      segments_(segments_of_stage(model.segments(), place.layout.pp, place.stage())),
      stages_(stages_at_work(model.segments(), place.layout.pp)),
      head_(model.facts().head),
      head_stage_(head) {
  const int ranks = place.layout.tp;
  for (const Parameter& p : whole_.parameters()) {
    Parameter own = p;
    std::int64_t leaves = 1, inner = 1;
    ColumnSplit bounds;
    // Rank r's part of `n`, where it has one.
    const auto cut = [&](std::int64_t& n, int rank) { n = (*bounds)[static_cast<std::size_t>(rank) + 1] - (*bounds)[static_cast<std::size_t>(rank)]; };
    // Low-bit numbers share a scale in groups, so a cut stands between groups: several leaves of n stay together where one ends inside a group.
    const auto keep_together = [&](std::int64_t n, std::int64_t group) {
      for (; leaves > 1 && n / leaves % group != 0; inner *= 2) leaves /= 2;
    };
    switch (p.split) {
      case ParameterSplit::whole:
        break;
      case ParameterSplit::outputs:
      case ParameterSplit::vocabulary:
        leaves = leaf_count(p.outputs, profile.maximum_leaves);
        keep_together(p.outputs, outputs_of_scale(p, profile));
        bounds = scaled(deal(leaves, ranks), p.outputs / leaves);
        cut(own.outputs, place.tensor_rank());
        break;
      case ParameterSplit::bias:
        leaves = leaf_count(p.inputs, profile.maximum_leaves);
        keep_together(p.inputs, outputs_of_scale(profile));
        bounds = scaled(deal(leaves, ranks), p.inputs / leaves);
        cut(own.inputs, place.tensor_rank());
        break;
      case ParameterSplit::inputs:
        leaves = input_leaves(p, profile);
        keep_together(p.inputs, inputs_of_scale(p, profile));
        bounds = scaled(deal(leaves, ranks), p.inputs / leaves);
        cut(own.inputs, place.tensor_rank());
        break;
      case ParameterSplit::columns:
        bounds = scaled(deal(p.inputs, ranks), 1);
        cut(own.inputs, place.tensor_rank());
        break;
      case ParameterSplit::heads:
        bounds = scaled(deal(p.count, ranks), 1);
        cut(own.count, place.tensor_rank());
        break;
      case ParameterSplit::experts: {
        std::vector<std::int64_t> first;
        if (joins_pairs(place.layout))
          for (int rank = 0; rank <= place.layout.model(); ++rank) first.push_back(first_expert(rank, place.layout.model(), p.count));
        else
          for (const std::int64_t group : expert_groups_) first.push_back(first_expert(group, kExpertGroups, p.count));
        bounds = scaled(std::move(first), 1);
        cut(own.count, place.model_rank());
        break;
      }
    }
    holds_.push_back(used_here(p, std::ssize(holds_) == head_));
    if (!holds_.back()) own.count = 0;
    manifest_.add(std::move(own));
    bounds_.push_back(std::move(bounds));
    leaves_.push_back(leaves);
    inner_leaves_.push_back(inner);
  }
}

Sharding::Sharding(const AdapterLayout& adapter, const Sharding& base)
    : place_(base.place_),
      whole_(adapter.manifest()),
      expert_groups_(base.expert_groups_),
      segments_(base.segments_),
      stages_(base.stages_),
      head_stage_(base.head_stage_) {
  const std::size_t n = whole_.parameters().size();
  std::vector<ParameterId> adapted(n, -1);
  for (std::size_t i = 0; i < base.whole_.parameters().size(); ++i) {
    const AdapterLayout::Place& at = adapter.place(static_cast<ParameterId>(i));
    for (const ParameterId id : {at.a, at.b})
      if (id >= 0) adapted[static_cast<std::size_t>(id)] = static_cast<ParameterId>(i);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const Parameter& p = whole_.parameters()[i];
    const ParameterId of = adapted[i];
    const bool cut = p.split != ParameterSplit::whole;
    Parameter own = p;
    bounds_.push_back(cut ? base.bounds(of) : nullptr);
    leaves_.push_back(cut ? base.leaves(of) : 1);
    inner_leaves_.push_back(cut ? base.inner_leaves(of) : 1);
    if (cut) {
      const auto rank = static_cast<std::size_t>(p.split == ParameterSplit::experts ? place_.model_rank() : place_.tensor_rank());
      std::int64_t& size = p.split == ParameterSplit::inputs                                        ? own.inputs
                           : p.split == ParameterSplit::heads || p.split == ParameterSplit::experts ? own.count
                                                                                                    : own.outputs;
      size = (*bounds_[i])[rank + 1] - (*bounds_[i])[rank];
    }
    holds_.push_back(used_here(p, of == base.head_));
    if (!holds_.back()) own.count = 0;
    manifest_.add(std::move(own));
  }
}

bool Sharding::used_here(const Parameter& p, bool of_head) const {
  if (of_head && head_stage_ == HeadStage::first) return first_stage();
  return segments_.holds(p.segment) || (p.tied && last_stage());
}

std::int64_t Sharding::begin(ParameterId id) const {
  if (!bounds(id)) return 0;
  const bool experts = whole_.parameter(id).split == ParameterSplit::experts;
  return (*bounds(id))[static_cast<std::size_t>(experts ? place_.model_rank() : place_.tensor_rank())];
}

std::int64_t Sharding::own_leaves(ParameterId id) const {
  const std::vector<std::int64_t> all = deal(leaves(id), place_.layout.tp);
  const auto rank = static_cast<std::size_t>(place_.tensor_rank());
  return all[rank + 1] - all[rank];
}

ColumnSplit Sharding::columns(std::int64_t n, std::int64_t width) const { return scaled(deal(n, place_.layout.tp), width); }

std::int64_t Sharding::dealt(std::int64_t n) const {
  const std::vector<std::int64_t> all = deal(n, place_.layout.tp);
  const auto rank = static_cast<std::size_t>(place_.tensor_rank());
  return all[rank + 1] - all[rank];
}

std::vector<CacheShape> Sharding::cache_shapes(const Model& model, const Profile& profile) const {
  std::vector<CacheShape> shapes = model.cache_shapes(profile);
  for (std::size_t layer = 0; layer < shapes.size(); ++layer) {
    CacheShape& shape = shapes[layer];
    if (shape.heads > 0) shape.entry = shape.entry / shape.heads * dealt(shape.heads);
    if (!segments_.holds(model.segment_of(static_cast<std::int64_t>(layer)))) shape.entry = shape.index_key = 0;
  }
  return shapes;
}

bool Sharding::answers_for(ParameterId id) const {
  if (!segments_.holds(whole_.parameter(id).segment)) return false;  // of a tied table the first stage does
  if (place_.layout.deals_rows()) return true;
  switch (whole_.parameter(id).split) {
    case ParameterSplit::whole:
      return place_.model_rank() == 0;
    case ParameterSplit::experts:
      return true;
    default:
      return place_.model_rank() < place_.layout.tp;
  }
}

ElementPlace Sharding::corner(ParameterId id) const {
  const std::int64_t first = begin(id);
  switch (whole_.parameter(id).split) {
    case ParameterSplit::whole:
      break;
    case ParameterSplit::outputs:
    case ParameterSplit::vocabulary:
      return {.output = first};
    case ParameterSplit::inputs:
    case ParameterSplit::bias:
    case ParameterSplit::columns:
      return {.input = first};
    case ParameterSplit::heads:
    case ParameterSplit::experts:
      return {.item = first};
  }
  return {};
}

template <class F>
void Sharding::each_element(std::size_t i, const F& f) const {
  const Parameter &whole = whole_.parameters()[i], &own = manifest_.parameters()[i];
  const ElementPlace first = corner(static_cast<ParameterId>(i));
  for (std::int64_t g = 0; g < own.count; ++g)
    for (std::int64_t n = 0; n < own.outputs; ++n)
      for (std::int64_t k = 0; k < own.inputs; ++k)
        f(static_cast<std::size_t>(whole.offset(first.item + g, first.output + n, first.input + k)), static_cast<std::size_t>(own.offset(g, n, k)));
}

std::vector<float> Sharding::share_of(ParameterId id, const std::vector<float>& whole) const {
  if (whole.empty() || !holds(id)) return {};
  if (whole_.parameter(id).split == ParameterSplit::whole) return whole;
  std::vector<float> share(static_cast<std::size_t>(manifest_.parameter(id).size()), 0.0f);
  each_element(static_cast<std::size_t>(id), [&](std::size_t from, std::size_t to) { share[to] = whole[from]; });
  return share;
}

void Sharding::put_into(WeightImages& whole, const WeightImages& shares) const {
  whole.resize(shares.size());
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (!answers_for(static_cast<ParameterId>(i)) || shares[i].empty()) continue;
    if (whole_.parameters()[i].split == ParameterSplit::whole) {
      whole[i] = shares[i];
      continue;
    }
    if (whole[i].empty()) whole[i].assign(static_cast<std::size_t>(whole_.parameters()[i].size()), 0.0f);
    each_element(i, [&](std::size_t to, std::size_t from) { whole[i][to] = shares[i][from]; });
  }
}

bool joins_pairs(const RankLayout& layout) { return layout.model() > kExpertGroups; }

WeightImages shares_of(const Sharding& sharding, const WeightImages& whole) {
  WeightImages shares;
  for (std::size_t i = 0; i < whole.size(); ++i)  // moments of what is not trained are empty
    shares.push_back(sharding.share_of(static_cast<ParameterId>(i), whole[i]));
  return shares;
}

}  // namespace lockstep
