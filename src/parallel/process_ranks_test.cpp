// Ranks over processes do what ranks of threads do: the same bytes by every operation, errors told to all, calls followed in order.
#include "parallel/process_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "numerics/exact_sum.h"
#include "parallel/exchange_counts.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/operations_test_tools.h"
#include "parallel/process_watch.h"
#include "parallel/thread_ranks.h"

namespace lockstep {
namespace {

// What a process threw, by process; empty: nothing.
std::vector<std::string> errors_of(int processes, const RankLayout& layout, const std::function<void(int, Ranks&)>& work) {
  std::vector<std::string> told(static_cast<std::size_t>(processes));
  as_processes(processes, [&](ProcessMail& mail) {
    ProcessRanks ranks(layout, mail);
    try {
      work(mail.process(), ranks);
    } catch (const std::exception& e) {
      told[static_cast<std::size_t>(mail.process())] = e.what();
    }
  });
  return told;
}

TEST(ProcessRanks, EveryOperationHasTheBytesOfThreads) {
  for (const auto& [layout, processes] :
       {std::pair{RankLayout{1, 2, 1}, 2}, {{2, 1, 1}, 2}, {{1, 3, 1}, 3}, {{2, 2, 1}, 2}, {{2, 2, 2}, 3}, {{3, 2, 1}, 6}, {{2, 1, 1}, 1}}) {
    SCOPED_TRACE(fmt::format("{} over {} processes", layout.text(), processes));
    ThreadRanks threads(layout);
    const std::vector<std::string> want = operations_of(threads, 3);
    std::vector<std::string> got(want.size());
    as_processes(processes, [&](ProcessMail& mail) {
      ProcessRanks ranks(layout, mail);
      const std::vector<std::string> mine = operations_of(ranks, 3);
      for (int local = 0; local < ranks.local(); ++local) got[static_cast<std::size_t>(ranks.place(local).rank)] = mine[static_cast<std::size_t>(local)];
      EXPECT_EQ(traffic_of(ranks).bytes, traffic_of(threads).bytes);
      for (int local = 0; local < ranks.local(); ++local) {
        const RankPlace place = ranks.place(local), alike = threads.place(place.rank);
        EXPECT_EQ(exchanges_of(place).difference(exchanges_of(alike)), "") << "rank " << place.rank;
        EXPECT_NE(place.world == nullptr, exchanges_of(place).sum().bytes > 0);
      }
    });
    EXPECT_EQ(got, want);
    EXPECT_GT(want[0].size(), 1000u);
  }
}

// Letters move while nobody waits for them: what was started arrives though its reader asks for nothing.
TEST(ProcessRanks, WhatWasStartedArrivesWhileRanksCompute) {
  const auto net = std::make_shared<MemoryNet>(2);
  as_processes(net, [&](ProcessMail& mail) {
    ProcessRanks ranks({1, 2, 1}, mail);
    ranks.run([&](int local) {
      Communicator& group = *ranks.place(local).data;
      Device device(BackendKind::cpu, 1);
      const auto me = static_cast<std::size_t>(group.rank());
      const auto taken = [&] {
        const std::lock_guard lock(net->mutex);
        return net->taken[{1 - mail.process(), mail.process()}];
      };
      const Buffer own = device.upload(std::vector<float>{1.0f + static_cast<float>(me)}, 1, 1, MemoryCategory::workspace);
      const Buffer all = device.allocate_zero(DType::f32, 2, 1, MemoryCategory::workspace);
      const int before = taken();
      start_all_gather(group, device.stream(), own.view(), {all.view().row_range(0, 1), all.view().row_range(1, 1)});
      for (int turn = 0; turn < 20000 && taken() < before + 2; ++turn) std::this_thread::sleep_for(std::chrono::microseconds(500));  // a head and a body
      EXPECT_GE(taken(), before + 2);
      finish_all_gather(group, device.stream());
      EXPECT_EQ(device.stream().read(all.view()).get(), (std::vector<float>{1, 2}));
    });
  });
}

// Nothing else may be exchanged in between, and after the error the ranks go on.
TEST(ProcessRanks, AnotherExchangeInBetweenIsRefused) {
  as_processes(2, [&](ProcessMail& mail) {
    ProcessRanks ranks({1, 2, 1}, mail);
    const auto work = [&](bool between) {
      ranks.run([&](int local) {
        Communicator& group = *ranks.place(local).data;
        Device device(BackendKind::cpu, 1);
        const Buffer own = device.upload(std::vector<float>{3}, 1, 1, MemoryCategory::workspace);
        const Buffer all = device.allocate_zero(DType::f32, 2, 1, MemoryCategory::workspace);
        start_all_gather(group, device.stream(), own.view(), {all.view().row_range(0, 1), all.view().row_range(1, 1)});
        if (between) group.gather_host("x");
        finish_all_gather(group, device.stream());
        EXPECT_EQ(device.stream().read(all.view()).get(), (std::vector<float>{3, 3}));
      });
    };
    try {
      work(true);
      ADD_FAILURE() << "it was made";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("makes another exchange while 1 that it started are not finished"), std::string::npos) << e.what();
    }
    work(false);
  });
}

TEST(ProcessRanksControl, OtherNumbersAreOtherBytes) {
  ThreadRanks threads({1, 2, 1});
  EXPECT_NE(operations_of(threads, 3), operations_of(threads, 4));
}

// Accumulators of a rank, and what it has after a reduce-scatter and a gather of all of them.
std::string accumulators_of(const RankPlace& place, std::int64_t rows, bool special) {
  Device device(BackendKind::cpu, 1);
  constexpr std::int64_t kColumns = 48;
  const auto numbers = [](const View& view) { return reinterpret_cast<double*>(view.address); };
  const auto bytes = [&](const View& view) { return std::string(reinterpret_cast<const char*>(view.address), static_cast<std::size_t>(view.size() * 24)); };
  const Buffer data = device.allocate_zero(DType::bins, rows, kColumns, MemoryCategory::workspace);
  RandomSequence draws(9, RandomStream::fuzz, static_cast<std::uint64_t>(place.rank));
  for (std::int64_t i = 0; i < rows * kColumns; ++i) {
    double number[3] = {};
    deposit_in_bins(number, std::ldexp(static_cast<float>(draws.uniform() - 0.5), -static_cast<int>(draws.below(30))));
    carry_in_bins(number);
    if (special && i % 100 == 7) number[i % 3] = std::nan("5");
    for (std::int64_t bin = 0; bin < 3; ++bin) numbers(data.view())[i / 16 * 48 + bin * 16 + i % 16] = number[bin];
  }
  const auto add = [&](const View& into, const View& from) {
    for (std::int64_t i = 0; i < into.size(); ++i) {
      double number[3];
      double* const place_of = numbers(into) + i / 16 * 48 + i % 16;
      for (std::int64_t bin = 0; bin < 3; ++bin) number[bin] = place_of[bin * 16] + numbers(from)[i / 16 * 48 + bin * 16 + i % 16];
      carry_in_bins(number);
      for (std::int64_t bin = 0; bin < 3; ++bin) place_of[bin * 16] = number[bin];
    }
  };
  std::vector<std::int64_t> bounds;
  for (int r = 0; r <= place.data->size(); ++r) bounds.push_back(rows * r / place.data->size());
  reduce_scatter(*place.data, device, data.view(), bounds, add);
  const Buffer all = device.allocate_zero(DType::bins, place.world->size() * rows, kColumns, MemoryCategory::workspace);
  std::vector<View> parts;
  for (int r = 0; r < place.world->size(); ++r) parts.push_back(all.view().row_range(r * rows, rows));
  all_gather(*place.world, device.stream(), data.view(), parts);
  return bytes(all.view());
}

// They leave a process in fewer bytes, and are those that threads have; to a rank of the same process they go as they stand.
TEST(ProcessRanks, AccumulatorsTravelInTheBytesThatTheyNeed) {
  for (const bool special : {false, true})
    for (const auto& [layout, processes] : {std::pair{RankLayout{1, 2, 1}, 2}, {{1, 3, 1}, 3}, {{2, 2, 1}, 4}, {{1, 4, 1}, 2}, {{1, 2, 1}, 1}}) {
      SCOPED_TRACE(fmt::format("{} over {} processes{}", layout.text(), processes, special ? ", with numbers that are none" : ""));
      const std::int64_t rows = 37;
      ThreadRanks threads(layout);
      std::vector<std::string> want(static_cast<std::size_t>(layout.size()));
      threads.run([&](int rank) { want[static_cast<std::size_t>(rank)] = accumulators_of(threads.place(rank), rows, special); });
      as_processes(processes, [&](ProcessMail& mail) {
        ProcessRanks ranks(layout, mail);
        ranks.run([&](int local) {
          const RankPlace place = ranks.place(local);
          EXPECT_EQ(accumulators_of(place, rows, special), want[static_cast<std::size_t>(place.rank)]) << "rank " << place.rank;
          const ExchangeCounters here = exchanges_of(place).sum(), alike = exchanges_of(threads.place(place.rank)).sum();
          EXPECT_EQ(here.bytes, alike.bytes);
          EXPECT_EQ(alike.sent, alike.bytes);
          if (processes == 1) EXPECT_EQ(here.sent, here.bytes);
          else if (!special) EXPECT_LE(here.sent, here.bytes * (processes == layout.size() ? 9 : 17) / 24);
          else EXPECT_LE(here.sent, here.bytes);
        });
      });
    }
}

// What waits is told: a rank that comes late makes the others wait, and does not wait itself.
TEST(ProcessRanks, WaitingIsCountedByOperation) {
  constexpr auto kLate = std::chrono::milliseconds(60);
  const auto late = [&](Ranks& ranks, std::vector<RankExchanges>& counts) {
    ranks.run([&](int local) {
      const RankPlace place = ranks.place(local);
      Device device(BackendKind::cpu, 1);
      const Buffer data = device.allocate_zero(DType::f32, 2, 2, MemoryCategory::workspace);
      place.world->barrier();
      const RankExchanges before = exchanges_of(place);
      if (place.rank == 1) std::this_thread::sleep_for(kLate);
      broadcast(*place.world, device.stream(), data.view(), 1);
      if (place.rank == 1) std::this_thread::sleep_for(2 * kLate);
      place.world->gather_host("x");
      counts[static_cast<std::size_t>(place.rank)] = exchanges_of(place) - before;
    });
  };
  const auto check = [&](const std::vector<RankExchanges>& counts) {
    const double seconds = std::chrono::duration<double>(kLate).count();
    const ExchangeCounters &moved = counts[0].of(RankGroup::world, Collective::broadcast), &told = counts[0].of(RankGroup::world, Collective::records);
    EXPECT_GT(moved.waited, 0.8 * seconds);
    EXPECT_GT(told.waited, 1.6 * seconds);
    EXPECT_EQ(told.calls, 0);
    EXPECT_NEAR(counts[0].sum().waited, moved.waited + told.waited, 1e-9);
    EXPECT_LT(counts[1].sum().waited, counts[0].sum().waited);
  };
  std::vector<RankExchanges> counts(2);
  ThreadRanks threads({1, 2, 1});
  late(threads, counts);
  check(counts);
  as_processes(2, [&](ProcessMail& mail) {
    ProcessRanks ranks({1, 2, 1}, mail);
    late(ranks, counts);
  });
  check(counts);
}

TEST(ProcessRanks, AFailingRankReleasesTheOthersAndTheNextRunWorks) {
  for (const int processes : {2, 3, 4})
    for (int failing = 0; failing < 4; ++failing)
      for (const int before : {0, 1, 5}) {
        std::atomic<int> after = 0;
        const std::vector<std::string> told = errors_of(processes, {2, 2, 1}, [&](int, Ranks& ranks) {
          std::string error;
          try {
            ranks.run([&](int local) {
              const RankPlace place = ranks.place(local);
              Device device(BackendKind::deferred, 1);
              const Buffer data = device.upload(std::vector<float>(64, 1.0f), 8, 8, MemoryCategory::workspace);
              for (int i = 0;; ++i) {  // without the failure this never ends
                if (place.rank == failing && i == before) throw std::runtime_error(fmt::format("rank {}", failing));
                if (i % 3 == 0) place.world->barrier();
                else if (i % 3 == 1) broadcast(*place.tensor, device.stream(), data.view(), 1);
                else place.data->gather_host("abc");
              }
            });
          } catch (const std::exception& e) {
            error = e.what();
          }
          ranks.run([&](int local) { after += ranks.place(local).world->gather_host("a").size() == 4u; });
          throw std::runtime_error(error);
        });
        EXPECT_EQ(after, 4);
        for (const std::string& error : told) EXPECT_EQ(error.substr(0, 6), fmt::format("rank {}", failing)) << error;
      }
}

TEST(ProcessRanks, ViewsThatDoNotFitAreAnErrorOfAll) {
  const std::vector<std::string> told = errors_of(2, {2, 1, 1}, [](int, Ranks& ranks) {
    ranks.run([&](int local) {
      const RankPlace place = ranks.place(local);
      Device device(BackendKind::cpu, 1);
      const Buffer data = device.allocate_zero(DType::f32, 2 + place.rank, 2, MemoryCategory::workspace);
      broadcast(*place.world, device.stream(), data.view(), 0);
      place.world->barrier();
    });
  });
  for (const std::string& error : told) EXPECT_NE(error.find("rank 1 expects 3 x 2 of rank 0, which sends 2 x 2"), std::string::npos) << error;
}

// One rank sends what the other does not expect, and expects nothing itself: seen at the next exchange.
TEST(ProcessRanks, AnExchangeThatTheOtherDoesNotMakeIsAnErrorOfAll) {
  const auto views = [](const View& first, const View& second) { return std::vector<View>{first, second}; };
  for (const bool more : {false, true}) {
    const std::vector<std::string> told = errors_of(2, {2, 1, 1}, [&](int process, Ranks& ranks) {
      ranks.run([&](int local) {
        const RankPlace place = ranks.place(local);
        Device device(BackendKind::cpu, 1);
        const Buffer data = device.allocate_zero(DType::f32, 2, 2, MemoryCategory::workspace);
        if (process == 0) place.world->exchange(device.stream(), views({}, data.view()), views({}, {}));
        else place.world->exchange(device.stream(), views({}, {}), views({}, {}));
        if (more || process == 1) place.world->gather_host("x");
      });
    });
    for (const std::string& error : told) EXPECT_NE(error.find("rank 1 expects exchange 2 of rank 0, which sends exchange 1"), std::string::npos) << error;
  }
}

TEST(ProcessRanks, FewerRanksThanProcessesAreRefused) {
  for (const std::string& error : errors_of(3, {1, 3, 1}, [](int, Ranks&) {})) EXPECT_EQ(error, "");
  as_processes(3, [](ProcessMail& mail) { EXPECT_THROW(ProcessRanks({1, 2, 1}, mail), Error); });
}

TEST(ProcessMail, CallsAreFollowedInOrderUntilTheFirstEnds) {
  std::vector<std::string> followed(3);
  as_processes(3, [&](ProcessMail& mail) {
    if (mail.process() == 0) {
      for (int i = 0; i < 5; ++i) mail.call(std::string(static_cast<std::size_t>(i) * 100'000, 'x') + std::to_string(i));
      return;
    }
    while (const auto call = mail.next_call()) followed[static_cast<std::size_t>(mail.process())] += fmt::format("{}:{} ", call->size(), call->back());
  });
  EXPECT_EQ(followed[1], "1:0 100001:1 200001:2 300001:3 400001:4 ");
  EXPECT_EQ(followed[2], followed[1]);
}

// Process 0 does not wait for ever for one that failed alone; a call that fails in all of them is no hindrance to the next.
TEST(ProcessMail, AProcessThatCannotFollowACallIsNamedToTheFirst) {
  std::string told;
  std::atomic<int> met = 0;
  as_processes(3, [&](ProcessMail& mail) {
    ProcessRanks ranks({1, 3, 1}, mail);
    const auto meet = [&] {
      ranks.run([&](int local) { ranks.place(local).world->barrier(); });
      ++met;
    };
    if (mail.process() == 0) {
      mail.call("meet");
      meet();
      mail.call("fail");
      mail.call("meet");
      meet();
      mail.call("meet without 1");
      try {
        meet();
      } catch (const Error& e) {
        told = e.what();
      }
      return;
    }
    while (const auto call = mail.next_call()) try {
        if (*call == "fail" || (*call == "meet without 1" && mail.process() == 1)) throw std::runtime_error("no memory");
        meet();
      } catch (const std::exception& e) {
        mail.fail_call(e.what());
      }
  });
  EXPECT_EQ(told, "process 1 cannot follow: no memory");
  EXPECT_EQ(met, 6);
}

TEST(ProcessMail, AProcessThatMadeOtherRunsEndsAtTheNextCall) {
  std::string told;
  as_processes(2, [&](ProcessMail& mail) {
    if (mail.process() == 0) return mail.call("a");
    mail.begin_run();
    try {
      mail.next_call();
    } catch (const Error& e) {
      told = e.what();
    }
  });
  EXPECT_EQ(told, "process 1 has made 1 runs before call 1, and process 0 0");
}

// Who has ended well may be gone before the last one's word has come.
TEST(ProcessMail, AGoodByeThatOvertakesAnothersEndIsNoError) {
  const auto net = std::make_shared<MemoryNet>(3);
  net->late = [&net = *net](int from, int to) { return from == 0 && to == 2 && net.taken[{1, 2}] < 3; };  // 1's end, a head and a body, and its good-bye
  std::atomic<int> well = 0;
  as_processes(net, [&](ProcessMail& mail) {
    ProcessRanks ranks({1, 3, 1}, mail);
    ranks.run([](int) {});
    ++well;
  });
  EXPECT_EQ(well, 3);
}

TEST(ProcessMail, AProcessThatEndsInTheMiddleOfACallIsAnErrorOfTheOthers) {
  const std::vector<std::string> told = errors_of(2, {1, 2, 1}, [](int process, Ranks& ranks) {
    if (process == 0) ranks.run([&](int local) { ranks.place(local).world->barrier(); });
  });
  EXPECT_EQ(told[0], "process 1 ended in the middle of a call");
}

// Two of three do not reach each other in one direction: who hears nothing says of whom, and nobody waits for ever.
TEST(ProcessWatch, AProcessThatIsNotHeardIsNamed) {
  const auto net = std::make_shared<MemoryNet>(3);
  net->late = [](int from, int to) { return from == 1 && to == 2; };
  std::vector<std::string> told(3);
  as_processes(net, [&](ProcessMail& mail) {
    try {
      const ProcessWatch watch(mail, std::chrono::seconds(1));
    } catch (const std::exception& e) {
      told[static_cast<std::size_t>(mail.process())] = e.what();
    }
  });
  for (const std::string& one : told) {
    EXPECT_NE(one.find("process 2 (host here, pid"), std::string::npos) << one;
    EXPECT_NE(one.find("hears nothing of process 1 for 1 s"), std::string::npos) << one;
  }
}

}  // namespace
}  // namespace lockstep
