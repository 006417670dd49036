// The page table of a batch: each sequence finds its own pages, and a long one costs short ones nothing.
#include "model/batch.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr std::int64_t kPagePositions = 16;

SequenceSlice slice_at_the_end(std::int64_t positions, std::int32_t first_page) {
  SequenceSlice slice;
  slice.tokens = {5};
  slice.begin = positions - 1;
  for (std::int64_t p = 0; p < positions; p += kPagePositions) slice.pages.push_back(first_page++);
  return slice;
}

std::int64_t bytes_of(Backend& backend, const std::vector<SequenceSlice>& slices) {
  const MemoryAccounts& memory = backend.device().memory();
  const std::int64_t before = memory.current(MemoryCategory::activations);
  const Batch batch(backend, slices, kPagePositions, false);
  return memory.current(MemoryCategory::activations) - before;
}

TEST(Batch, APageTableIsAsLargeAsItsPages) {
  Backend backend({.threads = 1});
  constexpr std::int64_t kLong = 1'048'576, kShort = 60, kChats = 64;
  std::vector<SequenceSlice> slices{slice_at_the_end(kLong, 0)};
  const std::int64_t alone = bytes_of(backend, slices);
  for (std::int64_t i = 0; i < kChats; ++i) slices.push_back(slice_at_the_end(kShort, static_cast<std::int32_t>(kLong / kPagePositions + 4 * i)));
  const std::int64_t together = bytes_of(backend, slices), table = 4 * (1 + kChats + kLong / kPagePositions + 4 * kChats);
  EXPECT_GE(together, table);
  EXPECT_LE(together, table + 16'384);  // and three columns of 65 rows
  EXPECT_LE(together - alone, 16'384);
  EXPECT_GT((1 + kChats) * kLong / kPagePositions * 4, 60 * together);  // what a rectangle would take
}

TEST(Batch, EachSequenceFindsItsPages) {
  Backend backend({.threads = 1});
  std::vector<SequenceSlice> slices{slice_at_the_end(40, 7), slice_at_the_end(1, 3), slice_at_the_end(200, 20), slice_at_the_end(16, 0)};
  slices[1].pages.push_back(90);  // more than it needs yet
  const Batch batch(backend, slices, kPagePositions, false);
  const std::vector<std::int32_t> table = backend.stream().read_ints(batch.rows().page_table).get();
  ASSERT_EQ(table.size(), 4u + 3 + 2 + 13 + 1);
  for (std::size_t s = 0; s < slices.size(); ++s)
    for (std::size_t i = 0; i < slices[s].pages.size(); ++i) EXPECT_EQ(table[static_cast<std::size_t>(table[s]) + i], slices[s].pages[i]) << s << ", " << i;
  EXPECT_EQ(batch.rows().longest, 13 * kPagePositions);
}

// Sequences of 3, 1,100 and 40 rows: segments of 3, 512, 512, 76 and 40.
TEST(Batch, TilesAreWholeSegments) {
  Backend backend({.threads = 1});
  std::vector<SequenceSlice> slices(3);
  std::int32_t page = 0;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    slices[s].tokens.assign(std::vector<std::size_t>{3, 1100, 40}[s], 5);
    for (std::size_t p = 0; p < slices[s].tokens.size(); p += kPagePositions) slices[s].pages.push_back(page++);
  }
  const Batch batch(backend, slices, kPagePositions, true);
  using Bounds = std::vector<std::int64_t>;
  EXPECT_EQ(batch.tiles(1), (Bounds{0, 3, 515, 1027, 1103, 1143}));
  EXPECT_EQ(batch.tiles(515), (Bounds{0, 515, 1027, 1143}));
  EXPECT_EQ(batch.tiles(1027), (Bounds{0, 1027, 1143}));
  EXPECT_EQ(batch.tiles(5000), (Bounds{0, 1143}));
  const Batch part(batch, 515, 512);
  EXPECT_EQ(part.count(), 512);
  EXPECT_EQ(backend.stream().read_ints(part.rows().position).get().front(), 512);
  EXPECT_EQ(backend.stream().read_ints(part.tape_rows().segment).get(), std::vector<std::int32_t>(512, 2));
}

}  // namespace
}  // namespace lockstep
