// Guesses of a layer of multi-token prediction while plans follow each other (engine/plans_under_way.h): they are made between forwards, so what they read
// must have been written by a plan that has been through.
#include <algorithm>

#include "engine/drafts_test_tools.h"

namespace lockstep {
namespace {

const Sequence* running_one(const Engine& engine, std::uint64_t id) {
  const std::vector<Sequence*>& running = engine.scheduler().running();
  const auto found = std::find_if(running.begin(), running.end(), [id](const Sequence* s) { return s->id == id; });
  return found == running.end() ? nullptr : *found;
}

// A request, in pages of four, to which a script guesses one token wrongly up to `kWhere` and there two rightly, which fill a page; then the layer guesses.
constexpr std::int64_t kWhere = 10, kBehind = kWhere + 3;

Request filling_a_page(const std::vector<std::int32_t>& text, std::int64_t prompt, std::int64_t vocabulary) {
  Request request{.prompt = {text.begin(), text.begin() + prompt}, .sampling = {.temperature = 0, .max_tokens = 20}};
  request.drafts = parse_drafts("mtp", 2);
  request.draft_script = [text, vocabulary](std::span<const std::int32_t> now, std::int64_t, std::vector<std::int32_t>& out) {
    const std::size_t at = now.size();
    if (at < static_cast<std::size_t>(kWhere)) out = {static_cast<std::int32_t>((text[at] + 1) % vocabulary)};
    if (at == static_cast<std::size_t>(kWhere)) out = {text[at], text[at + 1]};
  };
  return request;
}

// A request that decodes, and one whose prompt is what the first is about to say. The plan of the second, which follows, is to fill the page that the first
// fills with right guesses: it keeps its own, of which the layer guesses what it guesses in one plan after another, and takes the other's when that is written.
TEST(FollowingPlans, ALayerReadsNoPageThatIsStillToBeWritten) {
  constexpr std::int64_t kPrompt = 6;
  constexpr std::size_t kPage = 2;  // positions 8 to 11
  MtpPlant plant("cpu-bf16w", {.threads = 1});
  const EngineOptions options{.page_size = 4, .cache_pages = 200};
  Engine plain(plant.runtime, plant.weights, options);
  std::vector<std::int32_t> text{3, 1, 4, 1, 5, 9};
  const std::vector<Generation> plainly = plain.generate({Request{.prompt = text, .sampling = {.temperature = 0, .max_tokens = 20}}});
  for (const GeneratedToken& t : plainly[0].tokens) text.push_back(t.id);
  ASSERT_EQ(text.size(), 26u);
  const Request first = filling_a_page(text, kPrompt, plant.vocabulary());

  Engine one(plant.runtime, plant.weights, options, plant.layer);
  const std::uint64_t alone = one.submit(first);
  while (!running_one(one, alone) || running_one(one, alone)->accepted() < kBehind) ASSERT_TRUE(one.step());
  ASSERT_EQ(running_one(one, alone)->accepted(), kBehind);
  ASSERT_TRUE(one.step());
  ASSERT_NE(running_one(one, alone), nullptr);
  const std::vector<std::int32_t> want = running_one(one, alone)->drafting->layer_says;
  EXPECT_EQ(want.size(), 2u);

  EngineOptions staged_options = options;
  staged_options.ranks = {1, 1, 1, 2};
  Engine stages(plant.runtime, plant.weights, staged_options, plant.layer);
  Generation said;
  const std::uint64_t id = stages.submit(first, {}, [&said](Generation&& g) { said = std::move(g); });
  while (!running_one(stages, id) || running_one(stages, id)->accepted() < kWhere) ASSERT_TRUE(stages.step());
  const std::uint64_t other = stages.submit({.prompt = {text.begin(), text.begin() + 16}, .sampling = {.temperature = 0, .max_tokens = 4}});
  ASSERT_TRUE(stages.step());  // the first one's plan
  ASSERT_TRUE(stages.step());  // the other's, and the first one's has been through
  const Sequence *its = running_one(stages, id), *others = running_one(stages, other);
  ASSERT_TRUE(its && others);
  EXPECT_EQ(its->accepted(), kBehind);
  EXPECT_TRUE(others->under_way);
  ASSERT_GT(others->pages.size(), kPage);
  EXPECT_EQ(its->pages[kPage - 1], others->pages[kPage - 1]);
  EXPECT_NE(its->pages[kPage], others->pages[kPage]);
  ASSERT_TRUE(stages.step());  // guesses of the layer
  EXPECT_TRUE(its->under_way);
  EXPECT_EQ(its->drafting->layer_says, want);
  ASSERT_TRUE(stages.step());
  ASSERT_TRUE(running_one(stages, id) && running_one(stages, other));
  EXPECT_EQ(its->pages[kPage], others->pages[kPage]);  // the control: the pages are equal
  stages.run_until_idle();
  ASSERT_EQ(said.tokens.size(), text.size() - static_cast<std::size_t>(kPrompt));
  for (std::size_t i = 0; i < said.tokens.size(); ++i) EXPECT_EQ(said.tokens[i].id, text[static_cast<std::size_t>(kPrompt) + i]) << i;
  EXPECT_GT(stages.counters().following_forwards, 0);
}

}  // namespace
}  // namespace lockstep
