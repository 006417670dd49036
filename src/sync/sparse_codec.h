// The codec `sparse` of snapshots: which elements of a tensor changed, and by how many steps of their type. Positions are gaps within classes of the
// old exponent (sync/class_scan.h), Rice coded; steps are a sign and a magnitude, mostly 1, with runs of ones as one number. Integers alone, so the
// same pair gives the same bytes everywhere. docs/weight-sync.md has the format. Pure functions.
//   const auto payload = encode_sparse(kind, before, after, n);   decode_sparse(kind, payload->bytes, before, n, to);
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sync/element.h"

namespace lockstep {

// Nothing when more than half of the elements changed.
struct SparsePayload {
  std::string bytes;
  std::int64_t changed = 0;
};
std::optional<SparsePayload> encode_sparse(const ElementKind& kind, const void* old_words, const void* new_words, std::int64_t elements);
// Writes the new words to `to`, which is `old_words` itself or apart from it. Error corrupt_file for any payload that the encoder does not write
// in its structure; `to` then holds anything.
void decode_sparse(const ElementKind& kind, std::string_view payload, const void* old_words, std::int64_t elements, void* to);

}  // namespace lockstep
