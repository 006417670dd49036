#include "base/kept_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace lockstep {

KeptTokens KeptTokens::of(Order order, std::span<const std::int32_t> ids, std::int64_t vocabulary) {
  KeptTokens kept{order, static_cast<std::int32_t>(ids.size()), {}};
  if (std::ssize(ids) <= bitmap_words(vocabulary)) {
    kept.words.assign(ids.begin(), ids.end());
    return kept;
  }
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(bitmap_words(vocabulary)), 0);
  for (const std::int32_t id : ids) bits[static_cast<std::size_t>(id / 32)] |= 1u << (id % 32);
  for (const std::uint32_t word : bits) kept.words.push_back(std::bit_cast<std::int32_t>(word));
  return kept;
}

bool KeptTokens::contains(std::int32_t token) const {
  if (!cut()) return true;
  if (!is_bitmap()) return std::binary_search(words.begin(), words.end(), token);
  return token >= 0 && token / 32 < std::ssize(words) && (std::bit_cast<std::uint32_t>(words[static_cast<std::size_t>(token / 32)]) >> (token % 32) & 1u) != 0;
}

std::vector<std::int32_t> KeptTokens::ids() const {
  if (!is_bitmap()) return words;
  std::vector<std::int32_t> all;
  all.reserve(static_cast<std::size_t>(count));
  for (std::size_t w = 0; w < words.size(); ++w)
    for (auto bits = std::bit_cast<std::uint32_t>(words[w]); bits != 0; bits &= bits - 1)
      all.push_back(static_cast<std::int32_t>(w * 32) + std::countr_zero(bits));
  return all;
}

std::string KeptTokens::fault(std::int64_t vocabulary) const {
  if (!cut()) return words.empty() ? "" : fmt::format("{} words of no kept tokens, allowed is none", words.size());
  if (order != Order::by_id && order != Order::by_rank)
    return fmt::format("kept tokens in order {}, allowed are 1 (by id) and 2 (by rank)", static_cast<int>(order));
  const std::int64_t most = bitmap_words(vocabulary), allowed = std::min<std::int64_t>(count, most);
  if (std::ssize(words) != allowed) return fmt::format("{} words of {} kept tokens, allowed are {}", words.size(), count, allowed);
  if (count > vocabulary) return fmt::format("{} kept tokens, allowed are at most {}", count, vocabulary);
  const std::vector<std::int32_t> all = ids();
  if (std::ssize(all) != count) return fmt::format("a bitmap of {} tokens said to be {} kept tokens", all.size(), count);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] < 0 || all[i] >= vocabulary) return fmt::format("kept token {}, allowed are token ids from 0 to {}", all[i], vocabulary - 1);
    if (i > 0 && all[i] <= all[i - 1]) return fmt::format("kept token {} after {}, allowed is ascending", all[i], all[i - 1]);
  }
  return "";
}

}  // namespace lockstep
