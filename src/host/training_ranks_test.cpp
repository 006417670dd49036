// A training service whose models train over ranks (docs/ranks.md): every result has the bits of one rank, whatever the layout; models leave memory and
// come back in the middle of a step; a state goes on under another layout; live streams run in the middle of a turn of ranks; what ranks refuse is named.
#include <gtest/gtest.h>

#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "host/training_test_tools.h"

namespace lockstep {
namespace {

// A service over ranks, that another layout may take over.
struct RankedService : TrainingBench {
  explicit RankedService(const RankLayout& layout, TrainingServiceOptions wanted = {.tokens_a_step = 64, .turn_seconds = 0})
      : TrainingBench(wanted, {.threads = 1}, {}, layout), options(wanted) {}
  TrainingServiceOptions options;

  std::string told(const std::string& request) {
    const Outcome outcome = result(request);
    EXPECT_FALSE(outcome.failed()) << outcome.message;
    return outcome.bytes;
  }
  std::string critic(const std::string& session, std::int64_t number, std::int64_t rank) {
    CreateModel wanted;
    wanted.session = session;
    wanted.number = number;
    wanted.settings.base_model = "tiny:value";
    wanted.settings.rank = rank;
    wanted.settings.seed = 7;
    return told(service->model_life().create("me", wanted, [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; }));
  }
  // Tokens drawn from a version of the model, with their log-probabilities' bits.
  std::string sampled(const std::string& model, std::int64_t sequence) {
    const std::string sampler = told(service->operations().save_sampler("me", model, sequence, false, [](const SamplerRecord& r) {
      return Outcome{"text/plain", r.id, {}, {}};
    }));
    const SamplerWeights weights = service->samplers().weights("me", sampler);
    std::promise<Generation> done;
    Request request{.prompt = {1, 2, 3}, .sampling = {.temperature = 1, .seed = 5, .max_tokens = 12}};
    request.weights = weights.weights;
    request.adapter = weights.adapter;
    generation->generate(
        std::move(request), [](const GeneratedToken&) { return true; }, [&](Generation&& g) { done.set_value(std::move(g)); });
    std::string bits;
    for (const GeneratedToken& token : done.get_future().get().tokens) bits += fmt::format("{} {:a};", token.id, token.raw_logprob);
    return bits;
  }
  // The masters and moments of a saved state, from its file.
  std::string saved(const std::string& model, std::int64_t sequence) {
    const std::string name = fmt::format("save-{}", ++saves_);
    const std::string path = told(service->operations().save("me", model, sequence, {.name = name}, [](const CheckpointRecord& r) {
      return Outcome{"text/plain", r.path(), {}, {}};
    }));
    std::string bytes;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "checkpoints"))
      if (entry.path().extension() == ".safetensors" && entry.path().string().find("/" + name + "/") != std::string::npos)
        bytes += fmt::format("{}={};", entry.path().filename().string(), sha256_hex(read_file(entry.path(), std::size_t{1} << 30)));
    EXPECT_FALSE(bytes.empty()) << path;
    return bytes;
  }
  void restart(const RankLayout& layout) {
    service.reset();
    base->options.ranks = layout;
    base->ranks.reset();
    base->frozen.reset();
    options.state = folder;
    service = std::make_shared<TrainingService>(base, generation, options);
  }

 private:
  int saves_ = 0;
};

TrainingBatch values_batch(std::uint64_t seed) {
  TrainingBatch batch = training_batch(seed, 5);
  batch.loss.name = "value";
  for (TrainingDatum& datum : batch.data) {
    NamedTensor returns{.shape = {std::ssize(datum.tokens)}, .floats = {}, .integers = {}, .is_float = true};
    for (std::size_t i = 0; i < datum.tokens.size(); ++i) returns.floats.push_back(0.125f * static_cast<float>(i));
    datum.inputs["returns"] = std::move(returns);
  }
  return batch;
}

// What a client of each kind of model is told in two steps of two calls, in several turns each, and what it samples after each step and saves at the end.
// Samplers of the first version stay while the model has the second.
std::vector<std::string> everything(RankedService& bench, std::uint64_t seed) {
  struct Client {
    std::string model;
    bool critic;
    std::int64_t number = 0;  // of its last operation
  };
  const std::string session = bench.session();
  std::vector<Client> clients{
      {bench.model(session, 0, 0), false}, {bench.model(session, 1, 4), false}, {bench.critic(session, 2, 0), true}, {bench.critic(session, 3, 2), true}};
  std::vector<std::string> bits;
  for (int step = 0; step < 2; ++step) {
    for (int call = 0; call < 2; ++call) {
      const std::uint64_t data = seed + static_cast<std::uint64_t>(2 * step + call);
      for (Client& one : clients) bits.push_back(bench.told(bench.batch(one.model, ++one.number, one.critic ? values_batch(data) : training_batch(data, 9))));
    }
    for (Client& one : clients) bits.push_back(bench.told(bench.step(one.model, ++one.number)));
    for (Client& one : clients)
      if (!one.critic) bits.push_back(bench.sampled(one.model, ++one.number));
  }
  TrainingBatch scored = training_batch(seed, 4);
  scored.forward_only = true;
  for (Client& one : clients)
    if (!one.critic) bits.push_back(bench.told(bench.batch(one.model, ++one.number, scored)));
  for (Client& one : clients) bits.push_back(bench.saved(one.model, ++one.number));
  return bits;
}

TEST(TrainingRanks, EveryKindOfModelHasTheBitsOfOneRank) {
  RankedService one({});
  const std::vector<std::string> alone = everything(one, 1);
  for (const RankLayout& layout : {RankLayout{.tp = 3}, {.dp = 2}, {.tp = 2, .dp = 2, .ep = 2}, {.tp = 2, .dp = 2, .shard = RankShard::weights}}) {
    SCOPED_TRACE(layout.text());
    RankedService bench(layout);
    EXPECT_TRUE(everything(bench, 1) == alone);
    EXPECT_EQ(bench.base->ranks->ranks().layout(), layout);
  }
  // A control: other data is seen in all that is told.
  RankedService other({.tp = 2});
  const std::vector<std::string> others = everything(other, 2);
  ASSERT_EQ(others.size(), alone.size());
  for (std::size_t i = 0; i < others.size(); ++i) EXPECT_NE(others[i], alone[i]) << i;
}

TEST(TrainingRanks, ModelsLeaveMemoryWithTheirGradientsAndComeBack) {
  RankedService one({});
  const std::vector<std::string> alone = everything(one, 3);
  for (const RankLayout& layout : {RankLayout{.tp = 2, .dp = 2}, {.dp = 2, .shard = RankShard::weights}}) {
    SCOPED_TRACE(layout.text());
    RankedService bench(layout, {.max_models = 1, .tokens_a_step = 64, .turn_seconds = 0});
    EXPECT_TRUE(everything(bench, 3) == alone);
    EXPECT_GT(bench.service->statistics().gradients_saved, 0);
  }
}

TEST(TrainingRanks, AStateGoesOnUnderAnotherLayout) {
  const auto run = [](const std::vector<RankLayout>& layouts) {
    RankedService bench(layouts[0]);
    const std::string session = bench.session();
    const std::vector<std::string> models{bench.model(session, 0, 0), bench.model(session, 1, 4)};
    std::vector<std::string> bits;
    std::int64_t n = 1;
    for (const RankLayout& layout : layouts) {
      if (n > 1) bench.restart(layout);
      for (const std::string& model : models) {
        bits.push_back(bench.told(bench.batch(model, n, training_batch(static_cast<std::uint64_t>(n), 6))));
        bits.push_back(bench.told(bench.step(model, n + 1)));
      }
      n += 2;
    }
    for (const std::string& model : models) bits.push_back(bench.saved(model, n));
    return bits;
  };
  const std::vector<std::string> alone = run({{}, {}, {}});
  EXPECT_TRUE(run({{.tp = 2}, {.dp = 2}, {}}) == alone);
  EXPECT_TRUE(run({{}, {.tp = 2, .dp = 2, .ep = 2}, {.tp = 3}}) == alone);
}

// Streams run on the engine's ranks while the trainer's first rank gives way and the others wait for it.
TEST(TrainingRanks, LiveStreamsRunInTheMiddleOfATurn) {
  const auto run = [](const RankLayout& layout, bool training, bool streams) {
    RankedService bench(layout);
    bench.base->opened.runtime->backend.set_pause_point(bench.base->executor);
    std::vector<std::string> trained, said;
    std::thread client([&] {
      for (std::uint64_t seed = 0; streams && seed < 6; ++seed) {
        std::promise<Generation> done;
        bench.generation->generate(
            {.prompt = {1, 2, 3}, .sampling = {.temperature = 1, .seed = seed, .max_tokens = 30}}, [](const GeneratedToken&) { return true; },
            [&](Generation&& g) { done.set_value(std::move(g)); });
        std::string& one = said.emplace_back();
        for (const GeneratedToken& token : done.get_future().get().tokens) one += fmt::format("{} ", token.id);
      }
    });
    const std::string session = bench.session();
    for (const std::int64_t rank : {0, 4}) {
      if (!training) break;
      const std::string id = bench.model(session, rank, rank);
      for (std::int64_t sequence = 1; sequence <= 4; sequence += 2) {
        trained.push_back(bench.told(bench.batch(id, sequence, training_batch(static_cast<std::uint64_t>(sequence), 6, 40))));
        trained.push_back(bench.told(bench.step(id, sequence + 1)));
      }
    }
    client.join();
    return std::pair(trained, said);
  };
  const auto training = run({}, true, false).first;
  const auto streams = run({}, false, true).second;
  for (const RankLayout& layout : {RankLayout{.tp = 2}, RankLayout{.tp = 2, .dp = 2}}) {
    SCOPED_TRACE(layout.text());
    const auto both = run(layout, true, true);
    EXPECT_TRUE(both.first == training);
    EXPECT_TRUE(both.second == streams);
  }
}

// An optimizer of whole matrices, whose parts tensor-parallel ranks put together: of all weights and of an adapter.
TEST(TrainingRanks, MuonHasTheBitsOfOneRank) {
  const auto trained = [](const RankLayout& ranks, const std::string& optimizer) {
    RankedService bench(ranks);
    const std::string session = bench.session();
    std::vector<std::string> bits;
    for (const std::int64_t rank : {0, 4}) {
      CreateModel wanted;
      wanted.session = session;
      wanted.number = 1 + rank;
      wanted.settings.base_model = "tiny";
      wanted.settings.rank = rank;
      wanted.settings.seed = 3;
      wanted.settings.optimizer = optimizer;
      const std::string model = bench.told(bench.service->model_life().create("me", wanted, [](const ModelRecord& r) {
        return Outcome{"text/plain", r.id, {}, {}};
      }));
      std::int64_t number = 0;
      for (int step = 0; step < 2; ++step) {
        bits.push_back(bench.told(bench.batch(model, ++number, training_batch(1, 3))));
        OptimizerRequest request;
        request.optimizer = optimizer;
        request.adam.learning_rate = 0.01;
        bits.push_back(bench.told(bench.service->operations().optim_step("me", model, ++number, request, [](const OptimizerOutput& r) {
          return Outcome{"text/plain", fmt::format("{:a}", r.metrics.at(0).second), {}, {}};
        })));
      }
      bits.push_back(bench.saved(model, ++number));
    }
    return bits;
  };
  const std::vector<std::string> want = trained({}, "dimuon");
  for (const RankLayout& ranks : {RankLayout{.tp = 2}, {.tp = 3, .dp = 2}}) EXPECT_EQ(trained(ranks, "dimuon"), want) << ranks.text();
  EXPECT_NE(trained({}, "adamw"), want);
}

}  // namespace
}  // namespace lockstep
