#include "benchmark/kernel_groups.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "benchmark/profile_samples.h"
#include "kernels/table.h"

namespace lockstep {

namespace {
// As the compiler names an instantiation: KERNEL<Avx2Vec>(ARGUMENTS const&, ThreadPool&).
std::string symbol_of_kernel(std::string_view kernel, std::string_view arguments) {
  return fmt::format("_ZN8lockstep{}{}INS_7Avx2VecEEEvRKNS_{}{}ERNS_10ThreadPoolE", kernel.size(), kernel, arguments.size(), arguments);
}

// Written to by burn_processor_time, so that no compiler leaves it out.
volatile double burnt = 0;
[[gnu::noinline]] void burn_processor_time(std::int64_t times) {
  double sum = burnt;
  for (std::int64_t i = 0; i < times; ++i) sum += 1.0 / static_cast<double>(i + 1);
  burnt = sum;
}
}  // namespace

TEST(KernelGroups, EveryKernelHasOne) {
#define LOCKSTEP_EXPECT_GROUP(kernel, Arguments) \
  EXPECT_NE(kernel_group(symbol_of_kernel(#kernel, #Arguments)), kOtherFunctions) << #kernel << " has no part in kernel_groups.cpp";
  LOCKSTEP_KERNELS(LOCKSTEP_EXPECT_GROUP)
#undef LOCKSTEP_EXPECT_GROUP
  EXPECT_EQ(kernel_group("_ZN8lockstep12_GLOBAL__N_110read_modelEv"), kOtherFunctions);
  EXPECT_EQ(kernel_group(""), kOutsideTheProgram);
}

// Also the parts of a kernel that the compiler did not inline: without a group their time would be counted as everybody else's.
TEST(KernelGroups, EveryVectorFunctionHasOne) {
  std::size_t vector_functions = 0;
  for (const std::string& symbol : ProfileSamples().symbols())
    if (symbol.find("7Avx2Vec") != std::string::npos) {
      ++vector_functions;
      EXPECT_NE(kernel_group(symbol), kOtherFunctions) << symbol << " has no part in kernel_groups.cpp";
    }
  EXPECT_GT(vector_functions, 300u);
  EXPECT_EQ(kernel_group("_ZN8lockstep12planted_partINS_7Avx2VecEEEvl"), kOtherFunctions);
}

TEST(KernelGroups, TellPartsOfOneKernelApart) {
  EXPECT_EQ(kernel_group(symbol_of_kernel("linear_backward_weight", "LinearBackwardWeight")), "products for the gradients of weights");
  EXPECT_EQ(kernel_group(symbol_of_kernel("rope", "Rope")), "rope");
  EXPECT_EQ(kernel_group(symbol_of_kernel("add", "Add")), "elementwise");
  // Symbols of a built program: what is not inlined has a name of its own, what is has the names around it.
  EXPECT_EQ(kernel_group("_ZN8lockstep12deposit_tileINS_7Avx2VecELi6ELi1EEEvPNS_14AccumulatorVecIT_E7StorageElPKS3_.isra.0"), "accumulators");
  EXPECT_EQ(kernel_group("_ZN8lockstep12product_tileINS_7Avx2VecEfLi6ELi1EEEvRKNS_7ProductIT_T0_EEll"), "products forward and for the gradients of inputs");
  EXPECT_EQ(kernel_group("_ZN8lockstep12dot_productsINS_7Avx2VecELb0EEEvPKNT_4ElemEll"), "attention backward");
  EXPECT_EQ(kernel_group("_ZN8lockstep12dot_productsINS_7Avx2VecELb1EEEvPKNT_4ElemEll"), "attention, both ways");
  EXPECT_EQ(kernel_group("_ZN8lockstep14for_key_blocksINS_7Avx2VecELb1EZNS_13backward_rowsIS1_EEvRKNS_17AttentionBackwardE"), "attention backward");
  EXPECT_EQ(kernel_group("_ZN8lockstep10ThreadPool5State6workerEv"), "waiting for other threads");
  EXPECT_EQ(kernel_group("_ZN8lockstep10ThreadPool3runElRKSt8functionIFvlEE"), "waiting for other threads");
}

TEST(ProfileSamples, SharesAddUpAndNameTheFunctionThatRan) {
  ProfileSamples samples;
  samples.begin();
  while (samples.count() < 50) burn_processor_time(100'000);
  samples.end();
  const auto shares = samples.shares([](std::string_view symbol) { return symbol.find("burn_processor_time") == std::string_view::npos ? "rest" : "burnt"; });
  double sum = 0, burnt_share = 0;
  for (const auto& [name, share] : shares) sum += share, burnt_share += name == "burnt" ? share : 0;
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_GT(burnt_share, 0.2);
  EXPECT_NEAR(burnt_share, samples.share({"burn_processor_time"}), 1e-9);
  for (std::size_t i = 1; i < shares.size(); ++i) EXPECT_GE(shares[i - 1].second, shares[i].second);
}

}  // namespace lockstep
