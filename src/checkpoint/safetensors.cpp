#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/lfs_pointer.h"
#include "checkpoint/safetensors_header.h"
#include "numerics/half.h"
#include "numerics/low_bit.h"

namespace lockstep {
static_assert(std::endian::native == std::endian::little, "safetensors are little-endian, and read as they lie");

namespace {
constexpr std::size_t kBlockBytes = std::size_t{1} << 16;

// `read(done, codes, count)` reads codes of elements from `done` on.
template <class F>
void read_e4m3(std::span<float> values, const F& read) {
  std::vector<std::uint8_t> codes(std::min(values.size(), kBlockBytes));
  for (std::size_t done = 0; done < values.size();) {
    const std::size_t count = std::min(codes.size(), values.size() - done);
    read(done, codes.data(), count);
    for (std::size_t i = 0; i < count; ++i) values[done + i] = (codes[i] & 0x7f) == 0x7f ? std::numeric_limits<float>::quiet_NaN() : widen_e4m3(codes[i]);
    done += count;
  }
}
}  // namespace

SafetensorsFile::SafetensorsFile(ByteFile source) : source_(std::move(source)) { read_header(); }

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) { return SafetensorsFile(ByteFile::open(path)); }

SafetensorsFile SafetensorsFile::from_bytes(std::string bytes, std::string label) {
  return SafetensorsFile(ByteFile::from_bytes(std::move(bytes), std::move(label)));
}

void SafetensorsFile::read_header() {
  if (bytes() < 8) fail(ErrorCode::corrupt_file, "'{}' has {} bytes, a safetensors file has at least 8", label(), bytes());
  std::string first(std::min<std::uint64_t>(bytes(), kLfsPointer.size()), '\0');
  source_.read(0, first.data(), first.size());
  refuse_lfs_pointer(label(), first);
  std::uint64_t length = 0;
  source_.read(0, &length, 8);
  if (length > kMostHeaderBytes) fail(ErrorCode::corrupt_file, "'{}': the header's length is {}, allowed is at most {}", label(), length, kMostHeaderBytes);
  if (length > bytes() - 8) fail(ErrorCode::corrupt_file, "'{}' is truncated: the header's length is {}, and {} bytes follow", label(), length, bytes() - 8);
  std::string text(static_cast<std::size_t>(length), '\0');
  source_.read(8, text.data(), text.size());
  SafetensorsHeader header = parse_safetensors_header(text, label());
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
  data_at_ = 8 + length;
  check_offsets(bytes() - data_at_);
  index_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

// Checks that the tensors fill the data exactly: none beyond the end, no overlap, no gap.
void SafetensorsFile::check_offsets(std::uint64_t data_bytes) {
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const SafetensorsTensor& a, const SafetensorsTensor& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t filled = 0;
  const SafetensorsTensor* previous = nullptr;
  for (const SafetensorsTensor& t : tensors_) {
    if (t.end > data_bytes)
      fail(ErrorCode::corrupt_file, "'{}' is truncated: tensor {} has the data_offsets [{}, {}], and the file holds {} bytes of data", label(),
           quoted_name(t.name), t.begin, t.end, data_bytes);
    if (t.begin < filled)
      fail(ErrorCode::corrupt_file, "'{}': tensor {} begins at byte {}, inside tensor {} that ends at {}", label(), quoted_name(t.name), t.begin,
           quoted_name(previous->name), filled);
    if (t.begin > filled)
      fail(ErrorCode::corrupt_file, "'{}': the bytes from {} to {}, before tensor {}, belong to no tensor", label(), filled, t.begin, quoted_name(t.name));
    filled = t.end;
    previous = &t;
  }
  if (filled != data_bytes)
    fail(ErrorCode::corrupt_file, "'{}' has {} surplus bytes: the tensors end at byte {}, the data at {}", label(), data_bytes - filled, filled, data_bytes);
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const SafetensorsTensor& SafetensorsFile::tensor(std::string_view name) const {
  if (const SafetensorsTensor* found = find(name)) return *found;
  std::vector<std::string> near;
  for (const SafetensorsTensor& t : tensors_)
    if (t.name.size() <= name.size() + 3 && name.size() <= t.name.size() + 3) near.push_back(t.name);
  fail(ErrorCode::not_found, "'{}' has no tensor {}{}", label(), quoted_name(name), did_you_mean(name, near));
}

void SafetensorsFile::read(const SafetensorsTensor& t, std::span<float> values, std::int64_t first) const {
  if (t.type != SafetensorsType::f32 && t.type != SafetensorsType::bf16 && t.type != SafetensorsType::f16 && t.type != SafetensorsType::f8_e4m3)
    fail(ErrorCode::unsupported, "'{}': tensor {} has the dtype {}, allowed are F32, BF16, F16 and F8_E4M3", label(), quoted_name(t.name),
         safetensors_type_name(t.type));
  if (first < 0 || first > t.elements() || static_cast<std::int64_t>(values.size()) > t.elements() - first)
    fail(ErrorCode::internal, "'{}': elements {} to {} of tensor {} were asked for, it has {}", label(), first,
         first + static_cast<std::int64_t>(values.size()), quoted_name(t.name), t.elements());
  std::uint64_t at = data_at_ + t.begin + static_cast<std::uint64_t>(first * safetensors_type_bytes(t.type));
  if (t.type == SafetensorsType::f32) return source_.read(at, values.data(), values.size_bytes());
  if (t.type == SafetensorsType::f8_e4m3)
    return read_e4m3(values, [&](std::size_t done, std::uint8_t* codes, std::size_t count) { source_.read(at + done, codes, count); });
  std::vector<std::uint16_t> block(std::min(values.size(), kBlockBytes / 2));
  for (std::size_t done = 0; done < values.size();) {
    const std::size_t count = std::min(block.size(), values.size() - done);
    source_.read(at, block.data(), count * 2);
    float* to = values.data() + done;
    if (t.type == SafetensorsType::bf16)
      for (std::size_t i = 0; i < count; ++i) to[i] = widen(Bf16{block[i]});
    else
      for (std::size_t i = 0; i < count; ++i) to[i] = widen_half(block[i]);
    done += count;
    at += count * 2;
  }
}

void SafetensorsFile::read_bytes(const SafetensorsTensor& t, std::span<std::uint8_t> bytes, std::uint64_t first) const {
  if (first > t.end - t.begin || bytes.size() > t.end - t.begin - first)
    fail(ErrorCode::internal, "'{}': bytes {} to {} of tensor {} were asked for, it has {}", label(), first, first + bytes.size(), quoted_name(t.name),
         t.end - t.begin);
  if (!bytes.empty()) source_.read(data_at_ + t.begin + first, bytes.data(), bytes.size());
}

void SafetensorsFile::count_types(StoredTypes& types) const {
  for (const SafetensorsTensor& t : tensors_) {
    const std::string name(safetensors_type_name(t.type));
    StoredType& type = types.try_emplace(name, StoredType{name, 8.0 * static_cast<double>(safetensors_type_bytes(t.type))}).first->second;
    ++type.tensors;
    type.weights += t.elements();
  }
}

std::vector<std::int64_t> SafetensorsFile::read_integers(const SafetensorsTensor& t) const {
  if (t.type != SafetensorsType::i32 && t.type != SafetensorsType::i64)
    fail(ErrorCode::unsupported, "'{}': tensor {} has the dtype {}, allowed are I32 and I64", label(), quoted_name(t.name), safetensors_type_name(t.type));
  std::vector<std::int64_t> values(static_cast<std::size_t>(t.elements()));
  if (t.type == SafetensorsType::i64) {
    source_.read(data_at_ + t.begin, values.data(), values.size() * 8);
    return values;
  }
  std::vector<std::int32_t> narrow(values.size());
  source_.read(data_at_ + t.begin, narrow.data(), narrow.size() * 4);
  std::copy(narrow.begin(), narrow.end(), values.begin());
  return values;
}

std::string SafetensorsFile::sha256() const {
  Sha256 hash;
  std::vector<char> block(kBlockBytes);
  for (std::uint64_t at = 0; at < bytes();) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), bytes() - at));
    source_.read(at, block.data(), count);
    hash.update(block.data(), count);
    at += count;
  }
  return hash.hex();
}

std::int64_t SafetensorsWriter::Entry::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(n, size, &n)) fail(ErrorCode::internal, "tensor '{}' of shape {} cannot be written", name, shape_text(shape));
  return n;
}

SafetensorsWriter::SafetensorsWriter(ByteSink sink, std::vector<Entry> entries, const std::vector<std::pair<std::string, std::string>>& metadata)
    : sink_(std::move(sink)), entries_(std::move(entries)) {
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.type != b.type ? a.type > b.type : a.name < b.name; });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  std::string text = header.dump();
  text.pop_back();  // the tensors are appended by hand: looking for each key among all others would cost the square
  std::uint64_t end = 0;
  std::unordered_map<std::string_view, bool> names;
  for (const Entry& entry : entries_) {
    constexpr SafetensorsType kWritten[] = {SafetensorsType::f32, SafetensorsType::bf16, SafetensorsType::f16,    SafetensorsType::i32,
                                            SafetensorsType::i64, SafetensorsType::u8,   SafetensorsType::f8_e4m3};
    if (std::find(std::begin(kWritten), std::end(kWritten), entry.type) == std::end(kWritten))
      fail(ErrorCode::internal, "tensor '{}' cannot be written as {}", entry.name, safetensors_type_name(entry.type));
    if (!names.emplace(entry.name, true).second || entry.name == "__metadata__") fail(ErrorCode::internal, "tensor '{}' is to be written twice", entry.name);
    const std::uint64_t begin = end;
    end += static_cast<std::uint64_t>(entry.elements() * safetensors_type_bytes(entry.type));
    if (text.size() > 1) text += ',';
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", nlohmann::json(entry.name).dump(), safetensors_type_name(entry.type),
                        fmt::join(entry.shape, ","), begin, end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  sink_(&length, 8);
  sink_(text.data(), text.size());
}

void SafetensorsWriter::write(std::span<const float> values) {
  if (next_ == entries_.size()) fail(ErrorCode::internal, "more tensors are written than were announced");
  const Entry& entry = entries_[next_++];
  if (static_cast<std::int64_t>(values.size()) != entry.elements())
    fail(ErrorCode::internal, "tensor '{}' of shape {} was given {} values", entry.name, shape_text(entry.shape), values.size());
  if (entry.type != SafetensorsType::f32 && entry.type != SafetensorsType::bf16)
    fail(ErrorCode::internal, "tensor '{}' was given numbers, and is {}", entry.name, safetensors_type_name(entry.type));
  if (entry.type == SafetensorsType::f32) {
    if (!values.empty()) sink_(values.data(), values.size_bytes());
    return;
  }
  std::vector<std::uint16_t> block(std::min(values.size(), kBlockBytes / 2));
  for (std::size_t done = 0; done < values.size();) {
    const std::size_t count = std::min(block.size(), values.size() - done);
    for (std::size_t i = 0; i < count; ++i) block[i] = round_to_bf16(values[done + i]).bits;
    sink_(block.data(), count * 2);
    done += count;
  }
}

void SafetensorsWriter::write_bytes(const void* data, std::size_t bytes) {
  if (next_ == entries_.size()) fail(ErrorCode::internal, "more tensors are written than were announced");
  const Entry& entry = entries_[next_++];
  if (static_cast<std::int64_t>(bytes) != entry.elements() * safetensors_type_bytes(entry.type))
    fail(ErrorCode::internal, "tensor '{}' of shape {} was given {} bytes", entry.name, shape_text(entry.shape), bytes);
  if (bytes > 0) sink_(data, bytes);
}

void SafetensorsWriter::finish() {
  if (next_ != entries_.size()) fail(ErrorCode::internal, "{} tensors were announced, {} written", entries_.size(), next_);
}

}  // namespace lockstep
