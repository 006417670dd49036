// For tests of training in few bits: data, and compute copies to compare.
//   const std::vector<TrainSequence> data = low_bit_data(m);   EXPECT_TRUE(copied(backend, *trainer.weights()) == copied(backend, *made));
#pragma once
#include <cstdint>
#include <vector>

#include "engine/engine_test_tools.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {

// Three texts of 32, 52 and 72 random tokens.
inline std::vector<TrainSequence> low_bit_data(const TrainBench& m) {
  std::vector<TrainSequence> data;
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    RandomSequence draws(seed, RandomStream::fuzz);
    data.push_back(TrainSequence::next_token(random_tokens(draws, static_cast<std::int64_t>(12 + 20 * seed), m.model->facts().vocabulary)));
  }
  return data;
}

// Compute copies: the bytes of quantised parameters, the numbers of others.
struct CopiedWeights {
  std::vector<std::vector<std::uint8_t>> bytes;
  WeightImages numbers;
  bool operator==(const CopiedWeights&) const = default;
};
inline CopiedWeights copied(Backend& backend, const WeightSet& weights) {
  CopiedWeights all;
  for (const Buffer& buffer : weights.parameters) {
    const bool few_bits = buffer.view().dtype == DType::u8;
    all.bytes.push_back(few_bits ? backend.stream().read_bytes(buffer.view()).get() : std::vector<std::uint8_t>());
    all.numbers.push_back(few_bits ? std::vector<float>() : backend.stream().read(buffer.view()).get());
  }
  return all;
}

}  // namespace lockstep
