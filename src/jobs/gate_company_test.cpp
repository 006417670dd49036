// The gate draws company for its prompts, the same for each version, and stops a version of which one bit of an answer depends on it.
#include "jobs/gate_company.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "base/error.h"
#include "serving/loading.h"

namespace lockstep {
namespace {

// Answers of a service, changed where a request is not alone.
class SwayedSampler : public Sampler {
 public:
  using Change = std::function<void(const SampleRequest& request, SampleResult& result)>;
  SwayedSampler(const GateSide& side, Change change) : sampler_(gate_sampler(side, {})), change_(std::move(change)) {}
  std::vector<SampleResult> sample(const std::vector<SampleRequest>& requests) override {
    asked.push_back(requests);
    std::vector<SampleResult> results = sampler_.sample(requests);
    for (std::size_t i = 0; change_ && requests.size() > 1 && i < results.size(); ++i) change_(requests[i], results[i]);
    return results;
  }
  std::string profile_digest() const override { return sampler_.profile_digest(); }
  std::uint64_t weights_version() const override { return sampler_.weights_version(); }
  std::vector<std::int32_t> end_tokens() const override { return sampler_.end_tokens(); }

  std::vector<std::vector<SampleRequest>> asked;

 private:
  LocalSampler sampler_;
  const Change change_;
};

void add_ulp(float& value) { value = std::nextafter(value, -std::numeric_limits<float>::infinity()); }

class GateCompanyTest : public testing::Test {
 protected:
  GateCompanyTest() {
    ServingModel model = serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .profile = "cpu-bf16w", .threads = 2}));
    model.executor = std::make_shared<Executor>();
    side_.name = "v8";
    side_.service = std::make_shared<GenerationService>(std::move(model), ServingOptions{});
    spec_.environment = "countdown";
    spec_.problems = 20;
    spec_.max_tokens = 12;
  }
  GateCheck checked(SwayedSampler& sampler) const {
    GateCheck check;
    check_company(spec_, *make_environment(spec_.environment), side_, sampler, check);
    return check;
  }
  std::string why(SwayedSampler::Change change) const {
    SwayedSampler sampler(side_, std::move(change));
    return checked(sampler).why;
  }
  static std::string key_of(const SampleRequest& r) { return fmt::format("{} {} {} {}", fmt::join(r.prompt, ","), r.temperature, r.max_tokens, r.seed); }

  GateSide side_;
  GateSpec spec_;
};

TEST_F(GateCompanyTest, LengthsTemperaturesOrdersAndCompanionsAreDrawn) {
  SwayedSampler sampler(side_, {}), again(side_, {});
  const GateCheck check = checked(sampler);
  EXPECT_TRUE(check.why.empty()) << check.why;
  ASSERT_EQ(sampler.asked.size(), 8u + 4u);
  std::vector<std::string> alone;
  std::set<std::size_t> prompts, answers;
  std::set<float> temperatures;
  for (std::size_t i = 0; i < 8; ++i) {
    ASSERT_EQ(sampler.asked[i].size(), 1u);
    const SampleRequest& one = sampler.asked[i].front();
    alone.push_back(key_of(one));
    prompts.insert(one.prompt.size());
    answers.insert(static_cast<std::size_t>(one.max_tokens));
    temperatures.insert(one.temperature);
    EXPECT_TRUE(one.max_tokens >= 1 && one.max_tokens <= 12);
  }
  EXPECT_GE(prompts.size(), 3u);
  EXPECT_GE(answers.size(), 3u);
  EXPECT_TRUE(temperatures.contains(0.0f));
  EXPECT_GE(temperatures.size(), 3u);
  std::set<std::vector<std::string>> orders, sets;
  std::int64_t compared = 0;
  std::size_t strangers = 0;
  for (std::size_t round = 0; round < 4; ++round) {
    std::vector<std::string> order;
    std::set<std::string> present;
    for (const SampleRequest& one : sampler.asked[8 + round]) {
      const bool known = std::find(alone.begin(), alone.end(), key_of(one)) != alone.end();
      strangers += !known;
      if (!known) continue;
      ++compared;
      order.push_back(key_of(one));
      present.insert(key_of(one));
    }
    if (round == 0) EXPECT_EQ(present.size(), 8u);  // each is compared
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end(), [&](const std::string& a, const std::string& b) {
      return std::find(alone.begin(), alone.end(), a) < std::find(alone.begin(), alone.end(), b);
    }));
    orders.insert(order);
    sets.insert(std::vector<std::string>(present.begin(), present.end()));
  }
  EXPECT_EQ(orders.size(), 4u);
  EXPECT_GE(sets.size(), 3u);
  EXPECT_GE(strangers, 4u);
  EXPECT_EQ(check.figures.at("prompts"), 8);
  EXPECT_EQ(check.figures.at("comparisons"), compared);
  // Whoever is judged is asked the same.
  checked(again);
  ASSERT_EQ(again.asked.size(), sampler.asked.size());
  for (std::size_t call = 0; call < sampler.asked.size(); ++call) {
    ASSERT_EQ(again.asked[call].size(), sampler.asked[call].size());
    for (std::size_t i = 0; i < sampler.asked[call].size(); ++i) EXPECT_EQ(key_of(again.asked[call][i]), key_of(sampler.asked[call][i]));
  }
}

TEST_F(GateCompanyTest, AnUlpInCompanyIsSeen) {
  EXPECT_EQ(why([](const SampleRequest&, SampleResult&) {}), "");
  const std::string raw = why([](const SampleRequest&, SampleResult& r) { add_ulp(r.raw_logprobs.back()); });
  EXPECT_NE(raw.find("has other bits beside"), std::string::npos) << raw;
  EXPECT_NE(raw.find("'v8'"), std::string::npos) << raw;
  EXPECT_NE(why([](const SampleRequest&, SampleResult& r) { add_ulp(r.sampling_logprobs.back()); }), "");
  EXPECT_NE(why([](const SampleRequest&, SampleResult& r) { r.tokens.back() ^= 1; }), "");
  EXPECT_NE(why([](const SampleRequest&, SampleResult& r) { r.tokens.pop_back(), r.raw_logprobs.pop_back(), r.sampling_logprobs.pop_back(); }), "");
  // Of some requests alone.
  EXPECT_NE(why([](const SampleRequest& q, SampleResult& r) {
              if (q.temperature > 0) add_ulp(r.raw_logprobs.back());
            }),
            "");
  EXPECT_NE(why([](const SampleRequest& q, SampleResult& r) {
              if (q.temperature == 0) add_ulp(r.raw_logprobs.back());
            }),
            "");
}

TEST_F(GateCompanyTest, OnePromptHasCompanyToo) {
  spec_.problems = 1;
  SwayedSampler sampler(side_, {});
  const GateCheck check = checked(sampler);
  EXPECT_TRUE(check.why.empty()) << check.why;
  EXPECT_EQ(check.figures.at("prompts"), 1);
  EXPECT_GE(check.figures.at("comparisons").get<std::int64_t>(), 1);
  ASSERT_EQ(sampler.asked.size(), 1u + 4u);
  EXPECT_GE(sampler.asked[1].size(), 2u);
  EXPECT_NE(why([](const SampleRequest&, SampleResult& r) { add_ulp(r.raw_logprobs.front()); }), "");
}

}  // namespace
}  // namespace lockstep
