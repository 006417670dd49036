// The kept set of a sampled token: the tokens it could have been drawn from, where top-k, top-p, min-p or a mask removed some. Its sampling
// log-probability is over this set (docs/numerics.md section 6). Sampling returns it, training uses it. A plain value.
//   const KeptTokens kept = KeptTokens::of(KeptTokens::Order::by_rank, ids, vocabulary); kept.contains(17)
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct KeptTokens {
  // The order in which their exponentials are added: by rank (logit descending, id ascending) where top-k, top-p or min-p cut; by id, as
  // over a whole vocabulary, where a mask alone did.
  enum class Order : std::int32_t { by_id = 1, by_rank = 2 };

  Order order = Order::by_id;
  std::int32_t count = 0;           // tokens that are kept; 0: nothing was cut, and every token could have been drawn
  std::vector<std::int32_t> words;  // their ids, ascending; where they are more than bitmap_words(), a bitmap: bit t % 32 of word t / 32

  static std::int64_t bitmap_words(std::int64_t vocabulary) { return (vocabulary + 31) / 32; }
  // `ids`: ascending, below the vocabulary.
  static KeptTokens of(Order order, std::span<const std::int32_t> ids, std::int64_t vocabulary);

  bool cut() const { return count > 0; }
  bool is_bitmap() const { return std::ssize(words) < count; }
  bool contains(std::int32_t token) const;
  std::vector<std::int32_t> ids() const;
  // What is wrong with it for a vocabulary of this size; empty: nothing.
  std::string fault(std::int64_t vocabulary) const;
  bool operator==(const KeptTokens&) const = default;
};

}  // namespace lockstep
