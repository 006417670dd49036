// The codec `planes` of snapshots, for tensors of which most elements changed (fp32 after a training step). Each element's step is Rice coded, with a
// parameter that adapts per old exponent; quotients go to one stream of bits, remainders to another. docs/weight-sync.md has the format. Pure
// functions.
//   const std::string payload = encode_planes(kind, old_words, new_words, n); decode_planes(kind, payload, old_words, n, to);
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "sync/element.h"

namespace lockstep {

std::string encode_planes(const ElementKind& kind, const void* old_words, const void* new_words, std::int64_t elements);
// As decode_sparse. Error corrupt_file.
void decode_planes(const ElementKind& kind, std::string_view payload, const void* old_words, std::int64_t elements, void* to);

}  // namespace lockstep
