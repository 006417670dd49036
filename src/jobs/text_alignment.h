// Aligns the tokens of two tokenizers over one text: runs of tokens on both sides that cover the same characters. Example: "un|believ|able" and
// "unbeliev|able" give two pairs: the first two tokens with the first, then the last with the last. Pure functions.
//   const auto runs = align_tokens(character_starts({"un", "believ", "able"}), character_starts({"unbeliev", "able"}));
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Tokens [begin, end) of one side, and [other_begin, other_end) of the other, which cover the same characters.
struct AlignedTokens {
  std::size_t begin = 0, end = 0, other_begin = 0, other_end = 0;
};

// `starts`: the ascending offsets at which tokens begin, then that of the text's end. Returns the shortest runs with equal ends, within the range
// that both sides cover. A token inside which the other side's text begins or ends belongs to no run.
std::vector<AlignedTokens> align_tokens(const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& other_starts);

// Characters (Unicode code points) that begin in `text`; of a piece of UTF-8 too.
std::int64_t characters_in(std::string_view text);

// Where each token begins in the concatenated text, in characters, and that text's end. -1: the token begins inside a character, where no run can
// end.
std::vector<std::int64_t> character_starts(const std::vector<std::string>& pieces);

}  // namespace lockstep
