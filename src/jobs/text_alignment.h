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

// Tokens [begin, end) of one side, and those of the other, of the same letters.
struct AlignedTokens {
  std::size_t begin = 0, end = 0, other_begin = 0, other_end = 0;
};

// Offsets at which tokens begin, and where the text ends: one more than there are tokens, ascending. The shortest runs whose ends are equal, of what
// both cover. A token that the other side's text begins or ends within belongs to none.
std::vector<AlignedTokens> align_tokens(const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& other_starts);

// Characters (Unicode code points) that begin in `text`; of a piece of UTF-8 too.
std::int64_t characters_in(std::string_view text);

// Where each token begins in the text that they make together, in characters, and that text's end. A token that begins within a character has -1: the
// other side cannot have an end there.
std::vector<std::int64_t> character_starts(const std::vector<std::string>& pieces);

}  // namespace lockstep
