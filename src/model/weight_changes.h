// Changes of some elements of a model's compute copies: from positions in a file's tensors, as snapshots name them, to places in device memory, and there
// (kernels/changes). The values of all other elements are neither read nor made: there is no fp32 image of anything. Knows no file and no store.
//   std::map<ParameterId, ParameterChanges> changes;
//   add_changes(manifest, profile, file_tensor, DType::bf16, positions, bits, changes);
//   for (const auto& [id, some] : changes) write_changes(backend, buffers[id], some);
// Any thread but for write_changes and read_bits, which are the device's.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/weights.h"

namespace lockstep {

class Sharding;

// New bits of elements of one parameter's compute copy, by their offset in its memory (Parameter::offset), each at most once.
class ParameterChanges {
 public:
  struct Block {
    std::int64_t first = 0;  // offset that `offsets` count from
    std::vector<std::int32_t> offsets, bits;
  };
  void add(std::int64_t offset, std::uint32_t bits);
  const std::vector<Block>& blocks() const { return blocks_; }
  std::int64_t count() const;
  // Calls f(offset, bits) for each.
  template <class F>
  void each(const F& f) const {
    for (const Block& block : blocks_)
      for (std::size_t i = 0; i < block.offsets.size(); ++i) f(block.first + block.offsets[i], static_cast<std::uint32_t>(block.bits[i]));
  }

 private:
  std::vector<Block> blocks_;
  std::size_t open_ = 0;
};

// How one set of weights differs from another (WeightSet::changes).
struct WeightChanges {
  std::uint64_t from = 0;  // identity of the other
  bool in_place = false;   // the other's memory was written: nobody uses it any more
  std::map<ParameterId, ParameterChanges> parameters;
  std::int64_t count() const;
};

// Adds what follows for the compute copies when a tensor of a file gets new elements: at `positions` of its row-major order, ascending, the `bits` of
// type `type` (f32 or bf16), which are widened or rounded where a compute copy has the other type. Errors, before anything is added: invalid_argument for
// a position that the tensor has not, or that does not follow the one before it; unsupported where a compute copy is quantised.
void add_changes(const Manifest& manifest, const Profile& profile, const FileTensor& file, DType type, std::span<const std::int64_t> positions,
                 std::span<const std::uint32_t> bits, std::map<ParameterId, ParameterChanges>& to);
// Those of them that are in a rank's share of the parameter, by their places there.
ParameterChanges share_of(const Manifest& whole, const Sharding& sharding, ParameterId id, const ParameterChanges& changes);
// Writes them into a compute copy, or a rank's share of one.
void write_changes(Backend& backend, const Buffer& copy, const ParameterChanges& changes);

// The bits of a compute copy's elements as they stand in device memory; not of quantised ones.
struct ParameterBits {
  DType type = DType::f32;
  std::vector<std::int32_t> words;  // the memory's bytes, the last word filled up
};
ParameterBits read_bits(Backend& backend, const Buffer& copy);

}  // namespace lockstep
