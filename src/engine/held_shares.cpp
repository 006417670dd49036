#include "engine/held_shares.h"

#include "base/error.h"

namespace lockstep {

std::shared_ptr<const WeightSet> HeldShares::hold(const std::shared_ptr<const WeightSet>& whole, const WeightImages& images) {
  Held<WeightSet>& held = weights_[whole->identity];
  if (!held.share) held = {whole, make_weight_set(runtime_.backend, sharding_.manifest(), sharding_.shares_of(images), runtime_.profile, whole->version)};
  return held.share;
}

void HeldShares::hold(const std::shared_ptr<const AdapterWeights>& whole, const WeightImages& images) {
  Held<AdapterWeights>& held = adapters_[whole->identity];
  if (held.share) return;
  const Sharding cut(*whole->layout, sharding_, runtime_.profile);
  const auto layout = std::make_shared<const AdapterLayout>(*whole->layout, cut.manifest());
  held = {whole, make_adapter(runtime_.backend, layout, cut.shares_of(images), whole->version)};
}

template <class T>
const T& HeldShares::found(const Shares<T>& all, const T& whole) {
  const auto held = all.find(whole.identity);
  if (held == all.end() || !held->second.share) fail(ErrorCode::internal, "a step needs a share of version {} that this rank does not have", whole.version);
  return *held->second.share;
}

const WeightSet& HeldShares::of(const WeightSet& whole) const { return found(weights_, whole); }
const AdapterWeights& HeldShares::of(const AdapterWeights& whole) const { return found(adapters_, whole); }

void HeldShares::drop_gone() {
  const auto gone = [](const auto& held) { return held.second.whole.expired(); };
  std::erase_if(weights_, gone);
  std::erase_if(adapters_, gone);
}

}  // namespace lockstep
