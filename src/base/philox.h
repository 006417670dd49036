// Philox4x32-10, the counter-based random number generator used everywhere (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11). A
// value depends on (key, counter) alone: no state, any thread, any order.
//   RandomSequence random(seed, RandomStream::shuffle, 0); const double u = random.uniform();
#pragma once
#include <array>
#include <cstdint>

namespace lockstep {

struct Philox {
  using Words = std::array<std::uint32_t, 4>;

  static constexpr Words generate(std::uint64_t key, Words counter) {
    std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
      counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1), static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1,
                 static_cast<std::uint32_t>(p0)};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return counter;
  }
};

// The use of a random stream: the last counter word, so that no two uses share a number.
enum class RandomStream : std::uint32_t {
  weights = 0,
  sampling = 1,
  shuffle = 2,
  environment = 3,
  bootstrap = 4,
  fuzz = 5,
  draft = 6,       // of guesses that rejection sampling checks (docs/numerics.md section 6),
  acceptance = 7,  // whether one is taken,
  residual = 8     // and what is drawn in its place
};

// A sequence of draws from one (seed, stream, item): for host-side choices (data order, problems, fuzzing).
class RandomSequence {
 public:
  RandomSequence(std::uint64_t seed, RandomStream stream, std::uint64_t item = 0) : seed_(seed), stream_(stream), item_(item) {}
  std::uint32_t next() {
    if (used_ == 4) {
      words_ =
          Philox::generate(seed_, {block_++, static_cast<std::uint32_t>(item_), static_cast<std::uint32_t>(item_ >> 32), static_cast<std::uint32_t>(stream_)});
      used_ = 0;
    }
    return words_[used_++];
  }
  // Uniform in [0, bound), without bias; bound >= 1.
  std::uint32_t below(std::uint32_t bound) {
    const std::uint32_t limit = static_cast<std::uint32_t>(-bound) % bound;
    for (;;) {
      const std::uint64_t product = std::uint64_t{next()} * bound;
      if (static_cast<std::uint32_t>(product) >= limit) return static_cast<std::uint32_t>(product >> 32);
    }
  }
  double uniform() { return (next() + 0.5) * 0x1p-32; }

 private:
  std::uint64_t seed_;
  RandomStream stream_;
  std::uint64_t item_;
  std::uint32_t block_ = 0;
  Philox::Words words_{};
  unsigned used_ = 4;
};

}  // namespace lockstep
