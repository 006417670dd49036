#include "model/weight_share.h"

#include "model/compute_copy.h"
#include "model/low_bit_weights.h"
#include "numerics/panel_cut.h"

namespace lockstep {

namespace {
std::vector<std::uint8_t> cut_bytes(const std::vector<std::uint8_t>& from, const Parameter& whole, const Parameter& own, const ElementPlace& corner,
                                    const Profile& profile) {
  if (own.size() == 0) return {};
  const std::int64_t whole_item = item_bytes(whole, profile), own_item = item_bytes(own, profile);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(own.count * own_item));
  const bool low_bit = is_low_bit_format(weight_bits(whole, profile));
  for (std::int64_t g = 0; g < own.count; ++g) {
    const std::uint8_t* item = from.data() + (corner.item + g) * whole_item;
    std::uint8_t* to = bytes.data() + g * own_item;
    if (low_bit) cut_panels(item, low_bit_shape(whole, profile), corner.output, corner.input, low_bit_shape(own, profile), to);
    else cut_panels(item, quantised_shape(whole, profile), corner.output, corner.input, quantised_shape(own, profile), to);
  }
  return bytes;
}
}  // namespace

HostParameter host_parameter(Backend& backend, const View& copy) {
  if (backend.device().counting()) return {};
  if (copy.dtype == DType::u8) return {.numbers = {}, .bytes = backend.stream().read_bytes(copy).get()};
  return {.numbers = backend.stream().read(copy).get(), .bytes = {}};
}

HostCopy host_copy(Backend& backend, const WeightSet& weights) {
  HostCopy copy;
  for (const Buffer& parameter : weights.parameters) copy.push_back(host_parameter(backend, parameter.view()));
  return copy;
}

HostParameter share_of(const HostParameter& whole, ParameterId id, const Sharding& sharding, const Profile& profile) {
  HostParameter share{.numbers = sharding.share_of(id, whole.numbers), .bytes = {}};
  if (!whole.bytes.empty() && sharding.holds(id))
    share.bytes = cut_bytes(whole.bytes, sharding.whole().parameter(id), sharding.manifest().parameter(id), sharding.corner(id), profile);
  return share;
}

HostCopy share_of(const HostCopy& whole, const Sharding& sharding, const Profile& profile) {
  HostCopy share;
  for (std::size_t i = 0; i < whole.size(); ++i) share.push_back(share_of(whole[i], static_cast<ParameterId>(i), sharding, profile));
  return share;
}

Buffer upload(Backend& backend, const Parameter& parameter, const HostParameter& values, const Profile& profile) {
  Buffer copy = allocate_compute_copy(backend, parameter, profile);
  if (copy.view().dtype == DType::u8) backend.stream().write(copy.view(), values.bytes);
  else backend.stream().write(copy.view(), values.numbers);
  return copy;
}

std::shared_ptr<const WeightSet> upload(Backend& backend, const Manifest& manifest, const HostCopy& copy, const Profile& profile, std::uint64_t version) {
  auto set = std::make_shared<WeightSet>();
  set->version = version;
  for (std::size_t i = 0; i < copy.size(); ++i) set->parameters.push_back(upload(backend, manifest.parameters()[i], copy[i], profile));
  return set;
}

}  // namespace lockstep
