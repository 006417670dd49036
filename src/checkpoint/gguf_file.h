// Reads a GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3: metadata by key, then tensors.
//   const GgufFile file = GgufFile::open("model.gguf"); file.integer("llama.block_count", 1, 4096);
//   file.read(*file.find("token_embd.weight"), values);
// The reader trusts nothing: every fault of a file is one Error naming file, key or tensor, value and what is allowed; no bytes make it crash
// or allocate more than the file's size warrants. Lists in the metadata are checked at once and read when they are asked for. Knows nothing of
// models. Several threads may read.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/byte_file.h"
#include "checkpoint/gguf_types.h"

namespace lockstep {

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;
  std::vector<std::int64_t> shape;     // outermost first, as in safetensors; the file has them the other way round
  std::uint64_t begin = 0, bytes = 0;  // begin: in the file
  std::int64_t elements() const;
};

// One metadata value, of one of the format's types.
struct GgufValue {
  std::uint32_t type = 0, element = 0;  // element: type of a list's entries
  std::uint64_t bits = 0;               // a number's or a truth value's, in the low bytes
  std::string text;
  std::uint64_t begin = 0, count = 0;  // of a list: where its entries begin, how many there are
};

class GgufFile {
 public:
  // Errors: not_found, io; corrupt_file; unsupported for a version, a type of tensors, a file in parts, or big-endian numbers.
  static GgufFile open(const std::filesystem::path& path);
  static GgufFile from_bytes(std::string bytes, std::string label);

  const std::string& label() const { return source_.label(); }
  std::uint32_t version() const { return version_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in the order of the file
  const GgufTensor* find(std::string_view name) const;

  // Metadata by key. Without the key: nothing, or `otherwise`, or, where the result is no optional, Error corrupt_file, as for a value of
  // another type or out of range.
  bool has(std::string_view key) const { return value(key) != nullptr; }
  std::string text(std::string_view key) const;
  std::optional<std::string> text_if(std::string_view key) const;
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  std::optional<std::int64_t> integer_if(std::string_view key, std::int64_t low, std::int64_t high) const;
  std::optional<float> number_if(std::string_view key) const;  // finite
  bool flag(std::string_view key, bool otherwise) const;
  // A number of any type, or 1 and 0 for true and false.
  std::optional<double> scalar_if(std::string_view key) const;
  // Error unsupported for the value that stands under this key.
  [[noreturn]] void not_offered(std::string_view key, std::string_view allowed) const;
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<std::int32_t> integers(std::string_view key) const;
  std::vector<float> numbers(std::string_view key) const;

  // Elements [first, first + values.size()) in row-major order, decoded. Both ends stand between blocks of the tensor's type.
  void read(const GgufTensor& tensor, std::span<float> values, std::int64_t first = 0) const;

 private:
  explicit GgufFile(ByteFile source);
  const GgufValue* value(std::string_view key) const;
  const GgufValue& list(std::string_view key, std::string_view allowed) const;
  [[noreturn]] void refuse(std::string_view key, const GgufValue& value, std::string_view allowed) const;
  void place_tensors(std::uint64_t header_end);

  ByteFile source_;
  std::uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views into tensors_
};

}  // namespace lockstep
