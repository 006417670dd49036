// Reads and writes the safetensors format (https://github.com/huggingface/safetensors): 8 bytes N little-endian, N bytes of JSON
// header, then the tensors' bytes.
//   const SafetensorsFile file = SafetensorsFile::open("model.safetensors");
//   file.read(file.tensor("lm_head.weight"), values);
// The reader trusts nothing: every fault of a file is one Error corrupt_file naming file, tensor and value; no bytes make it crash or
// allocate more than the file's size warrants. Knows nothing of models. Several threads may read a SafetensorsFile; a writer belongs to one.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/byte_file.h"
#include "checkpoint/tensor_file.h"

namespace lockstep {

// A header longer than this is refused (as by the reference library).
inline constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

class SafetensorsFile final : public TensorFile {
 public:
  // Reads and checks the header. Errors: not_found, io, corrupt_file, unsupported (a type of less than 8 bits).
  static SafetensorsFile open(const std::filesystem::path& path);
  // The same over bytes in memory; `label` stands for the path in messages.
  static SafetensorsFile from_bytes(std::string bytes, std::string label);

  const std::string& label() const override { return source_.label(); }
  std::uint64_t bytes() const { return source_.size(); }                               // of the file
  const std::vector<SafetensorsTensor>& tensors() const override { return tensors_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const SafetensorsTensor* find(std::string_view name) const override;
  const SafetensorsTensor& tensor(std::string_view name) const;  // Error not_found, with the nearest name
  std::string format() const override { return "safetensors"; }
  void count_types(StoredTypes& types) const override;

  // F32, BF16, F16 and F8_E4M3; others: Error unsupported.
  void read(const SafetensorsTensor& tensor, std::span<float> values, std::int64_t first = 0) const override;
  std::vector<float> read(const SafetensorsTensor& tensor) const { return read_all(tensor); }
  void read_bytes(const SafetensorsTensor& tensor, std::span<std::uint8_t> bytes, std::uint64_t first = 0) const override;
  std::vector<std::int64_t> read_integers(const SafetensorsTensor& tensor) const override;
  std::string sha256() const;  // of the whole file

 private:
  explicit SafetensorsFile(ByteFile source);
  void read_header();
  void check_offsets(std::uint64_t data_bytes);

  ByteFile source_;
  std::uint64_t data_at_ = 0;
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::unordered_map<std::string_view, std::size_t> index_;  // views into tensors_
};

// The destination of a writer's bytes.
using ByteSink = std::function<void(const void*, std::size_t)>;

// Writes a file front to back: the header at construction, then each tensor of entries() by write(). The bytes are
// those of the reference library for the same tensors (sorted by type, widest first, then by name).
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    SafetensorsType type = SafetensorsType::f32;  // f32 or bf16; f16, i32 or i64, given as bytes
    std::vector<std::int64_t> shape;
    std::int64_t elements() const;
  };
  // Errors: internal for a name twice, a type that is not offered, a negative size.
  SafetensorsWriter(ByteSink sink, std::vector<Entry> entries, const std::vector<std::pair<std::string, std::string>>& metadata = {{"format", "pt"}});
  const std::vector<Entry>& entries() const { return entries_; }  // in the order they must be written
  // The next entry's values, rounded to its type (bf16: nearest even).
  void write(std::span<const float> values);
  // The next entry's bytes, as they are to be stored.
  void write_bytes(const void* data, std::size_t bytes);
  void finish();  // Error internal when entries are missing

 private:
  ByteSink sink_;
  std::vector<Entry> entries_;
  std::size_t next_ = 0;
};

}  // namespace lockstep
