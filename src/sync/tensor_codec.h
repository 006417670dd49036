// Encodes one tensor of a snapshot: relative to the parent's tensor (`same`, `sparse`, `planes`) or whole (`full`), whichever is smallest. The same
// pair gives the same codec and bytes on every machine. A payload comes from strangers: every number in it is checked. Pure functions.
//   const EncodedTensor encoded = encode_tensor(SafetensorsType::bf16, old_bytes, new_bytes);
//   decode_tensor(encoded.codec, SafetensorsType::bf16, encoded.payload, old_bytes, to);
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/tensor_file.h"

namespace lockstep {

// `changes` is what simple publishers write (python/lockstep/_publish.py): it is read, and encode_tensor does not choose it.
enum class TensorCodec : std::uint8_t { same, sparse, planes, full, changes };
std::string_view codec_name(TensorCodec codec);
std::optional<TensorCodec> codec_named(std::string_view name);

struct EncodedTensor {
  TensorCodec codec = TensorCodec::full;
  std::string payload;        // empty for `same`, and for `full`, whose payload is the tensor itself
  std::int64_t changed = -1;  // elements; -1: not counted
};
// Row-major bytes as in a safetensors file. Without old ones, or with as many bytes as the new ones have not: `full`.
EncodedTensor encode_tensor(SafetensorsType type, std::optional<std::string_view> old_bytes, std::string_view new_bytes);
// The same where the changes are known, no more than one element in kFewChanges: the same codec and bytes.
struct ElementChanges;
inline constexpr std::int64_t kFewChanges = 16;
EncodedTensor encode_tensor(SafetensorsType type, std::string_view old_bytes, const ElementChanges& changes);

// Writes the new bytes to `to`, which has as many. `old_bytes`: not used by `full`; may be `to` itself. Error corrupt_file; `to` then holds anything.
void decode_tensor(TensorCodec codec, SafetensorsType type, std::string_view payload, std::string_view old_bytes, std::string& to);

// The same part by part. Error corrupt_file, of all; what was written then is anything.
class TensorDecoder {
 public:
  // `bytes`: of the tensor. `payload` outlives it.
  TensorDecoder(TensorCodec codec, SafetensorsType type, std::string_view payload, std::uint64_t bytes);
  ~TensorDecoder();
  TensorDecoder(TensorDecoder&&) noexcept;
  // The next `bytes` bytes: of a multiple of 256 elements, unless they are the last. `to`: `old_bytes` itself, or apart
  // from it; `full` does not use the old ones.
  void next(const char* old_bytes, std::size_t bytes, char* to);
  void finish();  // after the last of them

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
