// Copies of many pieces on several threads: each piece arrives whole and nothing else is written.
#include "tensor/copies.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "base/error.h"

namespace lockstep {
namespace {

std::vector<float> counted(std::int64_t n, float first) {
  std::vector<float> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(Copies, EveryPieceArrivesAndNothingElseIsWritten) {
  constexpr std::int64_t kRows = 700, kColumns = 1100;  // several megabytes, so that the thread gives way in between
  for (const BackendKind kind : {BackendKind::cpu, BackendKind::deferred})
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(std::string(backend_kind_name(kind)) + ", threads " + std::to_string(threads));
      Device device(kind, threads);
      const std::vector<float> source = counted(kRows * kColumns, 1);
      const Buffer from = device.upload(source, kRows, kColumns, MemoryCategory::workspace);
      const Buffer to = device.allocate_zero(DType::f32, kRows, kColumns, MemoryCategory::workspace);
      std::vector<float> want(source.size(), 0.0f);
      std::vector<Copied> pieces;
      // Runs of 1 to 17 rows, some with all columns and some with a part, each to other rows.
      for (std::int64_t row = 0, count = 1; row < kRows; row += count + 1, count = count % 17 + 1) {
        count = std::min(count, kRows - row);
        const std::int64_t begin = row % 3 == 0 ? 0 : row % 90, columns = row % 3 == 0 ? kColumns : kColumns - 2 * begin - 1, target = kRows - row - count;
        const auto part = [&](const Buffer& of, std::int64_t at) { return of.view().block(at, count, begin, columns); };
        pieces.push_back({part(to, target), part(from, row)});
        for (std::int64_t r = 0; r < count; ++r)
          for (std::int64_t c = begin; c < begin + columns; ++c)
            want[static_cast<std::size_t>((target + r) * kColumns + c)] = source[static_cast<std::size_t>((row + r) * kColumns + c)];
      }
      ASSERT_GT(pieces.size(), 50u);
      copy_all(device, pieces);
      EXPECT_TRUE(device.stream().read(to.view()).get() == want);
    }
}

TEST(Copies, NothingIsCopiedWhereAPieceMeetsAnotherShape) {
  Device device(BackendKind::cpu, 2);
  const Buffer from = device.upload(counted(12, 1), 3, 4, MemoryCategory::workspace);
  const Buffer to = device.allocate_zero(DType::f32, 3, 4, MemoryCategory::workspace);
  try {
    copy_all(device, {{to.view().row_range(0, 1), from.view().row_range(0, 1)}, {to.view().row_range(1, 2), from.view().row_range(1, 1)}});
    FAIL() << "pieces of unequal shapes were copied";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::internal);
    EXPECT_NE(std::string(e.what()).find("1 x 4 meets a view of 2 x 4"), std::string::npos) << e.what();
  }
  EXPECT_EQ(device.stream().read(to.view()).get(), std::vector<float>(12));
  copy_all(device, {});
}

}  // namespace
}  // namespace lockstep
