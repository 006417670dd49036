// Rows that were chosen travel between processes, and no others; threads copy all of them.
#include "parallel/chosen_rows.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/philox.h"
#include "parallel/exchange_counts.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/thread_ranks.h"
#include "tensor/device.h"

namespace lockstep {
namespace {

constexpr std::int64_t kChosenRows = 5, kChosenColumns = 3, kChoices = 2;

// What the rows of a rank chose of 0 to 7; ranks want two numbers each.
std::vector<std::int32_t> choices_of_rank(int rank) {
  RandomSequence draws(7, RandomStream::fuzz, static_cast<std::uint64_t>(rank));
  std::vector<std::int32_t> all(kChosenRows * kChoices);
  for (std::int32_t& one : all) one = static_cast<std::int32_t>(draws.below(8));
  return all;
}

bool row_is_chosen(int rank, std::int64_t row, int by) {
  const std::vector<std::int32_t> all = choices_of_rank(rank);
  for (std::int64_t j = 0; j < kChoices; ++j)
    if (all[static_cast<std::size_t>(row * kChoices + j)] / 2 == by) return true;
  return false;
}

// Of the three ranks.
int process_of_rank(int rank, int processes) {
  int process = 0;
  while (rank >= 3 * (process + 1) / processes) ++process;
  return process;
}

float number_of(int rank, std::int64_t at) { return static_cast<float>(100 * (rank + 1) + at); }

// What a rank received of each other one. `mistaken`: it thinks that the others chose one number more for it.
std::vector<std::vector<float>> exchange_rows(Communicator& group, bool mistaken = false) {
  Device device(BackendKind::cpu, 1);
  const int me = group.rank(), ranks = group.size();
  std::vector<float> mine(kChosenRows * kChosenColumns);
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = number_of(me, static_cast<std::int64_t>(i));
  const Buffer own = device.upload(mine, kChosenRows, kChosenColumns, MemoryCategory::workspace);
  std::vector<Buffer> indices, got;
  std::vector<View> to, from;
  std::vector<RowChoice> to_rows, from_rows;
  for (int r = 0; r < ranks; ++r) {
    indices.push_back(device.upload(choices_of_rank(r), kChosenRows, kChoices, MemoryCategory::workspace));
    got.push_back(device.upload(std::vector<float>(mine.size(), -1.0f), kChosenRows, kChosenColumns, MemoryCategory::workspace));
  }
  for (int r = 0; r < ranks; ++r) {
    to.push_back(own.view());
    from.push_back(got[static_cast<std::size_t>(r)].view());
    to_rows.push_back({indices[static_cast<std::size_t>(me)].view(), 2 * r, 2 * r + 2});
    from_rows.push_back({indices[static_cast<std::size_t>(r)].view(), 2 * me, 2 * me + (mistaken ? 6 : 2)});
  }
  exchange_chosen(group, device.stream(), to, from, to_rows, from_rows);
  std::vector<std::vector<float>> received;
  for (const Buffer& one : got) received.push_back(device.stream().read(one.view()).get());
  return received;
}

TEST(ChosenRows, ProcessesSendThemAndThreadsCopyAll) {
  const RankLayout layout{1, 1, 3};
  for (const int processes : {1, 2, 3}) {
    as_processes(processes, [&](ProcessMail& mail) {
      ProcessRanks ranks(layout, mail);
      ranks.run([&](int local) {
        const RankPlace place = ranks.place(local);
        const std::vector<std::vector<float>> got = exchange_rows(*place.model);
        std::int64_t sent = 0;
        for (int r = 0; r < layout.ep; ++r) {
          const bool elsewhere = process_of_rank(r, processes) != process_of_rank(place.rank, processes);
          for (std::int64_t row = 0; row < kChosenRows; ++row) {
            const bool travels = !elsewhere || r == place.rank || row_is_chosen(r, row, place.rank);
            sent += r != place.rank && travels ? kChosenColumns * 4 : 0;
            for (std::int64_t c = 0; c < kChosenColumns; ++c)
              EXPECT_EQ(got[static_cast<std::size_t>(r)][static_cast<std::size_t>(row * kChosenColumns + c)],
                        travels ? number_of(r, row * kChosenColumns + c) : 0.0f)
                  << processes << " processes, rank " << place.rank << " of " << r << ", row " << row;
          }
        }
        const ExchangeCounters counted = exchanges_of(place).of(RankGroup::model, Collective::exchange);
        EXPECT_EQ(counted.calls, 1);
        EXPECT_EQ(counted.bytes, 2 * kChosenRows * kChosenColumns * 4);  // as in memory: the most that may travel
        EXPECT_EQ(counted.sent, sent);
        EXPECT_EQ(counted.sent<counted.bytes, processes> 1);
      });
    });
  }
  ThreadRanks threads(layout);
  threads.run([&](int rank) {
    const std::vector<std::vector<float>> got = exchange_rows(threads.model(rank));
    for (int r = 0; r < layout.ep; ++r) EXPECT_EQ(got[static_cast<std::size_t>(r)].back(), number_of(r, kChosenRows * kChosenColumns - 1));
  });
}

TEST(ChosenRowsControl, AnotherChoiceOfTheReceiverIsAnError) {
  std::vector<std::string> told(2);
  as_processes(2, [&](ProcessMail& mail) {
    ProcessRanks ranks({1, 1, 2}, mail);
    try {
      ranks.run([&](int local) { exchange_rows(*ranks.place(local).model, true); });
    } catch (const Error& e) {
      told[static_cast<std::size_t>(mail.process())] = e.what();
    }
  });
  for (const std::string& one : told) EXPECT_NE(one.find("rows of 12 bytes were chosen"), std::string::npos) << one;
}

}  // namespace
}  // namespace lockstep
