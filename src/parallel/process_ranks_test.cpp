// Ranks over processes do what ranks of threads do: the same bytes by every operation, errors told to all, calls followed in order.
#include "parallel/process_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "parallel/exchange_counts.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/operations_test_tools.h"
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

TEST(ProcessRanksControl, OtherNumbersAreOtherBytes) {
  ThreadRanks threads({1, 2, 1});
  EXPECT_NE(operations_of(threads, 3), operations_of(threads, 4));
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

}  // namespace
}  // namespace lockstep
