#include "checkpoint/share_file.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/json_file.h"
#include "checkpoint/state_sum.h"

namespace lockstep {

std::string share_file_name(int rank) { return fmt::format("rank-{:02}.state", rank); }

const char* state_part_name(StatePart part) {
  switch (part) {
    case StatePart::master:
      return "master";
    case StatePart::first_moment:
      return "m";
    case StatePart::second_moment:
      return "v";
  }
  fail(ErrorCode::internal, "part {} of a state, which there is not", static_cast<int>(part));
}

namespace {
constexpr std::int64_t kReadAtOnce = std::int64_t{1} << 18;  // values; more where a row has more
constexpr auto kBlock = static_cast<std::size_t>(kShareBlock);

// Writes the values of a piece, and returns the hashes of its blocks.
Json write_piece(AtomicFile& out, const SharePiece& piece, std::uint64_t& sum) {
  const RowsPlace& place = piece.place;
  Json blocks = Json::array();
  std::vector<float> waiting;  // read, and not yet written: less than a block, then what is read next
  const auto write = [&](std::size_t begin, std::size_t size) {
    const float* block = waiting.data() + begin;
    blocks.push_back(hex64(xxh3(block, size * sizeof(float))));
    out.write(block, size * sizeof(float));
  };
  const std::int64_t at_once = std::max<std::int64_t>(1, kReadAtOnce / std::max<std::int64_t>(1, place.width()));
  for (std::int64_t row = 0; row < place.rows; row += at_once) {
    RowsPlace part = place;
    part.first += row;
    part.rows = std::min(at_once, place.rows - row);
    const std::vector<float> values = piece.read(row, part.rows);
    if (std::ssize(values) != part.size())
      fail(ErrorCode::internal, "{} rows of '{}' have {} values, expected are {}", part.rows, piece.whole.name, values.size(), part.size());
    sum += state_sum(piece.part, piece.whole, part, values);
    waiting.insert(waiting.end(), values.begin(), values.end());
    std::size_t written = 0;
    for (; waiting.size() - written >= kBlock; written += kBlock) write(written, kBlock);
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(written));
  }
  if (!waiting.empty()) write(0, waiting.size());
  return blocks;
}
}  // namespace

ShareFileEnd write_share_file(const std::filesystem::path& folder, int rank, const ShareFileOrigin& origin, const std::vector<SharePiece>& pieces) {
  AtomicFile out(folder / share_file_name(rank));
  Json table = {{"rank", rank}, {"ranks", origin.layout}, {"step", origin.step}, {"block", kShareBlock}};
  Json& told = table["pieces"] = Json::array();
  ShareFileEnd end;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i == pieces.size() / 2) kill_point("checkpoint:write");
    const RowsPlace& place = pieces[i].place;
    Json blocks = write_piece(out, pieces[i], end.state_sum);
    told.push_back({{"part", state_part_name(pieces[i].part)},
                    {"parameter", pieces[i].whole.name},
                    {"id", place.parameter},
                    {"packed", place.packed},
                    {"corner", {place.corner.item, place.corner.output, place.corner.input}},
                    {"share", {place.count, place.outputs, place.inputs}},
                    {"rows", {place.first, place.rows}},
                    {"at", end.table_at},
                    {"blocks", std::move(blocks)}});
    end.table_at += static_cast<std::uint64_t>(place.size()) * sizeof(float);
  }
  const std::string text = table.dump() + "\n";
  const std::string sha256 = sha256_hex(text);
  std::copy_n(sha256.begin(), end.table_sha256.size(), end.table_sha256.begin());
  end.bytes = end.table_at + text.size();
  out.write(text);
  kill_point("checkpoint:fsync");
  out.commit();
  return end;
}

}  // namespace lockstep
