#include "checkpoint/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "base/lfs_pointer.h"
#include "checkpoint/tensor_file.h"

namespace lockstep {
static_assert(std::endian::native == std::endian::little, "GGUF is little-endian, and read as it lies");

namespace {
constexpr std::size_t kHeaderBlockBytes = std::size_t{1} << 16;
constexpr std::uint32_t kMostGgufDimensions = 4;
constexpr std::uint64_t kMostNameBytes = 65535;
// The fewest bytes that a key with its value takes, and a tensor's entry.
constexpr std::uint64_t kLeastKeyBytes = 8 + 4 + 1, kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;

struct ValueRow {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<ValueRow, kGgufValueTypes> kValues = {{{"u8", 1},
                                                            {"i8", 1},
                                                            {"u16", 2},
                                                            {"i16", 2},
                                                            {"u32", 4},
                                                            {"i32", 4},
                                                            {"f32", 4},
                                                            {"boolean", 1},
                                                            {"text", 8},
                                                            {"list", 12},
                                                            {"u64", 8},
                                                            {"i64", 8},
                                                            {"f64", 8}}};

class HeaderReader {
 public:
  explicit HeaderReader(const ByteFile& source) : source_(source), cursor_(source, 0) {}

  GgufHeader read() {
    const std::uint64_t tensors = read_counts();
    for (std::uint64_t i = 0; i < keys_; ++i) read_key();
    for (std::uint64_t i = 0; i < tensors; ++i) read_tensor();
    header_.end = cursor_.at();
    return std::move(header_);
  }

 private:
  template <class... A>
  [[noreturn]] void corrupt(fmt::format_string<A...> format, A&&... args) const {
    fail(ErrorCode::corrupt_file, "'{}': {}", source_.label(), fmt::format(format, std::forward<A>(args)...));
  }

  // The number of tensors; that of keys is kept.
  std::uint64_t read_counts() {
    std::string first(std::min<std::uint64_t>(source_.size(), kLfsPointer.size()), '\0');
    source_.read(0, first.data(), first.size());
    refuse_lfs_pointer(source_.label(), first);
    if (!first.starts_with("GGUF")) corrupt("the file does not begin with GGUF");
    cursor_.skip(4);
    header_.version = cursor_.take<std::uint32_t>();
    if (header_.version == 0x02000000 || header_.version == 0x03000000)
      fail(ErrorCode::unsupported, "'{}': the file's numbers are big-endian, allowed are little-endian ones", source_.label());
    if (header_.version != 2 && header_.version != 3)
      fail(ErrorCode::unsupported, "'{}': the GGUF version is {}, allowed are 2 and 3", source_.label(), header_.version);
    const auto tensors = cursor_.take<std::uint64_t>();
    keys_ = cursor_.take<std::uint64_t>();
    if (keys_ > cursor_.left() / kLeastKeyBytes || tensors > cursor_.left() / kLeastTensorBytes)
      corrupt("the header counts {} keys and {} tensors, and {} bytes follow", keys_, tensors, cursor_.left());
    return tensors;
  }

  void read_key() {
    std::string key = cursor_.text();
    if (key.empty() || key.size() > kMostNameBytes) corrupt("a key of the metadata has {} bytes, allowed is 1 to {}", key.size(), kMostNameBytes);
    GgufValue value = read_value(key);
    if (!header_.metadata.emplace(key, std::move(value)).second) corrupt("the metadata has {} twice", quoted_name(key));
  }

  GgufValueType value_type(const std::string& key) {
    const auto type = cursor_.take<std::uint32_t>();
    if (type >= kGgufValueTypes) corrupt("{} has a value of type {}, allowed are 0 to {}", quoted_name(key), type, kGgufValueTypes - 1);
    return static_cast<GgufValueType>(type);
  }

  GgufValue read_value(const std::string& key) {
    GgufValue value;
    const GgufValueType type = value_type(key);
    value.type = static_cast<std::uint32_t>(type);
    if (type == GgufValueType::text) {
      value.text = cursor_.text();
    } else if (type == GgufValueType::list) {
      read_list(key, value);
    } else {
      const std::uint64_t bytes = gguf_value_bytes(type);
      for (std::uint64_t i = 0; i < bytes; ++i) value.bits |= std::uint64_t{cursor_.take<std::uint8_t>()} << (8 * i);
      if (type == GgufValueType::boolean && value.bits > 1) corrupt("{} is the truth value {}, allowed are 0 and 1", quoted_name(key), value.bits);
    }
    return value;
  }

  void read_list(const std::string& key, GgufValue& value) {
    const GgufValueType element = value_type(key);
    if (element == GgufValueType::list)
      fail(ErrorCode::unsupported, "'{}': {} is a list of lists, allowed are lists of numbers or texts", source_.label(), quoted_name(key));
    value.element = static_cast<std::uint32_t>(element);
    value.count = cursor_.take<std::uint64_t>();
    value.begin = cursor_.at();
    if (value.count > cursor_.left() / gguf_value_bytes(element))
      corrupt("{} is a list of {} entries of at least {} bytes, and {} bytes follow", quoted_name(key), value.count, gguf_value_bytes(element), cursor_.left());
    if (element != GgufValueType::text) return cursor_.skip(value.count * gguf_value_bytes(element));
    for (std::uint64_t i = 0; i < value.count; ++i) {
      const auto length = cursor_.take<std::uint64_t>();
      cursor_.skip(length);
    }
  }

  void read_tensor() {
    GgufTensor tensor;
    tensor.name = cursor_.text();
    const std::string name = quoted_name(tensor.name);
    if (tensor.name.empty() || tensor.name.size() > kMostNameBytes)
      corrupt("a tensor's name has {} bytes, allowed is 1 to {}", tensor.name.size(), kMostNameBytes);
    if (!names_.insert(tensor.name).second) corrupt("the tensor {} is there twice", name);
    const auto dimensions = cursor_.take<std::uint32_t>();
    if (dimensions < 1 || dimensions > kMostGgufDimensions) corrupt("tensor {} has {} dimensions, allowed is 1 to {}", name, dimensions, kMostGgufDimensions);
    std::int64_t elements = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
      const auto size = cursor_.take<std::uint64_t>();
      if (size < 1 || size > static_cast<std::uint64_t>(INT64_MAX)) corrupt("tensor {} has the size {}, allowed is 1 to {}", name, size, INT64_MAX);
      if (__builtin_mul_overflow(elements, static_cast<std::int64_t>(size), &elements)) corrupt("tensor {} has more elements than 63 bits count", name);
      tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
    }
    const auto type = cursor_.take<std::uint32_t>();
    tensor.type = gguf_type(type);
    if (!tensor.type || !tensor.type->decode) {
      std::vector<std::string_view> read;
      for (const GgufType* other : readable_gguf_types()) read.push_back(other->name);
      fail(ErrorCode::unsupported, "'{}': tensor {} has the type {}, which is not read; read are {}", source_.label(), name,
           tensor.type ? std::string(tensor.type->name) : std::to_string(type), fmt::join(read, ", "));
    }
    if (tensor.shape.back() % tensor.type->block_values)
      corrupt("tensor {} is {} of shape {}, and its rows are no whole blocks of {} values", name, tensor.type->name, shape_text(tensor.shape),
              tensor.type->block_values);
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(elements / tensor.type->block_values), static_cast<std::uint64_t>(tensor.type->block_bytes),
                               &tensor.bytes))
      corrupt("tensor {} has the shape {}, whose bytes overflow 64 bits", name, shape_text(tensor.shape));
    tensor.begin = cursor_.take<std::uint64_t>();
    header_.tensors.push_back(std::move(tensor));
  }

  const ByteFile& source_;
  GgufCursor cursor_;
  GgufHeader header_;
  std::unordered_set<std::string> names_;
  std::uint64_t keys_ = 0;
};
}  // namespace

std::uint64_t gguf_value_bytes(GgufValueType type) { return kValues[static_cast<std::size_t>(type)].bytes; }
std::string_view gguf_value_name(GgufValueType type) { return kValues[static_cast<std::size_t>(type)].name; }

void GgufCursor::read(void* to, std::size_t bytes) {
  if (bytes > left()) fail(ErrorCode::corrupt_file, "'{}' is truncated: {} bytes are needed at {}, and {} follow", source_.label(), bytes, at_, left());
  if (at_ < block_at_ || at_ + bytes > block_at_ + block_.size()) {
    if (bytes > kHeaderBlockBytes) {
      source_.read(at_, to, bytes);
      at_ += bytes;
      return;
    }
    block_.resize(std::min<std::uint64_t>(kHeaderBlockBytes, left()));
    block_at_ = at_;
    source_.read(block_at_, block_.data(), block_.size());
  }
  std::memcpy(to, block_.data() + (at_ - block_at_), bytes);
  at_ += bytes;
}

void GgufCursor::skip(std::uint64_t bytes) {
  if (bytes > left()) fail(ErrorCode::corrupt_file, "'{}' is truncated: {} bytes are needed at {}, and {} follow", source_.label(), bytes, at_, left());
  at_ += bytes;
}

std::string GgufCursor::text() {
  const auto length = take<std::uint64_t>();
  if (length > left()) fail(ErrorCode::corrupt_file, "'{}' is truncated: a text of {} bytes begins at {}, and {} follow", source_.label(), length, at_, left());
  std::string text(static_cast<std::size_t>(length), '\0');
  read(text.data(), text.size());
  return text;
}

GgufHeader read_gguf_header(const ByteFile& source) { return HeaderReader(source).read(); }

}  // namespace lockstep
