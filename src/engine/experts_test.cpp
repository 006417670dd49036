// What requests are told of the experts that their tokens went to. (That none of it depends on chunks, other requests in the batch, preemption, backend or
// ranks is engine_test.cpp's and ranks_test.cpp's, whose random requests ask for it.)
#include <set>

#include "base/error.h"
#include "engine/engine_test_tools.h"
#include "model/observer.h"

namespace lockstep {
namespace {

using ExpertRows = std::vector<std::vector<std::uint16_t>>;

// The experts of all rows of all forwards, as the operations of one sequence wrote them.
class RouteWatch final : public OperationObserver {
 public:
  ExpertRows rows;
  void begin_forward(Backend& backend, const Batch& batch) override {
    backend_ = &backend;
    first_ = rows.size();
    rows.resize(first_ + static_cast<std::size_t>(batch.count()));
  }
  void operation(const Operation& operation) override {
    if (operation.name != "route") return;
    const std::vector<std::int32_t> experts = backend_->stream().read_ints(operation.output).get();
    const auto k = static_cast<std::size_t>(operation.output.cols);
    for (std::size_t i = 0; i < experts.size(); ++i) rows[first_ + i / k].push_back(static_cast<std::uint16_t>(experts[i]));
  }

 private:
  Backend* backend_ = nullptr;
  std::size_t first_ = 0;
};

struct ToldExperts : ::testing::Test {
  Plant plant;
  EngineOptions options{.page_size = 4, .cache_pages = 64, .prefill_chunk = 5};
  Engine engine{plant.runtime, plant.weights, options};
  std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  RandomSequence draws{3, RandomStream::fuzz};
  std::vector<std::int32_t> prompt = random_tokens(draws, 23, vocabulary);

  Request request(bool echo, bool experts = true) const {
    Request r;
    r.prompt = prompt;
    r.prompt_logprobs = echo;
    r.sampling.max_tokens = 9;
    r.sampling.seed = 11;
    r.experts = experts;
    return r;
  }
  static ExpertRows told(const Generation& g) {
    ExpertRows rows = g.prompt_experts;
    for (const GeneratedToken& t : g.tokens) rows.push_back(t.experts);
    return rows;
  }
};

TEST_F(ToldExperts, AreThoseOfTheRowsThatTokensWereChosenFrom) {
  RouteWatch watch;
  plant.runtime.observer = &watch;
  const Generation g = engine.generate({request(true)})[0];
  plant.runtime.observer = nullptr;
  ASSERT_EQ(g.tokens.size(), 9u);
  EXPECT_EQ(told(g), watch.rows);  // the last token has no row of its own, the first is chosen from none
  const ExpertShape shape = plant.runtime.model->facts().expert_shape();
  EXPECT_GT(shape.layers, 1);
  std::set<std::vector<std::uint16_t>> kinds;
  for (const std::vector<std::uint16_t>& row : told(g)) {
    EXPECT_EQ(shape.fault(std::vector<std::int32_t>(row.begin(), row.end())), "");
    for (std::size_t i = 1; i < row.size(); ++i) {
      const bool in_layer = i % static_cast<std::size_t>(shape.experts_a_token) > 0;
      EXPECT_TRUE(!in_layer || row[i - 1] < row[i]);
    }
    kinds.insert(row);
  }
  EXPECT_GT(kinds.size(), 5u);  // tokens differ: the comparison says something
}

TEST_F(ToldExperts, ChangeNoBitAndAreToldWhereAskedForAlone) {
  Generation with = engine.generate({request(true)})[0], without = engine.generate({request(true, false)})[0];
  EXPECT_TRUE(without.prompt_experts.empty() && without.tokens[3].experts.empty());
  EXPECT_NE(bits_of(with), bits_of(without));
  for (GeneratedToken& t : with.tokens) t.experts.clear();
  with.prompt_experts.clear();
  EXPECT_EQ(bits_of(with), bits_of(without));
}

TEST_F(ToldExperts, OfTokensBehindACachedPromptAreTheSameAndAPromptsOwnAreComputed) {
  const Generation first = engine.generate({request(false)})[0], echoed = engine.generate({request(true)})[0], second = engine.generate({request(false)})[0];
  EXPECT_TRUE(first.prompt_experts.empty());
  EXPECT_EQ(first.cached_tokens, 0);
  EXPECT_EQ(second.cached_tokens, 20);  // the engine's hits are real
  EXPECT_EQ(echoed.cached_tokens, 0);
  EXPECT_EQ(bits_of(first), bits_of(second));
  EXPECT_EQ(echoed.prompt_experts.size(), prompt.size() - 1);
  for (std::size_t i = 0; i < first.tokens.size(); ++i) EXPECT_EQ(echoed.tokens[i].experts, first.tokens[i].experts);
  // A text that was generated is routed as it is when it is a prompt.
  Request again = request(true);
  for (const GeneratedToken& t : first.tokens) again.prompt.push_back(t.id);
  const Generation whole = engine.generate({again})[0];
  for (std::size_t i = 0; i < first.tokens.size(); ++i) EXPECT_EQ(whole.prompt_experts[prompt.size() - 1 + i], first.tokens[i].experts);
}

TEST(ToldExpertsOf, AModelWithoutAnyAreRefused) {
  Runtime runtime({.threads = 1}, make_model(Json::parse(R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 64, "intermediate_size": 40, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"})")),
                  profile_by_name("cpu-f32"), 64);
  const WeightImages images = initial_weights(runtime.model->manifest(), 1, 0.1);
  Engine engine(runtime, make_weight_set(runtime.backend, runtime.model->manifest(), images, runtime.profile, 1));
  Request request{.prompt = {1, 2, 3}};
  request.experts = true;
  try {
    engine.generate({request});
    FAIL() << "taken";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "experts are asked for, and the model (llama) has none");
  }
}

}  // namespace
}  // namespace lockstep
