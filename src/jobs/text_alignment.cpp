#include "jobs/text_alignment.h"

namespace lockstep {

namespace {
bool goes_on(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }  // within a character
}  // namespace

std::vector<AlignedTokens> align_tokens(const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& other_starts) {
  std::vector<AlignedTokens> runs;
  std::size_t i = 0, j = 0, begin = 0, other_begin = 0;
  bool open = false;  // begin and other_begin are a common place
  while (i < starts.size() && j < other_starts.size()) {
    if (starts[i] < 0) ++i;
    else if (other_starts[j] < 0) ++j;
    else if (starts[i] < other_starts[j]) ++i;
    else if (starts[i] > other_starts[j]) ++j;
    else {
      // Tokens without letters stand at one place: the run that ends here goes up to the last of them.
      if (open && i > begin && j > other_begin) runs.push_back({begin, i, other_begin, j});
      open = true;
      begin = i++;
      other_begin = j++;
    }
  }
  return runs;
}

std::int64_t characters_in(std::string_view text) {
  std::int64_t count = 0;
  for (const char byte : text) count += !goes_on(byte);
  return count;
}

std::vector<std::int64_t> character_starts(const std::vector<std::string>& pieces) {
  std::vector<std::int64_t> starts;
  std::int64_t at = 0;
  for (const std::string& piece : pieces) {
    starts.push_back(!piece.empty() && goes_on(piece[0]) ? -1 : at);
    at += characters_in(piece);
  }
  starts.push_back(at);
  return starts;
}

}  // namespace lockstep
