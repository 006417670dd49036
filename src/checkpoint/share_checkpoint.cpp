#include "checkpoint/share_checkpoint.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
constexpr std::uint64_t kMostTable = std::uint64_t{1} << 30;  // bytes

[[noreturn]] void refuse_table(const std::string& file, const std::string& what) { fail(ErrorCode::corrupt_file, "the table of '{}' has {}", file, what); }

std::int64_t number_at(const Json& list, std::size_t i, std::size_t size, const std::string& file) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const bool allowed = list.is_array() && list.size() == size && list[i].is_number_unsigned() && list[i].get<std::uint64_t>() <= kMost;
  if (!allowed) refuse_table(file, fmt::format("{}, allowed are {} numbers from 0 to 2^40", list.dump().substr(0, 100), size));
  return list[i].get<std::int64_t>();
}

std::uint64_t hash_of(const Json& text, const std::string& file) {
  std::uint64_t hash = 0;
  const std::string digits = text.is_string() ? text.get<std::string>() : "";
  if (digits.size() != 16 || std::from_chars(digits.data(), digits.data() + 16, hash, 16).ptr != digits.data() + 16)
    refuse_table(file, fmt::format("the hash {}, allowed are 16 hexadecimal digits", text.dump().substr(0, 100)));
  return hash;
}
}  // namespace

fs::path commit_shares(AtomicFolder& folder, const fs::path& checkpoints, const CheckpointHead& head, const std::string& layout,
                       const std::vector<ShareFileEnd>& ends, const CheckpointOptions& options) {
  Json shares = Json::array();
  std::string missing;
  std::uint64_t sum = 0;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    const std::string name = share_file_name(static_cast<int>(rank));
    std::error_code error;
    const std::uint64_t found = fs::file_size(folder.partial() / name, error);
    if (error || found != ends[rank].bytes) missing += (missing.empty() ? "" : ", ") + name;
    sum += ends[rank].state_sum;
    shares.push_back({{"file", name},
                      {"bytes", ends[rank].bytes},
                      {"table_at", ends[rank].table_at},
                      {"table_sha256", std::string(ends[rank].table_sha256.begin(), ends[rank].table_sha256.end())}});
  }
  if (!missing.empty())
    fail(ErrorCode::not_found, "'{}' lacks {}, which other processes have written; the folder of runs must be on a disk that all hosts share",
         folder.partial().string(), missing);
  CheckpointHead in_shares = head;
  in_shares.format = kSharesFormat;
  write_checkpoint_head(folder.partial(), in_shares, {{"ranks", layout}, {"state_sum", hex64(sum)}, {"shares", shares}});
  return publish_checkpoint(folder, checkpoints, head.step, options);
}

// What is wrong with the file that the index names; empty: nothing, and it is open.
std::string ShareCheckpoint::open_file(const Json& told, std::size_t number) {
  const std::string name = share_file_name(static_cast<int>(number));
  if (!told.is_object() || told.value("file", Json()) != name || !told.value("bytes", Json()).is_number_unsigned() ||
      !told.value("table_at", Json()).is_number_unsigned() || !told.value("table_sha256", Json()).is_string())
    return fmt::format("the index says of file {} {}", number, told.dump().substr(0, 200));
  const auto bytes = told.at("bytes").get<std::uint64_t>(), table_at = told.at("table_at").get<std::uint64_t>();
  if (table_at > bytes || bytes - table_at > kMostTable) return fmt::format("the index says of {} {}", name, told.dump().substr(0, 200));
  try {
    files_.push_back(ByteFile::open(folder_ / name));
  } catch (const Error& e) {
    return e.code() == ErrorCode::not_found ? name + " is missing" : std::string(e.message());
  }
  const ByteFile& file = files_.back();
  if (file.size() != bytes) return fmt::format("{} has {} bytes and not {}", name, file.size(), bytes);
  std::string table(bytes - table_at, '\0');
  file.read(table_at, table.data(), table.size());
  if (sha256_hex(table) != told.at("table_sha256").get<std::string>()) return name + " is damaged, or of another checkpoint (its table has another SHA-256)";
  tables_.push_back(std::move(table));
  return "";
}

void ShareCheckpoint::take_table(const Json& table, std::size_t file, const Manifest& manifest) {
  const std::string& name = files_[file].label();
  if (!table.is_object() || table.value("block", Json()) != kShareBlock || table.value("step", Json()) != head_.step ||
      !table.value("pieces", Json()).is_array())
    refuse_table(name, fmt::format("another block, step or no pieces, allowed are {} and {}", kShareBlock, head_.step));
  const auto table_at = head_.json.at("shares")[file].at("table_at").get<std::uint64_t>();
  for (const Json& told : table.at("pieces")) {
    for (const char* key : {"part", "parameter", "id", "packed", "corner", "share", "rows", "at", "blocks"})
      if (!told.is_object() || !told.contains(key)) refuse_table(name, fmt::format("a piece without '{}'", key));
    StoredPiece piece;
    piece.file = file;
    const Json &corner = told.at("corner"), &share = told.at("share"), &rows = told.at("rows");
    RowsPlace& place = piece.place;
    const std::int64_t id = told.at("id").is_number_integer() ? told.at("id").get<std::int64_t>() : -1;
    const bool known = id >= 0 && id < std::ssize(manifest.parameters()) && told.at("parameter") == manifest.parameter(static_cast<ParameterId>(id)).name;
    if (!known)
      fail(ErrorCode::corrupt_file, "'{}' has the parameter {}, which the model does not have in this place", name, told.at("parameter").dump().substr(0, 100));
    place.parameter = static_cast<ParameterId>(id);
    place.packed = told.at("packed") == true;
    place.corner = {number_at(corner, 0, 3, name), number_at(corner, 1, 3, name), number_at(corner, 2, 3, name)};
    place.count = number_at(share, 0, 3, name), place.outputs = number_at(share, 1, 3, name), place.inputs = number_at(share, 2, 3, name);
    place.first = number_at(rows, 0, 2, name), place.rows = number_at(rows, 1, 2, name);
    const RowsPlace all = all_rows_of(manifest.parameter(place.parameter), place.parameter);
    const bool inside = place.packed == all.packed && place.corner.item + place.count <= all.count && place.corner.output + place.outputs <= all.outputs &&
                        place.corner.input + place.inputs <= all.inputs && place.first + place.rows <= place.all_rows();
    if (!inside) fail(ErrorCode::corrupt_file, "'{}' has the parameter '{}' in another shape than the model", name, told.at("parameter").get<std::string>());
    piece.at = told.at("at").is_number_unsigned() ? told.at("at").get<std::uint64_t>() : table_at;
    const auto bytes = static_cast<std::uint64_t>(place.size()) * sizeof(float);
    if (piece.at > table_at || bytes > table_at - piece.at) refuse_table(name, "a piece that does not stand before it");
    for (const Json& hash : told.at("blocks")) piece.blocks.push_back(hash_of(hash, name));
    if (std::ssize(piece.blocks) != (place.size() + kShareBlock - 1) / kShareBlock) refuse_table(name, "a piece with other blocks than its values have");
    StatePart part = StatePart::master;
    if (told.at("part") == state_part_name(StatePart::first_moment)) part = StatePart::first_moment;
    else if (told.at("part") == state_part_name(StatePart::second_moment)) part = StatePart::second_moment;
    else if (told.at("part") != state_part_name(part)) refuse_table(name, fmt::format("the part {}, allowed are master, m, v", told.at("part").dump()));
    pieces_[{part, place.parameter}].push_back(std::move(piece));
  }
}

ShareCheckpoint::ShareCheckpoint(const fs::path& folder, const Manifest& manifest) : folder_(folder), head_(read_checkpoint_head(folder)) {
  if (!head_.in_shares()) fail(ErrorCode::internal, "'{}' has its state in one file", folder.string());
  const Json& shares = head_.json.at("shares");
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i < shares.size(); ++i)
    if (std::string words = open_file(shares[i], i); !words.empty()) wrong.push_back(std::move(words));
  if (!wrong.empty() || shares.empty())
    fail(ErrorCode::corrupt_file, "of the {} files of ranks in '{}' {} cannot be used: {}", shares.size(), folder.string(), wrong.size(),
         fmt::join(wrong, "; "));
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    Json table;
    try {
      table = Json::parse(tables_[i]);
    } catch (const nlohmann::json::exception&) {
      refuse_table(files_[i].label(), "no JSON");
    }
    take_table(table, i, manifest);
    std::string().swap(tables_[i]);
  }
}

std::vector<float> ShareCheckpoint::read(StatePart part, const RowsPlace& rows) {
  std::vector<float> image(static_cast<std::size_t>(rows.share_size()), 0.0f);
  const auto found = pieces_.find({part, rows.parameter});
  const std::int64_t wanted = elements_of(rows);
  if (wanted == 0 || (found == pieces_.end() && part != StatePart::master)) return image;
  std::int64_t got = 0;
  std::vector<float> block;
  static const std::vector<StoredPiece> kNone;
  for (const StoredPiece& piece : found == pieces_.end() ? kNone : found->second)
    for (std::int64_t at = 0; at < piece.place.size(); at += kShareBlock) {
      const std::int64_t size = std::min(kShareBlock, piece.place.size() - at);
      if (elements_in_both(piece.place, at, size, rows) == 0) continue;
      block.resize(static_cast<std::size_t>(size));
      const std::size_t bytes = block.size() * sizeof(float);
      const ByteFile& file = files_[piece.file];
      const std::uint64_t place = piece.at + static_cast<std::uint64_t>(at) * sizeof(float);
      file.read(place, block.data(), bytes);
      bytes_read_ += bytes;
      if (xxh3(block.data(), bytes) != piece.blocks[static_cast<std::size_t>(at / kShareBlock)])
        fail(ErrorCode::corrupt_file, "'{}' is damaged: the block of {} bytes from byte {} has another hash than its table says", file.label(), bytes, place);
      got += copy_elements(piece.place, at, block, rows, image);
    }
  if (got != wanted)
    fail(ErrorCode::corrupt_file, "the files of ranks in '{}' have {} of the {} elements of parameter {} ({}) that are read", folder_.string(), got, wanted,
         rows.parameter, state_part_name(part));
  return image;
}

}  // namespace lockstep
