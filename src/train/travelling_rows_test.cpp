// Ranks that share experts and have sequences of their own (rows=dealt), whose rows travel to their experts and back, have the bits of one rank:
// log-probabilities, losses, gradients, norms, masters, moments, router biases; over threads and processes. Controls: rows swapped on the way back, and
// sums joined in another order, are seen.
#include <gtest/gtest.h>

#include "parallel/exchange_counts.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/thread_ranks.h"
#include "train/adapter_trainer.h"
#include "train/prefix_test_tools.h"
#include "train/state_test_tools.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

constexpr const char* kSoftmaxExperts = R"({
  "model_type": "qwen3_moe", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3,
  "head_dim": 32, "max_position_embeddings": 1024, "intermediate_size": 160, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "hidden_act": "silu", "mlp_only_layers": [0], "moe_intermediate_size": 24, "num_experts": 10,
  "num_experts_per_tok": 3, "norm_topk_prob": true})";
constexpr const char* kExpertsWithBiases = R"({
  "model_type": "gpt_oss", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3,
  "head_dim": 32, "max_position_embeddings": 1024, "intermediate_size": 24, "rms_norm_eps": 1e-06, "rope_parameters": {"rope_type": "default",
  "rope_theta": 10000.0}, "tie_word_embeddings": false, "hidden_act": "silu", "attention_bias": true, "num_local_experts": 5,
  "num_experts_per_tok": 2, "sliding_window": 5, "swiglu_limit": 0.5})";

RankLayout dealt_layout(int ep, int dp = 1) { return {.dp = dp, .ep = ep, .rows = ReplicaRows::dealt}; }

struct TravelCase {
  RankLayout ranks = {};
  std::string profile = "cpu-f32";
  BackendKind backend = BackendKind::cpu;
  bool indexer = false, checkpoint = false;
  std::int64_t micro_batch = 0;
  OptimizerFamily optimizer = adamw();
};

struct TravelOutcome {
  std::vector<ForwardBackwardResult> results;
  std::vector<WeightImages> gradients;
  std::vector<std::vector<float>> scores;
  std::vector<double> norms;
  std::vector<std::pair<std::string, double>> group_norms;
  TrainerState state;
  WeightImages published;
  ForwardCounts work;
  CommunicatorCounters traffic;
  ExchangeCounters rows;  // of the first local rank, to experts and back
};

TravelOutcome travel(const TrainBench& bench, const TravelCase& c, const std::vector<TrainSequence>& data, std::unique_ptr<Ranks> ranks = nullptr) {
  Runtime runtime({.kind = c.backend, .threads = 1}, bench.model, profile_by_name(c.profile), 600);
  Trainer trainer(runtime, bench.masters,
                  {.micro_batch = c.micro_batch,
                   .checkpoint_activations = c.checkpoint,
                   .share_prefixes = true,
                   .train_indexer = c.indexer,
                   .optimizer = c.optimizer,
                   .ranks = c.ranks},
                  std::make_shared<RankRuntimes>(runtime, c.ranks, std::move(ranks)));
  TravelOutcome outcome;
  outcome.scores = trainer.score(data);
  for (int step = 0; step < 2; ++step) {
    outcome.results.push_back(trainer.forward_backward(data, {}, {.dense_attention = c.indexer && step == 0, .index_loss = c.indexer}));
    outcome.gradients.push_back(trainer.gradient_images());
    const OptimResult result = trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3, .group_norms = true});
    outcome.norms.push_back(result.gradient_norm);
    outcome.group_norms = result.group_norms;
  }
  outcome.state = trainer.state().all();
  EXPECT_EQ(trainer.state().image(StatePart::first_moment, 3), outcome.state.first_moments[3]);
  outcome.work = trainer.ranks().work();
  outcome.traffic = trainer.ranks().traffic();
  outcome.rows = exchanges_of(trainer.ranks().ranks().place(0)).of(RankGroup::model, Collective::exchange);
  outcome.published = weight_images(runtime.backend, bench.model->manifest(), *trainer.weights(), runtime.profile);
  return outcome;
}

void expect_same_travel(const TrainBench& bench, const TravelOutcome& got, const TravelOutcome& want, const std::string& what) {
  SCOPED_TRACE(what);
  const Manifest& manifest = bench.model->manifest();
  EXPECT_EQ(got.scores, want.scores);
  for (std::size_t step = 0; step < want.results.size(); ++step) {
    EXPECT_EQ(got.results[step].logprobs, want.results[step].logprobs);
    EXPECT_EQ(got.results[step].entropies, want.results[step].entropies);
    EXPECT_EQ(got.results[step].loss, want.results[step].loss);
    EXPECT_EQ(got.results[step].index_loss, want.results[step].index_loss);
    EXPECT_EQ(got.results[step].rows, want.results[step].rows);
    EXPECT_EQ(got.results[step].gradient_tokens, want.results[step].gradient_tokens);
    EXPECT_EQ(got.norms[step], want.norms[step]);
    EXPECT_EQ(difference(manifest, got.gradients[step], want.gradients[step]), "") << "gradients of step " << step;
  }
  EXPECT_EQ(got.group_norms, want.group_norms);
  expect_same_state(manifest, got.state, want.state);
  EXPECT_EQ(difference(manifest, got.published, want.published), "") << "weights";
}

// As many experts as `experts`.
std::string with_experts(std::string config, const std::string& key, int experts) {
  const std::size_t at = config.find("\"" + key + "\": ") + key.size() + 4;
  return config.replace(at, config.find_first_of(",\n", at) - at, std::to_string(experts));
}

class TravellingRows : public ::testing::TestWithParam<const char*> {};

// 3 and 5 experts a rank, odd numbers, more ranks than sequences and than groups of experts, so ranks without rows and ranks without experts. Of 9 ranks
// outputs of single pairs come back (expert_pairs_test.cpp has more of them).
TEST_P(TravellingRows, HaveTheBitsOfOneRank) {
  const TrainBench bench(GetParam());
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary);
  for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
    const TravelOutcome want = travel(bench, {.profile = profile}, data);
    std::vector<RankLayout> layouts{dealt_layout(2), dealt_layout(3), dealt_layout(2, 2)};
    if (profile == std::string("cpu-bf16w")) layouts.insert(layouts.end(), {dealt_layout(7), dealt_layout(9), dealt_layout(3, 3)});
    for (const RankLayout& ranks : layouts) {
      const TravelOutcome got = travel(bench, {.ranks = ranks, .profile = profile}, data);
      expect_same_travel(bench, got, want, fmt::format("{}, {}", profile, ranks.text()));
      EXPECT_EQ(got.work.fault(), "");
      EXPECT_EQ(got.work.pairs_read, want.work.pairs_read);
      EXPECT_EQ(got.work.expert_rows, want.work.expert_rows);
      EXPECT_EQ(got.work.segment_rows.made, want.work.segment_rows.made);
      EXPECT_GT(got.rows.bytes, 0);
    }
  }
  const TravelOutcome want = travel(bench, {}, data);
  for (const std::int64_t micro_batch : {1, 2})
    expect_same_travel(bench, travel(bench, {.ranks = dealt_layout(2), .micro_batch = micro_batch}, data), want,
                       fmt::format("micro-batches of {}", micro_batch));
  expect_same_travel(bench, travel(bench, {.ranks = dealt_layout(2, 2), .backend = BackendKind::deferred, .checkpoint = true, .micro_batch = 1}, data), want,
                     "deferred, checkpointed, micro-batches of one");
  const std::vector<TrainSequence> one(data.begin() + 2, data.begin() + 3);
  expect_same_travel(bench, travel(bench, {.ranks = dealt_layout(3)}, one), travel(bench, {}, one), "one sequence");
  if (!bench.model->has_indexer()) return;
  expect_same_travel(bench, travel(bench, {.ranks = dealt_layout(2, 2), .indexer = true}, data), travel(bench, {.indexer = true}, data), "indexer");
}

INSTANTIATE_TEST_SUITE_P(Families, TravellingRows, ::testing::Values(kGlm, kSoftmaxExperts, kExpertsWithBiases));

TEST(TravellingRowsOf, AnyCountOfExperts) {
  for (const int experts : {3, 10, 16}) {
    const TrainBench bench(with_experts(kGlm, "n_routed_experts", experts));
    const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4, 150);
    const TravelOutcome want = travel(bench, {}, data);
    for (const int ep : {2, 5})
      expect_same_travel(bench, travel(bench, {.ranks = dealt_layout(ep)}, data), want, fmt::format("{} experts, ep={}", experts, ep));
  }
}

// Prefixes that are declared or equal, experts that are given, whole matrices in a step, weights in few bits.
TEST(TravellingRowsOf, OtherWaysOfTraining) {
  const TrainBench prefixes(kPrefixGlm);
  const std::vector<TrainSequence> groups = groups_of({{70, {30, 41, 5, 1}}, {20, {9, 9, 2}}, {9, {7, 4}}, {15, {6}}}, true);
  expect_same_bits(prefixes, run_prefixes(prefixes, {.ranks = dealt_layout(2, 2)}, groups), run_prefixes(prefixes, {}, groups), "declared prefixes");
  const std::vector<TrainSequence> equal = groups_of({{70, {30, 41, 5, 1}}, {20, {9, 9, 2}}});
  expect_same_bits(prefixes, run_prefixes(prefixes, {.share = true, .ranks = dealt_layout(2)}, equal), run_prefixes(prefixes, {.share = true}, equal),
                   "equal prefixes");

  const TrainBench bench(kGlm);
  std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4);
  const OptimizerFamily& dimuon = *optimizer_named("dimuon");
  expect_same_travel(bench, travel(bench, {.ranks = dealt_layout(2, 2), .optimizer = dimuon}, data), travel(bench, {.optimizer = dimuon}, data), "dimuon");
  expect_same_travel(bench, travel(bench, {.ranks = dealt_layout(3), .profile = "cpu-int4-qat"}, data), travel(bench, {.profile = "cpu-int4-qat"}, data),
                     "cpu-int4-qat");
  const TravelOutcome own = travel(bench, {}, data);
  RandomSequence draws(6, RandomStream::fuzz);
  for (const std::size_t s : {0, 3})
    for (std::size_t t = 0; t < data[s].tokens.size(); ++t)
      for (int layer = 0; layer < 2; ++layer) {
        const auto first = static_cast<std::int32_t>(draws.below(5));
        data[s].experts.insert(data[s].experts.end(), {first, first + 1});
      }
  const TravelOutcome given = travel(bench, {}, data);
  EXPECT_NE(given.scores, own.scores);
  expect_same_travel(bench, travel(bench, {.ranks = dealt_layout(2)}, data), given, "given experts");
}

TEST(TravellingRowsOf, ProcessesHaveTheBitsOfOneRank) {
  const TrainBench bench(kGlm);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4);
  const TravelOutcome want = travel(bench, {.profile = "cpu-bf16w"}, data);
  for (const auto& [layout, processes] : {std::pair{dealt_layout(2), 2}, {dealt_layout(3), 2}, {dealt_layout(2, 2), 4}}) {
    const TravelCase c{.ranks = layout, .profile = "cpu-bf16w"};
    std::vector<TravelOutcome> got(static_cast<std::size_t>(processes));
    as_processes(processes, [&](ProcessMail& mail) {
      got[static_cast<std::size_t>(mail.process())] = travel(bench, c, data, std::make_unique<ProcessRanks>(layout, mail));
    });
    const TravelOutcome alike = travel(bench, c, data);
    for (const TravelOutcome& one : got) {
      expect_same_travel(bench, one, want, layout.text());
      EXPECT_EQ(one.work, alike.work);
      EXPECT_EQ(one.traffic.bytes, alike.traffic.bytes);
    }
    EXPECT_EQ(got[0].rows.bytes, alike.rows.bytes);  // the most that may travel
    EXPECT_EQ(alike.rows.sent, alike.rows.bytes);
    EXPECT_LT(got[0].rows.sent, got[0].rows.bytes);  // of other processes' rows those that experts here were chosen for
  }
}

// A group whose first rank finds its rows, or the sums of the others, changed when one exchange is done.
class ChangedGroup final : public Communicator {
 public:
  enum class Change { rows, order };
  ChangedGroup(Communicator& group, Change change) : group_(group), change_(change) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  void barrier() override { group_.barrier(); }
  std::vector<std::string> gather_host(const std::string& mine) override { return group_.gather_host(mine); }
  void exchange(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) override {
    group_.exchange(stream, to, from);
    if (CollectiveScope::current() != Collective::exchange || rank() != 0 || ++exchanges_ != 2) return;  // rows to experts, then sums back
    const auto swap = [&](const View& a, const View& b) {
      const std::vector<float> of_a = stream.read(a).get(), of_b = stream.read(b).get();
      stream.write(a, of_b);
      stream.write(b, of_a);
    };
    const std::int64_t half = from[1].rows / 2;
    if (change_ == Change::rows) swap(from[1].row_range(0, half), from[1].row_range(half, half));
    else swap(from[1], from[2]);
  }

 private:
  Communicator& group_;
  Change change_;
  int exchanges_ = 0;
};

class ChangedRanks final : public Ranks {
 public:
  ChangedRanks(const RankLayout& layout, ChangedGroup::Change change) : ranks_(layout) {
    for (int rank = 0; rank < layout.size(); ++rank) groups_.push_back(std::make_unique<ChangedGroup>(ranks_.model(rank), change));
  }
  const RankLayout& layout() const override { return ranks_.layout(); }
  int local() const override { return ranks_.local(); }
  RankPlace place(int local) const override {
    RankPlace own = ranks_.place(local);
    own.model = groups_[static_cast<std::size_t>(local)].get();
    return own;
  }
  void run(const std::function<void(int)>& work) override { ranks_.run(work); }

 private:
  ThreadRanks ranks_;
  std::vector<std::unique_ptr<ChangedGroup>> groups_;
};

TEST(TravellingRowsControl, SwappedRowsAndAnotherOrderAreSeen) {
  const TrainBench bench(kSoftmaxExperts);  // three experts a row, so three ranks' sums
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary);
  const TravelCase c{.ranks = dealt_layout(3)};
  const TravelOutcome want = travel(bench, {}, data);
  for (const ChangedGroup::Change change : {ChangedGroup::Change::rows, ChangedGroup::Change::order}) {
    const TravelOutcome got = travel(bench, c, data, std::make_unique<ChangedRanks>(c.ranks, change));
    EXPECT_NE(got.scores, want.scores);
    EXPECT_EQ(difference(bench.model->manifest(), got.state.masters, want.state.masters), "");  // the steps after it are as they should be
  }
}

// An adapter over frozen weights, whose rows stay the same on all ranks of a replica.
TEST(TravellingRowsOf, AnAdapterHasTheBitsOfOneRank) {
  const TrainBench bench(kGlm);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4);
  const auto adapter = std::make_shared<const AdapterLayout>(bench.model->manifest(), AdapterSettings{.rank = 4});
  const auto masters = [&](const RankLayout& ranks) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    const auto base = std::make_shared<FrozenBase>(runtime, make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, runtime.profile, 0),
                                                   TrainerOptions{.ranks = ranks});
    AdapterTrainer trainer(base, adapter, initial_adapter(*adapter, 1));
    for (int step = 0; step < 2; ++step) {
      trainer.forward_backward(data, {});
      trainer.optim_step({});
    }
    return trainer.state().masters();
  };
  EXPECT_EQ(difference(adapter->manifest(), masters(dealt_layout(2, 2)), masters({})), "");
}

}  // namespace
}  // namespace lockstep
