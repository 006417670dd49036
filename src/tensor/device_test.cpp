// Devices: pools, accounts, layouts, uploads; and an address of the deferred device that the host cannot use.
#include "tensor/device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/error.h"
#include "tensor/device_pointer.h"

namespace lockstep {
namespace {

constexpr MemoryCategory kAny = MemoryCategory::workspace;

TEST(Device, BuffersAreAlignedAndWithoutGaps) {
  for (BackendKind kind : {BackendKind::cpu, BackendKind::deferred, BackendKind::traced}) {
    Device device(kind, 1);
    for (DType dtype : {DType::f32, DType::bf16, DType::i32, DType::u8, DType::bins})
      for (std::int64_t cols : {1, 17, 1000}) {
        const Buffer b = device.allocate(dtype, 3, cols, kAny);
        const View& v = b.view();
        EXPECT_EQ((v.address & ~kDeviceTag) % 64, 0u);
        EXPECT_EQ((v.address & kDeviceTag) != 0, kind == BackendKind::deferred);
        EXPECT_EQ(v.rows, 3);
        EXPECT_EQ(v.cols, cols);
        EXPECT_EQ(v.stride, cols);
        EXPECT_EQ(v.dtype, dtype);
        EXPECT_EQ(v.element_bytes, element_size(dtype, kind == BackendKind::traced));
      }
  }
}

#if !defined(__SANITIZE_ADDRESS__)  // which keeps freed blocks away
TEST(Device, AFreedBlockIsHandedOutAgain) {
  Device device(BackendKind::cpu, 1);
  Buffer a = device.allocate(DType::f32, 10, 100, kAny);
  const std::uint64_t address = a.view().address;
  Buffer copy = a;
  a.reset();
  EXPECT_FALSE(a);
  EXPECT_NE(device.allocate(DType::f32, 10, 100, kAny).view().address, address);  // the copy still owns it
  copy.reset();
  EXPECT_EQ(device.allocate(DType::f32, 10, 99, kAny).view().address, address);  // the same size class
}
#endif

TEST(Device, AccountsCountBytesAndPeaksPerCategory) {
  for (BackendKind kind : {BackendKind::cpu, BackendKind::deferred, BackendKind::traced}) {
    Device device(kind, 1);
    MemoryAccounts& memory = device.memory();
    const std::int64_t f32 = element_size(DType::f32, kind == BackendKind::traced), bins = element_size(DType::bins, kind == BackendKind::traced);
    {
      const Buffer a = device.allocate(DType::f32, 7, 5, MemoryCategory::weights), b = device.allocate(DType::bins, 2, 16, MemoryCategory::gradients);
      const Buffer shared = a;
      EXPECT_EQ(memory.current(MemoryCategory::weights), 35 * f32);
      EXPECT_EQ(memory.current(MemoryCategory::gradients), 32 * bins);
      EXPECT_EQ(memory.current(MemoryCategory::cache), 0);
      device.allocate(DType::f32, 1000, 1, MemoryCategory::weights);
    }
    EXPECT_EQ(memory.current(MemoryCategory::weights), 0);
    EXPECT_EQ(memory.current(MemoryCategory::gradients), 0);
    EXPECT_EQ(memory.peak(MemoryCategory::weights), 1035 * f32);
    memory.reset_peaks();
    EXPECT_EQ(memory.peak(MemoryCategory::weights), 0);
  }
}

TEST(Device, BuffersMayOutliveTheDeviceAndBeDroppedFromAnyThread) {
  Buffer survivor;
  {
    Device device(BackendKind::deferred, 1);
    survivor = device.allocate_zero(DType::f32, 100, 100, kAny);
    std::thread([b = device.allocate(DType::f32, 3, 3, kAny)] {}).join();
    EXPECT_EQ(device.memory().current(kAny), 40000);
  }
  survivor.reset();
}

TEST(Device, NegativeSizesAreRefusedAndEmptyBuffersExist) {
  Device device(BackendKind::cpu, 1);
  EXPECT_THROW(device.allocate(DType::f32, -1, 4, kAny), Error);
  const Buffer empty = device.upload(std::vector<float>{}, 0, 5, kAny);
  EXPECT_TRUE(empty.view());
  EXPECT_TRUE(device.stream().read(empty.view()).get().empty());
  EXPECT_THROW(device.upload(std::vector<float>{1, 2, 3}, 2, 2, kAny), Error);
}

TEST(Device, UploadsReadBackOnEveryBackend) {
  const std::vector<float> values = {1.0f, -0.0f, 0.1f, std::nanf(""), INFINITY, 1e-40f};
  for (BackendKind kind : {BackendKind::cpu, BackendKind::deferred, BackendKind::traced})
    for (DType dtype : {DType::f32, DType::bf16}) {
      Device device(kind, 1);
      const Buffer b = device.upload(values, 2, 3, kAny, dtype);
      const std::vector<float> got = device.stream().read(b.view()).get();
      ASSERT_EQ(got.size(), values.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        const float want = dtype == DType::bf16 ? widen(round_to_bf16(values[i])) : values[i];
        EXPECT_EQ(float_bits(got[i]), float_bits(want)) << i;
      }
      const Buffer ints = device.upload(std::vector<std::int32_t>{1, -2, 3}, 3, 1, kAny);
      EXPECT_EQ(device.stream().read_ints(ints.view()).get(), (std::vector<std::int32_t>{1, -2, 3}));
    }
}

TEST(DeviceDeathTest, TheHostCannotDereferenceADeferredAddress) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Device device(BackendKind::deferred, 1);
  const Buffer b = device.upload(std::vector<float>{1, 2}, 1, 2, kAny);
  device.stream().synchronize();
  EXPECT_DEATH(
      {
        const volatile float* p = reinterpret_cast<const volatile float*>(b.view().address);
        if (*p == 1.0f) std::_Exit(0);  // reached only if the address could be read
        std::_Exit(0);
      },
      "");
  EXPECT_EQ(*device_pointer<float>(b.view()), 1.0f);  // kernels can
}

// What one device frees, the other one takes; where work is queued each has a pool of its own.
TEST(Device, TwoThatComputeAtOnceMayShareAPool) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr bool kReuses = false;  // blocks go back to the allocator, which keeps freed ones aside
#else
  constexpr bool kReuses = true;
#endif
  for (const BackendKind kind : {BackendKind::cpu, BackendKind::deferred}) {
    Device one(kind, 1), other(kind, 1), alone(kind, 1);
    other.share_pool(one);
    const auto address = [](Device& device) { return device.allocate(DType::f32, 1000, 1000, MemoryCategory::activations).view().address; };
    const std::uint64_t first = address(one);
    EXPECT_EQ(address(other) == first, kReuses && kind == BackendKind::cpu);
    EXPECT_NE(address(alone), first);
    if (kReuses) {
      EXPECT_EQ(address(one), first);
    }
    EXPECT_EQ(other.memory().current(MemoryCategory::activations), 0);
    EXPECT_GT(other.memory().peak(MemoryCategory::activations), 0);
  }
}

}  // namespace
}  // namespace lockstep
