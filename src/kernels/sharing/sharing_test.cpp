#include "kernels/sharing/sharing.h"
#include "kernels/launch.h"

#include <algorithm>
#include <cmath>

#include "kernels/kernel_test_tools.h"

namespace lockstep {
namespace {

TEST(GatherRows, CopiesFloatsAndIntegers) {
  for (const std::int64_t columns : {1, 15, 17, 33}) {
    const std::vector<float> x = random_floats(7 * columns, 1);
    const std::vector<std::int32_t> ids = random_ints(7 * columns, 2, 1000), from = random_ints(40, 3, 7);
    expect_same_everywhere([&](KernelBench& b) {
      const View y = b.junk(40, columns), i = b.ints(std::vector<std::int32_t>(static_cast<std::size_t>(40 * columns), -1), 40, columns),
                 row_of = b.ints(from, 40);
      b.launch(&KernelTable::gather_rows, GatherRows{y, b.floats(x, 7, columns), row_of});
      b.launch(&KernelTable::gather_rows, GatherRows{i, b.ints(ids, 7, columns), row_of});
      b.record(y);
      b.record(i);
      std::vector<float> want;
      std::vector<std::int32_t> want_ids;
      for (const std::int32_t r : from)
        for (std::int64_t c = 0; c < columns; ++c) {
          want.push_back(x[static_cast<std::size_t>(r * columns + c)]);
          want_ids.push_back(ids[static_cast<std::size_t>(r * columns + c)]);
        }
      expect_same_words(words_of(b.read(y)), words_of(want), "floats");
      EXPECT_EQ(b.read_ints(i), want_ids);
    });
  }
}

// A slot of the gathered rows leads to the slot that its row and expert had before.
TEST(SlotSource, LeadsBackToTheSlotOfTheSameExpert) {
  const std::vector<std::int32_t> expert = {0, 2, 1, 2, 0, 1}, from = {0, 1, 1, 2, 0};  // [3, 2] rows
  expect_same_everywhere([&](KernelBench& b) {
    const View few = b.ints(expert, 3, 2), row_of = b.ints(from, 5), many = b.ints(std::vector<std::int32_t>(10), 5, 2),
               source = b.ints(std::vector<std::int32_t>(10, -1), 10);
    b.launch(&KernelTable::gather_rows, GatherRows{many, few, row_of});
    const auto plan = [&](const View& of) {
      ExpertPlan p{b.ints(std::vector<std::int32_t>(4), 4), b.ints(std::vector<std::int32_t>(static_cast<std::size_t>(of.rows * 2)), of.rows * 2),
                   b.ints(std::vector<std::int32_t>(static_cast<std::size_t>(of.rows * 2)), of.rows, 2), of};
      b.launch(&KernelTable::expert_plan, p);
      return p;
    };
    const ExpertPlan before = plan(few), after = plan(many);
    b.launch(&KernelTable::slot_source, SlotSource{source, after.slot_of, row_of, before.slot_of});
    const std::vector<std::int32_t> slots = b.read_ints(source), row_before = b.read_ints(before.row_of), row_after = b.read_ints(after.row_of),
                                    begin_before = b.read_ints(before.offsets), begin_after = b.read_ints(after.offsets);
    const auto expert_of = [](const std::vector<std::int32_t>& begin, std::int32_t slot) {
      return std::upper_bound(begin.begin(), begin.end(), slot) - begin.begin() - 1;
    };
    for (std::int32_t slot = 0; slot < 10; ++slot) {
      const std::int32_t was = slots[static_cast<std::size_t>(slot)];
      EXPECT_EQ(expert_of(begin_after, slot), expert_of(begin_before, was));
      EXPECT_EQ(from[static_cast<std::size_t>(row_after[static_cast<std::size_t>(slot)])], row_before[static_cast<std::size_t>(was)]);
    }
    b.record(source);
  });
}

// Rows of none, one, several and more parts than are deposited between carries; the control is that plain sums in the other order differ.
TEST(SumSharedRows, IsTheOrderFreeSumRoundedOnce) {
  const std::int64_t columns = 19, parts = 300;
  std::vector<float> x = random_floats(parts * columns, 4);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= std::ldexp(1.0f, static_cast<int>(i % 23) - 11);
  const std::vector<std::int32_t> begin = {0, 0, 1, 4, 300};
  std::vector<std::int32_t> row(static_cast<std::size_t>(parts)), backward;
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::int32_t>((i * 7) % 300);
  backward = row;
  for (std::size_t r = 0; r + 1 < begin.size(); ++r) std::reverse(backward.begin() + begin[r], backward.begin() + begin[r + 1]);
  const auto sum = [&](KernelBench& b, const std::vector<std::int32_t>& order) {
    const View y = b.junk(4, columns);
    b.launch(&KernelTable::sum_shared_rows, SumSharedRows{y, b.floats(x, parts, columns), b.ints(begin, 5), b.ints(order, parts)});
    return y;
  };
  std::int64_t plain_differs = 0;
  expect_same_everywhere([&](KernelBench& b) {
    const View y = sum(b, row);
    const std::vector<float> got = b.read(y);
    for (std::size_t r = 0; r < 4; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        double exact = 0;
        float up = 0, down = 0;
        const auto part = [&](std::int32_t i) { return x[static_cast<std::size_t>(row[static_cast<std::size_t>(i)] * columns + c)]; };
        for (std::int32_t i = begin[r]; i < begin[r + 1]; ++i) exact += static_cast<double>(part(i)), up += part(i);
        for (std::int32_t i = begin[r + 1]; i-- > begin[r];) down += part(i);
        plain_differs += float_bits(up) != float_bits(down);
        EXPECT_EQ(got[r * columns + static_cast<std::size_t>(c)], static_cast<float>(exact));
      }
    b.record(y);
    expect_same_words(words_of(b.read(sum(b, backward))), words_of(got), "the other order");
  });
  EXPECT_GT(plain_differs, 0);
}

}  // namespace
}  // namespace lockstep
