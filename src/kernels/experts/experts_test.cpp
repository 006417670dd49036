// Moving rows to experts and back: the plan, the fixed groups of the sum, the adjoints, the same bits on every backend.
#include <algorithm>
#include <numeric>

#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

constexpr std::int64_t kExpertsSizes[] = {1, 15, 17, 33};

// k different experts a row, ascending.
std::vector<std::int32_t> random_choice(std::int64_t T, std::int64_t k, std::int32_t experts, std::uint64_t seed) {
  RandomSequence random(seed, RandomStream::fuzz);
  std::vector<std::int32_t> chosen;
  for (std::int64_t t = 0; t < T; ++t) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(experts));
    std::iota(all.begin(), all.end(), 0);
    for (std::int64_t j = 0; j < k; ++j) std::swap(all[j], all[j + random.below(static_cast<std::uint32_t>(experts - j))]);
    std::sort(all.begin(), all.begin() + k);
    chosen.insert(chosen.end(), all.begin(), all.begin() + k);
  }
  return chosen;
}

struct Plan {
  View offsets, row_of, slot_of, expert;
};
Plan make_plan(KernelBench& bench, const std::vector<std::int32_t>& chosen, std::int64_t T, std::int64_t k, std::int64_t experts) {
  Plan plan{bench.ints(std::vector<std::int32_t>(experts + 1, 77), experts + 1), bench.zeros(T * k, 1, DType::i32), bench.zeros(T, k, DType::i32),
            bench.ints(chosen, T, k)};
  bench.launch(&KernelTable::expert_plan, ExpertPlan{plan.offsets, plan.row_of, plan.slot_of, plan.expert});
  return plan;
}

TEST(Experts, ThePlanOrdersSlotsByExpertThenRow) {
  for (const auto& [T, k, experts] : {std::tuple{1, 1, 1}, {1, 4, 4}, {29, 3, 17}, {100, 2, 8}, {5, 4, 64}}) {
    const auto chosen = random_choice(T, k, experts, 1);
    KernelBench bench;
    const Plan plan = make_plan(bench, chosen, T, k, experts);
    std::vector<std::int32_t> offsets = {0}, row_of, slot_of(chosen.size());
    for (int e = 0; e < experts; ++e) {
      for (int i = 0; i < T * k; ++i)
        if (chosen[i] == e) slot_of[i] = static_cast<std::int32_t>(row_of.size()), row_of.push_back(i / k);
      offsets.push_back(static_cast<std::int32_t>(row_of.size()));
    }
    EXPECT_EQ(bench.read_ints(plan.offsets), offsets);
    EXPECT_EQ(bench.read_ints(plan.row_of), row_of);
    EXPECT_EQ(bench.read_ints(plan.slot_of), slot_of);
  }
}

TEST(Experts, RangesAreTheSlotsOfSomeRows) {
  const std::int64_t T = 100, k = 3, experts = 7;
  KernelBench bench;
  const Plan plan = make_plan(bench, random_choice(T, k, experts, 5), T, k, experts);
  const auto offsets = bench.read_ints(plan.offsets), row_of = bench.read_ints(plan.row_of);
  for (const auto& [first, last] : {std::pair<std::int64_t, std::int64_t>{0, 100}, {0, 1}, {13, 60}, {60, 60}, {99, 100}}) {
    const View begin = bench.zeros(experts, 1, DType::i32), end = bench.zeros(experts, 1, DType::i32);
    bench.launch(&KernelTable::slot_ranges, SlotRanges{begin, end, plan.offsets, plan.row_of, first, last});
    const auto begins = bench.read_ints(begin), ends = bench.read_ints(end);
    for (std::size_t e = 0; e < 7; ++e)
      for (std::int32_t slot = offsets[e]; slot < offsets[e + 1]; ++slot) {
        const std::int32_t row = row_of[static_cast<std::size_t>(slot)];
        EXPECT_EQ(slot >= begins[e] && slot < ends[e], row >= first && row < last);
      }
  }
}

TEST(Experts, CombineFollowsTheWrittenOrder) {
  for (const std::int32_t experts : {3, 8, 12, 20}) {  // fewer than groups, one each, and several in a group
    const std::int64_t T = 19, k = 3, h = 17;
    const auto chosen = random_choice(T, k, experts, 2);
    const auto x = random_floats(T * k * h, 3), weight = random_floats(T * k, 4);
    KernelBench bench;
    const Plan plan = make_plan(bench, chosen, T, k, experts);
    const View vx = bench.floats(x, T * k, h), vw = bench.floats(weight, T, k), y = bench.junk(T, h), plain = bench.junk(T, h);
    bench.launch(&KernelTable::expert_combine, ExpertCombine{y, vx, vw, plan.expert, plan.slot_of, experts});
    bench.launch(&KernelTable::expert_combine, ExpertCombine{plain, vx, {}, plan.expert, plan.slot_of, experts});
    const auto slots = bench.read_ints(plan.slot_of);
    std::vector<float> want, want_plain;
    for (std::int64_t t = 0; t < T; ++t)
      for (std::int64_t i = 0; i < h; ++i) {
        float group[8] = {}, unweighted[8] = {};
        for (std::int64_t j = 0; j < k; ++j) {
          const int g = 8 * chosen[t * k + j] / experts;
          const float value = x[slots[t * k + j] * h + i];
          group[g] = std::fma(weight[t * k + j], value, group[g]);
          unweighted[g] = unweighted[g] + value;
        }
        const auto tree = [](const float* g) { return ((g[0] + g[1]) + (g[2] + g[3])) + ((g[4] + g[5]) + (g[6] + g[7])); };
        want.push_back(tree(group));
        want_plain.push_back(tree(unweighted));
      }
    expect_same_words(words_of(bench.read(y)), words_of(want), "combine");
    expect_same_words(words_of(bench.read(plain)), words_of(want_plain), "combine without weights");
  }
}

TEST(Experts, AdjointsMatchFiniteDifferences) {
  for (std::int64_t h : kExpertsSizes) {
    const std::int64_t T = 6, k = 2, E = 5, slots = T * k;
    const auto chosen = random_choice(T, k, E, 5);
    const auto x = random_floats(T * h, 6), dy = random_floats(T * h, 7), weight = random_floats(T * k, 8), dslots = random_floats(slots * h, 9);
    const auto expert_out = random_floats(slots * h, 10);
    KernelBench bench;
    const Plan plan = make_plan(bench, chosen, T, k, E);
    const auto row_of = bench.read_ints(plan.row_of), slot_of = bench.read_ints(plan.slot_of);

    // gather, and its backward: combine without weights
    const View gathered = bench.junk(slots, h), dx = bench.junk(T, h);
    bench.launch(&KernelTable::expert_gather, ExpertGather{gathered, bench.floats(x, T, h), plan.row_of});
    bench.launch(&KernelTable::expert_combine, ExpertCombine{dx, bench.floats(dslots, slots, h), {}, plan.expert, plan.slot_of, E});
    const auto gather_loss = [&](const std::vector<double>& v) {
      double sum = 0;
      for (std::int64_t s = 0; s < slots; ++s)
        for (std::int64_t i = 0; i < h; ++i) sum += v[row_of[s] * h + i] * dslots[s * h + i];
      return sum;
    };
    std::vector<float> want_rows;
    for (std::int64_t s = 0; s < slots; ++s) want_rows.insert(want_rows.end(), &x[row_of[s] * h], &x[row_of[s] * h] + h);
    EXPECT_EQ(bench.read(gathered), want_rows);
    expect_close(bench.read(dx), finite_difference(gather_loss, widened(x)), 1e-5, "dx of gather");

    // combine, and its backward: spread
    const View y = bench.junk(T, h), dout = bench.junk(slots, h), dweight = bench.junk(T, k);
    const View out = bench.floats(expert_out, slots, h), w = bench.floats(weight, T, k), vdy = bench.floats(dy, T, h);
    bench.launch(&KernelTable::expert_combine, ExpertCombine{y, out, w, plan.expert, plan.slot_of, E});
    bench.launch(&KernelTable::expert_spread, ExpertSpread{dout, dweight, vdy, out, w, plan.slot_of});
    const auto combine = [&](const std::vector<double>& rows, const std::vector<double>& weights) {
      std::vector<double> result(static_cast<std::size_t>(T * h));
      for (std::int64_t p = 0; p < T * k; ++p)
        for (std::int64_t i = 0; i < h; ++i) result[p / k * h + i] += weights[p] * rows[slot_of[p] * h + i];
      return result;
    };
    const auto loss = [&](const std::vector<double>& rows, const std::vector<double>& weights) {
      const auto result = combine(rows, weights);
      double sum = 0;
      for (std::size_t i = 0; i < result.size(); ++i) sum += result[i] * dy[i];
      return sum;
    };
    expect_close(bench.read(y), combine(widened(expert_out), widened(weight)), 1e-6, "combine");
    expect_close(bench.read(dout), finite_difference([&](const auto& v) { return loss(v, widened(weight)); }, widened(expert_out)), 1e-5, "dx of spread");
    expect_close(bench.read(dweight), finite_difference([&](const auto& v) { return loss(widened(expert_out), v); }, widened(weight)), 1e-5, "dweight");
  }
}

TEST(Experts, BitsAndHashesAreTheSameEverywhere) {
  for (std::int64_t h : kExpertsSizes)
    expect_same_everywhere([&](KernelBench& bench) {
      const std::int64_t T = 35, k = 4, E = 12;
      const Plan plan = make_plan(bench, random_choice(T, k, E, 11), T, k, E);
      const View x = bench.floats(random_floats(T * h, 12), T, h), w = bench.floats(random_floats(T * k, 13), T, k);
      const View rows = bench.junk(T * k, h), y = bench.junk(T, h), plain = bench.junk(T, h), dweight = bench.junk(T, k), drows = bench.junk(T * k, h);
      bench.launch(&KernelTable::expert_gather, ExpertGather{rows, x, plan.row_of});
      bench.launch(&KernelTable::expert_combine, ExpertCombine{y, rows, w, plan.expert, plan.slot_of, E});
      bench.launch(&KernelTable::expert_combine, ExpertCombine{plain, rows, {}, plan.expert, plan.slot_of, E});
      bench.launch(&KernelTable::expert_spread, ExpertSpread{drows, dweight, y, rows, w, plan.slot_of});
      for (const View& v : {plan.offsets, plan.row_of, plan.slot_of, rows, y, plain, drows, dweight}) bench.record(v);
    });
}

// What ranks and adapters ask for: some groups, some experts, some rows; and dx where x is.
TEST(Experts, SharesAreTheSameEverywhere) {
  expect_same_everywhere([&](KernelBench& bench) {
    const std::int64_t T = 23, k = 3, E = 10, h = 21;
    const Plan plan = make_plan(bench, random_choice(T, k, E, 21), T, k, E);
    const View x = bench.floats(random_floats(T * k * h, 22), T * k, h), w = bench.floats(random_floats(T * k, 23), T, k),
               dy = bench.floats(random_floats(T * h, 24), T, h);
    for (const auto& [first, last] : {std::pair{0, 4}, {4, 8}, {2, 3}, {6, 8}}) {
      ExpertCombine combine{bench.junk(T, h), x, w, plan.expert, plan.slot_of, E};
      combine.group_begin = first, combine.group_end = last;
      bench.launch(&KernelTable::expert_combine, combine);
      bench.record(combine.y);
    }
    const View own = bench.junk(T * k, h), dweight = bench.junk(T, k), nothing = bench.junk(T, k);
    bench.launch(&KernelTable::expert_spread, ExpertSpread{own, dweight, dy, x, w, plan.slot_of, plan.expert, 3, 7});
    bench.launch(&KernelTable::expert_spread, ExpertSpread{own, nothing, dy, x, w, plan.slot_of, plan.expert, 4, 4});
    bench.launch(&KernelTable::expert_spread, ExpertSpread{x, dweight, dy, x, w, plan.slot_of, plan.expert, 0, 3});
    for (const View& v : {own, dweight, nothing, x}) bench.record(v);
    for (const auto& [first, last] : {std::pair{0, 23}, {0, 1}, {5, 17}, {9, 9}, {9, 4}, {22, 23}, {23, 40}}) {
      const View begin = bench.zeros(E, 1, DType::i32), end = bench.zeros(E, 1, DType::i32);
      bench.launch(&KernelTable::slot_ranges, SlotRanges{begin, end, plan.offsets, plan.row_of, first, last});
      bench.record(begin);
      bench.record(end);
    }
  });
}

// What ranks ask for that have the pairs of their rows in order: the sum over slots, wherever the pairs stand.
TEST(Experts, PairsInOrderHaveTheBitsOfSlots) {
  expect_same_everywhere([&](KernelBench& bench) {
    const std::int64_t T = 29, k = 4, E = 13, h = 33;
    const Plan plan = make_plan(bench, random_choice(T, k, E, 31), T, k, E);
    const View x = bench.floats(random_floats(T * k * h, 32), T * k, h), w = bench.floats(random_floats(T * k, 33), T, k), pairs = bench.junk(T * k, h);
    bench.launch(&KernelTable::expert_gather, ExpertGather{pairs, x, plan.slot_of.reshape(T * k, 1)});
    for (const View& weight : {w, View()}) {
      const View of_slots = bench.junk(T, h), of_pairs = bench.junk(T, h);
      bench.launch(&KernelTable::expert_combine, ExpertCombine{of_slots, x, weight, plan.expert, plan.slot_of, E});
      bench.launch(&KernelTable::expert_combine, ExpertCombine{of_pairs, pairs, weight, plan.expert, View(), E});
      EXPECT_EQ(bench.read(of_pairs), bench.read(of_slots));
      bench.record(of_pairs);
    }
  });
}

TEST(Experts, PlansOfAnyShapeAreTheSameEverywhere) {
  for (const auto& [T, k, experts] : {std::tuple{0, 2, 3}, {1, 1, 1}, {1, 4, 4}, {300, 3, 17}, {5, 4, 64}})
    expect_same_everywhere([&, T = T, k = k, experts = experts](KernelBench& bench) {
      const Plan plan = make_plan(bench, random_choice(T, k, experts, 1), T, k, experts);
      for (const View& v : {plan.offsets, plan.row_of, plan.slot_of}) bench.record(v);
    });
}

TEST(Experts, ARowHasTheSameBitsAlone) {
  const std::int64_t T = 30, k = 3, E = 12, h = 33;
  const auto chosen = random_choice(T, k, E, 14);
  KernelBench bench;
  const View x = bench.floats(random_floats(T * h, 15), T, h), w = bench.floats(random_floats(T * k, 16), T, k);
  const auto run = [&](std::int64_t begin, std::int64_t count) {
    const Plan plan = make_plan(bench, {chosen.begin() + begin * k, chosen.begin() + (begin + count) * k}, count, k, E);
    const View rows = bench.junk(count * k, h), y = bench.junk(count, h);
    bench.launch(&KernelTable::expert_gather, ExpertGather{rows, x.row_range(begin, count), plan.row_of});
    bench.launch(&KernelTable::expert_combine, ExpertCombine{y, rows, w.row_range(begin, count), plan.expert, plan.slot_of, E});
    return words_of(bench.read(y));
  };
  const auto all = run(0, T);
  for (std::int64_t t : {0, 13, 29}) expect_same_words(run(t, 1), {all.begin() + t * h, all.begin() + (t + 1) * h}, "row " + std::to_string(t));
}

}  // namespace
}  // namespace lockstep
