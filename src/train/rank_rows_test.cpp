// Rows of any parameters over any number of data-parallel ranks: each has one owner, and together they are the whole.
#include "train/rank_rows.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <mutex>

#include "parallel/thread_ranks.h"

namespace lockstep {
namespace {

TEST(RankRows, OfAllRanksAreTheWhole) {
  const bool same = rc::check([] {
    Manifest manifest;
    const auto shapes = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 40 * 20 * 2));
    for (const int shape : shapes) {
      const bool packed = shape % 2 == 1;
      Parameter p{"p", packed ? ParameterLayout::packed : ParameterLayout::table, packed ? 1 + shape / 2 % 3 : 1, 1 + shape / 2 % 40, 1 + shape / 80};
      p.trained = shape % 7 != 0;
      manifest.add(p);
    }
    const int dp = *rc::gen::inRange(1, 6);
    WeightImages whole;
    for (const Parameter& p : manifest.parameters())
      for (whole.emplace_back(); static_cast<std::int64_t>(whole.back().size()) < p.size();)
        whole.back().push_back(static_cast<float>(whole.size() * 1000 + whole.back().size()));
    std::mutex mutex;
    std::vector<std::int64_t> owned(whole.size());
    WeightImages told(whole.size());
    bool others_silent = true;
    ThreadRanks ranks({1, dp, 1});
    ranks.run([&](int rank) {
      Backend backend({.threads = 1});
      const RankRows rows(backend, manifest, ranks.place(rank));
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const auto [count, width] = rows.shape(i);
        const Buffer own = backend.device().allocate(DType::f32, count, width, MemoryCategory::workspace);
        rows.write(i, own.view(), whole[i]);
        std::vector<float> image = rows.image(i, own.view());
        const std::lock_guard lock(mutex);
        owned[i] += count * width;
        if (rank == 0) told[i] = std::move(image);
        else others_silent = others_silent && image.empty();
      }
    });
    RC_ASSERT(told == whole);
    RC_ASSERT(others_silent);
    for (std::size_t i = 0; i < whole.size(); ++i)
      RC_ASSERT(owned[i] == static_cast<std::int64_t>(whole[i].size()) * (manifest.parameters()[i].trained ? 1 : dp));
  });
  EXPECT_TRUE(same);
}

}  // namespace
}  // namespace lockstep
