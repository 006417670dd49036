// What the ranks of a run computed, waited and sent stands in its metrics, of every kind of run alike; of one rank nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "jobs/distill_job.h"
#include "jobs/job_test_tools.h"
#include "jobs/preference_job.h"
#include "jobs/rl_job.h"
#include "jobs/sft_job.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class RankMetrics : public testing::Test {
 protected:
  RankMetrics() { fs::create_directories(root_); }
  ~RankMetrics() override { fs::remove_all(root_); }

  static std::string named(const std::string& kind, const std::string& ranks) { return fmt::format("{}-{}", kind, ranks.size()); }
  std::vector<nlohmann::json> sft(const std::string& ranks) {
    SftJob job;
    settings_of_run(job.config.run, job.config.runtime, root_, named("sft", ranks));
    job.config.runtime.ranks = ranks;
    job.environment = "countdown";
    job.config.asked.steps = 2;
    job.config.asked.batch = 4;
    run_sft_job(job);
    return metrics_of(root_ / (named("sft", ranks)));
  }
  std::vector<nlohmann::json> rl(const std::string& ranks, const std::string& critic = "") {
    RlJob job;
    settings_of_run(job.run, job.stack.runtime, root_, named("rl" + critic, ranks));
    job.stack.runtime.ranks = ranks;
    job.rl.steps = job.rl.problems = 2;
    job.rl.rollouts = 3;
    job.rl.warmup = 0;
    if (!critic.empty()) {
      job.rl.advantages = std::string(kGaeAdvantages);
      job.rl.critic.kind = critic;
      job.rl.critic.learning_rate = 1e-3;
    }
    run_rl(job);
    return metrics_of(root_ / (named("rl" + critic, ranks)));
  }
  std::vector<nlohmann::json> preference(const std::string& ranks) {
    std::string text;
    for (int i = 0; i < 4; ++i) text += fmt::format("{{\"prompt\":\"{0} 2 3=9:\",\"chosen\":\"{0}+2=9\",\"rejected\":\"{0}-2=9\"}}\n", i + 1);
    write_file_atomic(root_ / "pairs.jsonl", text);
    PreferenceJob job;
    settings_of_run(job.config.run, job.config.runtime, root_, named("dpo", ranks));
    job.config.runtime.ranks = ranks;
    job.config.preference.loss = "dpo";
    job.config.preference.beta = preference_row("dpo").beta;
    job.config.asked.steps = 2;
    job.config.asked.batch = 4;
    job.data = (root_ / "pairs.jsonl").string();
    run_preference_job(job);
    return metrics_of(root_ / (named("dpo", ranks)));
  }
  std::vector<nlohmann::json> distill(const std::string& ranks) {
    DistillJob job;
    settings_of_run(job.run, job.stack.runtime, root_, named("distill", ranks));
    job.stack.runtime.ranks = ranks;
    job.distill.steps = 2;
    job.distill.prompts = 4;
    job.distill.max_tokens = 6;
    job.learning_rate = 1e-3;
    job.teachers = {{.name = "itself", .folder = job.stack.runtime.model, .adapter = "", .domains = {}}};
    job.environment = "countdown";
    run_distill(job);
    return metrics_of(root_ / (named("distill", ranks)));
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_rank_metrics_" + std::to_string(::getpid()));
};

double sum_of(const nlohmann::json& rows, const char* key) {
  double sum = 0;
  for (const nlohmann::json& row : rows) sum += row.at(key).get<double>();
  return sum;
}

void expect_ranks(const std::vector<nlohmann::json>& lines, std::size_t ranks) {
  ASSERT_EQ(lines.size(), 2u);
  for (const nlohmann::json& line : lines) {
    EXPECT_TRUE(line.at("ranks_layout").get<std::string>().starts_with("tp="));
    const nlohmann::json& each = line.at("ranks_each");
    ASSERT_EQ(each.size(), ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(each[rank].at("rank"), rank);
      EXPECT_EQ(each[rank].at("process"), 0);
      EXPECT_FALSE(each[rank].at("host").get<std::string>().empty());
      EXPECT_GT(each[rank].at("computed_seconds"), 0);
      EXPECT_GT(each[rank].at("sent_seconds"), 0);
      EXPECT_GT(each[rank].at("sent_bytes"), 0);
    }
    // All are threads of this process, so that its sums are those of all.
    EXPECT_NEAR(line.at("ranks_computed_seconds").get<double>(), sum_of(each, "computed_seconds"), 1e-9);
    EXPECT_NEAR(line.at("ranks_waited_seconds").get<double>(), sum_of(each, "waited_seconds"), 1e-9);
    EXPECT_NEAR(line.at("ranks_sent_seconds").get<double>(), sum_of(each, "sent_seconds"), 1e-9);
    EXPECT_EQ(line.at("ranks_sent_bytes").get<double>(), sum_of(each, "sent_bytes"));
    EXPECT_GE(line.at("ranks_saving_seconds").get<double>(), 0);
    const nlohmann::json& exchanges = line.at("ranks_exchanges");
    EXPECT_EQ(line.at("ranks_bytes").get<double>(), sum_of(exchanges, "bytes"));
    EXPECT_EQ(line.at("ranks_sent_bytes").get<double>(), sum_of(exchanges, "sent_bytes"));
    EXPECT_NEAR(line.at("ranks_waited_seconds").get<double>(), sum_of(exchanges, "waited_seconds"), 1e-9);
    EXPECT_NEAR(line.at("ranks_sent_seconds").get<double>(), sum_of(exchanges, "sent_seconds"), 1e-9);
  }
}

TEST_F(RankMetrics, EveryKindOfRunTellsThem) {
  expect_ranks(sft("tp=2,dp=2"), 4);
  expect_ranks(rl("dp=2"), 2);
  expect_ranks(preference("tp=2"), 2);
  expect_ranks(distill("dp=2"), 2);
}

TEST_F(RankMetrics, ACriticsAreAddedToThePolicys) {
  const std::vector<nlohmann::json> without = rl("dp=2"), with = rl("dp=2", "full");
  expect_ranks(with, 2);
  EXPECT_GT(with[1].at("ranks_bytes").get<double>(), 1.5 * without[1].at("ranks_bytes").get<double>());
}

TEST_F(RankMetrics, OneRankTellsNothing) {
  for (const std::vector<nlohmann::json>& lines : {sft(""), rl(""), preference(""), distill("")})
    for (const nlohmann::json& line : lines)
      for (const auto& [key, value] : line.items()) EXPECT_FALSE(key.starts_with("ranks_")) << key;
}

}  // namespace
}  // namespace lockstep
