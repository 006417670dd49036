#include "train/kept_passes.h"

#include <algorithm>

namespace lockstep {

std::int64_t PassKey::rows() const {
  std::int64_t count = 0;
  for (const Rows& s : sequences) count += static_cast<std::int64_t>(s.tokens.size());
  return count;
}

PassKey pass_key(const GradientSet* gradients, const WeightSet& weights, const AdapterWeights* adapter, const std::vector<TrainSequence>& data,
                 const std::vector<std::size_t>& part) {
  PassKey key{gradients, weights.identity, adapter ? adapter->identity : 0, {}};
  for (const std::size_t s : part) {
    const TrainSequence& d = data[s];
    key.sequences.push_back({d.tokens, d.targets, d.experts, d.targets_per_row, d.prefix_group, d.shared_prefix, s});
  }
  return key;
}

KeptPasses::KeptPasses(std::int64_t most_bytes, const std::shared_ptr<MemoryLedger>& room) : most_bytes_(most_bytes) {
  if (room) room_ = room->claim("kept forwards", {}, 0, "kept forwards");
}

bool KeptPasses::claim(std::int64_t bytes) { return !room_ || room_->try_resize(bytes); }

KeptPasses::Entries::iterator KeptPasses::remove(Entries::iterator entry) {
  const std::int64_t left = statistics_.bytes -= entry->bytes;
  const Entries::iterator next = entries_.erase(entry);
  claim(left);  // it shrinks
  return next;
}

bool KeptPasses::drop_oldest() {
  if (entries_.empty()) return false;
  remove(entries_.begin());
  ++statistics_.dropped;
  return true;
}

bool KeptPasses::make_room(std::int64_t bytes) {
  if (pauses_ > 0 || most_bytes_ <= 0 || bytes > most_bytes_) return false;
  while (statistics_.bytes + bytes > most_bytes_ || !claim(statistics_.bytes + bytes))
    if (!drop_oldest()) return false;
  return true;
}

void KeptPasses::keep(PassKey key, std::unique_ptr<KeptPass> pass, std::int64_t bytes) {
  // The same key again before it was used: the newer one replaces it.
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->key == key) entry = remove(entry), ++statistics_.dropped;
    else ++entry;
  }
  if (!make_room(bytes)) return;
  entries_.push_back({std::move(key), std::move(pass), bytes});
  statistics_.bytes += bytes;
  ++statistics_.kept;
}

std::unique_ptr<KeptPass> KeptPasses::take(const PassKey& key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (found == entries_.end()) return nullptr;
  std::unique_ptr<KeptPass> pass = std::move(found->pass);
  remove(found);
  ++statistics_.used;
  return pass;
}

void KeptPasses::drop(const GradientSet* gradients) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (entry->key.gradients == gradients) entry = remove(entry), ++statistics_.dropped;
    else ++entry;
  }
}

std::shared_ptr<KeptPasses> kept_by_steps(std::int64_t micro_batch, bool one_rank) {
  constexpr std::int64_t kAnyBytes = std::int64_t{1} << 50;
  return micro_batch == 0 && one_rank ? std::make_shared<KeptPasses>(kAnyBytes) : nullptr;
}

}  // namespace lockstep
