// Token files, the JSON lines of scores, the ways of scoring, and the file of gradients.
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <fstream>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/safetensors.h"
#include "model/kv_cache.h"
#include "parity/score.h"
#include "parity/score_input.h"

namespace lockstep {
namespace {

using Sequences = std::vector<std::vector<std::int32_t>>;

std::string fault(const std::string& text) {
  try {
    parse_token_lines(text, "file", {.vocabulary = 10, .longest = 4});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupt_file) << text;
    return e.message();
  }
  return "accepted";
}

TEST(TokenLines, AreReadWithTheirNumbers) {
  const auto lines = parse_token_lines("{\"tokens\":[1,2]}\r\n\n  \n{ \"tokens\" : [0, 9, 3, 4] }", "file", {.vocabulary = 10, .longest = 4});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].tokens, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(lines[1].line, 4);
  EXPECT_EQ(lines[1].tokens, (std::vector<std::int32_t>{0, 9, 3, 4}));
}

TEST(TokenLines, EveryFaultNamesItsLine) {
  const std::string good = "{\"tokens\":[1]}\n";
  for (const std::string bad : {"{\"tokens\":[1,2", "nonsense", "[1,2]", "{}", "{\"tokens\":7}", "{\"tokens\":[]}", "{\"tokens\":[1,2,3,4,5]}",
                                "{\"tokens\":[10]}", "{\"tokens\":[-1]}", "{\"tokens\":[1.5]}", "{\"tokens\":[\"1\"]}", "{\"tokens\":[null]}",
                                "{\"tokens\":[18446744073709551615]}", "{\"tokens\":[1e300]}", "{\"tokens\":[1],\"x\":2}", "\xff\xfe"})
    EXPECT_NE(fault(good + bad).find("'file' line 2: "), std::string::npos) << bad << ": " << fault(good + bad);
  EXPECT_NE(fault("{\"token\":[1]}").find("did you mean 'tokens'"), std::string::npos);
  EXPECT_NE(fault("{\"tokens\":[1,10]}").find("tokens[1] is 10, allowed are token ids from 0 to 9"), std::string::npos);
  EXPECT_NE(fault("\n\n").find("holds no sequence"), std::string::npos);
}

TEST(ScoreLine, NineDigitsGiveBackTheBits) {
  ScoredRow row{{-0.1f, -1.0f / 3, -1e-30f, -123456.79f, -0x1.fffffep-5f}, "00"};
  const auto json = nlohmann::json::parse(to_json_line(row));
  for (std::size_t i = 0; i < row.logprobs.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(json["logprobs"][i].get<float>()), std::bit_cast<std::uint32_t>(row.logprobs[i])) << i;
}

class ScoreTest : public testing::Test {
 protected:
  ScoreTest() {
    std::ifstream config(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/glm_moe_dsa/wide/config.json");
    opened_.model = make_model(Json::parse(config));
    opened_.initial = [model = opened_.model] { return initial_weights(model->manifest(), 1, 0.1); };
    opened_.runtime = std::make_shared<Runtime>(BackendOptions{.threads = 2}, opened_.model, profile_by_name("cpu-f32"));
  }
  OpenedModel opened_;
  const Sequences sequences_ = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {5}, {3, 3}, {60, 2, 60, 2, 60, 2, 60}};
};

TEST_F(ScoreTest, EveryWayGivesTheSameBits) {
  std::vector<std::string> expected;
  for (const std::string& via : score_via_names()) {
    std::vector<std::string> lines;
    Scorer(opened_, score_via_by_name(via)).score(sequences_, [&](const ScoredRow& row) {
      EXPECT_EQ(row.logprobs.size() + 1, sequences_[lines.size()].size());
      EXPECT_EQ(row.bits, hex64(xxh3(row.logprobs.data(), 4 * row.logprobs.size())));
      lines.push_back(to_json_line(row));
    });
    if (expected.empty()) expected = lines;
    EXPECT_EQ(lines, expected) << via;
  }
  EXPECT_EQ(expected.size(), sequences_.size());
  EXPECT_THROW(score_via_by_name("trian"), Error);
}

// A text that is longer than the usual cache has a larger one, and shorter ones the usual.
TEST_F(ScoreTest, TheCacheHoldsTheLongestText) {
  const Runtime& runtime = *opened_.runtime;
  const std::int64_t a_position = KvCache::bytes_a_position(opened_.model->cache_shapes(runtime.profile), runtime.profile);
  const EngineOptions usual;
  EXPECT_EQ(scoring_options(runtime, {}, 12).cache_bytes, usual.cache_bytes);
  const std::int64_t longest = usual.cache_bytes / a_position + 5;
  const EngineOptions larger = scoring_options(runtime, {}, longest);
  EXPECT_GE(larger.cache_bytes / (a_position * larger.page_size) * larger.page_size, longest);
  EXPECT_LE(larger.cache_bytes, (longest + larger.page_size) * a_position);
}

// One that scores longer texts than before makes room for them.
TEST_F(ScoreTest, ShortTextsBeforeLongOnes) {
  Scorer one(opened_, ScoreVia::prefill), other(opened_, ScoreVia::prefill);
  std::vector<std::string> apart, together;
  for (const std::vector<std::int32_t>& sequence : {sequences_[1], sequences_[0]})
    one.score({sequence}, [&](const ScoredRow& row) { apart.push_back(to_json_line(row)); });
  other.score({sequences_[1], sequences_[0]}, [&](const ScoredRow& row) { together.push_back(to_json_line(row)); });
  EXPECT_EQ(apart, together);
}

// No fp32 image of the weights, no gradients, no moments: the compute copy alone, whichever the way.
TEST_F(ScoreTest, HoldsNothingThatTrainingNeeds) {
  opened_.runtime = std::make_shared<Runtime>(BackendOptions{.threads = 2}, opened_.model, profile_by_name("cpu-bf16w"));
  const MemoryAccounts& memory = opened_.runtime->backend.device().memory();
  const auto copies = [&] { return memory.current(MemoryCategory::weights); };
  const std::int64_t own = copies();  // what the runtime has of itself, such as tables of RoPE
  const std::int64_t with_weights = [&, weights = opened_.weight_set()] { return copies(); }();
  EXPECT_GE(with_weights - own, loaded_bytes(*opened_.model, opened_.runtime->profile).weights);
  for (const std::string& via : score_via_names()) {
    const Scorer scorer(opened_, score_via_by_name(via));
    EXPECT_EQ(copies(), with_weights) << via;
    for (const MemoryCategory category : {MemoryCategory::optimizer, MemoryCategory::gradients}) EXPECT_EQ(memory.peak(category), 0) << via;
  }
}

TEST_F(ScoreTest, TheGradientFileHasEveryWeightAndNoCorrectionBias) {
  const auto path = std::filesystem::path(testing::TempDir()) / fmt::format("lockstep_gradients_{}.safetensors", ::getpid());
  const GradientSummary summary =
      write_gradients(opened_, {TrainSequence::next_token(sequences_[0]), TrainSequence::next_token(sequences_[3])}, {.normaliser = 1}, path);
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::filesystem::remove(path);
  EXPECT_EQ(summary.tokens, 17);
  EXPECT_GT(summary.loss, 0);
  std::size_t tensors = 0;
  for (const FileTensor& f : opened_.model->manifest().files()) {
    const SafetensorsTensor* tensor = file.find(f.name);
    ASSERT_EQ(tensor != nullptr, !f.fp32) << f.name;
    if (!tensor) continue;
    ++tensors;
    EXPECT_EQ(tensor->shape, f.shape) << f.name;
    bool any = false;
    for (float g : file.read(*tensor)) any |= g != 0;
    const bool indexer = f.name.find("indexer") != std::string::npos;
    if (f.name.find(".experts.") == std::string::npos) {  // an expert may have had no token
      EXPECT_EQ(any, !indexer) << f.name;
    }
  }
  EXPECT_EQ(file.tensors().size(), tensors);
  EXPECT_EQ(static_cast<std::int64_t>(tensors), summary.tensors);
}

}  // namespace
}  // namespace lockstep
