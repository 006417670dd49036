// Parses the header of a GGUF file front to back, for GgufFile. Knows no key.
//   const GgufHeader header = read_gguf_header(ByteFile::open("model.gguf")); header.metadata.find("general.architecture")->second.text;
#pragma once
#include "checkpoint/gguf_file.h"

namespace lockstep {

// Types of metadata values, as files number them.
enum class GgufValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, list, u64, i64, f64 };
inline constexpr std::uint32_t kGgufValueTypes = 13;
// Bytes of one value: of a text or a list those of its length.
std::uint64_t gguf_value_bytes(GgufValueType type);
std::string_view gguf_value_name(GgufValueType type);  // "u32", "text"

struct GgufHeader {
  std::uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  // `begin` from the start of the data
  std::uint64_t end = 0;
};

// Errors as GgufFile::open.
GgufHeader read_gguf_header(const ByteFile& source);

// Numbers and texts one after another, from a position on, each checked against the file's end.
class GgufCursor {
 public:
  GgufCursor(const ByteFile& source, std::uint64_t at) : source_(source), at_(at) {}
  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return source_.size() - at_; }
  template <class T>
  T take() {
    T value;
    read(&value, sizeof(T));
    return value;
  }
  std::string text();
  void skip(std::uint64_t bytes);

 private:
  void read(void* to, std::size_t bytes);

  const ByteFile& source_;
  std::uint64_t at_;
  std::string block_;           // what was read ahead,
  std::uint64_t block_at_ = 0;  // from there on
};

}  // namespace lockstep
