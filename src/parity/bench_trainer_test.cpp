// A bench whose ranks several processes have computes the bits of one rank: threads stand for processes, with a wire in memory between them.
#include "parity/bench_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/hash.h"
#include "engine/engine.h"
#include "parallel/memory_wire_test_tools.h"

namespace lockstep {
namespace {

// `other`: all weights are a little larger.
ParityModel bench_model(bool other = false, int positions = 512) {
  Json config = Json::parse(std::ifstream(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/glm_moe_dsa/sharing/config.json"));
  config["max_position_embeddings"] = positions;
  const std::shared_ptr<const Model> model = make_model(config);
  ParityModel made{model, initial_weights(model->manifest(), 7, 0.25)};
  for (std::vector<float>& weights : made.masters)
    for (float& w : weights) w *= other ? 1.0078125f : 1.0f;
  return made;
}

void put_hashes(std::vector<std::uint64_t>& hashes, const std::vector<std::vector<float>>& values) {
  for (const std::vector<float>& one : values) hashes.push_back(xxh3(one.data(), one.size() * sizeof(float)));
}

// Everything that a bench is asked for, as hashes: a forward, two steps with their gradients, an engine of the trained weights. `agree`: all processes have
// this model; where they do not, ranks choose other experts, and the counts say so.
std::vector<std::uint64_t> bench_hashes(const ParityModel& model, const RankLayout& ranks, ProcessMail* lead, bool agree = true) {
  Runtime runtime({.threads = 1}, model.model, profile_by_name("cpu-bf16w"), 64);
  BenchTrainer trainer(runtime, model, {.micro_batch = 2, .train_indexer = true, .page_size = 4, .ranks = ranks}, lead);
  std::vector<TrainSequence> data;
  for (std::int32_t s = 0; s < 3; ++s) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t t = 0; t < 9 + 4 * s; ++t) tokens.push_back((7 * t + s) % 60);
    data.push_back(TrainSequence::next_token(tokens));
  }
  std::vector<std::uint64_t> hashes;
  put_hashes(hashes, trainer.score(data));
  for (int step = 0; step < 2; ++step) {
    put_hashes(hashes, trainer.forward_backward(data, {}, {.dense_attention = step == 0, .index_loss = true}).logprobs);
    put_hashes(hashes, trainer.gradient_images());
    trainer.optim_step({});
    put_hashes(hashes, trainer.master_images());
  }
  ProcessMail* engine_lead = lead && ranks.model() >= lead->processes() ? lead : nullptr;
  Engine engine(runtime, trainer.weights(), {.page_size = 4, .cache_pages = 40, .ranks = ranks, .lead = engine_lead});
  put_hashes(hashes, {engine.generate({{.prompt = data[0].tokens, .sampling = {.max_tokens = 0}, .prompt_logprobs = true}})[0].prompt_logprobs});
  if (ranks.size() > 1) {
    EXPECT_GT(trainer.traffic().bytes, 0);
  }
  if (agree) {
    EXPECT_EQ(trainer.work().fault(), "");
  }
  return hashes;
}

// With a value head in turn, so that a follower makes one bench after another.
std::vector<std::uint64_t> value_hashes(const ParityModel& language, const RankLayout& ranks, ProcessMail* lead) {
  const ParityModel values = with_value_head(language);
  Runtime runtime({.threads = 1}, values.model, profile_by_name("cpu-f32"), 64);
  BenchTrainer trainer(runtime, values, {.ranks = ranks}, lead);
  std::vector<std::uint64_t> hashes;
  put_hashes(hashes, trainer.score({TrainSequence::next_token({3, 1, 4, 1, 5, 9, 2, 6})}));
  put_hashes(hashes, trainer.master_images());
  return hashes;
}

void follow(const ParityModel& model, ProcessMail& mail) {
  const auto perform = parity_follower(model, mail);
  while (const std::optional<std::string> call = mail.next_call()) perform(*call);
}

std::vector<std::uint64_t> hashes_over(int processes, const RankLayout& ranks, bool others_follow) {
  std::vector<std::uint64_t> got;
  as_processes(processes, [&](ProcessMail& mail) {
    const ParityModel model = bench_model(mail.process() != 0 && others_follow);
    if (mail.process() == 0) {
      got = bench_hashes(model, ranks, &mail, !others_follow);
      for (const std::uint64_t hash : value_hashes(model, ranks, &mail)) got.push_back(hash);
      return;
    }
    follow(model, mail);
  });
  return got;
}

TEST(BenchTrainer, SeveralProcessesHaveTheBitsOfOneRank) {
  const ParityModel model = bench_model();
  std::vector<std::uint64_t> want = bench_hashes(model, {}, nullptr);
  for (const std::uint64_t hash : value_hashes(model, {}, nullptr)) want.push_back(hash);
  for (const auto& [ranks, processes] : {std::pair(RankLayout{2, 1, 1}, 2), std::pair(RankLayout{1, 2, 1}, 2), std::pair(RankLayout{2, 2, 1}, 3),
                                         std::pair(RankLayout{.dp = 2, .shard = RankShard::weights}, 2)}) {
    SCOPED_TRACE(ranks.text());
    EXPECT_EQ(hashes_over(processes, ranks, false), want);
  }
  // The control: a process with other weights is seen.
  EXPECT_NE(hashes_over(2, {2, 1, 1}, true), want);
}

// A whole run, of a context in which pages, chunks and the selection have edges. `others_follow`: with another model, which any context shows.
ParityReport parity_over(int processes, const char* ranks, bool others_follow) {
  ParityReport report;
  as_processes(processes, [&](ProcessMail& mail) {
    const ParityModel model = bench_model(mail.process() != 0 && others_follow, others_follow ? 40 : 72);
    if (mail.process() == 0) report = run_parity(model, {.cases = 0, .seed = 3, .ranks = ranks, .lead = &mail, .step_share = 3});
    else follow(model, mail);
  });
  return report;
}

TEST(BenchTrainer, ParityOverProcessesHoldsAndFindsItsControl) {
  const ParityReport report = parity_over(2, "tp=2", false);
  EXPECT_TRUE(report.passed()) << to_text(report);
  EXPECT_TRUE(report.control.over_processes);
  EXPECT_TRUE(report.control.processes_detected);
  const auto over = std::find_if(report.visits.begin(), report.visits.end(), [](const ParityVisit& v) { return v.place.ends_with("over processes"); });
  ASSERT_NE(over, report.visits.end()) << to_text(report);
  for (const std::int64_t visits : {over->training, over->serving}) EXPECT_GT(visits, 0) << to_text(report);
  ParityReport blind = report;
  blind.control.processes_detected = false;
  EXPECT_FALSE(blind.passed());
  EXPECT_NE(to_text(blind).find("NOT DETECTED over processes"), std::string::npos);
}

TEST(BenchTrainer, ParitySeesAProcessWithAnotherModel) {
  const ParityReport report = parity_over(2, "tp=2", true);
  EXPECT_FALSE(report.passed());
  EXPECT_GT(report.mismatches, 0);
  ASSERT_TRUE(report.first_mismatch);
  EXPECT_NE(report.first_mismatch->run.find("over processes"), std::string::npos) << report.first_mismatch->run;
}

}  // namespace
}  // namespace lockstep
