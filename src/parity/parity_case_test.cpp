// Repeating a difference from its file: a right case has none in any way on any configuration, a bit pattern that was changed by one is found at its place,
// and what does not fit the model is refused. What a run leaves is repeated in tests/system/difference_case_test.cpp.
#include "parity/parity_case.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <functional>
#include <set>

#include "base/error.h"
#include "checkpoint/model_sha256.h"
#include "engine/engine.h"
#include "serving/loading.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class RepeatedCase : public testing::Test {
 protected:
  RepeatedCase() { fs::create_directories(root_); }
  ~RepeatedCase() override { fs::remove_all(root_); }

  // A text that the shipped model has sampled, with the bits that it had, of both sides.
  DifferenceCase sampled(float temperature, std::int32_t top_k) const {
    RuntimeSettings settings;
    settings.model = (fs::path(LOCKSTEP_SOURCE_DIR) / "models/countdown-glm").string();
    settings.threads = 1;
    const OpenedModel opened = open_model(settings);
    Engine engine(*opened.runtime, opened.weight_set());
    Request request{.prompt = {5, 9, 2, 70, 41, 8, 33}, .kept_tokens = true};
    request.sampling = {.temperature = temperature, .top_k = top_k, .seed = 4, .max_tokens = 20};
    const Generation said = engine.generate({request})[0];
    DifferenceCase one;
    one.model = settings.model;
    one.model_sha256 = model_sha256(settings.model);
    one.profile = opened.runtime->profile.name;
    one.profile_digest = opened.runtime->profile.digest();
    one.backend = "cpu", one.isa = "avx2", one.threads = 2;
    one.temperature = temperature, one.top_k = top_k;
    one.tokens = request.prompt;
    for (const GeneratedToken& token : said.tokens) {
      one.positions.push_back(std::ssize(one.tokens));
      one.tokens.push_back(token.id);
      one.sampler_bits.push_back(std::bit_cast<std::uint32_t>(token.sampling_logprob));
      if (top_k > 0) one.kept.push_back(token.kept);
    }
    one.trainer_bits = one.sampler_bits;
    return one;
  }
  CaseReport repeated(const DifferenceCase& one) const {
    write_case(file(), one);
    return repeat_case(file());
  }
  fs::path file() const { return root_ / "case.json"; }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_repeated_case_" + std::to_string(::getpid()));
};

TEST_F(RepeatedCase, ARightOneHasNoDifferenceInAnyWay) {
  for (const std::int32_t top_k : {0, 12}) {
    DifferenceCase one = sampled(top_k > 0 ? 0.8f : 1.0f, top_k);
    if (top_k > 0) one.keep_forward = "all", one.ranks = "dp=2";  // whose ranks read what one has kept, else a note says so
    else one.shared_prefix = 5;
    const CaseReport report = repeated(one);
    EXPECT_FALSE(report.repeated());
    EXPECT_EQ(report.recorded.different, 0);
    std::set<std::string> ways, places;
    int over_ranks = 0;
    for (const CaseWay& way : report.ways) {
      EXPECT_EQ(way.from_sampler.different, 0) << way.way << " on " << way.place;
      EXPECT_EQ(way.other_kept_sets, 0) << way.way << " on " << way.place;
      ways.insert(way.way), places.insert(way.place);
      over_ranks += way.way == "training over kept forwards" && way.place.find("dp=2") != std::string::npos;
    }
    EXPECT_EQ(ways.size(), top_k > 0 ? 5u : 4u);
    EXPECT_EQ(over_ranks, top_k > 0 ? 1 : 0);
    EXPECT_GE(places.size(), 6u);
    EXPECT_TRUE(report.notes.empty()) << report.notes.front();
    EXPECT_NE(to_text(report).find("NOT REPEATED: all"), std::string::npos) << to_text(report);
    EXPECT_NE(to_text(report).find("the file holds no difference"), std::string::npos) << to_text(report);
    EXPECT_EQ(to_json(report).at("repeated"), false);
  }
}

TEST_F(RepeatedCase, AChangedPatternIsFoundAtItsPlace) {
  const DifferenceCase right = sampled(1.0f, 0);
  for (const bool of_sampler : {true, false}) {
    DifferenceCase one = right;
    std::uint32_t& planted = (of_sampler ? one.sampler_bits : one.trainer_bits)[13];
    planted ^= 1u;
    const CaseReport report = repeated(one);
    EXPECT_FALSE(report.repeated());  // all that is computed agrees
    ASSERT_TRUE(report.recorded.first);
    EXPECT_EQ(report.recorded.first->position, one.positions[13]);
    for (const CaseWay& way : report.ways) {
      const CaseCount &found = of_sampler ? way.from_sampler : way.from_trainer, &other = of_sampler ? way.from_trainer : way.from_sampler;
      EXPECT_EQ(other.different, 0) << way.way;
      EXPECT_EQ(found.different, 1) << way.way;
      ASSERT_TRUE(found.first) << way.way;
      EXPECT_EQ(found.first->position, one.positions[13]);
      EXPECT_EQ(found.first->token, one.tokens[static_cast<std::size_t>(one.positions[13])]);
      EXPECT_EQ(found.first->expected, planted);
      EXPECT_EQ(found.first->got, planted ^ 1u);
    }
    const std::string text = to_text(report);
    EXPECT_NE(
        text.find(of_sampler ? "those that the trainer had; no way has the sampler's 1 other" : "those that the sampler had; no way has the trainer's 1 other"),
        std::string::npos)
        << text;
    EXPECT_NE(text.find(fmt::format("first at position {}, token", one.positions[13])), std::string::npos) << text;
  }
}

TEST_F(RepeatedCase, WhatDoesNotFitIsRefused) {
  const DifferenceCase right = sampled(1.0f, 0);
  const auto told = [&](const std::function<void(DifferenceCase&)>& change) {
    DifferenceCase one = right;
    change(one);
    try {
      repeated(one);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  const std::pair<std::function<void(DifferenceCase&)>, const char*> faults[] = {
      {[](DifferenceCase& c) { c.model_sha256 = "00"; }, "allowed is 00, with which"},
      {[](DifferenceCase& c) { c.model = "nowhere"; }, "nowhere' is neither a folder"},
      {[](DifferenceCase& c) { c.adapter = c.model, c.adapter_sha256 = "00"; }, "allowed is 00, with which"},
      {[](DifferenceCase& c) { c.profile = "none"; }, "none"},
      {[](DifferenceCase& c) { c.profile_digest = "00"; }, "in this program, allowed is 00"},
      {[](DifferenceCase& c) { c.isa = "sse"; }, "instruction set is 'sse'"},
      {[](DifferenceCase& c) { c.backend = "abacus"; }, "backend is 'abacus', allowed are cpu"},
      {[](DifferenceCase& c) { c.keep_forward = "some"; }, "keep_forward is 'some'"},
      {[](DifferenceCase& c) { c.tokens[3] = 1 << 20; }, "tokens[3] is 1048576, allowed are token ids"},
      {[](DifferenceCase& c) { c.tokens.resize(1000, 1); }, "has 1000 tokens, allowed are at most"},
      {[](DifferenceCase& c) {
         c.kept.assign(c.positions.size(), KeptTokens{KeptTokens::Order::by_id, 1, {1 << 20}});
       },
       "kept[0]: kept token 1048576"},
      {[](DifferenceCase& c) {
         c.kept.assign(c.positions.size(), KeptTokens{KeptTokens::Order::by_id, 1, {c.tokens[7] == 0 ? 1 : 0}});
       },
       "kept[0] lacks token"},
  };
  for (const auto& [change, words] : faults) {
    const std::string said = told(change);
    EXPECT_NE(said.find(words), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace lockstep
