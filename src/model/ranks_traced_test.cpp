// Ranks that share a model compute the same expressions as one: on the traced backend every number carries the hash of its
// expression, and those of the hidden states and of every parameter's gradient are equal, whichever layout made them.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"
#include "model/archs/registry.h"
#include "model/runtime.h"
#include "parallel/thread_ranks.h"
#include "parallel/transfer.h"

namespace lockstep {
namespace {

// A family's small model whose sums have several leaves and whose heads some layouts divide and some do not.
std::shared_ptr<const Model> ranks_model(const std::string& family) {
  const std::string path = LOCKSTEP_SOURCE_DIR "/tests/golden/" + family + "/ranks.json";
  std::ifstream file(path);
  if (!file) fail(ErrorCode::not_found, "the family '{}' has no {}", family, path);
  return make_model(Json::parse(file));
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

// Forward and backward from a random gradient of the hidden states, which a stage that is not the last one gets from the next.
Outcome run(const std::shared_ptr<const Model>& model, const WeightImages& images, const Profile& profile, const Sharding* sharding) {
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
  KvCache cache(runtime.backend, sharding ? sharding->cache_shapes(*model, profile) : model->cache_shapes(profile), profile, page, 4);
  const Batch batch(runtime.backend, slices, 4, true);
  GradientSet gradients(runtime.backend, manifest, false);
  Tape tape(runtime.backend, &gradients);
  ForwardOptions options;
  options.index_loss = true;
  options.index_loss_weight = 0.25f;
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
  std::vector<float> dy(static_cast<std::size_t>(hidden.view().size()));
  for (float& v : dy) v = static_cast<float>(draws.uniform() - 0.5);
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

void expect_whole_expressions(const std::shared_ptr<const Model>& model, const Profile& profile) {
  const WeightImages images = initial_weights(model->manifest(), 2, 0.2);
  const Outcome whole = run(model, images, profile, nullptr);
  // Where in the whole parameter each element of a share lies, by way of an image of numbers.
  WeightImages places;
  for (const Parameter& p : model->manifest().parameters()) {
    places.emplace_back(static_cast<std::size_t>(p.size()));
    std::iota(places.back().begin(), places.back().end(), 0.0f);
  }
  for (const RankLayout& layout : {RankLayout{2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {1, 1, 2}, {2, 1, 2}, {1, 1, 1, 2}, {2, 1, 1, 2}}) {
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

INSTANTIATE_TEST_SUITE_P(Families, RanksTraced, ::testing::ValuesIn(all_families()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
