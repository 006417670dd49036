// The ranks of a run before it begins: instruction sets compute the same operations, a host whose bits differ is named with the operation, and so are links
// that are slower than others.
#include "parity/rank_check.h"

#include <gtest/gtest.h>

#include "parallel/memory_wire_test_tools.h"
#include "parallel/thread_ranks.h"

namespace lockstep {
namespace {

using Level = Finding::Level;

const Finding* finding_of(const std::vector<Finding>& all, const std::string& subject, Level level) {
  const auto it = std::find_if(all.begin(), all.end(), [&](const Finding& f) { return f.subject == subject && f.level == level; });
  return it == all.end() ? nullptr : &*it;
}

std::vector<OperationDigest> few_operations(InstructionSet, int) {
  return {{"p forward, layer 0: linear a", 1}, {"p forward, layer 1: router b", 2}, {"p gradient: c", 3}};
}

RankCheckSettings few_settings() {
  RankCheckSettings settings;
  settings.program = "abc";
  settings.measure = {.seconds = 0.001, .most_bytes = 128 << 10};
  settings.compute = few_operations;
  return settings;
}

RankFacts facts(int rank, const std::string& host) {
  RankFacts f{.rank = rank, .process = rank, .host = host, .pid = 7, .threads = 1, .instruction_set = "avx2", .program = "abc"};
  f.profiles = {{"cpu-f32", 5}, {"cpu-bf16w", 6}};
  f.bits = few_operations(InstructionSet::avx2, 1);
  return f;
}

TEST(RankBits, EveryInstructionSetAndThreadCountComputesTheSame) {
  const std::vector<OperationDigest> scalar = operation_digests(InstructionSet::scalar, 1);
  EXPECT_GT(scalar.size(), 1000u);
  const auto named = [&](const char* what) {
    return std::any_of(scalar.begin(), scalar.end(), [&](const OperationDigest& o) { return o.what.find(what) != std::string::npos; });
  };
  for (const char* what :
       {"cpu-f32 forward, layer 1: ", "cpu-bf16w gradient: ", "cpu-fp8 weights after a step: ", "cpu-mxfp8-experts log-probabilities", "attention"})
    EXPECT_TRUE(named(what)) << what;
  for (const InstructionSet isa : {InstructionSet::avx2, InstructionSet::avx512})
    if (machine_has(isa)) {
      EXPECT_EQ(operation_digests(isa, 2), scalar) << instruction_set_name(isa);
    }
  EXPECT_EQ(bits_digest(scalar).size(), 16u);
}

TEST(RankCheck, ThreadsAndProcessesThatComputeTheSameAreFit) {
  ThreadRanks threads({.tp = 2});
  const RankCheck alone = check_ranks(threads, few_settings());
  EXPECT_TRUE(alone.fit());
  EXPECT_EQ(alone.ranks.size(), 2u);
  EXPECT_EQ(alone.links.links.size(), 1u);
  std::vector<RankCheck> checks(2);
  as_processes(2, [&](ProcessMail& mail) {
    ProcessRanks ranks({.tp = 2, .dp = 2}, mail);
    checks[static_cast<std::size_t>(mail.process())] = check_ranks(ranks, few_settings());
  });
  for (const RankCheck& check : checks) {
    EXPECT_TRUE(check.fit());
    ASSERT_EQ(check.ranks.size(), 4u);
    EXPECT_EQ(check.ranks[1].name(), "rank 1 (process 0, host here)");
    EXPECT_EQ(check.ranks[2].name(), "rank 2 (process 1, host here)");
    EXPECT_EQ(check.links.links.size(), 6u);
    const Finding* bits = finding_of(check.findings, "bits", Level::good);
    ASSERT_NE(bits, nullptr);
    EXPECT_NE(bits->text.find("3 operations of forward, gradient and step have the same bits in 2 processes"), std::string::npos) << bits->text;
  }
}

TEST(RankCheck, AHostWithOtherBitsIsNamedWithItsOperation) {
  std::vector<RankCheck> checks(3);
  as_processes(3, [&](ProcessMail& mail) {
    ProcessRanks ranks({.dp = 3}, mail);
    RankCheckSettings settings = few_settings();
    settings.links = false;
    if (mail.process() == 0)
      settings.compute = [](InstructionSet isa, int threads) {
        std::vector<OperationDigest> other = few_operations(isa, threads);
        other[1].digest ^= 1, other[2].digest ^= 1;
        return other;
      };
    checks[static_cast<std::size_t>(mail.process())] = check_ranks(ranks, settings);
  });
  for (const RankCheck& check : checks) {
    EXPECT_FALSE(check.fit());
    EXPECT_TRUE(check.links.links.empty());
    const Finding* bits = finding_of(check.findings, "bits", Level::problem);
    ASSERT_NE(bits, nullptr);
    // Two agree, so that it is the third which differs, though it has the lowest rank.
    for (const char* words :
         {"rank 0 (process 0, host here)", "computes other bits than rank 1 (process 1, host here)", "first in 'p forward, layer 1: router b'", "in 2 of 3"})
      EXPECT_NE(bits->text.find(words), std::string::npos) << bits->text;
    EXPECT_EQ(finding_of(check.findings, "bits", Level::good), nullptr);
  }
}

TEST(RankCheck, AProcessThatCannotComputeIsTold) {
  std::vector<std::string> told(2);
  as_processes(2, [&](ProcessMail& mail) {
    ProcessRanks ranks({.dp = 2}, mail);
    RankCheckSettings settings = few_settings();
    if (mail.process() == 1)
      settings.compute = [](InstructionSet, int) -> std::vector<OperationDigest> { throw Error(ErrorCode::unsupported, "no such instruction set"); };
    try {
      check_ranks(ranks, settings);
    } catch (const Error& e) {
      told[static_cast<std::size_t>(mail.process())] = e.what();
    }
  });
  EXPECT_EQ(told[0], "no such instruction set (while computing in process 1)");
  EXPECT_EQ(told[1], "no such instruction set");
}

TEST(RankCheck, OneRankIsRefused) {
  ThreadRanks one({});
  EXPECT_THROW(check_ranks(one, few_settings()), Error);
}

TEST(RankFindings, OtherProgramsProfilesAndLengthsAreNamed) {
  const auto judged = [](auto change) {
    std::vector<RankFacts> ranks = {facts(0, "a"), facts(1, "b")};
    change(ranks[1]);
    return judge_ranks({.dp = 2}, ranks, {});
  };
  EXPECT_EQ(judged([](RankFacts&) {}).size(), 2u);
  const std::vector<Finding> program = judged([](RankFacts& f) { f.program = "abd"; });
  ASSERT_NE(finding_of(program, "program", Level::warning), nullptr);
  EXPECT_EQ(finding_of(program, "program", Level::warning)->text, "rank 1 (process 1, host b) is built of commit abd, rank 0 (process 0, host a) of abc");
  const std::vector<Finding> profile = judged([](RankFacts& f) { f.profiles[1].digest = 9; });
  ASSERT_NE(finding_of(profile, "program", Level::problem), nullptr);
  EXPECT_NE(finding_of(profile, "program", Level::problem)->text.find("'cpu-bf16w'"), std::string::npos);
  const std::vector<Finding> fewer = judged([](RankFacts& f) { f.bits.pop_back(); });
  ASSERT_NE(finding_of(fewer, "bits", Level::problem), nullptr);
  EXPECT_NE(finding_of(fewer, "bits", Level::problem)->text.find("2 operations are compared there, and 3 here"), std::string::npos);
}

TEST(RankFindings, AnotherModelIsNamedWithItsFile) {
  const std::vector<FileDigest> files = {{"config.json", 10, 1}, {"model.safetensors", 100, 2}};
  const auto judged = [&](auto change) {
    std::vector<RankFacts> ranks = {facts(0, "a"), facts(1, "b")};
    for (RankFacts& rank : ranks) rank.files = files;
    change(ranks[1].files);
    const std::vector<Finding> found = judge_ranks({.dp = 2}, ranks, {}, "m");
    const Finding* problem = finding_of(found, "model", Level::problem);
    EXPECT_EQ(problem == nullptr, finding_of(found, "model", Level::good) != nullptr);
    return problem ? problem->text : "";
  };
  const std::string begin = "'m' of rank 1 (process 1, host b), beside that of rank 0 (process 0, host a), ";
  EXPECT_EQ(judged([](std::vector<FileDigest>&) {}), "");
  EXPECT_EQ(judged([](std::vector<FileDigest>& f) { f[1].digest = 3; }), begin + "has another model.safetensors, of as many bytes");
  EXPECT_EQ(judged([](std::vector<FileDigest>& f) { f[1].bytes = 99; }), begin + "has another model.safetensors: 99 bytes, and 100 there");
  EXPECT_EQ(judged([](std::vector<FileDigest>& f) { f.pop_back(); }), begin + "has no model.safetensors");
  EXPECT_EQ(judged([](std::vector<FileDigest>& f) { f.erase(f.begin()); }), begin + "has no config.json");
  EXPECT_EQ(judged([](std::vector<FileDigest>& f) { f.push_back({"tokenizer.json", 1, 1}); }), begin + "has tokenizer.json, which is not there");
  EXPECT_EQ(judged([](std::vector<FileDigest>& f) { f.clear(); }), begin + "is not there, or has no file that a model is read from");
}

TEST(FolderDigests, EachFileOfAModel) {
  const std::filesystem::path folder = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "models/countdown-glm";
  const std::vector<FileDigest> files = folder_digests(folder);
  ASSERT_FALSE(files.empty());
  EXPECT_TRUE(std::is_sorted(files.begin(), files.end(), [](const FileDigest& a, const FileDigest& b) { return a.name < b.name; }));
  const auto weights = std::find_if(files.begin(), files.end(), [](const FileDigest& f) { return f.name == "model.safetensors"; });
  ASSERT_NE(weights, files.end());
  EXPECT_EQ(folder_digests(folder / "model.safetensors"), std::vector<FileDigest>{*weights});
  EXPECT_TRUE(folder_digests(folder / "nowhere").empty());
}

TEST(RankFindings, SlowLinksAndGroupsBetweenHostsAreNamed) {
  std::vector<RankFacts> ranks = {facts(0, "a"), facts(1, "b"), facts(2, "c"), facts(3, "c")};
  LinkSpeeds speeds;
  for (const auto& [first, second] : measured_links(4))
    speeds.links.push_back({.first = first, .second = second, .latency = 100e-6, .there = 1e9, .back = 1e9});
  speeds.around = 5e8;
  EXPECT_EQ(finding_of(judge_ranks({.dp = 4}, ranks, speeds), "links", Level::warning), nullptr);
  const auto warned = [&](auto change) {
    LinkSpeeds changed = speeds;
    change(changed.links[1]);  // ranks 0 and 2
    const std::vector<Finding> found = judge_ranks({.dp = 4}, ranks, changed);
    const Finding* warning = finding_of(found, "links", Level::warning);
    return warning ? warning->text : "";
  };
  EXPECT_EQ(warned([](LinkSpeed& l) { l.latency = 2e-3; }),
            "between rank 0 (process 0, host a) and rank 2 (process 2, host c): 8 bytes take 2 ms, 100 us on most such links");
  EXPECT_NE(warned([](LinkSpeed& l) { l.there = l.back = 1e8; }).find("large messages 100 MB/s, 1 GB/s on most such links"), std::string::npos);
  EXPECT_NE(warned([](LinkSpeed& l) { l.back = 2e8; }).find("large messages 1 GB/s there and 200 MB/s back"), std::string::npos);
  const std::vector<Finding> tensor = judge_ranks({.tp = 2, .dp = 2}, ranks, speeds);
  ASSERT_NE(finding_of(tensor, "layout", Level::note), nullptr);
  EXPECT_NE(finding_of(tensor, "layout", Level::note)->text.find("rank 0 (process 0, host a) and rank 1 (process 1, host b)"), std::string::npos);
  EXPECT_EQ(finding_of(judge_ranks({.dp = 4}, ranks, speeds), "layout", Level::note), nullptr);
}

}  // namespace
}  // namespace lockstep
