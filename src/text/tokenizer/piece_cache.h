// A cache of the token ids of short pieces of text. One table of fixed size per thread, shared by all
// tokenizers; an entry names its tokenizer by a number that is never reused, and is matched by its whole text.
//   PieceCache& cache = PieceCache::of_this_thread(); if (!cache.find(owner, piece, ids)) { ...; cache.put(owner, piece, added); }
// Thread rule: each thread has its own.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep {

class PieceCache {
 public:
  static constexpr std::size_t kMaxBytes = 24, kMaxIds = 6;

  static PieceCache& of_this_thread() {
    thread_local PieceCache cache;
    return cache;
  }
  static std::uint64_t new_owner();

  // Appends the ids of `piece` (1 to kMaxBytes bytes) when they are known.
  bool find(std::uint64_t owner, std::string_view piece, std::vector<std::int32_t>& ids) const {
    const Text text = text_of(piece);
    const Entry& entry = entries_[index_of(owner, text)];
    if (entry.owner != owner || entry.bytes != piece.size() || entry.text != text) return false;
    ids.insert(ids.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return true;
  }
  void put(std::uint64_t owner, std::string_view piece, std::span<const std::int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    const Text text = text_of(piece);
    Entry& entry = entries_[index_of(owner, text)];
    entry.owner = owner;
    entry.text = text;
    entry.bytes = static_cast<std::uint8_t>(piece.size());
    entry.count = static_cast<std::uint8_t>(ids.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  static constexpr int kIndexBits = 14;  // 1 MiB
  using Text = std::array<std::uint64_t, kMaxBytes / 8>;
  struct Entry {
    std::uint64_t owner = 0;
    Text text{};
    std::array<std::int32_t, kMaxIds> ids{};
    std::uint8_t bytes = 0, count = 0;
  };
  static_assert(sizeof(Entry) == 64);

  static Text text_of(std::string_view piece) {
    Text text{};
    std::memcpy(text.data(), piece.data(), piece.size());
    return text;
  }
  static std::size_t index_of(std::uint64_t owner, const Text& text) {
    std::uint64_t hash = owner;
    for (const std::uint64_t word : text) hash = (hash ^ word) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
    return hash * 0xBF58476D1CE4E5B9u >> (64 - kIndexBits);
  }

  std::unique_ptr<Entry[]> entries_ = std::make_unique<Entry[]>(std::size_t{1} << kIndexBits);
};

}  // namespace lockstep
