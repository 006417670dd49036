// Rows that are no numbers in plans that follow each other (engine/plans_under_way.h): they end the requests whose text they are of, as in one plan after
// another, and no other.
#include <algorithm>
#include <limits>

#include "engine/engine_test_tools.h"

namespace lockstep {
namespace {

constexpr std::int32_t kNoNumber = 11;  // a token whose embedding is NaN

EngineOptions in_stages(const RankLayout& ranks = {}) { return {.page_size = 4, .cache_pages = 400, .max_batch_rows = 64, .ranks = ranks}; }

std::shared_ptr<const WeightSet> weights_with_no_number(Plant& plant) {
  const Manifest& manifest = plant.runtime.model->manifest();
  WeightImages images = plant.images;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    if (p.layout != ParameterLayout::table || p.outputs != plant.runtime.model->facts().vocabulary) continue;
    for (std::int64_t k = 0; k < p.inputs; ++k) images[i][static_cast<std::size_t>(p.offset(0, kNoNumber, k))] = std::numeric_limits<float>::quiet_NaN();
  }
  return make_weight_set(plant.runtime.backend, manifest, images, plant.runtime.profile, 2);
}

// Two requests share a page, which the plan of one fills while that of the other is under way, and a row of it is no number: both fail there, as in one plan.
TEST(FollowingPlans, WhoReadsAPageThatWentWrongFailsWhereItWentWrong) {
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  const auto weights = weights_with_no_number(plant);
  const Request request{.prompt = {1, 2, kNoNumber, 3, 5, 6, 7}, .sampling = {.max_tokens = 4}};
  const std::vector<Request> requests(2, request);
  Engine one(plant.runtime, weights, in_stages()), stages(plant.runtime, weights, in_stages({1, 1, 1, 2}));
  const std::vector<Generation> want = one.generate(requests), got = stages.generate(requests);
  EXPECT_GT(one.counters().cache_hit_tokens, 0);
  EXPECT_GT(stages.counters().cache_hit_tokens, 0);
  EXPECT_GT(stages.counters().following_forwards, 0);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(want[i].finish, FinishReason::error);
    EXPECT_NE(want[i].error.find("position 2"), std::string::npos) << want[i].error;
    EXPECT_EQ(got[i].finish, FinishReason::error);
    EXPECT_EQ(got[i].error, want[i].error);
  }
  EXPECT_EQ(stages.scheduler().pages().free_pages() + stages.scheduler().prefix_cache().idle(), stages.scheduler().pages().total());
}

// Allows every token but that one, and where the answer has so many tokens nothing else.
class SaysNoNumber final : public TokenConstraint {
 public:
  SaysNoNumber(std::int64_t vocabulary, std::int64_t place) : vocabulary_(vocabulary), place_(place) {}
  void allowed(std::span<std::uint32_t> words) override {
    for (std::int32_t token = 0; token < vocabulary_; ++token)
      if ((token == kNoNumber) == (accepted_ == place_)) words[static_cast<std::size_t>(token / 32)] |= 1u << token % 32;
  }
  void accept(std::int32_t) override { ++accepted_; }
  void truncate(std::int64_t count) override { accepted_ = count; }
  void spare() { place_ = -1; }

 private:
  const std::int64_t vocabulary_;
  std::int64_t place_, accepted_ = 0;
};

enum class AfterIt { goes_on, is_cut_by_one, is_cut_by_three, is_cancelled };

struct Answers {
  Generation itself, neighbour, later;
  std::int64_t failed = 0;
  bool was_under_way = false;
};

// A request says that token. Before its row runs, or with stages while it is under way, its text is cut back or it is cancelled. Then comes a request that has
// what was said as its prompt: nothing that the row left may be read by it.
Answers answers_where(AfterIt what, Plant& plant, const std::shared_ptr<const WeightSet>& weights, const EngineOptions& options) {
  constexpr std::size_t kSaid = 5;  // with that token, whose row fills a page
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  const bool stages = options.ranks.pp > 1;
  Engine engine(plant.runtime, weights, options);
  Answers got;
  const auto into = [](Generation& there) { return [&there](Generation&& g) { there = std::move(g); }; };
  const auto itself = std::make_shared<SaysNoNumber>(vocabulary, static_cast<std::int64_t>(kSaid) - 1);
  const auto never = [vocabulary] { return std::make_shared<SaysNoNumber>(vocabulary, -1); };
  const std::uint64_t id = engine.submit({.prompt = {1, 5, 7}, .sampling = {.temperature = 0, .max_tokens = 12, .constraint = itself}}, {}, into(got.itself));
  engine.submit({.prompt = {2, 6, 8}, .sampling = {.temperature = 0, .max_tokens = 40, .constraint = never()}}, {}, into(got.neighbour));
  const auto its = [&engine, id]() -> const Sequence* {
    const std::vector<Sequence*>& running = engine.scheduler().running();
    const auto found = std::find_if(running.begin(), running.end(), [id](const Sequence* s) { return s->id == id; });
    return found == running.end() ? nullptr : *found;
  };
  std::vector<std::int32_t> text;
  for (int step = 0; step < 60 && text.empty(); ++step) {
    engine.step();
    if (const Sequence* s = its(); s && s->generation.tokens.size() == kSaid && s->under_way == stages) text = s->tokens, got.was_under_way = s->under_way;
  }
  EXPECT_EQ(text.size(), 3 + kSaid);
  if (what == AfterIt::is_cut_by_one) engine.truncate(id, kSaid - 1);
  if (what == AfterIt::is_cut_by_three) engine.truncate(id, kSaid - 3);
  if (what == AfterIt::is_cancelled) engine.cancel(id);
  itself->spare();
  engine.run_until_idle();
  text.insert(text.end(), {5, 6, 7});
  engine.submit({.prompt = text, .sampling = {.temperature = 0, .max_tokens = 2, .constraint = never()}}, {}, into(got.later));
  engine.run_until_idle();
  got.failed = engine.counters().failed_requests;
  EXPECT_EQ(engine.scheduler().pages().free_pages() + engine.scheduler().prefix_cache().idle(), engine.scheduler().pages().total());
  return got;
}

TEST(FollowingPlans, ANaNBehindACutHarmsNobody) {
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  const auto weights = weights_with_no_number(plant);
  for (const AfterIt what : {AfterIt::goes_on, AfterIt::is_cut_by_one, AfterIt::is_cut_by_three, AfterIt::is_cancelled}) {
    const Answers want = answers_where(what, plant, weights, in_stages());
    for (const RankLayout& ranks : {RankLayout{1, 1, 1, 2}, RankLayout{1, 1, 1, 3}}) {
      SCOPED_TRACE(fmt::format("{}, {}", ranks.text(), static_cast<int>(what)));
      const Answers got = answers_where(what, plant, weights, in_stages(ranks));
      EXPECT_TRUE(got.was_under_way);
      EXPECT_EQ(bits_of(got.itself), bits_of(want.itself));
      EXPECT_EQ(got.itself.error, want.itself.error);
      // The control: a row that counts ends its request, and no other.
      const FinishReason ends = what == AfterIt::goes_on ? FinishReason::error : what == AfterIt::is_cancelled ? FinishReason::cancelled : FinishReason::length;
      EXPECT_EQ(got.itself.finish, ends);
      EXPECT_EQ(got.itself.error.find("position 7") != std::string::npos, what == AfterIt::goes_on) << got.itself.error;
      EXPECT_EQ(bits_of(got.neighbour), bits_of(want.neighbour));
      EXPECT_EQ(got.neighbour.finish, FinishReason::length);
      EXPECT_EQ(got.later.error, want.later.error);
      EXPECT_NE(got.later.error.find("position 7"), std::string::npos) << got.later.error;
      EXPECT_EQ(got.failed, what == AfterIt::goes_on ? 2 : 1);
      EXPECT_EQ(want.failed, got.failed);
    }
  }
}

}  // namespace
}  // namespace lockstep
