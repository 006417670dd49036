// Every vector operation of AVX2 and AVX-512 against ScalarVec, bit for bit (a NaN against a NaN): all bf16 values where one
// operand is taken, special values in all combinations of two, and 2^20 random fp32 (2^24 with LOCKSTEP_SLOW_TESTS=1).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "base/philox.h"
#include "numerics/operation_table.h"

namespace lockstep {
namespace {

bool machine_has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool same_number(const unsigned char* a, const unsigned char* b, int bytes) {
  if (std::memcmp(a, b, static_cast<std::size_t>(bytes)) == 0) return true;
  if (bytes == 4) {
    float x, y;
    std::memcpy(&x, a, 4), std::memcpy(&y, b, 4);
    return std::isnan(x) && std::isnan(y);
  }
  if (bytes == 8) {
    double x, y;
    std::memcpy(&x, a, 8), std::memcpy(&y, b, 8);
    return std::isnan(x) && std::isnan(y);
  }
  return false;  // bf16: rounding keeps a NaN's upper bits
}

// Compares one operation of two tables on given inputs and counts what differs.
class Comparison {
 public:
  Comparison(const VectorOperation& want, const VectorOperation& got) : want_(want), got_(got) {}
  void run(const void* in) {
    std::uint32_t a[544], b[544];
    std::memset(a, 0x3f, sizeof a);
    std::memset(b, 0x3f, sizeof b);
    want_.apply(in, a);
    got_.apply(in, b);
    const int count = want_.words * 4 / want_.number_bytes;
    for (int i = 0; i < count; ++i) {
      const auto *x = reinterpret_cast<unsigned char*>(a) + i * want_.number_bytes, *y = reinterpret_cast<unsigned char*>(b) + i * want_.number_bytes;
      ++compared_;
      if (same_number(x, y, want_.number_bytes) || different_++ > 0) continue;
      first_ = "number " + std::to_string(i) + " of inputs";
      for (int j = 0; j < want_.arity * 16; ++j) first_ += " " + std::to_string(static_cast<const std::uint32_t*>(in)[j]);
    }
    // Nothing beyond the result is written.
    if (std::memcmp(a + want_.words, b + want_.words, sizeof a - 4 * static_cast<std::size_t>(want_.words)) != 0) ++different_;
  }
  std::int64_t different() const { return different_; }
  void expect_none(const std::string& isa) const {
    EXPECT_GT(compared_, 0) << want_.name;
    EXPECT_EQ(different_, 0) << isa << " " << want_.name << " of " << compared_ << "; first: " << first_;
  }

 private:
  const VectorOperation &want_, &got_;
  std::int64_t compared_ = 0, different_ = 0;
  std::string first_;
};

const std::uint32_t kSpecial[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff, 0x00800000, 0x80800000, 0x3f800000, 0xbf800000,
                                  0x3f7fffff, 0x3f800001, 0x3f000000, 0x3fc00000, 0x40200000, 0xc0200000, 0x4b000000, 0x4affffff, 0x42b00000, 0xc2ae9999,
                                  0xc2aeac50, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0x3fff8000, 0x3f808000};
constexpr int kSpecials = sizeof kSpecial / sizeof *kSpecial;

// Four operands of 16 numbers that the domain allows, from a stream of random words (half of them with structure).
struct Inputs {
  RandomSequence random{1, RandomStream::fuzz};
  union {
    std::uint32_t words[128];
    float floats[128];
    double doubles[64];
  };
  void next(Domain domain) {
    if (domain == Domain::exponent) {
      for (int i = 0; i < 64; ++i) floats[i] = static_cast<float>(static_cast<int>(random.below(254)) - 126);
    } else if (domain == Domain::doubles) {
      for (int i = 0; i < 64; ++i) {
        std::uint64_t u = (std::uint64_t{random.next()} << 32) | random.next();
        // Every other double lies where floats lie: conversion and the accumulator's floor are exercised there.
        if (i & 1) u = (u & 0x800fffffffffffffull) | (std::uint64_t{896 + random.below(250)} << 52);
        std::memcpy(&doubles[i], &u, 8);
      }
    } else {
      const std::uint32_t kind = random.below(4);
      for (int i = 0; i < 64; ++i) {
        const std::uint32_t u = random.next();
        words[i] = kind == 0              ? u
                   : kind == 1            ? (u & 0x807fffffu) | ((118 + random.below(18)) << 23)  // near 1: sums cancel and round
                   : kind == 2 && i >= 16 ? words[i - 16] ^ (u & 0x80000003u)                     // nearly equal operands
                   : random.below(6) == 0 ? kSpecial[random.below(kSpecials)]
                                          : u;
      }
    }
  }
};

void compare_tables(const OperationTable& want, const OperationTable& got, const std::string& isa) {
  ASSERT_EQ(want.operations.size(), got.operations.size());
  const char* slow = std::getenv("LOCKSTEP_SLOW_TESTS");
  const std::int64_t randoms = slow && *slow == '1' ? 1 << 24 : 1 << 20;
  for (std::size_t o = 0; o < want.operations.size(); ++o) {
    const VectorOperation& operation = want.operations[o];
    Comparison comparison(operation, got.operations[o]);
    Inputs in;
    // The words that are loaded as bf16 are packed two in one: long results are tried less often.
    const std::int64_t blocks = randoms / 16 / (operation.words > 64 ? 8 : 1);
    for (std::int64_t i = 0; i < blocks; ++i) {
      in.next(operation.domain);
      comparison.run(in.words);
    }
    if (operation.domain == Domain::any && operation.arity == 1) {
      for (std::uint32_t h = 0; h < 65536; h += 16) {
        for (std::uint32_t l = 0; l < 16; ++l) in.words[l] = (h + l) << 16;
        comparison.run(in.words);
        std::uint16_t halves[32] = {};
        for (std::uint32_t l = 0; l < 16; ++l) halves[l] = static_cast<std::uint16_t>(h + l);
        comparison.run(halves);  // as stored bf16
      }
    }
    if (operation.domain == Domain::any && operation.arity > 1) {
      for (int x = 0; x < kSpecials; ++x)
        for (int y = 0; y < kSpecials; ++y)
          for (int shift = 0; shift < kSpecials; shift += 16) {
            for (int l = 0; l < 16; ++l) {
              in.words[l] = kSpecial[x], in.words[16 + l] = kSpecial[y];
              in.words[32 + l] = kSpecial[(shift + l) % kSpecials], in.words[48 + l] = kSpecial[(shift + l + 7) % kSpecials];
            }
            comparison.run(in.words);
          }
    }
    if (operation.domain == Domain::exponent)
      for (int n = -126; n <= 127; ++n) {
        for (int l = 0; l < 16; ++l) in.floats[l] = static_cast<float>(n);
        comparison.run(in.words);
      }
    comparison.expect_none(isa);
  }
}

TEST(InstructionSets, Avx2EqualsScalar) { compare_tables(scalar_operations(), avx2_operations(), "avx2"); }

TEST(InstructionSets, Avx512EqualsScalar) {
  if (!machine_has_avx512()) GTEST_SKIP() << "this machine has no AVX-512";
  compare_tables(scalar_operations(), avx512_operations(), "avx512");
}

TEST(InstructionSets, TheComparisonSeesAWrongOperation) {
  OperationTable want = scalar_operations(), wrong = scalar_operations();
  wrong.operations[0].apply = wrong.operations[1].apply;  // + replaced by -
  Comparison comparison(want.operations[0], wrong.operations[0]);
  float in[64];
  for (float& x : in) x = 1.5f;
  comparison.run(in);
  EXPECT_EQ(comparison.different(), 16);
}

}  // namespace
}  // namespace lockstep
