// The sampling parameters of each row, uploaded for the sampling kernel. A token and a draft of it use the same row, so they are drawn with the same
// noise. Used by one thread.
//   DrawTable table; table.add(row, sequence.sampling, position); table.upload(backend); Sample sample = table.sample(0, 1, logits);
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

#include "base/philox.h"
#include "engine/request.h"
#include "kernels/backend.h"
#include "kernels/sample/sample.h"

namespace lockstep {

// The last word of a counter (docs/numerics.md section 6): the stream in its low 8 bits, the attempt above them.
inline std::uint32_t noise_word(RandomStream stream, const SamplingParameters& s) {
  return static_cast<std::uint32_t>(stream) | static_cast<std::uint32_t>(s.attempt) << 8;
}

class DrawTable {
 public:
  // The token of `position`, from what stands in row `hidden` of the hidden states.
  void add(std::int64_t hidden, const SamplingParameters& s, std::int64_t position, RandomStream stream = RandomStream::sampling) {
    const auto seed_low = static_cast<std::uint32_t>(s.seed), seed_high = static_cast<std::uint32_t>(s.seed >> 32);
    for (const std::int32_t value :
         {static_cast<std::int32_t>(hidden), s.top_k, s.sample_index, static_cast<std::int32_t>(position), std::bit_cast<std::int32_t>(seed_low),
          std::bit_cast<std::int32_t>(seed_high), static_cast<std::int32_t>(noise_word(stream, s))})
      integers_.push_back(value);
    for (const float value : {s.temperature, s.top_p}) numbers_.push_back(value);
  }
  std::int64_t rows() const { return static_cast<std::int64_t>(integers_.size()) / kIntegers; }
  // Before what follows.
  void upload(Backend& backend) {
    uploaded_integers_ = backend.device().upload(integers_, rows(), kIntegers, MemoryCategory::activations);
    uploaded_numbers_ = backend.device().upload(numbers_, rows(), kNumbers, MemoryCategory::activations);
  }
  // Of rows [begin, begin + count) where their hidden states stand.
  View hidden(std::int64_t begin, std::int64_t count) const { return integers(begin, count, 0, 1); }
  // Of those rows what is drawn with, and from; what is told of them is the caller's to name.
  Sample sample(std::int64_t begin, std::int64_t count, const View& logits) const {
    const View numbers = uploaded_numbers_.view().row_range(begin, count);
    Sample sample;
    sample.logits = logits;
    sample.temperature = numbers.column_range(0, 1);
    sample.top_p = numbers.column_range(1, 1);
    sample.top_k = integers(begin, count, 1, 1);
    sample.sample = integers(begin, count, 2, 1);
    sample.position = integers(begin, count, 3, 1);
    sample.seed = integers(begin, count, 4, 2);
    sample.stream = integers(begin, count, 6, 1);
    return sample;
  }

 private:
  static constexpr std::int64_t kIntegers = 7, kNumbers = 2;
  View integers(std::int64_t begin, std::int64_t count, std::int64_t column, std::int64_t columns) const {
    return uploaded_integers_.view().row_range(begin, count).column_range(column, columns);
  }

  std::vector<std::int32_t> integers_;  // of a row: its row in the hidden states, top_k, sample, position, seed low, seed high, noise_word
  std::vector<float> numbers_;          // temperature, top_p
  Buffer uploaded_integers_, uploaded_numbers_;
};

}  // namespace lockstep
