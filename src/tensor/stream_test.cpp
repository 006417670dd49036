// Streams: order, copies, errors, and views with gaps, direct and deferred.
#include "tensor/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "tensor/device.h"

namespace lockstep {
namespace {

constexpr MemoryCategory kAnyStream = MemoryCategory::workspace;

TEST(Stream, DirectWorkIsDoneAtOnceAndDeferredWorkElsewhere) {
  Stream direct(BackendKind::cpu), deferred(BackendKind::deferred);
  std::thread::id ran;
  direct.enqueue([&] { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
  deferred.enqueue([&] { ran = std::this_thread::get_id(); });
  deferred.synchronize();
  EXPECT_NE(ran, std::this_thread::get_id());
  EXPECT_FALSE(direct.deferred());
  EXPECT_TRUE(deferred.deferred());
}

TEST(Stream, DeferredWorkDoesNotBlockTheCallerAndRunsInOrder) {
  Stream stream(BackendKind::deferred);
  std::atomic<bool> go{false};
  std::vector<int> order;
  stream.enqueue([&] {
    while (!go) std::this_thread::yield();
  });
  for (int i = 0; i < 10000; ++i) stream.enqueue([&order, i] { order.push_back(i); });
  go = true;  // reached although the first piece of work was waiting for it
  stream.synchronize();
  std::vector<int> want(10000);
  std::iota(want.begin(), want.end(), 0);
  EXPECT_EQ(order, want);
}

TEST(Stream, ErrorsAreRethrownOnceAndLaterWorkIsDropped) {
  Stream stream(BackendKind::deferred);
  std::atomic<int> after{0};
  std::atomic<bool> go{false};
  stream.enqueue([&] {
    while (!go) std::this_thread::yield();
    fail(ErrorCode::numeric, "row {} is not a number", 7);
  });
  for (int i = 0; i < 5; ++i) stream.enqueue([&] { ++after; });
  go = true;
  try {
    stream.synchronize();
    FAIL() << "the error was lost";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "row 7 is not a number");
  }
  EXPECT_EQ(after, 0);
  stream.synchronize();  // once
  stream.enqueue([&] { ++after; });
  stream.synchronize();
  EXPECT_EQ(after, 1);
}

TEST(Stream, AReadRethrowsEarlierErrors) {
  Device device(BackendKind::deferred, 1);
  const Buffer b = device.upload(std::vector<float>{1, 2}, 1, 2, kAnyStream);
  device.stream().enqueue([] { throw std::runtime_error("lost kernel"); });
  EXPECT_THROW(device.stream().read(b.view()).get(), std::runtime_error);
  EXPECT_EQ(device.stream().read(b.view()).get(), (std::vector<float>{1, 2}));
  Stream direct(BackendKind::cpu);
  EXPECT_THROW(direct.enqueue([] { throw std::runtime_error("at once"); }), std::runtime_error);
}

TEST(Stream, DestructionFinishesQueuedWork) {
  std::atomic<int> done{0};
  {
    Stream stream(BackendKind::deferred);
    for (int i = 0; i < 100; ++i) stream.enqueue([&] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(Stream, WritesTakeACopyAndBuffersMayBeDroppedWhileWorkIsQueued) {
  Device device(BackendKind::deferred, 1);
  std::atomic<bool> go{false};
  device.stream().enqueue([&] {
    while (!go) std::this_thread::yield();
  });
  const Buffer kept = device.allocate(DType::f32, 1, 3, kAnyStream);
  {
    std::vector<float> values = {1, 2, 3};
    device.stream().write(kept.view(), values);
    values.assign(3, 9.0f);
    // Dropped before its write has run: the block is reused in stream order, so the second write wins.
    Buffer dropped = device.upload(std::vector<float>(1000, 5.0f), 1, 1000, kAnyStream);
  }
  const Buffer next = device.upload(std::vector<float>(1000, 6.0f), 1, 1000, kAnyStream);
  go = true;
  EXPECT_EQ(device.stream().read(kept.view()).get(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(device.stream().read(next.view()).get(), std::vector<float>(1000, 6.0f));
}

TEST(Stream, ViewsWithGapsAreWrittenZeroedAndReadInPlace) {
  for (BackendKind kind : {BackendKind::cpu, BackendKind::deferred, BackendKind::traced})
    for (DType dtype : {DType::f32, DType::bf16}) {
      Device device(kind, 1);
      Stream& stream = device.stream();
      const Buffer b = device.upload(std::vector<float>(15, 8.0f), 3, 5, kAnyStream, dtype);
      const View inner = b.view().block(1, 2, 1, 3);
      stream.write(inner, std::vector<float>{1, 2, 3, 4, 5, 6});
      stream.fill_zero(inner.column_range(2, 1));
      EXPECT_EQ(stream.read(inner).get(), (std::vector<float>{1, 2, 0, 4, 5, 0}));
      EXPECT_EQ(stream.read(b.view()).get(), (std::vector<float>{8, 8, 8, 8, 8, 8, 1, 2, 0, 8, 8, 4, 5, 0, 8}));
      EXPECT_EQ(stream.read(b.view().reshape(5, 3).row_range(4, 1)).get(), (std::vector<float>{5, 0, 8}));
    }
}

TEST(Stream, HashesBelongToTheTracedBackend) {
  Device traced(BackendKind::traced, 1), cpu(BackendKind::cpu, 1);
  const Buffer zero = traced.allocate_zero(DType::f32, 1, 1, kAnyStream), one = traced.upload(std::vector<float>{1.0f}, 1, 1, kAnyStream);
  EXPECT_EQ(traced.stream().read_hashes(zero.view()).get()[0], traced_constant(0.0f).hash);
  EXPECT_EQ(traced.stream().read_hashes(one.view()).get()[0], traced_constant(1.0f).hash);
  EXPECT_NE(traced_constant(0.0f).hash, traced_constant(-0.0f).hash);
  const Buffer b = cpu.upload(std::vector<float>{1.0f}, 1, 1, kAnyStream);
  EXPECT_THROW(cpu.stream().read_hashes(b.view()), Error);
}

TEST(Stream, BinsAreEmptiedByFillZero) {
  for (BackendKind kind : {BackendKind::cpu, BackendKind::traced}) {
    Device device(kind, 1);
    const Buffer bins = device.allocate_zero(DType::bins, 2, 16, kAnyStream);
    const View bytes = [&] {
      View v = bins.view();
      v.dtype = DType::i32, v.cols = v.stride = v.cols * v.element_bytes / 4, v.element_bytes = 4;
      return v;
    }();
    EXPECT_EQ(device.stream().read_ints(bytes).get(), std::vector<std::int32_t>(static_cast<std::size_t>(bytes.size()), 0));
  }
}

}  // namespace
}  // namespace lockstep
