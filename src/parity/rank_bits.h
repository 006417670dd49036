// What a machine computes, operation by operation, as digests that can be compared with another machine's: forward, gradient and optimizer step of the
// self-test's tiny model under each profile that trains all weights of one with an indexer.
//   const std::vector<OperationDigest> mine = operation_digests(widest_instruction_set(), 2);
// Needs no file; a second or less. Used by one thread at a time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/runtime.h"

namespace lockstep {

struct OperationDigest {
  std::string what;  // "cpu-bf16w forward, layer 2: linear model.layers.2.self_attn.o_proj.weight"
  std::uint64_t digest = 0;
  bool operator==(const OperationDigest&) const = default;
};

// In the order in which they are computed: the first one that differs is where another machine's bits begin to differ. The list's length and names are
// the same everywhere. Error unsupported for an instruction set that this machine lacks.
std::vector<OperationDigest> operation_digests(InstructionSet isa, int threads);
// One digest of them all: 16 hex digits.
std::string bits_digest(const std::vector<OperationDigest>& operations);

}  // namespace lockstep
