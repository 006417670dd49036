// One rank's shares of the weights and adapters that requests of an engine bring, where ranks share the model (model/sharding.h). Each is cut once and
// stays as long as anybody has the whole. Whoever has no whole (another process) has an empty one that stands for it.
// Weights come a parameter at a time, or as changes of others that are held; nobody has an image of all.
//   HeldShares shares(runtime, sharding); shares.begin(weights->version); shares.take(0, image); shares.hold(weights); shares.of(*weights); shares.drop_gone();
// Used by the rank's thread.
#pragma once
#include <map>
#include <memory>

#include "model/adapter.h"
#include "model/runtime.h"
#include "model/weight_changes.h"
#include "model/weight_share.h"

namespace lockstep {

class HeldShares {
 public:
  // Both outlive it.
  HeldShares(Runtime& runtime, const Sharding& sharding) : runtime_(runtime), sharding_(sharding) {}

  // Begins the share of weights that are of this version: from nothing, of which every parameter is taken in order, or from the share of others (`from`,
  // their identity) of which some elements change; `in_place`: in their memory. Error internal when those are not held.
  void begin(std::uint64_t version);
  void begin(std::uint64_t version, std::uint64_t from, bool in_place);
  void take(ParameterId id, const HostParameter& whole);
  void take(ParameterId id, const ParameterChanges& changes);
  // Ends what was begun: it is the share of `whole`.
  std::shared_ptr<const WeightSet> hold(const std::shared_ptr<const WeightSet>& whole);
  // Cuts `whole`, whose values are `images`; nothing where it is held already.
  void hold(const std::shared_ptr<const AdapterWeights>& whole, const WeightImages& images);
  // This rank's share. Error internal when it was not held.
  const WeightSet& of(const WeightSet& whole) const;
  const AdapterWeights& of(const AdapterWeights& whole) const;
  // Frees the shares of what nobody has any more.
  void drop_gone();

 private:
  template <class T>
  struct Held {
    std::weak_ptr<const T> whole;
    std::shared_ptr<const T> share;
  };
  template <class T>
  using Shares = std::map<std::uint64_t, Held<T>>;  // by the whole's identity
  template <class T>
  static const T& found(const Shares<T>& all, std::uint64_t identity, std::uint64_t version);

  Runtime& runtime_;
  const Sharding& sharding_;
  Shares<WeightSet> weights_;
  Shares<AdapterWeights> adapters_;
  std::shared_ptr<WeightSet> begun_;
  bool in_place_ = false;
};

}  // namespace lockstep
