#include "engine/held_shares.h"

#include <utility>

#include "base/error.h"
#include "model/compute_copy.h"

namespace lockstep {

void HeldShares::begin(std::uint64_t version) {
  begun_ = std::make_shared<WeightSet>();
  begun_->version = version;
}

void HeldShares::begin(std::uint64_t version, std::uint64_t from, bool in_place) {
  begin(version);
  begun_->parameters = found(weights_, from, version).parameters;
  in_place_ = in_place;
}

void HeldShares::take(ParameterId id, const HostParameter& whole) {
  const Profile& profile = runtime_.profile;
  begun_->parameters.push_back(upload(runtime_.backend, sharding_.manifest().parameter(id), share_of(whole, id, sharding_, profile), profile));
}

void HeldShares::take(ParameterId id, const ParameterChanges& changes) {
  const ParameterChanges own = share_of(runtime_.model->manifest(), sharding_, id, changes);
  if (own.blocks().empty()) return;
  Buffer& share = begun_->parameters[static_cast<std::size_t>(id)];
  if (!in_place_) {
    const Buffer before = share;
    share = allocate_compute_copy(runtime_.backend, sharding_.manifest().parameter(id), runtime_.profile);
    runtime_.backend.stream().copy(share.view(), before.view());
  }
  write_changes(runtime_.backend, share, own);
}

std::shared_ptr<const WeightSet> HeldShares::hold(const std::shared_ptr<const WeightSet>& whole) {
  Held<WeightSet>& held = weights_[whole->identity];
  held = {whole, std::exchange(begun_, nullptr)};
  return held.share;
}

void HeldShares::hold(const std::shared_ptr<const AdapterWeights>& whole, const WeightImages& images) {
  Held<AdapterWeights>& held = adapters_[whole->identity];
  if (held.share) return;
  const Sharding cut(*whole->layout, sharding_);
  const auto layout = std::make_shared<const AdapterLayout>(*whole->layout, cut.manifest());
  held = {whole, make_adapter(runtime_.backend, layout, shares_of(cut, images), whole->version)};
}

template <class T>
const T& HeldShares::found(const Shares<T>& all, std::uint64_t identity, std::uint64_t version) {
  const auto held = all.find(identity);
  if (held == all.end() || !held->second.share) fail(ErrorCode::internal, "a share of version {} is needed that this rank does not have", version);
  return *held->second.share;
}

const WeightSet& HeldShares::of(const WeightSet& whole) const { return found(weights_, whole.identity, whole.version); }
const AdapterWeights& HeldShares::of(const AdapterWeights& whole) const { return found(adapters_, whole.identity, whole.version); }

void HeldShares::drop_gone() {
  const auto gone = [](const auto& held) { return held.second.whole.expired(); };
  std::erase_if(weights_, gone);
  std::erase_if(adapters_, gone);
}

}  // namespace lockstep
