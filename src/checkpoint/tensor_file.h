// The interface of a file of named tensors: safetensors, or a GGUF file's tensors by their Hugging Face names. Several threads may read.
//   if (const SafetensorsTensor* tensor = file.find("lm_head.weight")) file.read(*tensor, values);
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// In the order by which the reference library sorts a file's tensors (widest first).
enum class SafetensorsType : std::uint8_t { boolean, u8, i8, f8_e5m2, f8_e4m3, f8_e8m0, i16, u16, f16, bf16, i32, u32, f32, c64, f64, i64, u64 };
std::string_view safetensors_type_name(SafetensorsType type);  // "F32"
std::int64_t safetensors_type_bytes(SafetensorsType type);

struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the end of the header; what is decoded from another format: as if it stood there alone
  std::int64_t elements() const { return static_cast<std::int64_t>(end - begin) / safetensors_type_bytes(type); }
};

// "[3, 4]", for messages.
std::string shape_text(const std::vector<std::int64_t>& shape);
// A name from a file, for messages: in quotes, control characters escaped, at most 120 characters of it.
std::string quoted_name(std::string_view name);

// How the tensors of one type are stored, for reports.
struct StoredType {
  std::string name;          // "BF16", "Q4_K"
  double bits_a_weight = 0;  // scales included
  std::int64_t tensors = 0, weights = 0;
};
using StoredTypes = std::map<std::string, StoredType>;  // by name

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  virtual const std::string& label() const = 0;  // path, for messages
  virtual const std::vector<SafetensorsTensor>& tensors() const = 0;
  virtual const SafetensorsTensor* find(std::string_view name) const = 0;  // nullptr: not there
  // Elements [first, first + values.size()) in row-major order, widened exactly. Error unsupported for a type that is no floating-point number.
  virtual void read(const SafetensorsTensor& tensor, std::span<float> values, std::int64_t first = 0) const = 0;
  // The bytes [first, first + bytes.size()) of a tensor as they are stored. Error unsupported where they are decoded from another format.
  virtual void read_bytes(const SafetensorsTensor& tensor, std::span<std::uint8_t> bytes, std::uint64_t first = 0) const = 0;
  // All values of a tensor of integers, I32 or I64; others: Error unsupported.
  virtual std::vector<std::int64_t> read_integers(const SafetensorsTensor& tensor) const = 0;
  virtual std::string format() const = 0;  // "safetensors", "GGUF version 3"
  virtual void count_types(StoredTypes& types) const = 0;

  std::vector<float> read_all(const SafetensorsTensor& tensor) const {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    read(tensor, values);
    return values;
  }
};

}  // namespace lockstep
