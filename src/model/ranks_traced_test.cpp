// Ranks that share a model compute the same expressions as one: on the traced backend every number carries the hash of its
// expression, and those of the hidden states and of every parameter's gradient are equal, whichever layout made them.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/philox.h"
#include "model/archs/registry.h"
#include "model/dealt_rows.h"
#include "model/runtime.h"
#include "parallel/thread_ranks.h"
#include "parallel/transfer.h"

namespace lockstep {
namespace {

// A family's small model whose sums have several leaves and whose heads some layouts divide and some do not.
Json ranks_config(const std::string& family) {
  const std::string path = LOCKSTEP_SOURCE_DIR "/tests/golden/" + family + "/ranks.json";
  std::ifstream file(path);
  if (!file) fail(ErrorCode::not_found, "the family '{}' has no {}", family, path);
  return Json::parse(file);
}
std::shared_ptr<const Model> ranks_model(const std::string& family) { return make_model(ranks_config(family)); }

// The same with a segment in each layer, for stages. Its table is not tied: who trains joins the parts of a tied one's gradient (train/), not these tests.
std::shared_ptr<const Model> staged_model(const std::string& family, int layers) {
  Json config = ranks_config(family);
  config["num_hidden_layers"] = layers;
  if (config.contains("tie_word_embeddings")) config["tie_word_embeddings"] = false;
  if (config.contains("indexer_types")) config["indexer_types"] = std::vector<std::string>(static_cast<std::size_t>(layers), "full");
  return make_model(config);
}

std::vector<std::string> all_families() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.model_type);
  return names;
}

using Hashes = std::vector<std::uint64_t>;
struct Outcome {
  Hashes hidden;
  std::vector<Hashes> gradients;  // by parameter, of the rank's share
};

// The sequences that each of the ranks that share experts has, of the two; none: all have both. `segments`: whether each sequence has one of its own.
struct DealtSequences {
  std::vector<std::vector<std::size_t>> of_rank = {};
  bool segments = true;
};

// Forward and backward from a random gradient of the hidden states, which a stage that is not the last one gets from the next.
Outcome run(const std::shared_ptr<const Model>& model, const WeightImages& images, const Profile& profile, const Sharding* sharding,
            const DealtSequences& dealt = {}) {
  Runtime runtime({.kind = BackendKind::traced, .threads = 1}, model, profile, 64);
  const Manifest& manifest = sharding ? sharding->manifest() : model->manifest();
  const auto weights = make_weight_set(runtime.backend, manifest, sharding ? shares_of(*sharding, images) : images, profile, 1);
  RandomSequence draws(4, RandomStream::fuzz);
  std::vector<SequenceSlice> slices(2);
  std::int32_t page = 0;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    for (std::size_t i = 0; i < 5 + 6 * s; ++i) slices[s].tokens.push_back(static_cast<std::int32_t>(draws.below(40)));
    for (std::size_t i = 0; i < slices[s].tokens.size(); i += 4) slices[s].pages.push_back(page++);
  }
  std::vector<std::int64_t> begin{0};
  std::vector<std::int32_t> segments;
  std::vector<SequenceSlice> own;
  for (const std::vector<std::size_t>& of_rank : dealt.of_rank) {
    const bool mine = static_cast<int>(begin.size()) - 1 == sharding->model().rank();
    for (const std::size_t s : of_rank) {
      segments.insert(segments.end(), slices[s].tokens.size(), dealt.segments ? static_cast<std::int32_t>(s) : 0);
      if (mine) own.push_back(slices[s]);
    }
    begin.push_back(std::ssize(segments));
  }
  const std::int64_t first_row = dealt.of_rank.empty() ? 0 : begin[static_cast<std::size_t>(sharding->model().rank())];
  std::int64_t rows = 0;
  for (const SequenceSlice& slice : slices) rows += std::ssize(slice.tokens);
  if (!dealt.of_rank.empty()) slices = own;
  KvCache cache(runtime.backend, sharding ? sharding->cache_shapes(*model, profile) : model->cache_shapes(profile), profile, page, 4);
  const Batch batch(runtime.backend, slices, 4, true);
  GradientSet gradients(runtime.backend, manifest, false);
  Tape tape(runtime.backend, &gradients);
  ForwardOptions options;
  options.index_loss = true;
  options.index_loss_weight = 0.25f;
  std::optional<DealtRows> of_all;
  if (!dealt.of_rank.empty()) options.dealt_rows = &of_all.emplace(runtime.backend, begin, segments);
  Stream& stream = runtime.backend.stream();
  const bool before = sharding && !sharding->first_stage(), after = sharding && !sharding->last_stage();
  StageInput stage;
  if (before) {
    stage.rows = runtime.backend.device().allocate(DType::f32, batch.count(), model->facts().hidden, MemoryCategory::activations);
    swap_over(*sharding->place().before, stream, {}, stage.rows.view());
    options.stage = &stage;
  }
  Context context = runtime.context(*weights, cache, batch, options, &tape, sharding);
  const Tensor hidden = model->forward(context);
  if (after) swap_over(*sharding->place().after, stream, hidden.view(), {});
  Outcome outcome{runtime.backend.stream().read_hashes(hidden.view()).get(), {}};
  std::vector<float> dy(static_cast<std::size_t>(rows * hidden.view().cols));
  for (float& v : dy) v = static_cast<float>(draws.uniform() - 0.5);
  const auto first = dy.begin() + first_row * hidden.view().cols;
  dy = std::vector<float>(first, first + hidden.view().size());
  const Buffer gradient = runtime.backend.device().upload(dy, hidden.view().rows, hidden.view().cols, MemoryCategory::activations);
  if (after) swap_over(*sharding->place().after, stream, {}, gradient.view());
  tape.contribute(hidden.node, gradient);
  tape.backward();
  if (before) swap_over(*sharding->place().before, stream, stage.gradient.view(), {});
  gradients.finish();  // a tied table has accumulators
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i)
    outcome.gradients.push_back(runtime.backend.stream().read_hashes(gradients.gradient(static_cast<ParameterId>(i))).get());
  return outcome;
}

class RanksTraced : public ::testing::TestWithParam<std::string> {};

// The place of each element of a parameter, by which shares of this image tell where in the whole their elements lie.
WeightImages places_of(const Manifest& manifest) {
  WeightImages places;
  for (const Parameter& p : manifest.parameters()) {
    places.emplace_back(static_cast<std::size_t>(p.size()));
    std::iota(places.back().begin(), places.back().end(), 0.0f);
  }
  return places;
}

void expect_whole_expressions(const std::shared_ptr<const Model>& model, const Profile& profile,
                              const std::vector<RankLayout>& layouts = {{2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {1, 1, 2}, {2, 1, 2}, {1, 1, 1, 2}, {2, 1, 1, 2}}) {
  const WeightImages images = initial_weights(model->manifest(), 2, 0.2);
  const Outcome whole = run(model, images, profile, nullptr);
  const WeightImages places = places_of(model->manifest());
  for (const RankLayout& layout : layouts) {
    if (model->segments() < layout.pp) continue;
    SCOPED_TRACE(layout.text());
    ThreadRanks ranks(layout);
    std::vector<std::int64_t> compared(static_cast<std::size_t>(layout.size())), different(compared.size());
    std::vector<std::string> first(compared.size());
    ranks.run([&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      const Sharding sharding(*model, profile, ranks.place(rank));
      const Outcome own = run(model, images, profile, &sharding);
      if (sharding.last_stage() && own.hidden != whole.hidden) ++different[at], first[at] = "hidden states";
      const WeightImages of = shares_of(sharding, places);
      for (std::size_t i = 0; i < of.size(); ++i)
        for (std::size_t e = 0; e < of[i].size(); ++e) {
          const auto place = static_cast<std::size_t>(of[i][e]);
          if (place == 0 && e > 0) continue;  // padding
          ++compared[at];
          if (own.gradients[i][e] == whole.gradients[i][place]) continue;
          if (different[at]++ == 0) first[at] = "gradient " + model->manifest().parameters()[i].name;
        }
    });
    for (std::size_t r = 0; r < compared.size(); ++r) {
      EXPECT_GT(compared[r], 0);
      EXPECT_EQ(different[r], 0) << "rank " << r << ", first " << first[r];
    }
  }
}

TEST_P(RanksTraced, SharesHaveTheExpressionsOfTheWhole) { expect_whole_expressions(ranks_model(GetParam()), profile_by_name("cpu-bf16w")); }

// Of the families whose small model is one segment: two.
TEST_P(RanksTraced, StagesHaveTheExpressionsOfTheWhole) {
  if (ranks_model(GetParam())->segments() > 1) return;  // they are among the layouts above
  const std::shared_ptr<const Model> model = staged_model(GetParam(), 2);
  ASSERT_EQ(model->segments(), 2);
  expect_whole_expressions(model, profile_by_name("cpu-bf16w"), {{1, 1, 1, 2}, {2, 1, 1, 2}});
}

TEST(RanksTracedExpanded, SharesHaveTheExpressionsOfTheWhole) { expect_whole_expressions(ranks_model("deepseek_v3"), profile_by_name("cpu-bf16w-expanded")); }

// Weights in few bits, and rows in 8, whose groups no rank cuts.
TEST(RanksTracedQuantised, SharesHaveTheExpressionsOfTheWhole) {
  for (const char* profile : {"cpu-int4-qat", "cpu-mxfp8"})
    for (const char* family : {"llama", "glm_moe_dsa"}) expect_whole_expressions(ranks_model(family), profile_by_name(profile));
}

// The control: the same ranks under another leaf count make other expressions.
TEST(RanksTracedControl, AnotherLeafCountIsAnotherExpression) {
  const std::shared_ptr<const Model> model = ranks_model("qwen3");
  const WeightImages images = initial_weights(model->manifest(), 2, 0.2);
  const Outcome whole = run(model, images, profile_by_name("cpu-bf16w"), nullptr);
  ThreadRanks ranks({2, 1, 1});
  ranks.run([&](int rank) {
    const Sharding sharding(*model, profile_by_name("study-leaves"), ranks.place(rank));
    EXPECT_NE(run(model, images, profile_by_name("study-leaves"), &sharding).hidden, whole.hidden);
  });
}

// The control: of four stages the second and the third have each other's layers. The hidden states are other expressions from the second stage on.
TEST(RanksTracedControl, TwoStagesInTheOtherOrderAreSeenWhereTheyBegin) {
  const std::shared_ptr<const Model> model = staged_model("qwen3", 4);
  const WeightImages images = initial_weights(model->manifest(), 2, 0.2);
  const Profile& profile = profile_by_name("cpu-bf16w");
  const auto hidden_of = [&](bool changed) {
    std::vector<Hashes> hidden(4);
    ThreadRanks ranks({1, 1, 1, 4});
    ranks.run([&](int rank) {
      RankPlace place = ranks.place(rank);
      if (changed && (rank == 1 || rank == 2)) place.rank = 3 - rank;  // its layers are those of that stage, its neighbours stay
      const Sharding sharding(*model, profile, place);
      hidden[static_cast<std::size_t>(rank)] = run(model, images, profile, &sharding).hidden;
    });
    return hidden;
  };
  const std::vector<Hashes> right = hidden_of(false), wrong = hidden_of(true);
  EXPECT_EQ(right[3], run(model, images, profile, nullptr).hidden);
  EXPECT_EQ(wrong[0], right[0]);
  for (std::size_t stage = 1; stage < 4; ++stage) EXPECT_NE(wrong[stage], right[stage]) << "stage " << stage;
}

// How many values have other expressions than those of one rank, where ranks share experts and the first and the last have sequences of their own: of hidden
// states, and of the gradients of a rank's experts, which have the rows of all.
std::int64_t other_expressions(const std::shared_ptr<const Model>& model, const DealtSequences& dealt, std::int64_t& compared) {
  const Profile& profile = profile_by_name("cpu-bf16w");
  const WeightImages images = initial_weights(model->manifest(), 2, 0.2);
  const Outcome whole = run(model, images, profile, nullptr);
  std::vector<std::int64_t> same(dealt.of_rank.size()), different(dealt.of_rank.size());
  ThreadRanks ranks({.ep = static_cast<int>(dealt.of_rank.size()), .rows = ReplicaRows::dealt});
  ranks.run([&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    const auto compare = [&](std::uint64_t got, std::uint64_t want) { ++(got == want ? same : different)[at]; };
    const Sharding sharding(*model, profile, ranks.place(rank));
    const Outcome own = run(model, images, profile, &sharding, dealt);
    // The last rank's rows are the last ones.
    const std::size_t first = rank == 0 ? 0 : whole.hidden.size() - own.hidden.size();
    for (std::size_t i = 0; i < own.hidden.size(); ++i) compare(own.hidden[i], whole.hidden[first + i]);
    const WeightImages places = shares_of(sharding, places_of(model->manifest()));
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (model->manifest().parameters()[i].split != ParameterSplit::experts) continue;
      for (std::size_t e = 0; e < places[i].size(); ++e)
        if (const auto place = static_cast<std::size_t>(places[i][e]); place > 0 || e == 0)  // else padding
          compare(own.gradients[i][e], whole.gradients[i][place]);
    }
  });
  const std::int64_t others = std::accumulate(different.begin(), different.end(), std::int64_t{0});
  compared = std::accumulate(same.begin(), same.end(), others);
  return others;
}

TEST(RanksTracedDealt, RowsThatTravelToTheirExpertsHaveTheExpressionsOfTheWhole) {
  for (const char* family : {"glm_moe_dsa", "qwen3_moe", "gpt_oss", "minimax_m2", "deepseek_v3"})
    for (const DealtSequences& dealt : {DealtSequences{{{0}, {1}}}, {{{0, 1}, {}}}, {{{}, {0, 1}}}}) {
      std::int64_t compared = 0;
      EXPECT_EQ(other_expressions(ranks_model(family), dealt, compared), 0) << family << ", " << dealt.of_rank[0].size() << " sequences on the first rank";
      EXPECT_GT(compared, 1000);
    }
}

// More ranks than groups of experts: outputs of single pairs travel, and are added where the row is; the same of ranks that all have the same rows.
TEST(RanksTracedDealt, PairsThatAreJoinedAtHomeHaveTheExpressionsOfTheWhole) {
  DealtSequences dealt{std::vector<std::vector<std::size_t>>(9)};
  dealt.of_rank.front() = {0}, dealt.of_rank.back() = {1};
  for (const char* family : {"glm_moe_dsa", "gpt_oss"}) {
    std::int64_t compared = 0;
    EXPECT_EQ(other_expressions(ranks_model(family), dealt, compared), 0) << family;
    EXPECT_GT(compared, 1000);
    expect_whole_expressions(ranks_model(family), profile_by_name("cpu-bf16w"), {{1, 1, 9}, {3, 1, 3}});
  }
}

// The control: a sum over rows of two sequences at once.
TEST(RanksTracedControl, OneSegmentOfTwoRanksRowsIsAnotherExpression) {
  std::int64_t compared = 0;
  EXPECT_GT(other_expressions(ranks_model("glm_moe_dsa"), {{{0}, {1}}, false}, compared), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, RanksTraced, ::testing::ValuesIn(all_families()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
