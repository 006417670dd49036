// Which pairs of tokens merge, in what order, into what: a flat hash table of 16 bytes an entry.
// Thread rule: immutable once filled.
//   MergeTable t; t.reserve(n); t.put(left, right, {rank, id}); if (const Merge* m = t.find(left, right)) ...
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

namespace lockstep {

struct Merge {
  std::int32_t rank, id;
};

class MergeTable {
 public:
  // Room for `count` pairs.
  void reserve(std::size_t count) { rebuild(std::bit_ceil(count * 2 + 16)); }

  // A pair that is there already is overwritten.
  void put(std::int32_t left, std::int32_t right, Merge merge) {
    if ((size_ + 1) * 2 > slots_.size()) rebuild(std::bit_ceil(slots_.size() * 2 + 16));
    Slot& slot = slots_[index_of(key_of(left, right))];
    if (slot.key == kEmpty) ++size_;
    slot = {key_of(left, right), merge};
  }

  const Merge* find(std::int32_t left, std::int32_t right) const {
    if (size_ == 0) return nullptr;
    const Slot& slot = slots_[index_of(key_of(left, right))];
    return slot.key == kEmpty ? nullptr : &slot.merge;
  }
  std::size_t size() const { return size_; }
  template <class F>
  void for_each(F&& f) const {
    for (const Slot& slot : slots_)
      if (slot.key != kEmpty) f(slot.merge);
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // ids are not negative
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge{};
  };

  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  // Of the key, or of the free slot where it would go.
  std::size_t index_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = (key * 0x9E3779B97F4A7C15u >> shift_) & mask;
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask;
    return i;
  }
  void rebuild(std::size_t capacity) {
    if (capacity <= slots_.size()) return;
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    shift_ = 64 - std::countr_zero(capacity);
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) slots_[index_of(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
  int shift_ = 0;
};

}  // namespace lockstep
