#include "host/batch_pieces.h"

#include <algorithm>
#include <map>

namespace lockstep {
namespace {
// Where a piece from `begin` on ends that has at least [begin, end), and of declared groups all or nothing.
std::size_t with_whole_groups(const std::vector<TrainSequence>& sequences, std::size_t begin, std::size_t end) {
  const auto first = sequences.begin() + static_cast<std::ptrdiff_t>(begin), behind = sequences.begin() + static_cast<std::ptrdiff_t>(end);
  if (std::none_of(first, behind, [](const TrainSequence& one) { return one.shared_prefix > 0; })) return end;
  std::map<std::int64_t, std::size_t> last;
  for (std::size_t s = begin; s < sequences.size(); ++s)
    if (sequences[s].shared_prefix > 0) last[sequences[s].prefix_group] = s;
  for (std::size_t s = begin; s < end; ++s)
    if (sequences[s].shared_prefix > 0) end = std::max(end, last[sequences[s].prefix_group] + 1);
  return end;
}
}  // namespace

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
