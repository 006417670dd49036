// A parameter's compute copy on the host, and what one rank of several keeps of it. Numbers and scales of few bits are copied as they are, so that every rank
// computes with those of the whole matrix wherever it is cut: also with a file's own, which no quantiser makes of the numbers that they stand for.
//   const HostParameter whole = host_parameter(backend, weights->parameters[id].view());
//   const Buffer own = upload(backend, sharding.manifest().parameter(id), share_of(whole, id, sharding, profile), profile);
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "model/sharding.h"

namespace lockstep {

// The numbers of a parameter in f32 or bf16, or the bytes of one in few bits; the other is empty.
struct HostParameter {
  std::vector<float> numbers;
  std::vector<std::uint8_t> bytes;
};
using HostCopy = std::vector<HostParameter>;  // of all parameters, by ParameterId

// Waits for the stream. A device that only counts has no values: both are empty, and so is what is cut from them.
HostParameter host_parameter(Backend& backend, const View& copy);
HostCopy host_copy(Backend& backend, const WeightSet& weights);
// This rank's share; nothing of a parameter that its stage does not hold.
HostParameter share_of(const HostParameter& whole, ParameterId id, const Sharding& sharding, const Profile& profile);
HostCopy share_of(const HostCopy& whole, const Sharding& sharding, const Profile& profile);
// A compute copy of these values, which are those of `parameter` under `profile`; one of all parameters.
Buffer upload(Backend& backend, const Parameter& parameter, const HostParameter& values, const Profile& profile);
std::shared_ptr<const WeightSet> upload(Backend& backend, const Manifest& manifest, const HostCopy& copy, const Profile& profile, std::uint64_t version);

}  // namespace lockstep
