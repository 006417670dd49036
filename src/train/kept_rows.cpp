#include "train/kept_rows.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

std::vector<KeptTokens> kept_rows(const std::vector<std::int64_t>& ids, std::size_t rows, const std::vector<std::int64_t>& by_rank, std::int64_t vocabulary,
                                  const std::string& where) {
  if (rows == 0 || ids.empty() || ids.size() % rows != 0)
    fail(ErrorCode::invalid_argument, "{} has {} ids of {} tokens, allowed is as many for each token, at least 1", where, ids.size(), rows);
  if (!by_rank.empty() && by_rank.size() != rows)
    fail(ErrorCode::invalid_argument, "{} is of {} tokens and says of {} whether they are kept by rank; allowed are equal numbers", where, rows,
         by_rank.size());
  const std::size_t width = ids.size() / rows;
  std::vector<KeptTokens> kept(rows);
  std::vector<std::int32_t> own;
  for (std::size_t row = 0; row < rows; ++row) {
    own.clear();
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      if (ids[i] < -1 || ids[i] >= vocabulary)
        fail(ErrorCode::invalid_argument, "{}[{}] is {}, allowed are ids from 0 to {}, and -1 for none", where, i, ids[i], vocabulary - 1);
      if (ids[i] >= 0) own.push_back(static_cast<std::int32_t>(ids[i]));
    }
    if (own.empty()) continue;
    std::sort(own.begin(), own.end());
    if (const auto twice = std::adjacent_find(own.begin(), own.end()); twice != own.end())
      fail(ErrorCode::invalid_argument, "{} has token {} twice in row {}, allowed is once", where, *twice, row);
    const std::int64_t rank = by_rank.empty() ? 1 : by_rank[row];
    if (rank != 0 && rank != 1)
      fail(ErrorCode::invalid_argument, "{}: whether row {} is kept by rank is {}, allowed are 0 (a mask alone cut) and 1", where, row, rank);
    kept[row] = KeptTokens::of(rank == 1 ? KeptTokens::Order::by_rank : KeptTokens::Order::by_id, own, vocabulary);
  }
  return kept;
}

}  // namespace lockstep
