#include "checkpoint/gguf_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "checkpoint/gguf_header.h"
#include "checkpoint/tensor_file.h"

namespace lockstep {

namespace {
constexpr std::int64_t kDefaultAlignment = 32, kMostAlignment = std::int64_t{1} << 20;
constexpr std::int64_t kDecodedAtOnce = std::int64_t{1} << 16;  // bytes

template <class T>
T as(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// The value as an integer, if it is one that 64 signed bits hold.
std::optional<std::int64_t> whole(GgufValueType type, std::uint64_t bits) {
  switch (type) {
    case GgufValueType::u8:
    case GgufValueType::u16:
    case GgufValueType::u32:
      return static_cast<std::int64_t>(bits);
    case GgufValueType::i8:
      return as<std::int8_t>(bits);
    case GgufValueType::i16:
      return as<std::int16_t>(bits);
    case GgufValueType::i32:
      return as<std::int32_t>(bits);
    case GgufValueType::i64:
      return as<std::int64_t>(bits);
    case GgufValueType::u64:
      if (bits <= static_cast<std::uint64_t>(INT64_MAX)) return static_cast<std::int64_t>(bits);
      return {};
    default:
      return {};
  }
}

std::string shown(const GgufValue& value) {
  const auto type = static_cast<GgufValueType>(value.type);
  if (type == GgufValueType::text) return quoted_name(value.text);
  if (type == GgufValueType::list)
    return fmt::format("a list of {} values of type {}", value.count, gguf_value_name(static_cast<GgufValueType>(value.element)));
  if (type == GgufValueType::boolean) return value.bits ? "true" : "false";
  if (type == GgufValueType::f32) return fmt::format("{}", as<float>(value.bits));
  if (type == GgufValueType::f64) return fmt::format("{}", as<double>(value.bits));
  const auto number = whole(type, value.bits);
  return number ? std::to_string(*number) : std::to_string(value.bits);
}
}  // namespace

std::int64_t GgufTensor::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  return n;
}

GgufFile GgufFile::open(const std::filesystem::path& path) { return GgufFile(ByteFile::open(path)); }

GgufFile GgufFile::from_bytes(std::string bytes, std::string label) { return GgufFile(ByteFile::from_bytes(std::move(bytes), std::move(label))); }

GgufFile::GgufFile(ByteFile source) : source_(std::move(source)) {
  GgufHeader header = read_gguf_header(source_);
  version_ = header.version;
  metadata_ = std::move(header.metadata);
  tensors_ = std::move(header.tensors);
  if (const std::int64_t parts = integer_if("split.count", 0, INT32_MAX).value_or(1); parts > 1)
    fail(ErrorCode::unsupported,
         "'{}' is one of {} parts ('split.count'), allowed is a whole file: `llama-gguf-split --merge FIRST-PART WHOLE` of llama.cpp joins them", label(),
         parts);
  place_tensors(header.end);
  index_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

// Data begin at the next multiple of the alignment; every tensor too. None lies beyond the end, no two share a byte.
void GgufFile::place_tensors(std::uint64_t header_end) {
  const std::int64_t alignment = integer_if("general.alignment", 1, kMostAlignment).value_or(kDefaultAlignment);
  if (alignment & (alignment - 1))
    fail(ErrorCode::corrupt_file, "'{}': 'general.alignment' is {}, allowed is a power of two up to {}", label(), alignment, kMostAlignment);
  const auto step = static_cast<std::uint64_t>(alignment);
  const std::uint64_t data = (header_end + step - 1) / step * step, size = source_.size();
  std::vector<const GgufTensor*> in_order;
  for (GgufTensor& t : tensors_) {
    if (t.begin % step)
      fail(ErrorCode::corrupt_file, "'{}': tensor {} begins at byte {} of the data, allowed are multiples of {}", label(), quoted_name(t.name), t.begin, step);
    if (data > size || t.begin > size - data || t.bytes > size - data - t.begin)
      fail(ErrorCode::corrupt_file, "'{}' is truncated: tensor {} has {} bytes from byte {} of the data on, and the file holds {} bytes of data", label(),
           quoted_name(t.name), t.bytes, t.begin, data > size ? 0 : size - data);
    t.begin += data;
    in_order.push_back(&t);
  }
  std::stable_sort(in_order.begin(), in_order.end(), [](const GgufTensor* a, const GgufTensor* b) { return a->begin < b->begin; });
  for (std::size_t i = 1; i < in_order.size(); ++i)
    if (const GgufTensor& before = *in_order[i - 1], &t = *in_order[i]; t.begin < before.begin + before.bytes)
      fail(ErrorCode::corrupt_file, "'{}': tensor {} begins at byte {}, inside tensor {} that ends at {}", label(), quoted_name(t.name), t.begin,
           quoted_name(before.name), before.begin + before.bytes);
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

void GgufFile::refuse(std::string_view key, const GgufValue& value, std::string_view allowed) const {
  fail(ErrorCode::corrupt_file, "'{}': {} is {}, allowed is {}", label(), quoted_name(key), shown(value), allowed);
}

std::optional<std::string> GgufFile::text_if(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return {};
  if (static_cast<GgufValueType>(found->type) != GgufValueType::text) refuse(key, *found, "a text");
  return found->text;
}

std::string GgufFile::text(std::string_view key) const {
  if (auto found = text_if(key)) return std::move(*found);
  fail(ErrorCode::corrupt_file, "'{}': the metadata lacks {}", label(), quoted_name(key));
}

std::optional<std::int64_t> GgufFile::integer_if(std::string_view key, std::int64_t low, std::int64_t high) const {
  const GgufValue* found = value(key);
  if (!found) return {};
  const auto number = whole(static_cast<GgufValueType>(found->type), found->bits);
  if (!number || *number < low || *number > high) refuse(key, *found, fmt::format("a whole number from {} to {}", low, high));
  return number;
}

std::int64_t GgufFile::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  if (const auto found = integer_if(key, low, high)) return *found;
  fail(ErrorCode::corrupt_file, "'{}': the metadata lacks {}", label(), quoted_name(key));
}

std::optional<float> GgufFile::number_if(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return {};
  const auto type = static_cast<GgufValueType>(found->type);
  const float number = type == GgufValueType::f32 ? as<float>(found->bits) : type == GgufValueType::f64 ? static_cast<float>(as<double>(found->bits)) : NAN;
  if (!std::isfinite(number)) refuse(key, *found, "a finite number of type f32");
  return number;
}

bool GgufFile::flag(std::string_view key, bool otherwise) const {
  const GgufValue* found = value(key);
  if (!found) return otherwise;
  if (static_cast<GgufValueType>(found->type) != GgufValueType::boolean) refuse(key, *found, "true or false");
  return found->bits != 0;
}

std::optional<double> GgufFile::scalar_if(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return {};
  const auto type = static_cast<GgufValueType>(found->type);
  if (type == GgufValueType::f32) return as<float>(found->bits);
  if (type == GgufValueType::f64) return as<double>(found->bits);
  if (type == GgufValueType::boolean) return found->bits ? 1.0 : 0.0;
  const auto number = whole(type, found->bits);
  if (!number) refuse(key, *found, "a number");
  return static_cast<double>(*number);
}

void GgufFile::not_offered(std::string_view key, std::string_view allowed) const {
  const GgufValue* found = value(key);
  fail(ErrorCode::unsupported, "'{}': {} is {}, allowed is {}", label(), quoted_name(key), found ? shown(*found) : "missing", allowed);
}

const GgufValue& GgufFile::list(std::string_view key, std::string_view allowed) const {
  const GgufValue* found = value(key);
  if (!found) fail(ErrorCode::corrupt_file, "'{}': the metadata lacks {}", label(), quoted_name(key));
  if (static_cast<GgufValueType>(found->type) != GgufValueType::list) refuse(key, *found, allowed);
  return *found;
}

std::vector<std::string> GgufFile::texts(std::string_view key) const {
  const GgufValue& found = list(key, "a list of texts");
  if (static_cast<GgufValueType>(found.element) != GgufValueType::text) refuse(key, found, "a list of texts");
  std::vector<std::string> texts;
  GgufCursor cursor(source_, found.begin);
  for (std::uint64_t i = 0; i < found.count; ++i) texts.push_back(cursor.text());
  return texts;
}

std::vector<std::int32_t> GgufFile::integers(std::string_view key) const {
  constexpr std::string_view kAllowed = "a list of numbers of type i32 or u32, below 2147483648";
  const GgufValue& found = list(key, kAllowed);
  const auto element = static_cast<GgufValueType>(found.element);
  if (element != GgufValueType::i32 && element != GgufValueType::u32) refuse(key, found, kAllowed);
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(found.count));
  source_.read(found.begin, numbers.data(), numbers.size() * 4);
  if (element == GgufValueType::u32 && std::any_of(numbers.begin(), numbers.end(), [](std::int32_t n) { return n < 0; })) refuse(key, found, kAllowed);
  return numbers;
}

std::vector<float> GgufFile::numbers(std::string_view key) const {
  constexpr std::string_view kAllowed = "a list of finite numbers of type f32";
  const GgufValue& found = list(key, kAllowed);
  if (static_cast<GgufValueType>(found.element) != GgufValueType::f32) refuse(key, found, kAllowed);
  std::vector<float> numbers(static_cast<std::size_t>(found.count));
  source_.read(found.begin, numbers.data(), numbers.size() * 4);
  if (!std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); })) refuse(key, found, kAllowed);
  return numbers;
}

void GgufFile::read(const GgufTensor& t, std::span<float> values, std::int64_t first) const {
  const std::int64_t block = t.type->block_values, count = static_cast<std::int64_t>(values.size());
  if (first < 0 || first > t.elements() || count > t.elements() - first || first % block || count % block)
    fail(ErrorCode::internal, "'{}': elements {} to {} of tensor {} were asked for, it has {} in blocks of {}", label(), first, first + count,
         quoted_name(t.name), t.elements(), block);
  std::vector<std::uint8_t> bytes(
      static_cast<std::size_t>(std::min(count / block, std::max<std::int64_t>(1, kDecodedAtOnce / t.type->block_bytes)) * t.type->block_bytes));
  const std::int64_t at_once = bytes.empty() ? 0 : static_cast<std::int64_t>(bytes.size()) / t.type->block_bytes;
  for (std::int64_t done = 0; done < count / block;) {
    const std::int64_t blocks = std::min(at_once, count / block - done);
    source_.read(t.begin + static_cast<std::uint64_t>((first / block + done) * t.type->block_bytes), bytes.data(),
                 static_cast<std::size_t>(blocks * t.type->block_bytes));
    t.type->decode(bytes.data(), values.data() + done * block, blocks);
    done += blocks;
  }
}

}  // namespace lockstep
