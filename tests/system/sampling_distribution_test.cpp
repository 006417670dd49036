// The trainer's number is the sampler's, bit for bit, at every temperature, top-k, top-p, min-p and under a schema: three families, adapters, ranks.
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/engine_test_tools.h"
#include "serving/grammars.h"
#include "text/tokenizer/tokenizer.h"
#include "train/adapter_trainer.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

// The small models of three families, with the vocabulary of a tokenizer that can spell a schema's answers.
TrainBench bench_of(const char* config) {
  Json json = Json::parse(config);
  json["vocab_size"] = 512;
  return TrainBench(json.dump());
}

struct SamplingDistribution : testing::Test {
  std::shared_ptr<const Tokenizer> tokenizer =
      std::make_shared<const Tokenizer>(Tokenizer::from_file(std::string(LOCKSTEP_SOURCE_DIR) + "/models/countdown-glm/tokenizer.json"));
  Grammars grammars{tokenizer, {102}};

  // Every combination of temperature, top-k, top-p, min-p and a schema.
  std::vector<Request> requests(const std::shared_ptr<const AdapterWeights>& adapter = nullptr) {
    const auto grammar = grammars.of_schema(nlohmann::ordered_json::parse(
        R"({"type": "object", "properties": {"name": {"type": "string"}, "score": {"type": "integer"}}, "required": ["name", "score"]})"));
    std::vector<Request> all;
    RandomSequence draws(5, RandomStream::fuzz);
    for (const float temperature : {0.3f, 0.7f, 1.0f, 1.5f})
      for (const std::int32_t top_k : {0, 3, 40})
        for (const float top_p : {1.0f, 0.8f})
          for (const float min_p : {0.0f, 0.05f})
            for (const bool schema : {false, true}) {
              Request& r = all.emplace_back(Request{.prompt = random_tokens(draws, 1 + draws.below(9), 512), .adapter = adapter, .kept_tokens = true});
              r.sampling = {.temperature = temperature, .top_p = top_p, .top_k = top_k, .min_p = min_p, .seed = draws.next(), .max_tokens = 8};
              if (schema) r.sampling.constraint = make_constraint(grammar);
            }
    return all;
  }
};

// Completions as training data: what they were drawn from comes with them.
std::vector<TrainSequence> data_of(const std::vector<Request>& requests, const std::vector<Generation>& generations) {
  std::vector<TrainSequence> data;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_NE(generations[i].finish, FinishReason::error) << generations[i].error;
    TrainSequence& d = data.emplace_back();
    d.tokens = requests[i].prompt;
    d.temperature = requests[i].sampling.temperature;
    d.targets.assign(d.tokens.size() - 1, -1);
    d.old_logprobs.assign(d.tokens.size() - 1, 0.0f);
    d.kept_tokens.resize(d.tokens.size() - 1);
    for (const GeneratedToken& t : generations[i].tokens) {
      d.tokens.push_back(t.id);
      d.targets.push_back(t.id);
      d.old_logprobs.push_back(t.sampling_logprob);
      d.kept_tokens.push_back(t.kept);
    }
    d.tokens.pop_back();
    d.weights.assign(d.tokens.size(), 1.0f);
    d.advantages.assign(d.tokens.size(), i % 2 ? 1.0f : -0.5f);
  }
  return data;
}

struct Difference {
  int tokens = 0, cut = 0, different = 0, cut_different = 0;
};
Difference compare(const std::vector<TrainSequence>& data, const std::vector<std::vector<float>>& logprobs) {
  Difference d;
  for (std::size_t i = 0; i < data.size(); ++i)
    for (std::size_t t = 0; t < data[i].targets.size(); ++t) {
      if (data[i].targets[t] < 0) continue;
      const bool differs = std::bit_cast<std::uint32_t>(logprobs[i][t]) != std::bit_cast<std::uint32_t>(data[i].old_logprobs[t]);
      const bool cut = data[i].kept_tokens[t].cut();
      ++d.tokens, d.cut += cut, d.different += differs, d.cut_different += cut && differs;
    }
  return d;
}
std::vector<TrainSequence> without_kept(std::vector<TrainSequence> data) {
  for (TrainSequence& d : data) d.kept_tokens.clear();
  return data;
}
std::vector<TrainSequence> without_temperature(std::vector<TrainSequence> data) {
  for (TrainSequence& d : data) d.temperature = 1;
  return data;
}

LossOptions policy_with_entropy() {
  LossOptions loss;
  loss.kind = LossKind::policy;
  loss.parameters.entropy_coefficient = 0.01f;
  return loss;
}

TEST_F(SamplingDistribution, TheTrainersNumberHasTheSamplersBitsAtEverySetting) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m = bench_of(config);
    SCOPED_TRACE(m.model->family());
    Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-bf16w"), 64);
    Trainer trainer(runtime, m.masters, {});
    Engine engine(runtime, trainer.weights(), {.page_size = 4});
    for (int step = 0; step < 2; ++step) {
      const std::vector<Request> asked = requests();
      const std::vector<TrainSequence> data = data_of(asked, engine.generate(asked));
      const Difference scored = compare(data, trainer.score(data));
      EXPECT_GT(scored.tokens, 500);
      EXPECT_GT(scored.cut, 300);
      EXPECT_LT(scored.cut, scored.tokens);
      EXPECT_EQ(scored.different, 0);
      // The controls.
      EXPECT_GT(compare(data, trainer.score(without_kept(data))).cut_different, scored.cut * 9 / 10);
      EXPECT_GT(compare(data, trainer.score(without_temperature(data))).different, scored.tokens / 3);
      const ForwardBackwardResult result = trainer.forward_backward(data, policy_with_entropy());
      EXPECT_EQ(compare(data, result.logprobs).different, 0);
      EXPECT_GT(trainer.optim_step({.learning_rate = 0.01}).gradient_norm, 0.0);
      EXPECT_GT(compare(data, trainer.score(data)).different, scored.tokens / 2);  // it did learn
      engine.set_weights(trainer.weights());
    }
  }
}

// An adapter of the head is another way to make logits and their gradient.
TEST_F(SamplingDistribution, AdaptersHaveTheSamplersBitsToo) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench m = bench_of(config);
    Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-bf16w"), 64);
    const auto weights = make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1);
    const auto base = std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{});
    for (const bool unembedding : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, adapted head: {}", m.model->family(), unembedding));
      const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 3, .unembedding = unembedding});
      AdapterTrainer trainer(base, layout, initial_adapter(*layout, 4));
      for (int step = 0; step < 2; ++step) {
        Engine engine(runtime, weights, {.page_size = 4});
        const std::vector<Request> asked = requests(trainer.weights());
        const std::vector<TrainSequence> data = data_of(asked, engine.generate(asked));
        const ForwardBackwardResult result = trainer.forward_backward(data, policy_with_entropy());
        const Difference trained = compare(data, result.logprobs);
        EXPECT_GT(trained.cut, 300);
        EXPECT_EQ(trained.different, 0);
        EXPECT_GT(compare(data, trainer.score(without_kept(data))).cut_different, trained.cut * 9 / 10);
        trainer.optim_step({.learning_rate = 0.02});
      }
    }
  }
}

// The gradient over kept sets does not depend on how it is computed.
TEST_F(SamplingDistribution, NoBitDependsOnRanksThreadsOrMicroBatches) {
  for (const char* config : {kGlm, kLlama}) {
    const TrainBench m = bench_of(config);
    SCOPED_TRACE(m.model->family());
    std::vector<TrainSequence> data;
    {
      Runtime runtime({.threads = 1}, m.model, profile_by_name("cpu-bf16w"), 64);
      Trainer trainer(runtime, m.masters, {});
      Engine engine(runtime, trainer.weights(), {});
      std::vector<Request> asked = requests();
      asked.resize(40);
      data = data_of(asked, engine.generate(asked));
    }
    const auto hash = [&](const BackendOptions& backend, const TrainerOptions& options, const std::vector<TrainSequence>& of) {
      Runtime runtime(backend, m.model, profile_by_name("cpu-bf16w"), 64);
      Trainer trainer(runtime, m.masters, options);
      EXPECT_EQ(compare(of, trainer.forward_backward(of, policy_with_entropy()).logprobs).different, 0);
      return images_hash(m.model->manifest(), trainer.gradient_images());
    };
    const std::uint64_t want = hash({.threads = 1}, {}, data);
    EXPECT_EQ(hash({.isa = InstructionSet::scalar, .threads = 2}, {}, data), want);
    EXPECT_EQ(hash({.threads = 2}, {.micro_batch = 7}, data), want);
    for (const RankLayout& ranks : {RankLayout{2, 1, 1}, RankLayout{4, 1, 1}, RankLayout{1, 2, 1}})
      EXPECT_EQ(hash({.threads = 1}, {.ranks = ranks}, data), want) << ranks.text();
    std::vector<TrainSequence> shuffled(data.rbegin(), data.rend());
    EXPECT_EQ(hash({.threads = 2}, {}, shuffled), want);
    // The control: another kept set is another gradient.
    for (TrainSequence& d : data)
      for (std::size_t t = 0; t < d.targets.size(); ++t)
        if (d.kept_tokens[t].cut()) d.kept_tokens[t] = {};
    Runtime runtime({.threads = 1}, m.model, profile_by_name("cpu-bf16w"), 64);
    Trainer trainer(runtime, m.masters, {});
    trainer.forward_backward(data, policy_with_entropy());
    EXPECT_NE(images_hash(m.model->manifest(), trainer.gradient_images()), want);
  }
}

// Neighbours, chunks and pages do not change what is told; without the question nothing is.
TEST_F(SamplingDistribution, KeptSetsAreToldOnRequestAlone) {
  const TrainBench m = bench_of(kLlama);
  Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-bf16w"), 64);
  const auto weights = make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1);
  const std::vector<Generation> together = Engine(runtime, weights, {.page_size = 4, .max_batch_rows = 9, .prefill_chunk = 3}).generate(requests());
  std::vector<Request> asked = requests(), unasked = requests();
  for (Request& r : unasked) r.kept_tokens = false;
  const std::vector<Generation> without = Engine(runtime, weights, {}).generate(unasked);
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Generation alone = Engine(runtime, weights, {.prefix_cache = false}).generate({asked[i]})[0];
    EXPECT_EQ(bits_of(alone), bits_of(together[i])) << i;
    EXPECT_EQ(bits_of(alone), bits_of(without[i])) << i;
    for (std::size_t t = 0; t < alone.tokens.size(); ++t) {
      EXPECT_EQ(alone.tokens[t].kept, together[i].tokens[t].kept) << i;
      EXPECT_FALSE(without[i].tokens[t].kept.cut());
      EXPECT_TRUE(alone.tokens[t].kept.contains(alone.tokens[t].id));
      if (asked[i].sampling.top_k > 0) {
        EXPECT_LE(alone.tokens[t].kept.count, asked[i].sampling.top_k);
      }
    }
  }
  Request penalised{.prompt = {1}, .kept_tokens = true};
  penalised.sampling.presence_penalty = 0.5f;
  try {
    Engine(runtime, weights, {}).generate({penalised});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("kept_tokens is asked for with repetition_penalty 1, presence_penalty 0.5"), std::string::npos) << e.what();
  }
}

TEST_F(SamplingDistribution, DataThatNoSamplerGivesIsRefused) {
  const TrainBench m = bench_of(kLlama);
  Runtime runtime({.threads = 1}, m.model, profile_by_name("cpu-f32"), 64);
  Trainer trainer(runtime, m.masters, {});
  const auto refusal = [&](const auto& change) -> std::string {
    TrainSequence d = TrainSequence::next_token({1, 2, 3});
    d.kept_tokens = {KeptTokens::of(KeptTokens::Order::by_rank, std::vector<std::int32_t>{2, 7}, 512), {}};
    change(d);
    try {
      trainer.score({d});
    } catch (const Error& e) {
      return e.what();
    }
    return "taken";
  };
  EXPECT_EQ(refusal([](TrainSequence&) {}), "taken");
  EXPECT_EQ(refusal([](TrainSequence& d) { d.temperature = 0; }), "sequence 0: its temperature is 0, allowed are finite numbers above 0");
  EXPECT_EQ(refusal([](TrainSequence& d) { d.kept_tokens.pop_back(); }), "sequence 0: 2 tokens and 1 kept sets; allowed are equal numbers, or no kept sets");
  EXPECT_EQ(refusal([](TrainSequence& d) { d.targets[0] = 3; }), "sequence 0: target 0 is token 3, which is not among its 2 kept tokens");
  EXPECT_EQ(refusal([](TrainSequence& d) { d.kept_tokens[0].words[1] = 512; }), "sequence 0: token 0 has kept token 512, allowed are token ids from 0 to 511");
  EXPECT_EQ(refusal([](TrainSequence& d) { std::swap(d.kept_tokens[0].words[0], d.kept_tokens[0].words[1]); }),
            "sequence 0: token 0 has kept token 2 after 7, allowed is ascending");
  EXPECT_EQ(refusal([](TrainSequence& d) { d.kept_tokens[0].count = 3; }), "sequence 0: token 0 has 2 words of 3 kept tokens, allowed are 3");
}

}  // namespace
}  // namespace lockstep
