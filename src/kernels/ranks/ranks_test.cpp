// Joining results of ranks: bins exactly, norms exactly, groups of experts along their tree, picks without a change.
#include <algorithm>

#include "base/error.h"
#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

TEST(RankParts, BinsOfRowsDealtToRanksJoinToThoseOfAllRows) {
  const std::int64_t rows = 37, outputs = 21, inputs = 18, packed = 32 * inputs;
  std::vector<std::int32_t> segment(static_cast<std::size_t>(rows));
  for (std::size_t t = 0; t < segment.size(); ++t) segment[t] = static_cast<std::int32_t>(t / 5);
  const auto join = [&](KernelBench& b, double largest) {
    const auto dy = random_floats(rows * outputs, 1, -largest, largest), x = random_floats(rows * inputs, 2, -largest, largest);
    const PackedWeight w{{}, outputs, inputs};
    const View vdy = b.floats(dy, rows, outputs), vx = b.floats(x, rows, inputs), vs = b.ints(segment, rows), whole = b.junk(1, packed);
    LinearBackwardWeight all{whole, {}, true, vdy, vx, w};
    all.segment = vs;
    b.launch(&KernelTable::linear_backward_weight, all);
    std::vector<View> bins;
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 10}, {10, 15}, {15, 37}}) {  // whole segments
      bins.push_back(b.zeros(1, packed, DType::bins));
      LinearBackwardWeight part{{}, bins.back(), false, vdy.row_range(begin, end - begin), vx.row_range(begin, end - begin), w};
      part.segment = vs.row_range(begin, end - begin);
      b.launch(&KernelTable::linear_backward_weight, part);
    }
    // By rows of 16, as ranks share them; in another order than the segments'.
    const View target = bins[1].reshape(packed / 16, 16);
    for (const int from : {2, 0}) b.launch(&KernelTable::join_bins, JoinBins{target, bins[static_cast<std::size_t>(from)].reshape(packed / 16, 16)});
    const View joined = b.junk(1, packed);
    b.launch(&KernelTable::finish_bins, FinishBins{joined, bins[1], 0});
    expect_same_words(words_of(b.read(joined)), words_of(b.read(whole)), "joined");
    b.record(joined);
  };
  expect_same_everywhere([&](KernelBench& b) { join(b, 3); });
  expect_same_everywhere([&](KernelBench& b) { join(b, 1e-9); });  // products in the last bin alone
}

TEST(RankParts, NormOfPartsIsTheNormOfAll) {
  std::vector<std::vector<float>> gradients;
  for (const std::int64_t n : {5000, 33, 70000}) gradients.push_back(random_floats(n, static_cast<std::uint64_t>(n), -2, 2));
  expect_same_everywhere([&](KernelBench& b) {
    const View whole = b.junk(1, 1), joined = b.junk(1, 1), parts = b.zeros(4, 16, DType::bins);  // the fourth rank has none
    SquareSum all{whole, {}};
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const View g = b.floats(gradients[i], 1, static_cast<std::int64_t>(gradients[i].size()));
      all.gradients.push_back(g);
      b.launch(&KernelTable::square_sum, SquareSum{{}, {g}, {}, parts.row_range(static_cast<std::int64_t>(i), 1)});
    }
    b.launch(&KernelTable::square_sum, SquareSum{{}, {}, {}, parts.row_range(3, 1)});
    b.launch(&KernelTable::square_sum, all);
    b.launch(&KernelTable::square_sum, SquareSum{joined, {}, parts, {}});
    EXPECT_EQ(float_bits(b.read(joined)[0]), float_bits(b.read(whole)[0]));
    b.record(joined);
  });
}

TEST(RankParts, NotANumberOfOneRankIsThatOfAll) {
  KernelBench b;
  const View parts = b.zeros(2, 16, DType::bins), norm = b.junk(1, 1);
  b.launch(&KernelTable::square_sum, SquareSum{{}, {b.floats({1, std::nanf(""), 3}, 1, 3)}, {}, parts.row_range(0, 1)});
  b.launch(&KernelTable::square_sum, SquareSum{{}, {b.floats({1, 2}, 1, 2)}, {}, parts.row_range(1, 1)});
  b.launch(&KernelTable::square_sum, SquareSum{norm, {}, parts, {}});
  EXPECT_TRUE(std::isnan(b.read(norm)[0]));
}

TEST(RankParts, PickTakesEachIndexFromItsRank) {
  const std::int64_t T = 20, k = 3;
  const std::vector<std::int64_t> bounds = {0, 4, 4, 7, 12};  // a rank without any
  const auto parts = random_floats(4 * T * k, 5);
  const auto index = random_ints(T * k, 6, 12);
  expect_same_everywhere([&](KernelBench& b) {
    const View y = b.junk(T, k), by_row = b.junk(T, k);
    const View all = b.floats(parts, 4 * T, k), indices = b.ints(index, T, k);
    b.launch(&KernelTable::pick, Pick{y, all, indices, bounds});
    b.launch(&KernelTable::pick, Pick{by_row, all, indices.column_range(0, 1), bounds});
    std::vector<float> want, want_by_row;
    const auto rank_of = [](std::int32_t i) { return i < 4 ? 0 : i < 7 ? 2 : 3; };
    for (std::int64_t t = 0; t < T; ++t)
      for (std::int64_t j = 0; j < k; ++j) {
        want.push_back(parts[(rank_of(index[t * k + j]) * T + t) * k + j]);
        want_by_row.push_back(parts[(rank_of(index[t * k]) * T + t) * k + j]);
      }
    expect_same_words(words_of(b.read(y)), words_of(want), "by element");
    expect_same_words(words_of(b.read(by_row)), words_of(want_by_row), "by row");
    b.record(y);
  });
}

TEST(RankParts, PickKnowsAsManyRanksAsThereAre) {
  const std::int64_t T = 12, ranks = 150;
  std::vector<std::int64_t> bounds;
  for (std::int64_t r = 0; r <= ranks; ++r) bounds.push_back(r / 3 * 5);  // of three ranks two have none
  const auto parts = random_floats(ranks * T, 7);
  const auto index = random_ints(T, 8, static_cast<std::int32_t>(bounds.back()));
  expect_same_everywhere([&](KernelBench& b) {
    const View y = b.junk(T, 1);
    b.launch(&KernelTable::pick, Pick{y, b.floats(parts, ranks * T, 1), b.ints(index, T), bounds});
    std::vector<float> want;
    for (std::int64_t t = 0; t < T; ++t) want.push_back(parts[static_cast<std::size_t>((index[static_cast<std::size_t>(t)] / 5 * 3 + 2) * T + t)]);
    expect_same_words(words_of(b.read(y)), words_of(want), "of 150 ranks");
    b.record(y);
  });
}

TEST(RankParts, GroupsOfExpertsJoinAsTheTreeOfAll) {
  const std::int64_t T = 19, k = 3, h = 17, experts = 20;
  std::vector<std::int32_t> chosen, slot_of(static_cast<std::size_t>(T * k));
  RandomSequence draws(9, RandomStream::fuzz);
  for (std::int64_t t = 0; t < T; ++t) {
    std::vector<std::int32_t> row;
    while (row.size() < static_cast<std::size_t>(k)) {
      const auto e = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(experts)));
      if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e);
    }
    std::sort(row.begin(), row.end());
    chosen.insert(chosen.end(), row.begin(), row.end());
  }
  std::int32_t slot = 0;
  for (std::int32_t e = 0; e < experts; ++e)
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (chosen[i] == e) slot_of[i] = slot++;
  const auto x = random_floats(T * k * h, 3), weight = random_floats(T * k, 4), dy = random_floats(T * h, 5);
  expect_same_everywhere([&](KernelBench& b) {
    const View vx = b.floats(x, T * k, h), vw = b.floats(weight, T, k), ve = b.ints(chosen, T, k), vs = b.ints(slot_of, T, k), whole = b.junk(T, h);
    b.launch(&KernelTable::expert_combine, ExpertCombine{whole, vx, vw, ve, vs, experts});
    for (const int ranks : {2, 4, 8}) {
      std::vector<View> part;
      for (int r = 0; r < ranks; ++r) {
        part.push_back(b.junk(T, h));
        b.launch(&KernelTable::expert_combine, ExpertCombine{part.back(), vx, vw, ve, vs, experts, 8 / ranks * r, 8 / ranks * (r + 1)});
      }
      for (int step = 1; step < ranks; step *= 2)
        for (int r = 0; r < ranks; r += 2 * step)
          b.launch(&KernelTable::add, Add{part[static_cast<std::size_t>(r)], part[static_cast<std::size_t>(r)], part[static_cast<std::size_t>(r + step)]});
      expect_same_words(words_of(b.read(part[0])), words_of(b.read(whole)), fmt::format("{} ranks", ranks));
      b.record(part[0]);
    }
    // Spread: each range of experts writes its own pairs, and all ranges together are the whole.
    const View dx = b.junk(T * k, h), dw = b.junk(T, k), parts_dx = b.junk(T * k, h), parts_dw = b.junk(T, k), vdy = b.floats(dy, T, h);
    b.launch(&KernelTable::expert_spread, ExpertSpread{dx, dw, vdy, vx, vw, vs});
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{7, 20}, {0, 7}}) {
      b.launch(&KernelTable::expert_spread, ExpertSpread{parts_dx, parts_dw, vdy, vx, vw, vs, ve, begin, end});
      if (begin != 7) continue;
      const std::vector<float> so_far = b.read(parts_dw);
      for (std::size_t i = 0; i < chosen.size(); ++i) EXPECT_EQ(so_far[i] == 12345.0f, chosen[i] < 7);
    }
    expect_same_words(words_of(b.read(parts_dx)), words_of(b.read(dx)), "dx");
    expect_same_words(words_of(b.read(parts_dw)), words_of(b.read(dw)), "dweight");
  });
}

}  // namespace
}  // namespace lockstep
