// One rank's shares of the weights and adapters that requests of an engine bring, where ranks share the model (model/sharding.h). Each is cut once and
// stays as long as anybody has the whole. Whoever has no whole (another process) has an empty one that stands for it.
//   HeldShares shares(runtime, sharding); shares.hold(adapter, images); const AdapterWeights& own = shares.of(*adapter); shares.drop_gone();
// Used by the rank's thread.
#pragma once
#include <map>
#include <memory>

#include "model/adapter.h"
#include "model/runtime.h"

namespace lockstep {

class HeldShares {
 public:
  // Both outlive it.
  HeldShares(Runtime& runtime, const Sharding& sharding) : runtime_(runtime), sharding_(sharding) {}

  // Cuts `whole`, whose values are `images`; nothing where it is held already.
  std::shared_ptr<const WeightSet> hold(const std::shared_ptr<const WeightSet>& whole, const WeightImages& images);
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
  static const T& found(const Shares<T>& all, const T& whole);

  Runtime& runtime_;
  const Sharding& sharding_;
  Shares<WeightSet> weights_;
  Shares<AdapterWeights> adapters_;
};

}  // namespace lockstep
