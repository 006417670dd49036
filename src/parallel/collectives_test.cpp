#include "parallel/collectives.h"

#include <gtest/gtest.h>

#include <bit>
#include <stdexcept>

#include "base/error.h"
#include "base/philox.h"
#include "numerics/form.h"
#include "parallel/thread_ranks.h"

namespace lockstep {
namespace {

constexpr MemoryCategory kAny = MemoryCategory::workspace;

std::vector<float> randoms(std::int64_t n, std::uint64_t item) {
  RandomSequence draws(7, RandomStream::fuzz, item);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(draws.uniform() * 2 - 1) * (draws.below(3) == 0 ? 1e6f : 1.0f);
  return values;
}
void same_bits(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  std::size_t different = 0;
  for (std::size_t i = 0; i < got.size(); ++i) different += std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i]);
  EXPECT_EQ(different, 0u) << what;
}
// The addition that a kernel makes elsewhere, by way of the host.
AddInto host_add(Stream& stream) {
  return [&stream](const View& into, const View& from) {
    std::vector<float> a = stream.read(into).get();
    const std::vector<float> b = stream.read(from).get();
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    stream.write(into, a);
  };
}

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  // work(rank, the group of all, a device of its own)
  void on_ranks(BackendKind kind, const std::function<void(int, Communicator&, Device&)>& work) {
    ThreadRanks ranks({1, GetParam(), 1});
    ranks.run([&](int rank) {
      Device device(kind, 1);
      work(rank, ranks.data(rank), device);
    });
  }
};

TEST_P(Collectives, AllGatherAndBroadcast) {
  for (BackendKind kind : {BackendKind::cpu, BackendKind::deferred})
    on_ranks(kind, [&](int rank, Communicator& group, Device& device) {
      // Ranks hold different numbers of rows; some none.
      std::vector<std::int64_t> rows;
      std::int64_t total = 0;
      for (int r = 0; r < group.size(); ++r) rows.push_back((r * 5) % 4), total += rows.back();
      const Buffer all = device.allocate_zero(DType::f32, total, 3, kAny);
      std::vector<View> views;
      std::vector<float> want;
      std::int64_t at = 0;
      for (int r = 0; r < group.size(); ++r) {
        views.push_back(all.view().row_range(at, rows[static_cast<std::size_t>(r)]));
        at += rows[static_cast<std::size_t>(r)];
        const auto part = randoms(views.back().size(), 100 + static_cast<std::uint64_t>(r));
        want.insert(want.end(), part.begin(), part.end());
      }
      const Buffer mine = device.upload(randoms(rows[static_cast<std::size_t>(rank)] * 3, 100 + static_cast<std::uint64_t>(rank)),
                                        rows[static_cast<std::size_t>(rank)], 3, kAny);
      all_gather(group, device.stream(), mine.view(), views);
      same_bits(device.stream().read(all.view()).get(), want, "all_gather");

      const int root = group.size() / 2;
      // A column range: rows with gaps.
      const Buffer wide = device.upload(randoms(7 * 5, static_cast<std::uint64_t>(rank)), 7, 5, kAny);
      broadcast(group, device.stream(), wide.view().column_range(1, 3), root);
      std::vector<float> narrow = randoms(7 * 5, static_cast<std::uint64_t>(rank));
      const std::vector<float> of_root = randoms(7 * 5, static_cast<std::uint64_t>(root));
      for (std::size_t i = 0; i < narrow.size(); ++i)
        if (i % 5 >= 1 && i % 5 < 4) narrow[i] = of_root[i];
      same_bits(device.stream().read(wide.view()).get(), narrow, "broadcast");
    });
}

TEST_P(Collectives, TreeSumHasTheBitsOfTheWholeTree) {
  for (BackendKind kind : {BackendKind::cpu, BackendKind::deferred})
    for (const std::int64_t leaves : {1, 2, 4, 8})
      for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 17}, {5, 3}, {33, 16}, {2, 0}}) {
        std::vector<std::vector<float>> leaf;
        for (std::int64_t l = 0; l < leaves; ++l) leaf.push_back(randoms(rows * columns, 1000 + static_cast<std::uint64_t>(l)));
        const auto join = [&](std::int64_t begin, std::int64_t end) {
          std::vector<float> sum(static_cast<std::size_t>(rows * columns));
          for (std::size_t i = 0; i < sum.size(); ++i) {
            float parts[8];
            for (std::int64_t l = begin; l < end; ++l) parts[l - begin] = leaf[static_cast<std::size_t>(l)][i];
            sum[i] = join_pairwise(parts, static_cast<int>(end - begin));
          }
          return sum;
        };
        on_ranks(kind, [&](int rank, Communicator& group, Device& device) {
          const std::vector<std::int64_t> own = deal(leaves, group.size());
          const std::int64_t begin = own[static_cast<std::size_t>(rank)], end = own[static_cast<std::size_t>(rank) + 1];
          // What a rank without leaves holds is never read.
          const Buffer data = device.upload(end > begin ? join(begin, end) : randoms(rows * columns, 5), rows, columns, kAny);
          all_reduce_tree(group, device, data.view(), leaves, host_add(device.stream()));
          same_bits(device.stream().read(data.view()).get(), join(0, leaves),
                    fmt::format("{} leaves, {} x {}, rank {} of {}", leaves, rows, columns, rank, group.size()));
        });
      }
}

// The control: numbers for which another order of adding is another sum. The ring's order is not the tree's.
TEST(CollectivesControl, AnotherOrderIsSeen) {
  const float leaf[4] = {1e8f, 1.0f, -1e8f, 1.0f};
  float tree[4] = {leaf[0], leaf[1], leaf[2], leaf[3]};
  ASSERT_NE(join_pairwise(tree, 4), ((leaf[0] + leaf[1]) + leaf[2]) + leaf[3]);
  ThreadRanks ranks({4, 1, 1});
  ranks.run([&](int rank) {
    Device device(BackendKind::cpu, 1);
    const Buffer data = device.upload(std::vector<float>{leaf[rank]}, 1, 1, kAny);
    all_reduce_tree(ranks.tensor(rank), device, data.view(), 4, host_add(device.stream()));
    EXPECT_EQ(device.stream().read(data.view()).get()[0], tree[0]);
  });
}

TEST_P(Collectives, ReduceScatterOfExactNumbers) {
  on_ranks(BackendKind::cpu, [&](int rank, Communicator& group, Device& device) {
    const std::int64_t rows = 11;
    std::vector<std::int64_t> bounds;
    for (int r = 0; r <= group.size(); ++r) bounds.push_back(rows * r / group.size());
    std::vector<float> mine(static_cast<std::size_t>(rows * 2));
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<float>(static_cast<int>(i) * (rank + 1));
    const Buffer data = device.upload(mine, rows, 2, kAny);
    reduce_scatter(group, device, data.view(), bounds, host_add(device.stream()));
    const std::vector<float> got = device.stream().read(data.view()).get();
    const int factor = group.size() * (group.size() + 1) / 2;
    for (std::int64_t i = bounds[static_cast<std::size_t>(rank)] * 2; i < bounds[static_cast<std::size_t>(rank) + 1] * 2; ++i)
      EXPECT_EQ(got[static_cast<std::size_t>(i)], static_cast<float>(i * factor));
  });
}

TEST_P(Collectives, HostBytesOfAllRanks) {
  on_ranks(BackendKind::cpu, [&](int rank, Communicator& group, Device&) {
    const std::vector<std::string> all = group.gather_host(std::string(static_cast<std::size_t>(rank), 'x'));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(group.size()));
    for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r].size(), r);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4, 8));

TEST(ThreadRanks, GroupsAreThoseOfTheLayout) {
  ThreadRanks ranks({2, 3, 2});
  ranks.run([&](int rank) {
    EXPECT_EQ(ranks.world(rank).rank(), rank);
    EXPECT_EQ(ranks.world(rank).size(), 12);
    const auto members = [&](Communicator& group) {
      std::vector<int> all;
      for (const std::string& name : group.gather_host(std::to_string(rank))) all.push_back(std::stoi(name));
      EXPECT_EQ(all[static_cast<std::size_t>(group.rank())], rank);
      return all;
    };
    const int replica = rank / 4 * 4, pair = rank / 2 * 2, place = rank % 4;
    EXPECT_EQ(members(ranks.tensor(rank)), (std::vector<int>{pair, pair + 1}));
    EXPECT_EQ(members(ranks.model(rank)), (std::vector<int>{replica, replica + 1, replica + 2, replica + 3}));
    EXPECT_EQ(members(ranks.data(rank)), (std::vector<int>{place, place + 4, place + 8}));
  });
}

TEST(ThreadRanks, AFailingRankReleasesTheOthersAndTheNextRunWorks) {
  ThreadRanks ranks({2, 2, 1});
  for (int failing = 0; failing < 4; ++failing)
    for (int before : {0, 1, 5}) {
      std::string told;
      try {
        ranks.run([&](int rank) {
          Device device(BackendKind::deferred, 1);
          const Buffer data = device.upload(std::vector<float>(64, 1.0f), 8, 8, kAny);
          for (int i = 0;; ++i) {  // without the failure this never ends
            if (rank == failing && i == before) throw std::runtime_error("rank " + std::to_string(rank));
            if (i % 3 == 0) ranks.world(rank).barrier();
            else if (i % 3 == 1) broadcast(ranks.tensor(rank), device.stream(), data.view(), 1);
            else all_reduce_tree(ranks.data(rank), device, data.view(), 2, host_add(device.stream()));
          }
        });
      } catch (const std::runtime_error& e) {
        told = e.what();
      }
      EXPECT_EQ(told, "rank " + std::to_string(failing));
      ranks.run([&](int rank) { EXPECT_EQ(ranks.world(rank).gather_host("a").size(), 4u); });
    }
}

TEST(ThreadRanks, ViewsThatDoNotFitAreAnErrorOfAll) {
  ThreadRanks ranks({2, 1, 1});
  EXPECT_THROW(ranks.run([&](int rank) {
    Device device(BackendKind::cpu, 1);
    const Buffer data = device.allocate_zero(DType::f32, 2 + rank, 2, kAny);
    broadcast(ranks.world(rank), device.stream(), data.view(), 0);
    ranks.world(rank).barrier();
  }),
               Error);
}

}  // namespace
}  // namespace lockstep
