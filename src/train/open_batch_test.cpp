// A batch that arrives in pieces has the bits of the whole one, whatever the pieces and their order.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

struct PieceOutcome {
  ForwardBackwardResult result;
  std::uint64_t gradients = 0;
  TrainerState state;
};

struct PieceCase {
  TrainerOptions options;
  std::string profile = "cpu-f32";
  BackendKind backend = BackendKind::cpu;
  LossOptions loss;
  IndexTraining index;
};

// Pieces of places, in the order of arrival; empty: one whole call.
using Pieces = std::vector<std::vector<std::size_t>>;

std::int64_t rows_of(const std::vector<TrainSequence>& data) {
  std::int64_t rows = 0;
  for (const TrainSequence& s : data) rows += static_cast<std::int64_t>(s.tokens.size());
  return rows;
}

std::vector<TrainSequence> pick(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& places) {
  std::vector<TrainSequence> piece;
  for (const std::size_t place : places) piece.push_back(data[place]);
  return piece;
}

PieceOutcome train_in(const Pieces& pieces, const TrainBench& bench, const PieceCase& c, const std::vector<TrainSequence>& data, int steps = 1) {
  Runtime runtime({.kind = c.backend, .threads = 1}, bench.model, profile_by_name(c.profile), 600);
  Trainer trainer(runtime, bench.masters, c.options);
  PieceOutcome outcome;
  for (int step = 0; step < steps; ++step) {
    if (pieces.empty()) {
      outcome.result = trainer.forward_backward(data, c.loss, c.index);
    } else {
      trainer.begin_batch({.sequences = data.size(), .rows = c.index.index_loss ? rows_of(data) : 0}, c.loss, c.index);
      for (const auto& places : pieces) trainer.add(places, pick(data, places));
      outcome.result = trainer.finish_batch();
    }
    if (!c.options.accumulate) outcome.gradients = images_hash(bench.model->manifest(), trainer.gradient_images());
    trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3});
  }
  outcome.state = trainer.state().all();
  return outcome;
}

std::string difference_of(const Manifest& manifest, const PieceOutcome& got, const PieceOutcome& want) {
  if (got.result.logprobs != want.result.logprobs) return "log-probabilities";
  if (got.result.entropies != want.result.entropies) return "entropies";
  if (got.result.loss != want.result.loss) return "loss";
  if (got.result.index_loss != want.result.index_loss) return "index loss";
  if (got.result.rows != want.result.rows || got.result.scored != want.result.scored) return "rows";
  if (got.gradients != want.gradients) return "gradients";
  for (const auto& [a, b] : {std::pair{&got.state.masters, &want.state.masters},
                             {&got.state.first_moments, &want.state.first_moments},
                             {&got.state.second_moments, &want.state.second_moments}})
    if (const std::string found = difference(manifest, *a, *b); !found.empty()) return found;
  return "";
}

LossOptions known_loss(const std::vector<TrainSequence>& data) {
  double sum = 0;
  for (const TrainSequence& s : data) sum = std::accumulate(s.weights.begin(), s.weights.end(), sum);
  return {.normaliser = sum};
}

// A partition of the places and an order of arrival.
rc::Gen<Pieces> any_pieces(std::size_t sequences) {
  return rc::gen::map(rc::gen::container<std::vector<int>>(sequences, rc::gen::inRange(0, 1 << 20)), [sequences](const std::vector<int>& keys) {
    std::vector<std::size_t> order(sequences);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return std::pair(keys[a], a) < std::pair(keys[b], b); });
    Pieces pieces(1);
    for (const std::size_t place : order) {
      if (!pieces.back().empty() && keys[place] % 2 == 0) pieces.emplace_back();
      pieces.back().push_back(place);
    }
    return pieces;
  });
}

TEST(OpenBatchBits, AnyPiecesInAnyOrderAreTheWholeBatch) {
  const TrainBench bench(kLlama);
  std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 6);
  data.erase(data.begin() + 1);  // the long one: it is in the tests below, as experts and the indexer are
  const LossOptions loss = known_loss(data);
  const PieceOutcome want = train_in({}, bench, {.loss = loss}, data);
  const bool same = rc::check([&] {
    const Pieces pieces = *any_pieces(data.size());
    PieceCase c{.loss = loss};
    c.options.checkpoint_activations = *rc::gen::arbitrary<bool>();
    c.options.micro_batch = *rc::gen::element(0, 0, 1, 2);
    c.options.ranks = *rc::gen::element(RankLayout{1, 1, 1}, RankLayout{1, 2, 1}, RankLayout{2, 1, 1}, RankLayout{2, 2, 1});
    c.backend = *rc::gen::element(BackendKind::cpu, BackendKind::deferred);
    RC_ASSERT(difference_of(bench.model->manifest(), train_in(pieces, bench, c, data), want) == "");
  });
  EXPECT_TRUE(same);
}

// Where most steps have one call, it takes no accumulators; a second one makes the first be taken once more, and the bits stay.
TEST(OpenBatchBits, AStepsOnlyCallNeedsNoAccumulators) {
  for (const char* config : {kGlm, kLlama}) {
    const TrainBench bench(config);
    const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4);
    const std::vector<TrainSequence> more{data[3], data[0]};
    const auto places = [](const std::vector<TrainSequence>& of) {
      std::vector<std::size_t> all(of.size());
      std::iota(all.begin(), all.end(), std::size_t{0});
      return all;
    };
    std::int64_t gradients[2] = {};
    TrainerState states[2], later[2];
    for (const bool mostly : {false, true}) {
      Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
      Trainer trainer(runtime, bench.masters, {.accumulate = true, .mostly_one_call = mostly});
      const auto take = [&](const std::vector<TrainSequence>& of) {
        trainer.begin_batch({.sequences = of.size()}, known_loss(data));
        trainer.add(places(of), of);
        trainer.finish_batch();
      };
      const AdamParameters adam{.weight_decay = 0.1, .router_bias_rate = 1e-3};  // loads are counted once, too
      for (int step = 0; step < 2; ++step) {
        EXPECT_EQ(trainer.needs_accumulators(true), !mostly);
        EXPECT_TRUE(trainer.needs_accumulators(false));  // in pieces
        take(data);
        EXPECT_TRUE(trainer.needs_accumulators(true));  // of a second call
        trainer.optim_step(adam);
      }
      gradients[mostly] = trainer.ranks().memory(0).peak(MemoryCategory::gradients);
      states[mostly] = trainer.state().all();
      take(data);
      take(more);
      trainer.forward_backward(more, known_loss(data));
      trainer.optim_step(adam);
      EXPECT_TRUE(trainer.needs_accumulators(true));  // from here on
      take(data);
      trainer.optim_step(adam);
      later[mostly] = trainer.state().all();
    }
    EXPECT_LT(gradients[1] * 4, gradients[0]);
    for (const auto& both : {states, later}) {
      EXPECT_EQ(difference(bench.model->manifest(), both[1].masters, both[0].masters), "");
      EXPECT_EQ(difference(bench.model->manifest(), both[1].second_moments, both[0].second_moments), "");
    }
    EXPECT_NE(difference(bench.model->manifest(), states[1].masters, bench.masters), "");
    EXPECT_NE(difference(bench.model->manifest(), states[1].masters, later[1].masters), "");
  }
}

TEST(OpenBatchBits, SeveralStepsUnderBothProfilesAndWithTheIndexer) {
  const TrainBench bench(kGlm);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4);
  for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
    PieceCase c{.profile = profile, .loss = known_loss(data), .index = {.dense_attention = false, .index_loss = true}};
    c.options.train_indexer = true;
    const PieceOutcome want = train_in({}, bench, c, data, 3);
    EXPECT_EQ(difference_of(bench.model->manifest(), train_in({{2}, {3, 0}, {1}}, bench, c, data, 3), want), "") << profile;
    c.options.ranks = {1, 3, 1};
    EXPECT_EQ(difference_of(bench.model->manifest(), train_in({{3}, {1, 2}, {0}}, bench, c, data, 3), want), "") << profile << ", dp=3";
    c.options.ranks = {1, 1, 2};
    c.options.checkpoint_activations = true;
    c.backend = BackendKind::deferred;
    EXPECT_EQ(difference_of(bench.model->manifest(), train_in({{0, 1}, {3, 2}}, bench, c, data, 3), want), "") << profile << ", ep=2, deferred";
  }
}

TEST(OpenBatchBits, ThePolicyLossToo) {
  const TrainBench bench(kLlama);
  std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4);
  RandomSequence draws(9, RandomStream::fuzz);
  for (TrainSequence& s : data)
    for (std::size_t i = 0; i < s.tokens.size(); ++i) {
      s.advantages.push_back(static_cast<float>(draws.uniform() - 0.5));
      s.old_logprobs.push_back(static_cast<float>(-5 * draws.uniform()));
    }
  PieceCase c{.loss = known_loss(data)};
  c.loss.kind = LossKind::policy;
  const PieceOutcome want = train_in({}, bench, c, data, 2);
  EXPECT_EQ(difference_of(bench.model->manifest(), train_in({{3, 1}, {0, 2}}, bench, c, data, 2), want), "");
}

// The control: a sequence that is left out, or counted twice, or another normaliser, is another gradient.
TEST(OpenBatchControl, ADroppedSequenceIsSeen) {
  const TrainBench bench(kLlama);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 5);
  const PieceCase c{.loss = known_loss(data)};
  const PieceOutcome want = train_in({}, bench, c, data);
  for (std::size_t dropped = 0; dropped < data.size(); ++dropped) {
    std::vector<TrainSequence> fewer = data;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(dropped));
    const PieceOutcome got = train_in({{3, 0}, {2, 1}}, bench, c, fewer);
    EXPECT_NE(got.gradients, want.gradients) << dropped;
    EXPECT_NE(got.result.loss, want.result.loss) << dropped;
  }
  PieceCase other = c;
  other.loss.normaliser *= 1.01;
  EXPECT_NE(train_in({{3, 0}, {2, 1}, {4}}, bench, other, data).gradients, want.gradients);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    return e.what();
  }
  return "";
}

TEST(OpenBatchErrors, NameWhatIsMissingAndLeaveTheBatchAsItWas) {
  const TrainBench bench(kLlama);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 3);
  const PieceCase c{.loss = known_loss(data)};
  const PieceOutcome want = train_in({}, bench, c, data);
  for (const RankLayout& ranks : {RankLayout{1, 1, 1}, {1, 2, 1}}) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
    Trainer trainer(runtime, bench.masters, {.ranks = ranks});
    const auto contains = [](const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; };
    EXPECT_TRUE(contains(refusal([&] { trainer.begin_batch({.sequences = 3}, {}); }), "normaliser is 0"));
    EXPECT_TRUE(contains(refusal([&] { trainer.begin_batch({.sequences = 0}, c.loss); }), "sequences is 0"));
    EXPECT_TRUE(contains(refusal([&] { trainer.begin_batch({.sequences = 3}, c.loss, {.index_loss = true}); }), "rows is 0"));
    EXPECT_TRUE(contains(refusal([&] { trainer.add({0}, {data[0]}); }), "no batch is open"));
    trainer.begin_batch({.sequences = 3}, c.loss);
    trainer.add({1}, {data[1]});
    EXPECT_TRUE(contains(refusal([&] { trainer.add({1}, {data[1]}); }), "a second time"));
    EXPECT_TRUE(contains(refusal([&] { trainer.add({0, 0}, {data[0], data[0]}); }), "a second time"));
    EXPECT_TRUE(contains(refusal([&] { trainer.add({3}, {data[0]}); }), "allowed are 0 to 2"));
    EXPECT_TRUE(contains(refusal([&] { trainer.add({0}, data); }), "places"));
    TrainSequence bad = data[0];
    bad.tokens[0] = 100000;
    EXPECT_TRUE(contains(refusal([&] { trainer.add({0}, {bad}); }), "token 0 is 100000"));
    EXPECT_TRUE(contains(refusal([&] { trainer.finish_batch(); }), "2 of 3 sequences of the batch have not arrived: 0, 2"));
    EXPECT_TRUE(contains(refusal([&] { trainer.forward_backward(data, {}); }), "a batch is open"));
    EXPECT_TRUE(contains(refusal([&] { trainer.optim_step({}); }), "a batch is open"));
    trainer.score(data);  // forward only: it may come between
    trainer.add({2, 0}, {data[2], data[0]});
    trainer.finish_batch();
    EXPECT_EQ(images_hash(bench.model->manifest(), trainer.gradient_images()), want.gradients);
  }
}

TEST(OpenBatchErrors, ADroppedBatchLeavesNothing) {
  const TrainBench bench(kGlm);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 3);
  const PieceCase c{.loss = known_loss(data)};
  const PieceOutcome want = train_in({}, bench, c, data);
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
  Trainer trainer(runtime, bench.masters, {.ranks = {1, 2, 1}});
  trainer.begin_batch({.sequences = 3}, c.loss);
  trainer.add({1, 2}, {data[1], data[2]});
  trainer.abandon_gradients();
  EXPECT_THROW(trainer.optim_step({}), Error);
  PieceOutcome got;
  got.result = trainer.forward_backward(data, c.loss);
  got.gradients = images_hash(bench.model->manifest(), trainer.gradient_images());
  trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3});  // the loads of the dropped rows are not counted either
  got.state = trainer.state().all();
  EXPECT_EQ(difference_of(bench.model->manifest(), got, want), "");
}

}  // namespace
}  // namespace lockstep
