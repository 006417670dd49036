// The table of rotary angles grows with what forwards reach, and its values do not depend on how.
#include "model/rope_rows.h"

#include <gtest/gtest.h>

#include "kernels/backend.h"

namespace lockstep {
namespace {

constexpr RopeSpec kSpec{.rotary = 16, .theta = 8e6};
constexpr std::int64_t kMany = 100'000;

std::int64_t table_bytes(Backend& backend) { return backend.device().memory().current(MemoryCategory::weights); }

TEST(RopeRows, AreThoseThatForwardsReach) {
  for (const BackendKind kind : {BackendKind::cpu, BackendKind::deferred}) {
    Backend backend({.kind = kind, .threads = 1});
    RopeRows rows(backend.device(), kSpec, kMany);
    constexpr std::int64_t kRowBytes = 16 * 4;
    EXPECT_EQ(table_bytes(backend), RopeRows::kFirst * kRowBytes);
    const View first = rows.up_to(1);
    EXPECT_EQ(rows.up_to(RopeRows::kFirst).rows, RopeRows::kFirst);
    EXPECT_EQ(table_bytes(backend), RopeRows::kFirst * kRowBytes);
    const View more = rows.up_to(RopeRows::kFirst + 1);
    EXPECT_EQ(more.rows, 8 * RopeRows::kFirst);
    EXPECT_EQ(rows.up_to(5).rows, more.rows);
    // Whoever has the shorter table still reads it.
    EXPECT_EQ(backend.stream().read(first).get(), rope_table(RopeRows::kFirst, kSpec));
    EXPECT_EQ(backend.stream().read(more).get(), rope_table(8 * RopeRows::kFirst, kSpec));
  }
}

TEST(RopeRows, AreNeverMoreThanTheContext) {
  Backend backend({.threads = 1});
  RopeRows small(backend.device(), kSpec, 100);
  EXPECT_EQ(small.up_to(7).rows, 100);
  EXPECT_EQ(small.up_to(101).rows, 100);  // a guess behind the last position
  RopeRows large(backend.device(), kSpec, kMany);
  const View all = large.up_to(kMany - 3);
  EXPECT_EQ(all.rows, kMany);
  const std::vector<float> whole = rope_table(kMany, kSpec);
  EXPECT_EQ(backend.stream().read(all.row_range(kMany - 1, 1)).get(), std::vector<float>(whole.end() - 16, whole.end()));
  RopeRows none;
  EXPECT_FALSE(none.up_to(9));
}

}  // namespace
}  // namespace lockstep
