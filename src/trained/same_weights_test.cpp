// Processes that begin with other weights than process 0 are named, with the parameter; where one process has all ranks nobody asks.
#include "trained/same_weights.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/runtime.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/thread_ranks.h"
#include "train/train_test_tools.h"

namespace lockstep {
namespace {

// What each of three processes is told of four ranks, of which the last process has weights of its own if `other`.
std::vector<std::string> told(const TrainBench& bench, bool other, bool computed) {
  WeightImages changed = bench.masters;
  changed[1].back() += 1;
  std::vector<std::string> words(3);
  as_processes(3, [&](ProcessMail& mail) {
    ProcessRanks ranks(RankLayout{.dp = 4}, mail);
    const WeightImages& own = other && mail.process() == 2 ? changed : bench.masters;
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    const auto weights = make_weight_set(runtime.backend, bench.model->manifest(), own, runtime.profile, 0);
    try {
      check_same_weights(ranks, bench.model->manifest(), [&] { return computed ? weight_hashes(runtime.backend, *weights) : weight_hashes(own); });
    } catch (const Error& e) {
      words[static_cast<std::size_t>(mail.process())] = e.message();
    }
  });
  return words;
}

TEST(SameWeights, AProcessWithOthersIsNamedWithTheParameter) {
  const TrainBench bench(kLlama);
  const std::string parameter = "'" + bench.model->manifest().parameters()[1].name + "'";
  for (const bool computed : {false, true}) {
    for (const std::string& words : told(bench, false, computed)) EXPECT_EQ(words, "");
    for (const std::string& words : told(bench, true, computed)) {
      EXPECT_NE(words.find("process 2 (host here) has other weights than process 0 (host here)"), std::string::npos) << words;
      EXPECT_NE(words.find(parameter), std::string::npos) << words;
    }
  }
}

TEST(SameWeights, ThreadsAskNobody) {
  const TrainBench bench(kLlama);
  ThreadRanks ranks(RankLayout{.dp = 2});
  check_same_weights(ranks, bench.model->manifest(), []() -> std::vector<std::uint64_t> {
    ADD_FAILURE() << "hashes were made";
    return {};
  });
}

}  // namespace
}  // namespace lockstep
