#include "kernels/cache/cache.h"

#include "kernels/cache/paged_rows_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

struct CacheCase {
  int columns, width, column;
  DType dtype;
};
const std::vector<CacheCase> kCases = {
    {1, 1, 0, DType::f32}, {15, 40, 25, DType::f32}, {33, 40, 0, DType::bf16}, {17, 17, 0, DType::bf16}, {64, 72, 8, DType::bf16}};

CacheWrite write_op(KernelBench& b, const PagedRows& rows, const CacheCase& c, const std::vector<float>& x) {
  CacheWrite op;
  op.cache = b.zeros(rows.slots(), c.width, c.dtype);
  op.cache_column = c.column;
  op.x = b.floats(x, rows.rows(), c.columns);
  op.rows = rows.view(b);
  return op;
}

TEST(CacheWrite, PutsEachRowInItsSlotAsStored) {
  for (int page_size : {1, 4, 16})
    for (const CacheCase& c : kCases) {
      const PagedRows rows({{33, 0}, {1, 15}, {5, 50}}, page_size);
      const std::vector<float> x = random_floats(std::int64_t{rows.rows()} * c.columns, 4), stored = as_stored(x, c.dtype);
      KernelBench b;
      const CacheWrite op = write_op(b, rows, c, x);
      b.launch(&KernelTable::cache_write, op);
      std::vector<float> want(static_cast<std::size_t>(op.cache.size()), 0.0f);
      for (int t = 0; t < rows.rows(); ++t)
        for (int i = 0; i < c.columns; ++i) want[std::size_t(rows.slot_of_row(t)) * c.width + c.column + i] = stored[std::size_t(t) * c.columns + i];
      expect_same_words(words_of(b.read(op.cache)), words_of(want), "cache");
    }
}

TEST(CacheWrite, RoundsHalfwayValuesToEven) {
  const PagedRows rows({{1, 0}}, 1);
  const std::vector<float> x = {bits_float(0x3f808000u), bits_float(0x3f818000u), bits_float(0x7f7fffffu), -0.0f, bits_float(0x00008001u)};
  const std::vector<float> want = {bits_float(0x3f800000u), bits_float(0x3f820000u), bits_float(0x7f800000u), -0.0f, bits_float(0x00010000u)};
  expect_same_everywhere([&](KernelBench& b) {
    const CacheWrite op = write_op(b, rows, {5, 5, 0, DType::bf16}, x);
    b.launch(&KernelTable::cache_write, op);
    expect_same_words(words_of(b.read(op.cache)), words_of(want), "cache");
    b.record(op.cache);
  });
}

TEST(CacheWrite, SameEverywhere) {
  for (const CacheCase& c : kCases) {
    const PagedRows rows({{70, 0}, {1, 15}, {5, 50}}, 16);
    const std::vector<float> x = random_floats(std::int64_t{rows.rows()} * c.columns, 4);
    expect_same_everywhere([&](KernelBench& b) {
      const CacheWrite op = write_op(b, rows, c, x);
      b.launch(&KernelTable::cache_write, op);
      b.record(op.cache);
    });
  }
}

}  // namespace
}  // namespace lockstep
