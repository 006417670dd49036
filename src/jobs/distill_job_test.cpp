// Distillation runs: a student moves towards its teachers, goes on to the same bits, and learns nothing from itself; lists of teachers and prompts say what is
// wrong with them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "jobs/distill_job.h"
#include "jobs/sft_job.h"
#include "jobs/teacher_file.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class DistillJobs : public testing::Test {
 protected:
  static void SetUpTestSuite() {  // a teacher: the same model with an adapter of four steps
    fs::create_directories(folder());
    adapter() = made_adapter("teacher", 0);
  }
  static std::string made_adapter(const std::string& name, std::uint64_t seed) { return made_run(name, seed, 4).string(); }
  // What a run of four steps exported, of an adapter or (rank 0) of all weights.
  static fs::path made_run(const std::string& name, std::uint64_t seed, std::int64_t rank) {
    SftJob job;
    job.config.run.name = name;
    job.config.init_seed = seed;
    job.config.run.runs = folder().string();
    job.config.run.quiet = true;
    job.config.runtime.model = model();
    job.config.runtime.threads = 1;
    job.config.trained.rank = rank;
    job.config.asked.adapter = rank > 0;
    job.config.run.resolved["adapter_rank"] = std::to_string(rank);
    job.config.run.checkpoint_every = 2;
    job.config.export_dtype = "f32";
    job.config.asked.steps = 4;
    job.config.asked.batch = 4;
    job.config.asked.learning_rate = 3e-3;
    job.environment = "countdown";
    return run_sft_job(job).exported;
  }
  static void TearDownTestSuite() { fs::remove_all(folder()); }
  static fs::path folder() { return fs::path(testing::TempDir()) / ("lockstep_distill_" + std::to_string(::getpid())); }
  static std::string model() { return (fs::path(LOCKSTEP_SOURCE_DIR) / "models/countdown-glm").string(); }
  static std::string& adapter() {
    static std::string path;
    return path;
  }
  static std::string text_file(const std::string& name, const std::string& text) {
    write_file_atomic(folder() / name, text);
    return (folder() / name).string();
  }
  static DistillJob distillation(const std::string& name, const std::string& over = "vocabulary") {
    DistillJob job;
    job.run.name = name;
    job.run.runs = folder().string();
    job.run.quiet = true;
    job.stack.runtime.model = model();
    job.stack.runtime.threads = 1;
    job.distill.over = over;
    job.distill.steps = 4;
    job.distill.prompts = 4;
    job.distill.max_tokens = 10;
    job.learning_rate = 1e-3;
    job.teachers = {{.name = "t", .folder = "", .adapter = adapter(), .domains = {}}};
    job.environment = "countdown";
    return job;
  }
  static std::vector<double> losses(const DistillSummary& summary) {
    std::vector<double> values;
    std::ifstream in(summary.run / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json step = nlohmann::json::parse(line);
      values.push_back(step.at("loss").get<double>());
      for (const char* part : {"rollout_seconds", "teacher_seconds", "train_seconds"}) EXPECT_GT(step.at(part).get<double>(), 0) << part;
    }
    return values;
  }
  static std::vector<TeacherQuestion> about(std::size_t teacher, const std::vector<TeacherText>& texts) {
    std::vector<TeacherQuestion> questions;
    for (const TeacherText& text : texts) questions.push_back({teacher, text});
    return questions;
  }
  template <class F>
  static std::string refusal_of(F&& work) {
    try {
      work();
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
};

TEST_F(DistillJobs, AStudentMovesTowardsItsTeacherAndGoesOnToTheSameBits) {
  std::set<std::string> hashes;
  for (const std::string over : {"vocabulary", "top", "sampled"}) {
    const DistillSummary whole = run_distill(distillation(over + "-whole", over));
    ASSERT_TRUE(whole.finished) << over;
    EXPECT_EQ(whole.totals.kl.different_bits, 0) << over;
    EXPECT_EQ(whole.totals.kl.tokens > 0, over != "top") << over;
    const std::vector<double> of_steps = losses(whole);
    ASSERT_EQ(of_steps.size(), 4u);
    if (over != "sampled") {  // an average of few samples may rise
      EXPECT_GT(of_steps[0], 0) << over;
      EXPECT_LT(of_steps[3], 0.7 * of_steps[0]) << over;
    }
    DistillJob parts = distillation(over + "-parts", over);
    StopSource source;
    parts.run.stop = source.token();
    parts.run.on_step = [&source](std::int64_t step) {
      if (step == 2) source.stop();
    };
    EXPECT_FALSE(run_distill(parts).finished) << over;
    parts.run.stop = {};
    parts.run.resume = true;
    parts.stack.micro_batch = 1;  // changes no bit, and no forward is kept
    EXPECT_EQ(run_distill(parts).weights_sha256, whole.weights_sha256) << over;
    DistillJob other = distillation(over + "-other", over);
    other.distill.seed = 1;
    EXPECT_NE(run_distill(other).weights_sha256, whole.weights_sha256) << over;
    hashes.insert(whole.weights_sha256);
  }
  EXPECT_EQ(hashes.size(), 3u);
}

// The student is an adapter over a base in four bits, and so is its teacher: it moves, samples the trainer's bits, and goes on to the same ones.
TEST_F(DistillJobs, AnAdapterLearnsOverABaseInFourBits) {
  const auto begun = [](const std::string& name, const std::string& profile = "cpu-int4-base") {
    DistillJob job = distillation(name);
    job.stack.runtime.profile = profile;
    job.stack.trained.rank = 4;
    job.distill.steps = 6;
    job.learning_rate = 4e-3;
    return job;
  };
  const DistillSummary whole = run_distill(begun("packed-whole"));
  ASSERT_TRUE(whole.finished);
  EXPECT_GT(whole.totals.kl.tokens, 0);
  EXPECT_EQ(whole.totals.kl.different_bits, 0);
  const std::vector<double> of_steps = losses(whole);
  ASSERT_EQ(of_steps.size(), 6u);
  EXPECT_GT(of_steps.front(), 0);
  EXPECT_LT(of_steps.back(), of_steps.front());
  EXPECT_TRUE(fs::exists(fs::path(whole.exported) / "adapter_config.json"));
  DistillJob parts = begun("packed-parts");
  StopSource source;
  parts.run.stop = source.token();
  parts.run.on_step = [&source](std::int64_t step) {
    if (step == 3) source.stop();
  };
  EXPECT_FALSE(run_distill(parts).finished);
  parts.run.stop = {};
  parts.run.resume = true;
  parts.stack.micro_batch = 1;
  EXPECT_EQ(run_distill(parts).weights_sha256, whole.weights_sha256);
  EXPECT_NE(run_distill(begun("packed-not", "cpu-bf16w")).weights_sha256, whole.weights_sha256);  // the control: the base's bits matter
}

// What a teacher of the student's own weights says are the student's own bits: there is nothing to learn, exactly.
TEST_F(DistillJobs, FromItselfAStudentLearnsNothing) {
  std::set<std::string> hashes;
  for (const std::string over : {"vocabulary", "sampled"}) {
    for (const std::string divergence : {"reverse", "forward", "jensen_shannon"}) {
      if (over == "sampled" && divergence != "reverse") continue;
      DistillJob job = distillation(over + "-itself-" + divergence, over);
      job.teachers[0].adapter.clear();
      job.distill.divergence = divergence;
      job.distill.steps = 2;
      const DistillSummary summary = run_distill(job);
      for (const double loss : losses(summary)) EXPECT_EQ(loss, 0) << over << divergence;
      EXPECT_EQ(summary.totals.divergences, std::vector<double>{0}) << over << divergence;
      hashes.insert(summary.weights_sha256);
    }
  }
  EXPECT_EQ(hashes.size(), 1u);
  EXPECT_FALSE(hashes.contains(run_distill(distillation("moved")).weights_sha256));  // the control
}

// Prompts go to the teachers of their domain; two teachers of one are averaged by weight.
TEST_F(DistillJobs, TeachersAreRoutedByDomainAndMixedByWeight) {
  DistillJob job = distillation("routed");
  job.environment.clear();
  job.data = text_file("prompts.jsonl", "{\"prompt\": \"3 7 12=48:\", \"domain\": \"a\"}\n\n{\"prompt\": \"5 9 14=28:\", \"domain\": \"b\"}\n");
  job.distill.steps = 1;
  job.distill.prompts = 2;
  job.teachers = {{.name = "moved", .folder = "", .adapter = adapter(), .domains = {"a"}},
                  {.name = "itself", .folder = model(), .adapter = "", .domains = {"b"}}};
  const DistillSummary routed = run_distill(job);
  ASSERT_EQ(routed.totals.divergences.size(), 2u);
  EXPECT_GT(routed.totals.divergences[0], 0);
  EXPECT_EQ(routed.totals.divergences[1], 0);
  const auto loss_with = [&](double weight) {
    DistillJob mixed = job;
    mixed.run.name = fmt::format("mixed-{}", weight);
    for (TeacherSettings& teacher : mixed.teachers) teacher.domains.clear();
    mixed.teachers[1].weight = weight;
    return losses(run_distill(mixed)).at(0);
  };
  EXPECT_NEAR(loss_with(1), 2 * loss_with(3), 1e-9);  // a half of the first one's divergence, and a quarter
}

// Folders that are loaded in turn teach the same bits as those that are all in memory; one that never fits is refused by name.
TEST_F(DistillJobs, TheMemoryOfTeachersChangesNoBit) {
  fs::copy(model(), folder() / "second", fs::copy_options::recursive | fs::copy_options::skip_existing);
  const std::string second = (folder() / "second").string();
  const auto run = [&](const std::string& name, std::int64_t bytes) {
    DistillJob job = distillation(name);
    job.distill.steps = 2;
    job.teachers = {{.name = "first", .folder = model(), .adapter = adapter(), .domains = {}},
                    {.name = "second", .folder = second, .adapter = "", .domains = {}},
                    {.name = "third", .folder = second, .adapter = adapter(), .domains = {}, .weight = 2}};
    job.teacher_bytes = bytes;
    return run_distill(job);
  };
  RuntimeSettings runtime{.model = model(), .threads = 1};
  const std::int64_t one = open_model(runtime).own_weight_bytes();
  const DistillSummary all = run("all", 0), turns = run("turns", one);
  EXPECT_EQ(all.weights_sha256, turns.weights_sha256);
  EXPECT_EQ(losses(all), losses(turns));
  EXPECT_NE(all.weights_sha256, run_distill(distillation("one-teacher")).weights_sha256);  // the control
  const std::string refused = refusal_of([&] { run("none", one - 1); });
  EXPECT_NE(refused.find("opening teacher 'first'"), std::string::npos) << refused;
  EXPECT_NE(refused.find("teacher_megabytes"), std::string::npos) << refused;
}

// Two folders with room for one: each question loads what is not there, and what is there is asked first.
TEST_F(DistillJobs, TeachersComeInTurn) {
  fs::copy(model(), folder() / "second", fs::copy_options::recursive | fs::copy_options::skip_existing);
  const RuntimeSettings runtime{.model = model(), .threads = 1};
  const OpenedModel opened = open_model(runtime);
  const std::vector<TeacherSettings> settings = {{.name = "first", .folder = model(), .adapter = adapter(), .domains = {}},
                                                 {.name = "second", .folder = (folder() / "second").string(), .adapter = "", .domains = {}}};
  const std::int64_t one = opened.own_weight_bytes(), vocabulary = opened.model->facts().vocabulary;
  Teachers all(settings, runtime, *opened.tokenizer, vocabulary, {}), turns(settings, runtime, *opened.tokenizer, vocabulary, {}, one);
  EXPECT_EQ(turns.order(), (std::vector<std::size_t>{1, 0}));
  const std::vector<TeacherText> texts = {{.tokens = opened.tokenizer->encode("3 7 12=48:7-3=4", true), .first = 4}};
  for (const std::size_t teacher : {0, 1, 0, 0})
    EXPECT_EQ(all.ask(about(teacher, texts), Teachers::kVocabulary)[0].logprobs, turns.ask(about(teacher, texts), Teachers::kVocabulary)[0].logprobs)
        << teacher;
  EXPECT_NE(all.ask(about(0, texts), Teachers::kSampled)[0].logprobs, all.ask(about(1, texts), Teachers::kSampled)[0].logprobs);
  EXPECT_EQ(all.loads(), 2);
  EXPECT_EQ(turns.loads(), 5);  // two at first, then one, two and one again; the last is there
  EXPECT_EQ(turns.order(), (std::vector<std::size_t>{0, 1}));
}

// Three folders with room for two: the one that was not asked for longest leaves, and no other.
TEST_F(DistillJobs, TheTeacherThatWasNotAskedForLongestLeaves) {
  const RuntimeSettings runtime{.model = model(), .threads = 1};
  const OpenedModel opened = open_model(runtime);
  std::vector<TeacherSettings> settings;
  for (const char* name : {"one", "two", "three"}) {
    fs::copy(model(), folder() / name, fs::copy_options::recursive | fs::copy_options::skip_existing);
    settings.push_back({.name = name, .folder = (folder() / name).string(), .adapter = "", .domains = {}});
  }
  Teachers teachers(settings, runtime, *opened.tokenizer, opened.model->facts().vocabulary, {}, 2 * opened.own_weight_bytes());
  EXPECT_EQ(teachers.order(), (std::vector<std::size_t>{1, 2, 0}));
  const std::vector<TeacherText> texts = {{.tokens = opened.tokenizer->encode("3 7 12=48:7-3=4", true), .first = 4}};
  for (const std::size_t teacher : {1, 0}) teachers.ask(about(teacher, texts), Teachers::kSampled);
  EXPECT_EQ(teachers.order(), (std::vector<std::size_t>{0, 1, 2}));  // the third has left, which was opened last and asked before the second
  EXPECT_EQ(teachers.loads(), 4);
}

// Adapters of one base and the base itself: what is asked of them at once is one forward, and each says what it says alone.
TEST_F(DistillJobs, AdaptersOfOneBaseAreAskedInOnePass) {
  fs::copy(model(), folder() / "second", fs::copy_options::recursive | fs::copy_options::skip_existing);
  const std::string other = made_adapter("other-teacher", 9);
  const RuntimeSettings runtime{.model = model(), .threads = 1};
  const OpenedModel opened = open_model(runtime);
  const std::vector<TeacherSettings> settings = {{.name = "one", .folder = "", .adapter = adapter(), .domains = {}},
                                                 {.name = "elsewhere", .folder = (folder() / "second").string(), .adapter = "", .domains = {}},
                                                 {.name = "other", .folder = "", .adapter = other, .domains = {}},
                                                 {.name = "base", .folder = "", .adapter = "", .domains = {}}};
  const std::int64_t vocabulary = opened.model->facts().vocabulary;
  Teachers joined(settings, runtime, *opened.tokenizer, vocabulary, {}), single(settings, runtime, *opened.tokenizer, vocabulary, {});
  EXPECT_EQ(joined.together(), (std::vector<std::vector<std::size_t>>{{0, 2, 3}, {1}}));
  std::vector<TeacherQuestion> questions;
  for (const char* text : {"3 7 12=48:7-3=4", "5 9 14=28:9-5=4"})
    for (const std::size_t teacher : {0, 2, 3}) questions.push_back({teacher, {opened.tokenizer->encode(text, true), 4}});

  for (const std::int64_t tokens : {Teachers::kSampled, Teachers::kVocabulary, std::int64_t{5}}) {
    const std::int64_t before = joined.forwards(), before_single = single.forwards();
    const std::vector<TeacherAnswer> answers = joined.ask(questions, tokens);
    EXPECT_EQ(joined.forwards() - before, 1) << tokens;
    ASSERT_EQ(answers.size(), questions.size());
    for (std::size_t i = 0; i < questions.size(); ++i) {
      const TeacherAnswer alone = single.ask({questions[i]}, tokens)[0];
      EXPECT_EQ(answers[i].tokens, alone.tokens) << tokens << " " << i;
      EXPECT_EQ(answers[i].logprobs, alone.logprobs) << tokens << " " << i;
    }
    EXPECT_EQ(single.forwards() - before_single, 6) << tokens;
    for (const auto& [a, b] : {std::pair(0, 1), std::pair(1, 2), std::pair(0, 2)})  // the control: each is another
      EXPECT_NE(answers[static_cast<std::size_t>(a)].logprobs, answers[static_cast<std::size_t>(b)].logprobs) << tokens;
  }
  const std::int64_t before = joined.forwards();
  const TeacherStates told = joined.states(questions);
  EXPECT_EQ(joined.forwards() - before, 1);
  ASSERT_EQ(told.states.size(), questions.size());
  for (std::size_t i = 0; i < questions.size(); ++i) EXPECT_EQ(told.states[i], single.states({questions[i]}).states[0]) << i;
  EXPECT_NE(told.states[0], told.states[1]);
  EXPECT_NE(told.states[1], told.states[2]);
  const std::string refused = refusal_of([&] { joined.ask({questions[0], {1, questions[0].text}}, Teachers::kSampled); });
  EXPECT_NE(refused.find("'one' and 'elsewhere' are of two folders"), std::string::npos) << refused;

  for (const std::string over : {"vocabulary", "sampled"}) {  // a step of a run
    DistillJob job = distillation("joined-" + over, over);
    job.distill.steps = 2;
    job.teachers = {settings[0], settings[2], settings[3]};
    EXPECT_EQ(run_distill(job).teacher_forwards, 2) << over;
  }
}

// The newest checkpoint of a run, of an adapter or of all weights, teaches what the run exported; another one of it does not.
TEST_F(DistillJobs, ACheckpointTeachesWhatItsRunExported) {
  const auto taught = [](const TeacherSettings& teacher) {
    static int count = 0;
    DistillJob job = distillation("checkpoint-" + std::to_string(++count));
    job.distill.steps = 1;
    job.teachers = {teacher};
    return run_distill(job).weights_sha256;
  };
  const auto of_run = [&](const fs::path& run) { return taught({.name = "t", .folder = "", .adapter = "", .checkpoint = run.string(), .domains = {}}); };
  const fs::path whole_run = folder() / "whole-teacher", adapter_run = folder() / "teacher";
  const fs::path exported = made_run("whole-teacher", 0, 0);
  const std::string by_adapter = taught({.name = "t", .folder = "", .adapter = adapter(), .domains = {}}),
                    by_folder = taught({.name = "t", .folder = exported.string(), .adapter = "", .domains = {}});
  EXPECT_NE(by_adapter, by_folder);
  EXPECT_EQ(of_run(adapter_run), by_adapter);
  EXPECT_EQ(of_run(whole_run), by_folder);
  EXPECT_EQ(of_run(whole_run / "checkpoints" / "step-000004"), by_folder);
  for (const fs::path& run : {whole_run, adapter_run}) {
    const std::string earlier = of_run(run / "checkpoints" / "step-000002");
    EXPECT_TRUE(earlier != by_adapter && earlier != by_folder) << run;
  }
}

TEST_F(DistillJobs, WhatIsWrongIsNamedBeforeAModelIsRead) {
  const auto told = [](const std::function<void(DistillJob&)>& change) {
    DistillJob job = distillation("wrong");
    job.stack.runtime.model = "/nowhere";
    change(job);
    return refusal_of([&] { run_distill(job); });
  };
  const auto has = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  has(told([](DistillJob& j) { j.teachers.clear(); }), "there is no teacher");
  has(told([](DistillJob& j) { j.teachers.push_back(j.teachers[0]); }), "the name of a teacher is 't'");
  has(told([](DistillJob& j) { j.teachers[0].weight = 0; }), "the weight of teacher 't' is 0");
  has(told([](DistillJob& j) { j.teachers[0].domains = {"countdwn"}; }), "did you mean 'countdown'");
  has(told([](DistillJob& j) {
        j.environment.clear();
        j.data = text_file("two.jsonl", "{\"prompt\": \"1\", \"domain\": \"a\"}\n{\"prompt\": \"2\", \"domain\": \"b\"}\n");
        j.teachers[0].domains = {"a"};
      }),
      "no teacher is for the domain 'b'");
  has(told([](DistillJob& j) {
        j.environment.clear();
        j.data = text_file("wrong.jsonl", "{\"prompt\": \"1\", \"domian\": \"a\"}\n");
      }),
      "did you mean 'domain'");
  has(told([](DistillJob& j) { j.data = "prompts.jsonl"; }), "allowed is one of them");
  has(told([](DistillJob& j) { j.environment = "lockbox"; }), "many turns");
  has(told([](DistillJob& j) { j.environment = "dozen", j.teachers[0].domains = {"revers"}; }), "did you mean 'reverse'");
  has(told([](DistillJob& j) { j.environment = "dozen", j.teachers[0].domains = {"reverse"}; }), "no teacher is for the domain 'sort'");
  has(told([](DistillJob& j) { j.distill.over = "vocabulry"; }), "did you mean 'vocabulary'");
  has(told([](DistillJob& j) { j.distill.over = "sampled", j.distill.divergence = "forward"; }), "allowed is reverse");
  has(told([](DistillJob& j) { j.distill.over = "sampled", j.distill.temperature = 0.5; }), "allowed is 1");
  has(told([](DistillJob& j) { j.teachers[0].checkpoint = "/nowhere/run"; }), "has an adapter and a checkpoint");
  has(told([](DistillJob& j) { j.teachers[0].adapter.clear(), j.teachers[0].checkpoint = "/nowhere/run"; }), "the checkpoint of teacher 't'");
  has(told([](DistillJob& j) { j.distill.teacher_top_k = 21; }), "teacher_top_k is 21, allowed is 1 to 20");
  has(told([](DistillJob&) {}), "/nowhere");  // all else is well
}

TEST_F(DistillJobs, AListOfTeachersIsRead) {
  const std::vector<TeacherSettings> teachers = read_teacher_file(
      text_file("list.toml",
                "[[teacher]]\nname = \"a\"\nfolder = \"one\"\ndomains = [\"x\", \"y\"]\n[[teacher]]\nname = \"b\"\nadapter = \"/two\"\nweight = 2\n"
                "[[teacher]]\nname = \"c\"\ncheckpoint = \"runs/three\"\n"));
  ASSERT_EQ(teachers.size(), 3u);
  EXPECT_EQ(teachers[2].checkpoint, (folder() / "runs/three").string());
  EXPECT_EQ(teachers[0].folder, (folder() / "one").string());
  EXPECT_EQ(teachers[0].domains, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(teachers[1].adapter, "/two");
  EXPECT_EQ(teachers[1].weight, 2);
  const auto told = [](const std::string& text) { return refusal_of([&] { read_teacher_file(text_file("wrong.toml", text)); }); };
  const auto has = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  has(told("[[teacher]]\nname = \"a\"\nfolder = \"x\"\nwieght = 1\n"),
      "line 4: unknown key 'wieght', allowed are name, folder, adapter, checkpoint, domains, weight, url");
  has(told("[[teacher]]\nname = 3\nfolder = \"x\"\n"), "line 2: 'name' is no text");
  has(told("[[teacher]]\nname = \"a\"\n"), "no folder, no adapter, no checkpoint and no url");
  has(told("[[teachers]]\nname = \"a\"\n"), "unknown key 'teachers'");
  has(told("teacher = 1\n"), "unknown key 'teacher'");
  has(told("[[teacher]\n"), "line 1");
  has(told(""), "0 tables [[teacher]]");
}

}  // namespace
}  // namespace lockstep
