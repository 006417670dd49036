// The codec `planes` of snapshots, for tensors of which most elements changed (fp32 after a step of training): the step of every element, as a
// Rice code whose parameter follows the steps of elements of the same old exponent; quotients stand in one plane of bits, remainders in another.
// docs/weight-sync.md has the format. Pure functions.
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
