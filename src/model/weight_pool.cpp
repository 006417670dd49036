#include "model/weight_pool.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace lockstep {
namespace {
constexpr std::int64_t kPiece = std::int64_t{4} << 20;  // bytes that are read from the device at a time

// The view as bytes, without gaps.
View as_bytes(const View& view) {
  View bytes = view.reshape(1, view.size() * view.element_bytes);
  bytes.dtype = DType::u8;
  bytes.element_bytes = 1;
  return bytes;
}

std::string digest_of(Stream& stream, const View& view) {
  const View bytes = as_bytes(view);
  std::string digests;
  for (std::int64_t at = 0; at < bytes.cols; at += kPiece) {
    const std::vector<std::uint8_t> piece = stream.read_bytes(bytes.column_range(at, std::min(kPiece, bytes.cols - at))).get();
    digests += xxh3_128_hex(piece.data(), piece.size());
  }
  return xxh3_128_hex(digests.data(), digests.size());
}

bool equal(Stream& stream, const View& a, const View& b) {
  const View left = as_bytes(a), right = as_bytes(b);
  for (std::int64_t at = 0; at < left.cols; at += kPiece) {
    const std::int64_t size = std::min(kPiece, left.cols - at);
    if (stream.read_bytes(left.column_range(at, size)).get() != stream.read_bytes(right.column_range(at, size)).get()) return false;
  }
  return true;
}
}  // namespace

Buffer WeightPool::Holder::get() const {
  if (buffer) return buffer;
  const std::shared_ptr<const WeightSet> alive = set.lock();
  return alive ? alive->parameters[parameter] : Buffer();
}

WeightPool::WeightPool(std::shared_ptr<MemoryLedger> ledger, std::string category) : ledger_(std::move(ledger)), category_(std::move(category)) {}

std::shared_ptr<WeightPool::Part> WeightPool::part(std::string what, Claims claims) {
  return std::make_shared<Part>(shared_from_this(), std::move(what), claims);
}

std::int64_t WeightPool::bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t all = 0;
  for (const auto& [key, entry] : entries_) all += entry.bytes;
  return all;
}

// Under the lock, as forget_empty.
void WeightPool::drop(const Part* part, const Key& key) {
  if (const auto found = entries_.find(key); found != entries_.end())
    std::erase_if(found->second.holders, [&](const Holder& one) { return one.part == part || !one.get(); });
}

void WeightPool::forget_empty(const Key& key) {
  const auto found = entries_.find(key);
  if (found != entries_.end() && found->second.holders.empty() && found->second.counted == 0) entries_.erase(found);
}

WeightPool::Part::Part(std::shared_ptr<WeightPool> pool, std::string what, Claims claims) : pool_(std::move(pool)), what_(std::move(what)), claims_(claims) {}

WeightPool::Part::~Part() {
  const std::lock_guard lock(pool_->mutex_);
  for (const auto& [address, key] : by_address_) pool_->drop(this, key);
  for (const Key& key : counted_)
    if (Entry& entry = pool_->entries_.at(key); --entry.counted == 0) entry.claim.release();
  for (const Key& key : counted_) pool_->forget_empty(key);
  for (const auto& [address, key] : by_address_) pool_->forget_empty(key);
}

void WeightPool::Part::reserve(std::int64_t bytes) {
  if (claims_ == Claims::each) reserved_ = pool_->ledger_->claim(pool_->category_, {}, bytes, fmt::format("one parameter of {}", what_));
}

Buffer WeightPool::Part::keep(Backend& backend, Buffer made) {
  const View& view = made.view();
  Stream& stream = backend.stream();
  const Key key{view.dtype, view.rows, view.cols, digest_of(stream, view)};
  Buffer other;
  {
    const std::lock_guard lock(pool_->mutex_);
    Entry& entry = pool_->entries_[key];
    for (const Holder& one : entry.holders)
      if (!other) other = one.get();
    // From here on who has it does not write into it.
    entry.bytes = view.size() * view.element_bytes;
    entry.holders.push_back({this, {}, 0, other ? other : made});
  }
  if (other && !equal(stream, view, other.view())) {  // others of one digest: this one stands alone
    const std::lock_guard lock(pool_->mutex_);
    std::vector<Holder>& holders = pool_->entries_.at(key).holders;
    holders.erase(std::find_if(holders.rbegin(), holders.rend(), [&](const Holder& one) { return one.part == this; }).base() - 1);
    alone_.push_back(std::move(reserved_));
    return made;
  }
  const std::lock_guard lock(pool_->mutex_);
  Entry& entry = pool_->entries_.at(key);
  if (claims_ != Claims::none && counted_.insert(key).second && entry.counted++ == 0) entry.claim = std::move(reserved_);
  reserved_.release();
  if (other) made = other;
  by_address_[made.view().address] = key;
  return made;
}

void WeightPool::Part::offer(const std::shared_ptr<const WeightSet>& set) {
  const std::lock_guard lock(pool_->mutex_);
  const std::map<std::uint64_t, Key> before = std::exchange(by_address_, {});
  for (const auto& [address, key] : before) pool_->drop(this, key);
  for (std::size_t i = 0; i < set->parameters.size(); ++i) {
    const auto known = before.find(set->parameters[i].view().address);
    if (known == before.end()) continue;
    by_address_.insert(*known);
    pool_->entries_[known->second].holders.push_back({this, set, i, {}});
  }
  for (const auto& [address, key] : before) pool_->forget_empty(key);
}

bool WeightPool::Part::make_private(const Buffer& buffer) {
  const std::lock_guard lock(pool_->mutex_);
  const auto known = by_address_.find(buffer.view().address);
  if (known == by_address_.end()) return true;
  const Key key = known->second;
  const auto entry = pool_->entries_.find(key);
  if (entry != pool_->entries_.end()) {
    std::vector<Holder>& holders = entry->second.holders;
    std::erase_if(holders, [](const Holder& one) { return !one.get(); });
    if (holders.size() > 1 || (holders.size() == 1 && holders[0].part != this)) return false;  // others', or another parameter of its own
    holders.clear();
    pool_->forget_empty(key);
  }
  by_address_.erase(known);
  return true;
}

std::int64_t WeightPool::Part::counted_bytes(bool shared) const {
  const std::lock_guard lock(pool_->mutex_);
  std::int64_t bytes = 0;
  if (!shared)
    for (const MemoryLedger::Claim& claim : alone_) bytes += claim.bytes();
  for (const Key& key : counted_) {
    const Entry& entry = pool_->entries_.at(key);
    const bool others = std::any_of(entry.holders.begin(), entry.holders.end(), [&](const Holder& one) { return one.part != this && one.get(); });
    if (others == shared) bytes += entry.bytes;
  }
  return bytes;
}

}  // namespace lockstep
