// The codec `sparse` of snapshots: which elements of a tensor changed, and by how many steps of their type. docs/weight-sync.md has the format.
//   const auto payload = encode_sparse(kind, old, new, n);   decode_sparse(kind, *payload, old, n, to);
// Positions are gaps within classes of the old exponent (class_scan.h), by Rice codes; steps are a sign and a magnitude, which is mostly 1: runs
// of ones are one number. Integers alone: the same pair gives the same bytes everywhere. Pure functions.
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
