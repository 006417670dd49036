// The safetensors file format (https://github.com/huggingface/safetensors): 8 bytes N little-endian, N bytes of JSON
// header, then the tensors' bytes. The reader trusts nothing: every fault of a file is one Error corrupt_file naming
// file, tensor and value; no bytes make it crash or allocate more than the file's size warrants. Knows nothing of
// models. A SafetensorsFile may be read by many threads; a writer belongs to one.
//   const SafetensorsFile file = SafetensorsFile::open("model.safetensors");
//   file.read(file.tensor("lm_head.weight"), values);
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {

// In the order of the reference library, by which it sorts the tensors of a file (widest first).
enum class SafetensorsType : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};
std::string_view safetensors_type_name(SafetensorsType type);  // "F32"
std::int64_t safetensors_type_bytes(SafetensorsType type);

// A header longer than this is refused (as by the reference library).
inline constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the end of the header
  std::int64_t elements() const { return static_cast<std::int64_t>(end - begin) / safetensors_type_bytes(type); }
};

// "[3, 4]", for messages.
std::string shape_text(const std::vector<std::int64_t>& shape);
// A name from a file, for messages: in quotes, control characters escaped, at most 120 characters of it.
std::string quoted_name(std::string_view name);

class SafetensorsFile {
 public:
  // Reads and checks the header. Errors: not_found, io, corrupt_file, unsupported (a type of less than 8 bits).
  static SafetensorsFile open(const std::filesystem::path& path);
  // The same over bytes in memory; `label` stands for the path in messages.
  static SafetensorsFile from_bytes(std::string bytes, std::string label);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& label() const { return label_; }
  std::uint64_t bytes() const { return bytes_; }                              // of the file
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsTensor* find(std::string_view name) const;    // nullptr: not there
  const SafetensorsTensor& tensor(std::string_view name) const;  // Error not_found, with the nearest name

  // Elements [first, first + values.size()) in row-major order, widened exactly. F32, BF16, F16; others: Error
  // unsupported.
  void read(const SafetensorsTensor& tensor, std::span<float> values, std::int64_t first = 0) const;
  std::vector<float> read(const SafetensorsTensor& tensor) const;
  // I32 and I64 only.
  std::vector<std::int64_t> read_integers(const SafetensorsTensor& tensor) const;
  std::string sha256() const;  // of the whole file

 private:
  struct Source;
  SafetensorsFile(std::unique_ptr<Source> source, std::string label);
  void read_header();
  void check_offsets(std::uint64_t data_bytes);

  std::unique_ptr<Source> source_;
  std::string label_;
  std::uint64_t bytes_ = 0, data_at_ = 0;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views into tensors_
};

// Where a writer's bytes go.
using ByteSink = std::function<void(const void*, std::size_t)>;

// Writes a file front to back: the header at construction, then each tensor of entries() by write(). The bytes are
// those of the reference library for the same tensors (sorted by type, widest first, then by name).
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    SafetensorsType type = SafetensorsType::f32;  // f32 or bf16
    std::vector<std::int64_t> shape;
    std::int64_t elements() const;
  };
  // Errors: internal for a name twice, a type that is not offered, a negative size.
  SafetensorsWriter(ByteSink sink, std::vector<Entry> entries,
                    const std::vector<std::pair<std::string, std::string>>& metadata = {{"format", "pt"}});
  const std::vector<Entry>& entries() const { return entries_; }  // in the order they must be written
  // The next entry's values, rounded to its type (bf16: nearest even).
  void write(std::span<const float> values);
  void finish();  // Error internal when entries are missing

 private:
  ByteSink sink_;
  std::vector<Entry> entries_;
  std::size_t next_ = 0;
};

}  // namespace lockstep
