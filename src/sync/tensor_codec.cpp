#include "sync/tensor_codec.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "sync/planes_codec.h"
#include "sync/sparse_codec.h"
#include "sync/varint.h"

namespace lockstep {
namespace {
constexpr std::array<std::string_view, 5> kNames = {"same", "sparse", "planes", "full", "changes"};

// The number of changes, the bytes of the gaps, a gap before each change, and the new words.
void decode_changes(int width, std::string_view payload, const void* old_words, std::int64_t elements, char* to) {
  VarintReader in(payload);
  const std::uint64_t count = in.next();
  VarintReader gaps(in.take(in.next()));
  const auto word_bytes = static_cast<std::size_t>(width);
  if (count > static_cast<std::uint64_t>(elements) || in.left() != count * word_bytes)
    fail(ErrorCode::corrupt_file, "{} changes of {} elements have {} bytes of new words", count, elements, in.left());
  const char* from = in.take(in.left()).data();
  const std::size_t bytes = static_cast<std::size_t>(elements) * word_bytes;
  if (to != old_words) std::memcpy(to, old_words, bytes);
  auto left = static_cast<std::uint64_t>(elements);
  for (std::uint64_t i = 0; i < count; ++i, from += word_bytes) {
    const std::uint64_t gap = gaps.next();
    if (gap >= left) fail(ErrorCode::corrupt_file, "change {} of {} stands behind the tensor's end", i, count);
    left -= gap + 1;
    std::memcpy(to + bytes - (left + 1) * word_bytes, from, word_bytes);
  }
  if (gaps.left() != 0) fail(ErrorCode::corrupt_file, "{} bytes follow the last gap", gaps.left());
}
}  // namespace

std::string_view codec_name(TensorCodec codec) { return kNames[static_cast<std::size_t>(codec)]; }

std::optional<TensorCodec> codec_named(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<TensorCodec>(i);
  return std::nullopt;
}

EncodedTensor encode_tensor(SafetensorsType type, std::optional<std::string_view> old_bytes, std::string_view new_bytes) {
  const ElementKind kind = element_kind(type);
  if (!old_bytes || old_bytes->size() != new_bytes.size()) return {};
  if (new_bytes.empty() || std::memcmp(old_bytes->data(), new_bytes.data(), new_bytes.size()) == 0) return {TensorCodec::same, {}, 0};
  if (kind.width == 0) return {};
  const auto elements = static_cast<std::int64_t>(new_bytes.size()) / kind.width;
  EncodedTensor best;
  std::size_t bytes = new_bytes.size();
  const auto offer = [&](TensorCodec codec, std::string payload) {  // from the last of the tie on: an equal one that is earlier replaces it
    if (payload.size() > bytes || payload.empty()) return;
    bytes = payload.size();
    best.codec = codec;
    best.payload = std::move(payload);
  };
  auto sparse = encode_sparse(kind, old_bytes->data(), new_bytes.data(), elements);
  if (!sparse || sparse->changed > elements / 16) offer(TensorCodec::planes, encode_planes(kind, old_bytes->data(), new_bytes.data(), elements));
  if (sparse) {
    best.changed = sparse->changed;
    offer(TensorCodec::sparse, std::move(sparse->bytes));
  }
  return best;
}

void decode_tensor(TensorCodec codec, SafetensorsType type, std::string_view payload, std::string_view old_bytes, std::string& to) {
  const ElementKind kind = element_kind(type);
  if (codec == TensorCodec::full) {
    if (payload.size() != to.size()) fail(ErrorCode::corrupt_file, "the full payload has {} bytes, the tensor {}", payload.size(), to.size());
    std::memcpy(to.data(), payload.data(), payload.size());
    return;
  }
  if (old_bytes.size() != to.size()) fail(ErrorCode::corrupt_file, "the parent's tensor has {} bytes, this one {}", old_bytes.size(), to.size());
  if (codec == TensorCodec::same) {
    if (!payload.empty()) fail(ErrorCode::corrupt_file, "the payload of an unchanged tensor has {} bytes, allowed are none", payload.size());
    if (to.data() != old_bytes.data()) std::memcpy(to.data(), old_bytes.data(), old_bytes.size());
    return;
  }
  if (kind.width == 0) fail(ErrorCode::corrupt_file, "{} has the codec {}, allowed are same and full", safetensors_type_name(type), codec_name(codec));
  const auto elements = static_cast<std::int64_t>(to.size()) / kind.width;
  if (codec == TensorCodec::changes) decode_changes(kind.width, payload, old_bytes.data(), elements, to.data());
  else if (codec == TensorCodec::sparse) decode_sparse(kind, payload, old_bytes.data(), elements, to.data());
  else decode_planes(kind, payload, old_bytes.data(), elements, to.data());
}

}  // namespace lockstep
