// Runs that learn from preferences: they learn, go on to the same bits, keep their reference, and say what is wrong with a line.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "jobs/preference_job.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class PreferenceJobs : public testing::Test {
 protected:
  PreferenceJobs() { fs::create_directories(root_); }
  ~PreferenceJobs() override { fs::remove_all(root_); }
  // 24 prompts; the chosen answer repeats its number, the rejected one is another's.
  std::string pairs() {
    std::string text;
    for (int i = 0; i < 24; ++i)
      text += fmt::format("{{\"prompt\":\"{} {} {}=9:\",\"chosen\":\"{}+{}=9\",\"rejected\":\"{}-{}=9\"}}\n", i + 1, i + 2, i + 3, i + 1, i + 2, i + 2, i + 3);
    return file("pairs.jsonl", text);
  }
  std::string file(const std::string& name, const std::string& text) {
    write_file_atomic(root_ / name, text);
    return (root_ / name).string();
  }
  PreferenceJob job(const std::string& name, const std::string& loss, const std::string& data) {
    PreferenceJob made;
    made.config.run.name = name;
    made.config.run.runs = root_.string();
    made.config.run.quiet = true;
    made.config.runtime.model = (fs::path(LOCKSTEP_SOURCE_DIR) / "models/countdown-glm").string();
    made.config.runtime.threads = 1;
    made.config.preference.loss = loss;
    made.config.preference.beta = preference_row(loss).beta;
    made.config.asked.steps = 6;
    made.config.asked.batch = 6;
    made.config.asked.warmup = 0;
    made.config.asked.learning_rate = 3e-4;
    made.config.eval_every = 6;
    made.data = data;
    return made;
  }
  static std::string refusal(const PreferenceJob& job) {
    try {
      run_preference_job(job);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
  // Runs until a step, and gives the job that goes on from there.
  static PreferenceJob stopped_after(std::int64_t last, PreferenceJob parts) {
    StopSource source;
    parts.config.run.stop = source.token();
    parts.config.run.on_step = [&](std::int64_t step) {
      if (step == last) source.stop();
    };
    EXPECT_TRUE(run_preference_job(parts).interrupted) << parts.config.run.name;
    parts.config.run.resume = true;
    parts.config.run.stop = {};
    parts.config.run.on_step = {};
    return parts;
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_preferences_" + std::to_string(::getpid()));
};

TEST_F(PreferenceJobs, EveryLossLearnsAndGoesOnToTheSameBits) {
  const std::string data = pairs();
  for (const PreferenceRow& row : preference_rows()) {
    const std::string loss(row.name);
    const PreferenceSummary whole = run_preference_job(job(loss + "-whole", loss, data));
    ASSERT_FALSE(whole.interrupted) << loss;
    ASSERT_TRUE(whole.eval_before && whole.eval_now) << loss;
    EXPECT_LT(whole.eval_now->loss, whole.eval_before->loss) << loss;
    EXPECT_GT(whole.eval_now->margin(), whole.eval_before->margin()) << loss;
    EXPECT_EQ(fs::exists(root_ / (loss + "-whole") / "reference.json"), row.reference) << loss;
    // Before anything is learned the weights are their own reference.
    if (row.reference && row.pairs) {
      EXPECT_EQ(whole.eval_before->margin(), 0) << loss;
    }

    PreferenceJob parts = job(loss + "-parts", loss, data);
    parts.config.micro_batch = 4;  // a forward for the scores and another for the gradient
    parts = stopped_after(3, std::move(parts));
    parts.config.micro_batch = 0;
    EXPECT_EQ(run_preference_job(parts).weights_sha256, whole.weights_sha256) << loss;
  }
}

// What a step computes of one pair: the prompt once, and the answers, in one forward. The controls: with prompts that are not shared theirs twice; in
// micro-batches, which keep no forward, everything twice.
TEST_F(PreferenceJobs, APairSharesTheRowsOfItsPrompt) {
  PreferenceJob one = job("one", "dpo", file("one.jsonl", "{\"prompt\":\"3 7 12=48:\",\"chosen\":\"3+7=10\",\"rejected\":\"7-3=4\"}\n"));
  one.config.asked.batch = 1, one.config.asked.steps = 3;
  const OpenedModel opened = open_model(one.config.runtime);
  const ChatData reader = open_chat_data(one.config.runtime.model, opened.tokenizer, "", "", {});
  const PreferenceItem item = read_preference_file(one.data, reader, true, opened.model->facts().vocabulary, opened.runtime->max_positions)[0];
  const std::vector<std::int32_t>&chosen = item.chosen.tokens, &rejected = item.rejected.tokens;
  const std::int64_t both = std::ssize(chosen) + std::ssize(rejected);
  const std::int64_t prompt = std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end()).first - chosen.begin();
  ASSERT_GT(prompt, 4);

  struct Case {
    SharePrompts share;
    std::int64_t micro_batch, rows;
  };
  std::vector<std::string> weights;
  for (const Case& c : {Case{SharePrompts::forward, 0, both - prompt}, Case{SharePrompts::off, 0, both}, Case{SharePrompts::forward, 2, 2 * (both - prompt)},
                        Case{SharePrompts::backward, 0, both - (prompt - 1)}}) {  // the prompt's last token predicts: declared, it is each answer's own
    one.config.run.name = fmt::format("one-{}", weights.size());
    one.config.share_prompts = c.share, one.config.micro_batch = c.micro_batch;
    const PreferenceSummary summary = run_preference_job(one);
    EXPECT_EQ(summary.rows, 3 * c.rows) << one.config.run.name;
    EXPECT_EQ(summary.tokens, 3 * both) << one.config.run.name;
    weights.push_back(summary.weights_sha256);
  }
  EXPECT_EQ(weights[1], weights[0]);
  EXPECT_EQ(weights[2], weights[0]);
  EXPECT_NE(weights[3], weights[0]);
  one.config.share_prompts = SharePrompts::automatic;
  EXPECT_NE(refusal(one).find("allowed in train preference are off, forward, backward"), std::string::npos) << refusal(one);
}

TEST_F(PreferenceJobs, PromptsSharedInTheBackwardAreOtherBitsAndStayThem) {
  std::string labels;  // all of one prompt
  for (int i = 0; i < 24; ++i) labels += fmt::format("{{\"prompt\":\"1 2 3=9:\",\"completion\":\"{}+{}\",\"label\":{}}}\n", i, i + 1, i % 2 == 0);
  for (const std::string loss : {"dpo", "reward", "kto"}) {
    const std::string data = loss == "kto" ? file("labels.jsonl", labels) : pairs();
    PreferenceJob shared = job(loss + "-shared", loss, data);
    shared.config.share_prompts = SharePrompts::backward;
    const PreferenceSummary whole = run_preference_job(shared), plain = run_preference_job(job(loss + "-plain", loss, data));
    EXPECT_NE(whole.weights_sha256, plain.weights_sha256) << loss;
    EXPECT_NEAR(whole.eval_now->loss, plain.eval_now->loss, 1e-3) << loss;
    EXPECT_NEAR(whole.eval_now->margin(), plain.eval_now->margin(), 1e-2) << loss;

    PreferenceJob parts = job(loss + "-parts", loss, data);
    parts.config.share_prompts = SharePrompts::backward;
    parts.config.micro_batch = 6;
    parts = stopped_after(3, std::move(parts));
    PreferenceJob other = parts;
    other.config.share_prompts = SharePrompts::forward;
    EXPECT_NE(refusal(other).find("resume it with the same share_prompts"), std::string::npos) << refusal(other);
    EXPECT_EQ(run_preference_job(parts).weights_sha256, whole.weights_sha256) << loss;
  }
}

// Held-out answers are told apart after some steps, from even chances.
TEST_F(PreferenceJobs, HeldOutPairsAreToldApart) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    const int a = 3 + i % 40, b = 1 + i * 7 % 30, c = 2 + i * 11 % 23;
    text += fmt::format("{{\"prompt\":\"{} {} {}={}:\",\"chosen\":\"{}+{}={}\",\"rejected\":\"{}+{}={}\"}}\n", a, b, c, a + b, a, b, a + b, b, c, a + b);
  }
  for (const std::string loss : {"dpo", "kto", "simpo", "orpo", "reward"}) {
    PreferenceJob learns = job(loss + "-learns", loss, file("made.jsonl", text));
    const bool labels = !preference_row(loss).pairs;  // a batch of them says less
    learns.config.asked.steps = labels ? 60 : 40;
    learns.config.asked.batch = labels ? 32 : 8;
    learns.config.asked.learning_rate = 1e-3;
    const PreferenceSummary summary = run_preference_job(learns);
    EXPECT_LE(summary.eval_before->accuracy, loss == "reward" ? 0.5 : 0.8) << loss;  // a head of zeros tells nothing apart
    EXPECT_GE(summary.eval_now->accuracy, loss == "reward" ? 0.65 : 0.9) << loss;    // a new head has seen little of what it is to tell
  }
}

TEST_F(PreferenceJobs, AnAdapterLearnsOverItsFrozenBase) {
  PreferenceJob adapter = job("adapter", "dpo", pairs());
  adapter.config.trained.rank = 4;
  adapter.config.asked.learning_rate = 3e-3;
  const PreferenceSummary summary = run_preference_job(adapter);
  EXPECT_GT(summary.eval_now->margin(), 0);
  EXPECT_TRUE(fs::exists(fs::path(summary.exported) / "adapter_config.json"));
  adapter.config.run.name = "packed";
  adapter.config.runtime.profile = "cpu-int4-base";
  EXPECT_GT(run_preference_job(adapter).eval_now->margin(), 0);
}

TEST_F(PreferenceJobs, WithoutItsReferenceARunDoesNotGoOn) {
  const PreferenceJob parts = stopped_after(1, job("parts", "dpo", pairs()));
  const std::string kept = read_file(root_ / "parts/reference.json", 1 << 20);
  fs::remove(root_ / "parts/reference.json");
  EXPECT_NE(refusal(parts).find("reference.json"), std::string::npos) << refusal(parts);
  for (const char* other : {"{\"train\":[[1,2]]}", "{\"train\":[[1,2]],\"train_digest\":7}"}) {
    write_file_atomic(root_ / "parts/reference.json", other);
    EXPECT_NE(refusal(parts).find("of other data"), std::string::npos) << refusal(parts);
  }
  write_file_atomic(root_ / "parts/reference.json", kept);
  EXPECT_EQ(refusal(parts), "accepted");
}

TEST_F(PreferenceJobs, ALineThatIsNoPairIsNamed) {
  for (const auto& [line, words] :
       std::vector<std::pair<std::string, std::string>>{{R"({"prompt":"1 2=3:","chosen":"1"})", "must have 'chosen' and 'rejected'"},
                                                        {R"({"prompt":"1 2=3:","chosen":"1","rejectd":"2"})", "rejected"},
                                                        {R"({"prompt":"1 2=3:","chosen":"1","rejected":2})", "'rejected' is number"},
                                                        {R"({"chosen":"1","rejected":"2"})", "whole conversations"},
                                                        {R"({"prompt":"1 2=3:","completion":"1","label":true})", "must have 'chosen' and 'rejected'"},
                                                        {R"({"prompt":[{"role":7,"content":"1"}],"chosen":"1","rejected":"2"})", "message"},
                                                        {R"([1])", "is array"}}) {
    const std::string why = refusal(job("bad", "dpo", file("bad.jsonl", line + "\n")));
    EXPECT_NE(why.find(words), std::string::npos) << why;
    EXPECT_NE(why.find("line 1"), std::string::npos) << why;
  }
  EXPECT_NE(refusal(job("bad", "kto", file("bad.jsonl", "{\"prompt\":\"1 2=3:\",\"completion\":\"1\",\"label\":1}\n"))).find("allowed is true or false"),
            std::string::npos);
  EXPECT_NE(refusal(job("bad", "dpo", file("bad.jsonl", "\n"))).find("has no lines"), std::string::npos);
  EXPECT_FALSE(fs::exists(root_ / "bad"));
}

TEST_F(PreferenceJobs, ContradictionsAreToldBeforeTheModelIsRead) {
  const auto told = [&](const std::string& loss, const auto& change) {
    PreferenceJob wrong = job("wrong", loss, pairs());
    wrong.config.runtime.model = "/nowhere";
    change(wrong.config);
    return refusal(wrong);
  };
  const auto has = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  has(told("dpo", [](PreferenceConfig& c) { c.preference.loss = "dpoo"; }), "did you mean 'dpo'");
  has(told("dpo", [](PreferenceConfig& c) { c.preference.beta = 0; }), "beta is 0");
  has(told("dpo", [](PreferenceConfig& c) { c.run.name = "a/b"; }), "a/b");
  const auto parted = [](PreferenceConfig& c) { c.share_prompts = SharePrompts::backward, c.micro_batch = 1; };
  for (const std::string loss : {"dpo", "reward"}) has(told(loss, parted), "micro_batch is 1, and a pair");
  has(told("kto", parted), "/nowhere");                    // whose answers share only where prompts are equal
  has(told("dpo", [](PreferenceConfig&) {}), "/nowhere");  // all else is well
  EXPECT_FALSE(fs::exists(root_ / "wrong"));
}

TEST_F(PreferenceJobs, LabelsAndPairsAreTheSameForKto) {
  std::string labels;
  for (int i = 0; i < 8; ++i) labels += fmt::format("{{\"prompt\":\"{} 2=9:\",\"completion\":\"{}\",\"label\":{}}}\n", i, i, i % 2 == 0);
  PreferenceJob kto = job("kto", "kto", file("labels.jsonl", labels));
  kto.eval = pairs();
  const PreferenceSummary summary = run_preference_job(kto);
  EXPECT_EQ(summary.steps, 6);
  EXPECT_TRUE(summary.eval_now.has_value());
}

}  // namespace
}  // namespace lockstep
