// The codec `sparse` of snapshots: which elements of a tensor changed, and by how many steps of their type. Positions are gaps within classes of the
// old exponent (sync/class_scan.h), Rice coded; steps are a sign and a magnitude, mostly 1, with runs of ones as one number. Integers alone, so the
// same pair gives the same bytes everywhere. docs/weight-sync.md has the format. Pure functions.
//   const auto payload = encode_sparse(kind, before, after, n);
//   SparseDecoder decoder(kind, payload->bytes, n);   decoder.next(before, n, to);   decoder.finish();
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "sync/element.h"
#include "sync/element_changes.h"

namespace lockstep {

// Nothing when more than half of the elements changed.
struct SparsePayload {
  std::string bytes;
  std::int64_t changed = 0;
};
std::optional<SparsePayload> encode_sparse(const ElementKind& kind, const void* old_words, const void* new_words, std::int64_t elements);
// The same payload where the changes are known: the new words need not be anywhere.
std::optional<SparsePayload> encode_sparse(const ElementKind& kind, const void* old_words, const ElementChanges& changes, std::int64_t elements);

// Error corrupt_file, of all, for any payload that the encoder does not write in its structure; what was written then is anything.
class SparseDecoder {
 public:
  // `payload` outlives it.
  SparseDecoder(const ElementKind& kind, std::string_view payload, std::int64_t elements);
  ~SparseDecoder();
  // The next `count` elements, a multiple of kClassGroup unless they are the last. `to`: `old_words` itself, or apart from it.
  void next(const void* old_words, std::int64_t count, void* to);
  void finish() const;  // after the last element

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
