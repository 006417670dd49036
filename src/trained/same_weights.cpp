#include "trained/same_weights.h"

#include <algorithm>
#include <string>

#include "base/byte_record.h"
#include "base/error.h"
#include "base/hash.h"
#include "model/weight_share.h"

namespace lockstep {

namespace {
struct ToldHashes {
  int process = 0;
  std::string host;
  std::vector<std::uint64_t> hashes;
};

ToldHashes told_in(const std::string& record) {
  ByteReader in(record);
  ToldHashes told;
  told.process = in.value<int>();
  told.host = in.text();
  told.hashes = in.values<std::uint64_t>();
  return told;
}
}  // namespace

std::vector<std::uint64_t> weight_hashes(const WeightImages& images) {
  std::vector<std::uint64_t> hashes;
  for (const std::vector<float>& image : images) hashes.push_back(xxh3(image.data(), image.size() * sizeof(float)));
  return hashes;
}

std::vector<std::uint64_t> weight_hashes(Backend& backend, const WeightSet& weights) {
  std::vector<std::uint64_t> hashes;
  for (const Buffer& parameter : weights.parameters) {
    const HostParameter values = host_parameter(backend, parameter.view());
    hashes.push_back(xxh3(values.bytes.data(), values.bytes.size(), xxh3(values.numbers.data(), values.numbers.size() * sizeof(float))));
  }
  return hashes;
}

void check_same_weights(Ranks& ranks, const Manifest& manifest, const std::function<std::vector<std::uint64_t>()>& hashes) {
  if (ranks.all_here()) return;
  ByteWriter own;
  own.value(ranks.process()), own.text(ranks.host()), own.values(hashes());
  std::vector<std::string> records;
  ranks.run([&](int local) {
    std::vector<std::string> all = ranks.place(local).world->gather_host(own.bytes());
    if (local == 0) records = std::move(all);
  });
  const ToldHashes first = told_in(records.front());
  for (const std::string& record : records) {
    const ToldHashes other = told_in(record);
    const auto differs = std::mismatch(first.hashes.begin(), first.hashes.end(), other.hashes.begin(), other.hashes.end());
    if (differs.first == first.hashes.end() && differs.second == other.hashes.end()) continue;
    const auto parameter = static_cast<std::size_t>(differs.first - first.hashes.begin());
    fail(ErrorCode::invalid_argument, "process {} (host {}) has other weights than process {} (host {}), first in '{}': allowed is one model on all hosts",
         other.process, other.host, first.process, first.host,
         parameter < manifest.parameters().size() ? manifest.parameters()[parameter].name : std::string("their number"));
  }
}

}  // namespace lockstep
