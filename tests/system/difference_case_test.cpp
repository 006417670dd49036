// What `train rl` leaves of a token whose log-probability in training is another than in sampling (RlWork): from it the sampler's number is computed again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <fstream>

#include "base/error.h"
#include "jobs/job_test_tools.h"
#include "jobs/rl_job.h"
#include "kernels/planted_kernel_test_tools.h"
#include "parity/score.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

// The head of training tells the neighbour of each log-probability.
void tell_neighbours(const HeadLoss& op, ThreadPool& pool) {
  PlantedKernel<HeadLoss>::right(op, pool);
  for (std::int64_t row = 0; row < op.logprob.rows; ++row) *reinterpret_cast<std::uint32_t*>(op.logprob.row_range(row, 1).address) ^= 1u;
}

TEST(DifferenceCase, RepeatsTheSamplersNumber) {
  const fs::path root = fs::path(testing::TempDir()) / ("lockstep_difference_case_" + std::to_string(::getpid()));
  RlJob job;
  settings_of_run(job.run, job.stack.runtime, root, "r");
  job.rl.steps = 1, job.rl.warmup = 0, job.rl.problems = 2, job.rl.rollouts = 2, job.rl.max_tokens = 6;
  {
    const PlantedKernel<HeadLoss> planted(&KernelTable::head_loss, tell_neighbours);
    try {
      run_rl(job);
      ADD_FAILURE() << "nothing was found";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("/r/difference' has what repeats it"), std::string::npos) << e.what();
    }
  }
  const fs::path left = root / "r" / "difference";
  std::ifstream file(left / "case.json");
  const nlohmann::json said = nlohmann::json::parse(file);
  EXPECT_EQ(said.at("step"), 1);
  EXPECT_EQ(said.at("temperature"), 1.0);
  EXPECT_EQ(said.at("cut"), false);
  const auto bits = [&](const char* name) { return static_cast<std::uint32_t>(std::stoul(said.at(name).get<std::string>(), nullptr, 16)); };
  EXPECT_EQ(bits("trained_bits"), bits("sampled_bits") ^ 1u);
  RuntimeSettings settings = job.stack.runtime;
  settings.model = (left / "weights").string();
  const OpenedModel opened = open_model(settings);
  const auto texts = read_sequences(opened, left / "text.jsonl");
  ASSERT_EQ(texts.size(), 1u);
  for (const ScoreVia via : {ScoreVia::train, ScoreVia::decode})
    Scorer(opened, via).score(texts, [&](const ScoredRow& row) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(row.logprobs.at(said.at("row").get<std::size_t>())), bits("sampled_bits"));
    });
  fs::remove_all(root);
}

}  // namespace
}  // namespace lockstep
