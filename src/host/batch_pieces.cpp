#include "host/batch_pieces.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace lockstep {
namespace {
// Where a piece from `begin` on ends that has at least [begin, end), and of declared groups all or nothing. What hangs together is no longer than kMostUncut.
std::size_t with_whole_groups(const std::vector<TrainSequence>& sequences, std::size_t begin, std::size_t end) {
  const auto first = sequences.begin() + static_cast<std::ptrdiff_t>(begin), behind = sequences.begin() + static_cast<std::ptrdiff_t>(end);
  if (std::none_of(first, behind, [](const TrainSequence& one) { return one.shared_prefix > 0; })) return end;
  std::map<std::int64_t, std::size_t> last;
  for (std::size_t s = begin; s < std::min(sequences.size(), end + kMostUncut); ++s)
    if (sequences[s].shared_prefix > 0) last[sequences[s].prefix_group] = s;
  for (std::size_t s = begin; s < end; ++s)
    if (sequences[s].shared_prefix > 0) end = std::max(end, last[sequences[s].prefix_group] + 1);
  return end;
}
}  // namespace

std::int64_t most_uncut_rows(std::int64_t max_positions) { return std::max<std::int64_t>(16'384, 4 * max_positions); }

void check_uncut(const std::vector<TrainSequence>& sequences, std::int64_t max_positions, const std::function<std::size_t(std::size_t)>& datum) {
  std::map<std::int64_t, std::size_t> last;  // of each group, which is named after its first
  for (std::size_t s = 0; s < sequences.size(); ++s)
    if (sequences[s].shared_prefix > 0) last[sequences[s].prefix_group] = s;
  for (std::size_t begin = 0, end = 1; begin < sequences.size(); begin = end, end = begin + 1) {
    std::int64_t rows = 0;
    for (std::size_t s = begin; s < end; ++s) {
      const TrainSequence& one = sequences[s];
      rows += std::ssize(one.tokens);
      if (one.shared_prefix == 0) continue;
      if (static_cast<std::int64_t>(s) != one.prefix_group) rows -= one.shared_prefix;
      end = std::max(end, last[one.prefix_group] + 1);
    }
    if (end - begin > 1 && (end - begin > kMostUncut || rows > most_uncut_rows(max_positions)))
      fail(ErrorCode::invalid_argument,
           "share_prompts is 'backward', and data[{}] to data[{}], which equal prompts hold together, are {} data of {} rows; they are computed at once, and "
           "allowed are {} data of {} rows: put data of one prompt beside each other, or fewer into a request",
           datum ? datum(begin) : begin, datum ? datum(end - 1) : end - 1, end - begin, rows, kMostUncut, most_uncut_rows(max_positions));
  }
}

std::size_t piece_end(const std::vector<TrainSequence>& sequences, std::size_t begin, std::int64_t tokens) {
  std::size_t end = begin;
  for (std::int64_t taken = 0; end < sequences.size(); ++end) {
    const auto more = static_cast<std::int64_t>(sequences[end].tokens.size());
    if (end > begin && taken + more > tokens) break;
    taken += more;
  }
  return with_whole_groups(sequences, begin, end);
}

std::size_t half_piece(const std::vector<TrainSequence>& sequences, std::size_t begin, std::size_t end) {
  if (end - begin < 2) return end;
  const std::size_t half = with_whole_groups(sequences, begin, begin + (end - begin) / 2);
  return half < end ? half : with_whole_groups(sequences, begin, begin + 1);
}

}  // namespace lockstep
