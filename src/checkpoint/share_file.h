// One rank's file of a training checkpoint in shares (checkpoint/share_checkpoint.h): its rows of masters and moments in fp32, as they stand in memory,
// and behind them a table in JSON: for each piece its part of the state, its parameter, which of its elements it has (model/rows_place.h), where in the file it
// begins, and the XXH3-64 of each of its blocks of 2^14 values. The index of the checkpoint has the SHA-256 of the table. So who reads a part of a piece
// reads whole blocks of it, and knows that they are what was written. Knows no ranks and no trainer. One thread a file.
//   const ShareFileEnd end = write_share_file(folder, 3, {"tp=2,dp=2,ep=1", 120}, pieces);
#pragma once
#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/rows_place.h"
#include "model/state_part.h"

namespace lockstep {

inline constexpr std::int64_t kShareBlock = 1 << 14;  // values; a multiple of a panel's 16 outputs

struct SharePiece {
  StatePart part = StatePart::master;
  Parameter whole;  // the parameter that they are rows of
  RowsPlace place;
  std::function<std::vector<float>(std::int64_t first, std::int64_t rows)>
      read;  // some of these rows, the first of them being row 0; asked once each, in order
};

struct ShareFileOrigin {
  std::string layout;  // of the ranks that wrote the checkpoint
  std::int64_t step = 0;
};

// What the index says of a file. Plain numbers, since it travels between processes.
struct ShareFileEnd {
  std::uint64_t table_at = 0, bytes = 0;
  std::uint64_t state_sum = 0;  // of its values (checkpoint/state_sum.h)
  std::array<char, 64> table_sha256 = {};
};

// "rank-03.state".
std::string share_file_name(int rank);
// "master", "m", "v".
const char* state_part_name(StatePart part);
// Writes the file of this rank whole, and syncs it; about a megabyte of it is in memory at a time. Errors: io, those of reading. Kill points
// (base/file.h), each passed once a rank: checkpoint:write (half of the pieces are written), checkpoint:fsync (all of it, none surely on disk).
ShareFileEnd write_share_file(const std::filesystem::path& folder, int rank, const ShareFileOrigin& origin, const std::vector<SharePiece>& pieces);

}  // namespace lockstep
