#include "sync/tensor_codec.h"

#include <algorithm>
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
class ChangesDecoder {
 public:
  ChangesDecoder(int width, std::string_view payload, std::int64_t elements) : width_(static_cast<std::size_t>(width)), gaps_(std::string_view()) {
    VarintReader in(payload);
    left_ = count_ = in.next();
    gaps_ = VarintReader(in.take(in.next()));
    if (count_ > static_cast<std::uint64_t>(elements) || in.left() != count_ * width_)
      fail(ErrorCode::corrupt_file, "{} changes of {} elements have {} bytes of new words", count_, elements, in.left());
    words_ = in.take(in.left()).data();
    if (left_ > 0) wait_ = gaps_.next();
  }
  void next(const char* old_words, std::size_t elements, char* to) {
    if (to != old_words) std::memcpy(to, old_words, elements * width_);
    std::size_t at = 0;
    while (left_ > 0 && wait_ < elements - at) {
      at += wait_;
      std::memcpy(to + at * width_, words_, width_);
      words_ += width_;
      ++at;
      if (--left_ > 0) wait_ = gaps_.next();
    }
    if (left_ > 0) wait_ -= elements - at;
  }
  void finish() const {
    if (left_ > 0) fail(ErrorCode::corrupt_file, "change {} of {} stands behind the tensor's end", count_ - left_, count_);
    if (gaps_.left() != 0) fail(ErrorCode::corrupt_file, "{} bytes follow the last gap", gaps_.left());
  }

 private:
  const std::size_t width_;
  std::uint64_t count_ = 0, left_ = 0, wait_ = 0;  // wait: unchanged elements before the next change
  VarintReader gaps_;
  const char* words_ = nullptr;
};
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
  if (!sparse || sparse->changed > elements / kFewChanges) offer(TensorCodec::planes, encode_planes(kind, old_bytes->data(), new_bytes.data(), elements));
  if (sparse) {
    best.changed = sparse->changed;
    offer(TensorCodec::sparse, std::move(sparse->bytes));
  }
  return best;
}

EncodedTensor encode_tensor(SafetensorsType type, std::string_view old_bytes, const ElementChanges& changes) {
  const ElementKind kind = element_kind(type);
  if (changes.positions.empty()) return {TensorCodec::same, {}, 0};
  const auto elements = static_cast<std::int64_t>(old_bytes.size()) / std::max(kind.width, 1);
  if (kind.width == 0 || std::ssize(changes.positions) > elements / kFewChanges)
    fail(ErrorCode::internal, "{} of {} elements are no few changes", changes.positions.size(), elements);
  auto sparse = encode_sparse(kind, old_bytes.data(), changes, elements);
  if (sparse->bytes.size() > old_bytes.size()) return {TensorCodec::full, {}, sparse->changed};
  return {TensorCodec::sparse, std::move(sparse->bytes), sparse->changed};
}

struct TensorDecoder::State {
  TensorCodec codec;
  ElementKind kind;
  std::string_view payload;
  std::uint64_t bytes = 0, at = 0;
  std::optional<SparseDecoder> sparse;
  std::optional<PlanesDecoder> planes;
  std::optional<ChangesDecoder> changes;
};

TensorDecoder::~TensorDecoder() = default;
TensorDecoder::TensorDecoder(TensorDecoder&&) noexcept = default;

TensorDecoder::TensorDecoder(TensorCodec codec, SafetensorsType type, std::string_view payload, std::uint64_t bytes)
    : state_(new State{codec, element_kind(type), payload, bytes, 0, {}, {}, {}}) {
  State& s = *state_;
  if (codec == TensorCodec::full) {
    if (payload.size() != bytes) fail(ErrorCode::corrupt_file, "the full payload has {} bytes, the tensor {}", payload.size(), bytes);
    return;
  }
  if (codec == TensorCodec::same) {
    if (!payload.empty()) fail(ErrorCode::corrupt_file, "the payload of an unchanged tensor has {} bytes, allowed are none", payload.size());
    return;
  }
  if (s.kind.width == 0) fail(ErrorCode::corrupt_file, "{} has the codec {}, allowed are same and full", safetensors_type_name(type), codec_name(codec));
  const auto elements = static_cast<std::int64_t>(bytes) / s.kind.width;
  if (codec == TensorCodec::changes) s.changes.emplace(s.kind.width, payload, elements);
  else if (codec == TensorCodec::sparse) s.sparse.emplace(s.kind, payload, elements);
  else s.planes.emplace(s.kind, payload);
}

void TensorDecoder::next(const char* old_bytes, std::size_t bytes, char* to) {
  State& s = *state_;
  const auto elements = static_cast<std::int64_t>(bytes) / std::max(s.kind.width, 1);
  if (s.sparse) s.sparse->next(old_bytes, elements, to);
  else if (s.planes) s.planes->next(old_bytes, elements, to);
  else if (s.changes) s.changes->next(old_bytes, static_cast<std::size_t>(elements), to);
  else if (s.codec == TensorCodec::full) std::memcpy(to, s.payload.data() + s.at, bytes);
  else if (to != old_bytes) std::memcpy(to, old_bytes, bytes);
  s.at += bytes;
}

void TensorDecoder::finish() {
  if (state_->at != state_->bytes) fail(ErrorCode::internal, "{} of {} bytes of a tensor were decoded", state_->at, state_->bytes);
  if (state_->sparse) state_->sparse->finish();
  else if (state_->planes) state_->planes->finish();
  else if (state_->changes) state_->changes->finish();
}

void decode_tensor(TensorCodec codec, SafetensorsType type, std::string_view payload, std::string_view old_bytes, std::string& to) {
  if (codec != TensorCodec::full && old_bytes.size() != to.size())
    fail(ErrorCode::corrupt_file, "the parent's tensor has {} bytes, this one {}", old_bytes.size(), to.size());
  TensorDecoder decoder(codec, type, payload, to.size());
  decoder.next(old_bytes.data(), to.size(), to.data());
  decoder.finish();
}

}  // namespace lockstep
