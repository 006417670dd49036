// How one rank's part of a model is cut out in a run over tensor- and expert-parallel ranks and stages of a pipeline: its share of every parameter, and
// how its partial sums join the others'.
//   Sharding mine(*model, profile, place); const WeightImages shares = shares_of(mine, masters);
// A parameter declares how it may be split (Manifest, ParameterSplit): along leaves of a sum, along heads, or along groups of experts, beyond 8 ranks
// along experts, so no order of addition changes (docs/ranks.md). A stage holds the parameters of its segments of the forward, and a tied table the first
// and the last one. Every layout is allowed; a rank may hold nothing of a parameter. Each rank makes its own object, used by its thread.
#pragma once
#include <memory>

#include "model/kv_cache.h"
#include "model/model.h"
#include "model/segment_range.h"
#include "model/weights.h"
#include "parallel/collectives.h"
#include "parallel/rank_place.h"

namespace lockstep {

class AdapterLayout;

// Which stage of a pipeline has the head: the last one in training; in serving the first one, which samples.
enum class HeadStage { last, first };

class Sharding {
 public:
  Sharding(const Model& model, const Profile& profile, const RankPlace& place, HeadStage head = HeadStage::last);
  // Of an adapter's A and B, cut where `base` cuts the weights under them. `adapter` outlives it.
  Sharding(const AdapterLayout& adapter, const Sharding& base);

  const RankPlace& place() const { return place_; }
  const Manifest& manifest() const { return manifest_; }  // of this rank's shares; same ids, no files
  Communicator& tensor() const { return *place_.tensor; }
  Communicator& model() const { return *place_.model; }
  const SegmentRange& segments() const { return segments_; }  // of the forward, of this rank's stage
  bool first_stage() const { return place_.stage() == 0; }
  bool last_stage() const { return place_.stage() + 1 == stages_; }
  int stages() const { return stages_; }  // that have segments
  // Whether this rank's stage uses the parameter.
  bool holds(ParameterId id) const { return holds_[static_cast<std::size_t>(id)]; }

  // Where the parameter is cut: rank r of its group has [bounds[r], bounds[r + 1]) of its outputs, inputs or items.
  const ColumnSplit& bounds(ParameterId id) const { return bounds_[static_cast<std::size_t>(id)]; }
  std::int64_t begin(ParameterId id) const;
  // The element of the whole parameter that is the first of this rank's share.
  ElementPlace corner(ParameterId id) const;
  // Leaves of the sum that crosses ranks (over outputs in backward, over inputs in forward): of all, and this rank's.
  std::int64_t leaves(ParameterId id) const { return leaves_[static_cast<std::size_t>(id)]; }
  std::int64_t own_leaves(ParameterId id) const;
  // Leaves of the product inside each of those: more than 1 where neighbouring leaves stay on one rank because a scale's group spans them.
  std::int64_t inner_leaves(ParameterId id) const { return inner_leaves_[static_cast<std::size_t>(id)]; }
  // n items dealt to the tensor-parallel ranks, `width` columns each.
  ColumnSplit columns(std::int64_t n, std::int64_t width) const;
  std::int64_t dealt(std::int64_t n) const;  // this rank's number of n items
  // Groups of experts of every rank of the replica, where they are dealt by groups (not where joins_pairs()).
  const std::vector<std::int64_t>& expert_groups() const { return expert_groups_; }

  std::vector<CacheShape> cache_shapes(const Model& model, const Profile& profile) const;
  // Whether this rank counts for the parameter, where ranks with equal copies must be counted once. Those with rows of their own (rows=dealt) all count:
  // each keeps other rows of its state, or an empty image.
  bool answers_for(ParameterId id) const;
  // Cuts a parameter's whole image to this rank's share, and writes the shares it counts for back into whole ones.
  std::vector<float> share_of(ParameterId id, const std::vector<float>& whole) const;  // nothing where the image is empty or the stage has none
  const Manifest& whole() const { return whole_; }
  void put_into(WeightImages& whole, const WeightImages& shares) const;

 private:
  bool used_here(const Parameter& p, bool of_head) const;
  // f(offset in the whole image, offset in the share) for every element of a share.
  template <class F>
  void each_element(std::size_t i, const F& f) const;
  RankPlace place_;
  const Manifest& whole_;
  Manifest manifest_;
  std::vector<ColumnSplit> bounds_;
  std::vector<std::int64_t> leaves_, inner_leaves_, expert_groups_;
  SegmentRange segments_;
  int stages_ = 1;
  ParameterId head_ = -1;
  HeadStage head_stage_ = HeadStage::last;
  std::vector<bool> holds_;
};

// Whether experts are dealt one by one, as evenly as they go, since there are more ranks than groups of them: then no rank has the sum of a group
// (model/expert_pairs.h).
bool joins_pairs(const RankLayout& layout);

// All parameters cut to a rank's share.
WeightImages shares_of(const Sharding& sharding, const WeightImages& whole);

}  // namespace lockstep
