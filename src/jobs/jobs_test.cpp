// Runs started as a command starts them, stopped by their own tokens and resumed, end with the same bits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/error.h"
#include "jobs/job_test_tools.h"
#include "jobs/rl_job.h"
#include "jobs/sft_job.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class Jobs : public testing::Test {
 protected:
  ~Jobs() override { fs::remove_all(root_); }
  RlJob rl(const std::string& name) {
    RlJob job;
    settings_of_run(job.run, job.stack.runtime, root_, name);
    job.rl.steps = 4;
    job.rl.problems = job.rl.rollouts = 2;
    job.rl.warmup = 0;
    return job;
  }
  SftJob sft(const std::string& name) {
    SftJob job;
    settings_of_run(job.config.run, job.config.runtime, root_, name);
    job.environment = "countdown";
    job.config.asked.steps = 4;
    job.config.asked.batch = 2;
    job.config.transcripts_every = 1;
    return job;
  }
  static void stop_after(RunSettings& run, StopSource& source, std::int64_t last) {
    run.stop = source.token();
    run.on_step = [&source, last](std::int64_t step) {
      if (step == last) source.stop();
    };
  }
  std::size_t steps_logged(const std::string& name) {
    std::ifstream in(root_ / name / "metrics.jsonl");
    std::size_t count = 0;
    for (std::string line; std::getline(in, line);) ++count;
    return count;
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_jobs_" + std::to_string(::getpid()));
};

TEST_F(Jobs, AStoppedRunOfReinforcementGoesOn) {
  const RlSummary whole = run_rl(rl("whole"));
  ASSERT_TRUE(whole.finished);
  EXPECT_EQ(whole.totals.steps, 4);
  EXPECT_EQ(whole.totals.kl.different_bits, 0);
  EXPECT_TRUE(fs::exists(whole.exported / "config.json"));
  StopSource source;
  RlJob job = rl("parts");
  stop_after(job.run, source, 2);
  const RlSummary part = run_rl(job);
  EXPECT_FALSE(part.finished);
  EXPECT_EQ(part.steps, 2);
  EXPECT_TRUE(part.exported.empty());
  job.run.resume = true;
  job.run.stop = {};
  const RlSummary rest = run_rl(job);
  EXPECT_TRUE(rest.finished);
  EXPECT_EQ(rest.totals.steps, 2);
  EXPECT_EQ(rest.weights_sha256, whole.weights_sha256);
  EXPECT_EQ(steps_logged("parts"), 4u);
}

// Whatever is trained: rollouts are sampled with what the last step made, bit for bit, a stopped run goes on to the same bits, and something is learned.
TEST_F(Jobs, AdaptersPackedBasesAndMuonGoOnAlike) {
  struct Case {
    const char* name;
    TrainedSettings trained;
    const char* profile;
    const char* share_prompts = "forward";
  };
  std::set<std::string> weights;
  for (const Case& c :
       {Case{"adapter", {.rank = 4}, "cpu-bf16w"}, Case{"packed", {.rank = 4}, "cpu-int4-base"}, Case{"shared", {.rank = 4}, "cpu-bf16w", "backward"},
        Case{"adapter-muon", {.rank = 4, .optimizer = "dimuon"}, "cpu-bf16w"}, Case{"muon", {.optimizer = "dimuon"}, "cpu-bf16w"}}) {
    const auto begun = [&](const std::string& part) {
      RlJob job = rl(std::string(c.name) + part);
      job.stack.trained = c.trained;
      job.stack.runtime.profile = c.profile;
      job.rl.share_prompts = c.share_prompts;
      job.rl.problems = 4;
      job.rl.rollouts = 4;
      job.rl.learning_rate = default_rl_learning_rate(c.trained);
      return job;
    };
    const RlSummary whole = run_rl(begun("-whole"));
    ASSERT_TRUE(whole.finished) << c.name;
    EXPECT_GT(whole.totals.kl.tokens, 0) << c.name;
    EXPECT_EQ(whole.totals.kl.different_bits, 0) << c.name;
    EXPECT_EQ(fs::exists(whole.exported / "adapter_config.json"), c.trained.rank > 0) << c.name;
    EXPECT_TRUE(weights.insert(whole.weights_sha256).second) << c.name;
    StopSource source;
    RlJob job = begun("-parts");
    job.stack.micro_batch = std::string_view(c.share_prompts) == "backward" ? 4 : 3;  // several turns a step; a prompt's rollouts are not parted
    stop_after(job.run, source, 2);
    EXPECT_FALSE(run_rl(job).finished) << c.name;
    job.run.resume = true;
    job.run.stop = {};
    const RlSummary rest = run_rl(job);
    EXPECT_TRUE(rest.finished) << c.name;
    EXPECT_EQ(rest.weights_sha256, whole.weights_sha256) << c.name;
  }
}

// Where nobody says how prompts are shared, a rule does: its choice is in the run's settings, and its bits are those of the choice when it is asked for.
TEST_F(Jobs, SharingThatIsChosenHasTheBitsOfSharingThatIsAskedFor) {
  const auto trained = [&](const std::string& name, const std::string& share, std::int64_t from) {
    RlJob job = rl(name);
    job.rl.share_prompts = share;
    job.rl.share_prompts_from = from;
    job.run.resolved = {{"share_prompts", share}};
    job.rl.problems = job.rl.rollouts = 4;
    job.rl.max_tokens = 12;  // prompts of 8: of 4 x (7 + 12) rows 3 x 7 are saved
    job.rl.steps = 2;
    job.rl.learning_rate = 3e-3;
    const RlSummary summary = run_rl(job);
    EXPECT_EQ(summary.totals.kl.different_bits, 0) << name;
    std::ifstream config(summary.run / "config.json");
    return std::pair(summary.weights_sha256, nlohmann::json::parse(config).at("share_prompts").get<std::string>());
  };
  const auto forward = trained("forward", "forward", 256), backward = trained("backward", "backward", 256);
  EXPECT_NE(forward.first, backward.first);
  EXPECT_EQ(trained("short", "auto", 256), forward);
  EXPECT_EQ(trained("long", "auto", 8), backward);
  // A run that goes on must choose as it did.
  RlJob on = rl("long");
  on.rl.problems = on.rl.rollouts = 4;
  on.rl.max_tokens = 12;
  on.run.resolved = {{"share_prompts", "auto"}};
  on.run.resume = true;
  EXPECT_THROW(run_rl(on), Error);
  // Where the rule chooses the backward, a prompt's rollouts have to fit into a micro-batch: refused before a run is begun.
  RlJob parted = rl("parted");
  parted.rl.problems = parted.rl.rollouts = 4;
  parted.rl.max_tokens = 12;
  parted.rl.share_prompts = "auto";
  parted.rl.share_prompts_from = 8;
  parted.stack.micro_batch = 3;
  EXPECT_THROW(run_rl(parted), Error);
  EXPECT_FALSE(fs::exists(root_ / "parted"));
}

TEST_F(Jobs, PacksOfOnePromptShareItWhereItPays) {
  fs::create_directories(root_);
  std::ofstream lines(root_ / "data.jsonl");
  for (int own = 0; own < 12; ++own)
    lines << nlohmann::json{{"prompt", fmt::format("16 19 {}=17:", 14 + own % 3)}, {"completion", fmt::format("{}+1={}", own, own + 1)}}.dump() << "\n";
  lines.close();
  const auto trained = [&](const std::string& name, const std::string& share, std::int64_t from) {
    SftJob job = sft(name);
    job.environment.clear();
    job.data = (root_ / "data.jsonl").string();
    job.eval_share = 0;
    job.config.trained.rank = 4;  // all weights have an indexer that learns from whole sequences
    job.config.asked.batch = 4;
    job.config.asked.learning_rate = 1e-2;
    job.config.share_prompts = share;
    job.config.share_prompts_from = from;
    job.config.run.resolved = {{"share_prompts", share}};
    const SftSummary summary = run_sft_job(job);
    std::ifstream config(root_ / name / "config.json");
    return std::pair(summary.weights_sha256, nlohmann::json::parse(config).at("share_prompts").get<std::string>());
  };
  const auto off = trained("off", "off", 256), backward = trained("packed", "backward", 256);
  EXPECT_NE(off.first, backward.first);
  EXPECT_EQ(trained("short", "auto", 256), off);
  EXPECT_EQ(trained("long", "auto", 4), backward);
  SftJob indexer = sft("indexer");
  indexer.environment.clear();
  indexer.data = (root_ / "data.jsonl").string();
  indexer.config.share_prompts = "backward";
  EXPECT_THROW(run_sft_job(indexer), Error);
  indexer.config.trained.rank = 4;  // without an indexer, but with two lines of a prompt in a step
  indexer.config.micro_batch = 1;
  EXPECT_THROW(run_sft_job(indexer), Error);
  EXPECT_FALSE(fs::exists(root_ / "indexer"));
}

// The reference is what training starts from, for all weights and under an adapter, and stays that in a run that goes on.
TEST_F(Jobs, KlIsToWhatTrainingStartedFrom) {
  for (const std::int64_t rank : {0, 4})
    for (const std::string place : {"loss", "reward"}) {
      const std::string name = fmt::format("{}-{}", place, rank);
      const auto with_kl = [&](const std::string& run, double coefficient) {
        RlJob job = rl(name + run);
        job.stack.trained.rank = rank;
        job.rl.problems = job.rl.rollouts = 4;
        job.rl.learning_rate = 3e-3;
        job.rl.kl_coefficient = coefficient;
        job.rl.kl_in = place;
        job.rl.kl = "k1";
        return job;
      };
      const RlSummary whole = run_rl(with_kl("", 0.5));
      std::vector<double> k1;
      std::ifstream in(whole.run / "metrics.jsonl");
      for (std::string line; std::getline(in, line);) k1.push_back(nlohmann::json::parse(line).at("reference_k1").get<double>());
      ASSERT_EQ(k1.size(), 4u) << name;
      EXPECT_EQ(k1[0], 0) << name;  // the same bits
      EXPECT_NE(k1[3], 0) << name;
      EXPECT_NE(run_rl(with_kl("-without", 0)).weights_sha256, whole.weights_sha256) << name;
      StopSource source;
      RlJob parts = with_kl("-parts", 0.5);
      stop_after(parts.run, source, 2);
      EXPECT_FALSE(run_rl(parts).finished) << name;
      parts.run.resume = true;
      parts.run.stop = {};
      EXPECT_EQ(run_rl(parts).weights_sha256, whole.weights_sha256) << name;
    }
}

// With a reference beside it, which is the base without the adapter, or a copy of all weights.
TEST_F(Jobs, RunsOverRanksHaveTheWeightsOfOneRank) {
  for (const std::int64_t rank : {0, 4}) {
    const auto weights_over = [&](const std::string& ranks, double coefficient = 0.5) {
      RlJob job = rl(fmt::format("{}-{}-{}", rank, ranks.size(), coefficient));
      job.stack.trained.rank = rank;
      job.rl.steps = 2;
      job.rl.problems = job.rl.rollouts = 3;
      job.rl.learning_rate = 3e-3;
      job.stack.runtime.ranks = ranks;
      job.rl.kl_coefficient = coefficient;
      job.rl.kl = "k1";
      return run_rl(job).weights_sha256;
    };
    const std::string want = weights_over("");
    EXPECT_EQ(weights_over("tp=2,dp=2"), want) << rank;
    EXPECT_NE(weights_over("tp=2,dp=2", 0), want) << rank;  // the control: the reference is in the steps
  }
}

TEST_F(Jobs, AStoppedRunOfFineTuningGoesOn) {
  const SftSummary whole = run_sft_job(sft("whole"));
  ASSERT_FALSE(whole.interrupted);
  StopSource source;
  SftJob job = sft("parts");
  stop_after(job.config.run, source, 1);
  const SftSummary part = run_sft_job(job);
  EXPECT_TRUE(part.interrupted);
  EXPECT_EQ(part.steps, 1);
  job.config.run.resume = true;
  job.config.run.stop = {};
  const SftSummary rest = run_sft_job(job);
  EXPECT_FALSE(rest.interrupted);
  EXPECT_EQ(rest.weights_sha256, whole.weights_sha256);
  EXPECT_EQ(steps_logged("parts"), 4u);
}

// Tasks that are held at a rate, some of them conversations in GLM's template: a stopped run draws, measures and learns the same.
TEST_F(Jobs, AStoppedRunOfHeldRatesGoesOn) {
  const auto agent = [&](const std::string& name) {
    SftJob job = sft(name);
    job.config.runtime.model = (fs::path(LOCKSTEP_SOURCE_DIR) / "models/agent-glm").string();
    job.config.from_scratch = true;
    job.config.hold_rate = 1e-12;  // at which tasks are held from their first problems on
    job.config.asked.batch = 6;
    job.config.asked.learning_rate = 1e-3;
    job.config.index_from = job.config.sparse_from = 100;
    job.config.transcripts = 100;
    job.environment = "agent";
    job.compact_at = 72;
    job.chat_share = 1.0 / 3;
    const auto same = [](const nlohmann::ordered_json& value, const std::string&) { return value; };
    job.reading = {[](nlohmann::ordered_json messages, const std::string&) {  // as the server does: arguments are objects to a template
                     for (auto& message : messages)
                       if (message.contains("tool_calls")) {
                         auto& arguments = message["tool_calls"][0]["function"]["arguments"];
                         arguments = nlohmann::ordered_json::parse(arguments.get<std::string>());
                       }
                     return messages;
                   },
                   same};
    return job;
  };
  const SftSummary whole = run_sft_job(agent("agent"));
  ASSERT_FALSE(whole.interrupted);
  StopSource source;
  SftJob job = agent("agent-parts");
  stop_after(job.config.run, source, 2);
  EXPECT_TRUE(run_sft_job(job).interrupted);
  job.config.run.resume = true;
  job.config.run.stop = {};
  EXPECT_EQ(run_sft_job(job).weights_sha256, whole.weights_sha256);
  SftJob free = agent("agent-free");
  free.config.hold_rate = 0;
  EXPECT_NE(run_sft_job(free).weights_sha256, whole.weights_sha256);

  const auto text = [&](const std::string& name) {
    std::ifstream in(root_ / name);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string log = text("agent/metrics.jsonl");
  EXPECT_NE(log.find("\"rate_lockbox\":"), std::string::npos) << log;
  // In the first step, where none is held, every problem weighs 1; of its windows each has a part. One in three is a conversation.
  double weighed = 0;
  std::istringstream told_by(text("agent/transcripts.jsonl"));
  for (std::string line; std::getline(told_by, line);) {
    const auto sequence = nlohmann::json::parse(line);
    if (sequence["step"] == 1)
      for (const auto& weight : sequence["weights"]) weighed += weight.is_number() ? weight.get<double>() : 0;
  }
  EXPECT_NEAR(weighed, 6, 1e-5);

  SftJob talk = agent("agent-talk");
  talk.config.hold_rate = 0;
  talk.config.asked.steps = talk.config.asked.batch = 1;
  talk.environment = "lockbox";
  talk.compact_at = 0;
  talk.chat_share = 1;
  run_sft_job(talk);
  const auto line = nlohmann::json::parse(text("agent-talk/transcripts.jsonl"));
  std::string told;
  for (const char* part : {"prompt", "tokens"})
    for (const auto& piece : line[part]) told += piece.get<std::string>();
  for (const char* part : {"[gMASK]<sop>", "<|user|>", "</think>", "<tool_call>write\n<arg_key>text</arg_key>\n<arg_value>", "<|observation|>"})
    EXPECT_NE(told.find(part), std::string::npos) << part << " is not in " << told;
}

// A token that is stopped before the samples of a step have come ends the wait for them; another run beside it is not disturbed.
TEST_F(Jobs, ATokenEndsItsOwnRunAlone) {
  StopSource source;
  source.stop();
  RlJob stopped = rl("stopped");
  stopped.run.stop = source.token();
  RlSummary first;
  std::thread beside([&] { first = run_rl(stopped); });
  const SftSummary second = run_sft_job(sft("beside"));
  beside.join();
  EXPECT_FALSE(first.finished);
  EXPECT_EQ(first.steps, 0);
  EXPECT_FALSE(second.interrupted);
  EXPECT_EQ(second.steps, 4);
}

}  // namespace
}  // namespace lockstep
