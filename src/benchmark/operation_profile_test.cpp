// Profiles of operations against the machine's limits, and files of these limits.
#include "benchmark/operation_profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/seconds.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

TEST(Roofline, TheLimitIsTheSlowerOfArithmeticAndMemory) {
  const RooflinePoint point{.threads = 2, .gigaflops = 100, .gigabytes_per_second = 10};
  EXPECT_DOUBLE_EQ(point.seconds(100e9, 0), 1);
  EXPECT_DOUBLE_EQ(point.seconds(0, 10e9), 1);
  EXPECT_DOUBLE_EQ(point.seconds(100e9, 30e9), 3);
  EXPECT_DOUBLE_EQ(point.seconds(500e9, 30e9), 5);
  EXPECT_EQ((RooflinePoint{.threads = 1}.seconds(1e9, 1e9)), 0) << "nothing was measured";
}

class RooflineFile : public testing::Test {
 protected:
  ~RooflineFile() override { std::filesystem::remove(path_); }
  void write(const std::string& text) { write_file_atomic(path_, text); }
  std::string fault() {
    try {
      read_roofline(path_);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::corrupt_file);
      return e.message();
    }
    return "none";
  }
  std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) / ("roofline-" + std::to_string(::getpid()) + ".json");
};

TEST_F(RooflineFile, IsReadBackAsItWasWritten) {
  const Roofline roofline{"a processor", "avx2", {{1, 100.5, 10.25}, {2, 200.125, 19.5}}};
  write(roofline_json(roofline).dump());
  const Roofline read = read_roofline(path_);
  EXPECT_EQ(read.processor, "a processor");
  EXPECT_EQ(read.isa, "avx2");
  ASSERT_EQ(read.points.size(), 2u);
  EXPECT_EQ(read.at(2).gigaflops, 200.125);
  EXPECT_EQ(read.at(1).gigabytes_per_second, 10.25);
  try {
    read.at(3);
    FAIL() << "three threads were not measured";
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "the roofline was measured with 1, 2 threads, not with 3; `lockstep bench roofline --threads 3` measures that");
  }
}

TEST_F(RooflineFile, WhatIsNoneIsRefusedWithTheReason) {
  for (const auto& [text, word] : {std::pair("nothing", "no JSON object of the kind roofline"), std::pair(R"({"kind": "memory"})", "of the kind roofline"),
                                   std::pair(R"({"kind": "roofline"})", "it has no points"), std::pair(R"({"kind": "roofline", "points": []})", "no points"),
                                   std::pair(R"({"kind": "roofline", "points": [{"threads": 1, "gigaflops": -3, "gigabytes_per_second": 1}]})", "0 or more"),
                                   std::pair(R"({"kind": "roofline", "points": [{"threads": 1, "gigaflops": "fast"}]})", "a point has threads"),
                                   std::pair(R"({"kind": "roofline", "points": [{"threads": 0, "gigaflops": 3, "gigabytes_per_second": 1}]})", "1 to 4096")}) {
    write(text);
    EXPECT_NE(fault().find(word), std::string::npos) << text << ": " << fault();
    EXPECT_NE(fault().find(path_.string()), std::string::npos);
  }
  std::filesystem::remove(path_);
  EXPECT_THROW(read_roofline(path_), Error);
}

TEST(OperationProfile, SaysWhatRanAndItsShareOfTheLimit) {
  Backend backend({.threads = 1});
  Device& device = backend.device();
  const auto column = [&](std::int64_t rows, std::int64_t cols) { return device.allocate_zero(DType::f32, rows, cols, MemoryCategory::workspace); };
  const Buffer x = column(64, 256), y = column(64, 320), sum = column(64, 320), packed = column(1, 320 * 256);
  const LinearForward product{.y = y.view(), .x = x.view(), .w = {.data = packed.view(), .outputs = 320, .inputs = 256}};
  const auto began = std::chrono::steady_clock::now();
  const OperationProfile profile;
  for (int i = 0; i < 20; ++i) backend.launch(&KernelTable::linear_forward, product);
  backend.launch(&KernelTable::add, Add{sum.view(), y.view(), y.view()});
  const double passed = seconds_since(began);
  const OperationReport report = profile.report({.threads = 1, .gigaflops = 100, .gigabytes_per_second = 10});
  ASSERT_EQ(report.rows.size(), 2u) << "operations that did not run are not told";
  EXPECT_GE(report.rows[0].seconds, report.rows[1].seconds) << "the longest comes first";
  // All that ran were these kernels: their seconds are most of those that passed, and no more.
  EXPECT_LE(report.seconds(), report.elapsed);
  EXPECT_GT(report.seconds(), passed / 5);
  const OperationRow& row = report.rows[0].name == "linear_forward" ? report.rows[0] : report.rows[1];
  EXPECT_EQ(row.calls, 20);
  EXPECT_EQ(row.flop, 20 * 2.0 * 64 * 320 * 256);
  EXPECT_DOUBLE_EQ(row.limit_share, row.flop / 100e9 / row.seconds);
  EXPECT_LT(profile.report({.threads = 1}).rows[0].limit_share, 0) << "no limit is known";

  const std::string text = operation_text(report);
  EXPECT_NE(text.find("limit: 100.0 GFLOP/s and 10.0 GB/s with 1 thread\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nlinear_forward"), std::string::npos) << text;
  const nlohmann::ordered_json json = operation_json(report);
  EXPECT_EQ(json["operations"].size(), 2u);
  EXPECT_EQ(json["operations"][0]["operation"].get<std::string>(), report.rows[0].name);
  EXPECT_EQ(json["limit"]["gigaflops"].get<double>(), 100);
  EXPECT_TRUE(operation_json(profile.report({.threads = 1}))["operations"][0]["limit_share"].is_null());
}

TEST(OperationProfile, TellsNothingOfWhatIsLeftOut) {
  Backend backend({.threads = 1});
  const auto column = [&](std::int64_t rows, std::int64_t cols) { return backend.device().allocate_zero(DType::f32, rows, cols, MemoryCategory::workspace); };
  const Buffer x = column(64, 256), sum = column(64, 256);
  const auto add = [&](int times) {
    for (int i = 0; i < times; ++i) backend.launch(&KernelTable::add, Add{sum.view(), x.view(), x.view()});
  };
  OperationProfile profile;
  const auto began = std::chrono::steady_clock::now();
  const auto pause = [&] {
    add(7);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  };
  profile.leave_out(pause);
  add(2);
  profile.leave_out(pause);
  add(3);
  const double passed = seconds_since(began);
  const OperationReport report = profile.report({.threads = 1});
  ASSERT_EQ(report.rows.size(), 1u);
  EXPECT_EQ(report.rows[0].calls, 5);
  EXPECT_EQ(report.rows[0].flop, 5 * 64 * 256.0);
  EXPECT_LE(report.elapsed, passed - 0.06 + 0.02);
  EXPECT_GE(report.elapsed, report.seconds());
}

}  // namespace
}  // namespace lockstep
