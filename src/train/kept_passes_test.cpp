#include "train/kept_passes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "train/adapter_trainer.h"
#include "train/prefix_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPlenty = std::int64_t{1} << 30;

using RowBits = std::vector<std::vector<std::uint32_t>>;
RowBits row_bits(const std::vector<std::vector<float>>& rows) {
  RowBits bits;
  for (const auto& row : rows) bits.push_back(bits_of(row));
  return bits;
}

// What a client's loss does: log-probabilities, weights made of them, a gradient; then a step.
struct CustomSteps {
  RowBits logprobs, losses, entropies;
  double loss = 0;
  WeightImages masters;
};
template <class T>
CustomSteps two_custom_steps(T& trainer, std::vector<TrainSequence> data, double bias_rate = 0) {
  CustomSteps done;
  for (int step = 0; step < 2; ++step) {
    const auto scored = trainer.score(data);
    for (std::size_t s = 0; s < data.size(); ++s)
      for (std::size_t i = 0; i < data[s].targets.size(); ++i)
        if (data[s].targets[i] >= 0) data[s].weights[i] = 0.1f * scored[s][i] + (i % 3 == 0 ? 1.0f : -0.25f);
    LossOptions loss;
    loss.averaging = LossAveraging::sum;
    const ForwardBackwardResult result = trainer.forward_backward(data, loss);
    EXPECT_EQ(row_bits(result.logprobs), row_bits(scored));
    done.logprobs = row_bits(result.logprobs), done.losses = row_bits(result.losses), done.entropies = row_bits(result.entropies);
    done.loss = result.loss;
    AdamParameters adam;
    adam.router_bias_rate = bias_rate;
    trainer.optim_step(adam);
  }
  done.masters = trainer.state().masters();
  return done;
}
void expect_equal(const Manifest& manifest, const CustomSteps& got, const CustomSteps& want) {
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.entropies, want.entropies);
  EXPECT_EQ(got.loss, want.loss);
  EXPECT_EQ(difference(manifest, got.masters, want.masters), "");
}

struct KeptCase {
  const char* config;
  TrainerOptions options;
  const char* profile = "cpu-f32";
  BackendKind backend = BackendKind::cpu;
};
std::vector<KeptCase> kept_cases() {
  return {{kGlm, {}},
          {kGlm, {.micro_batch = 2, .accumulate = true, .share_prefixes = true}, "cpu-bf16w"},
          {kGlm, {.checkpoint_activations = true}},
          {kQwen, {.micro_batch = 2, .checkpoint_activations = true}, "cpu-bf16w"},
          {kQwen, {.accumulate = true}, "cpu-f32", BackendKind::deferred},
          {kLlama, {.accumulate = true, .share_prefixes = true}}};
}
// Sequences that share prefixes among them.
std::vector<TrainSequence> kept_data(std::int64_t vocabulary) {
  std::vector<TrainSequence> data = sequences(vocabulary, 4);
  data.push_back(data[3]);
  data.back().tokens.back() = (data.back().tokens.back() + 1) % static_cast<std::int32_t>(vocabulary);
  return data;
}

TEST(KeptPasses, AGradientAfterAKeptForwardHasTheBitsOfOneWithout) {
  for (const KeptCase& c : kept_cases()) {
    const TrainBench m(c.config);
    const auto data = kept_data(m.model->facts().vocabulary);
    Runtime runtime({.kind = c.backend, .threads = 2}, m.model, profile_by_name(c.profile), 700);
    Trainer plain(runtime, m.masters, c.options);
    TrainerOptions keeping = c.options;
    keeping.kept = std::make_shared<KeptPasses>(kPlenty);
    Trainer trainer(runtime, m.masters, keeping);
    const double rate = m.model->facts().router_biases.empty() ? 0.0 : 1e-2;  // loads are counted once
    expect_equal(m.model->manifest(), two_custom_steps(trainer, data, rate), two_custom_steps(plain, data, rate));
    const std::int64_t parts = c.options.micro_batch > 0 ? 3 : 1;
    EXPECT_EQ(keeping.kept->statistics().used, 2 * parts);
    EXPECT_EQ(keeping.kept->statistics().dropped, 0);
    EXPECT_EQ(keeping.kept->statistics().bytes, 0);
    keeping.kept = std::make_shared<KeptPasses>(1);  // room for none
    Trainer full(runtime, m.masters, keeping), again(runtime, m.masters, c.options);
    expect_equal(m.model->manifest(), two_custom_steps(full, data, rate), two_custom_steps(again, data, rate));
    EXPECT_EQ(keeping.kept->statistics().kept, 0);
  }
}

TEST(KeptPasses, SoDoAdaptersBesideEachOther) {
  for (const KeptCase& c : kept_cases()) {
    const TrainBench m(c.config);
    const auto data = kept_data(m.model->facts().vocabulary);
    Runtime runtime({.kind = c.backend, .threads = 2}, m.model, profile_by_name(c.profile), 700);
    const auto weights = make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1);
    const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 4, .alpha = 6, .unembedding = true});
    TrainerOptions keeping = c.options;
    keeping.kept = std::make_shared<KeptPasses>(kPlenty);
    const auto base = std::make_shared<FrozenBase>(runtime, weights, c.options), keeping_base = std::make_shared<FrozenBase>(runtime, weights, keeping);
    AdapterTrainer plain(base, layout, initial_adapter(*layout, 1)), trainer(keeping_base, layout, initial_adapter(*layout, 1)),
        other(keeping_base, layout, initial_adapter(*layout, 2));
    other.score(data);  // another's forward of the same rows stays its own
    expect_equal(layout->manifest(), two_custom_steps(trainer, data), two_custom_steps(plain, data));
    const std::int64_t parts = c.options.micro_batch > 0 ? 3 : 1;
    EXPECT_EQ(keeping.kept->statistics().used, 2 * parts);
    EXPECT_EQ(keeping.kept->statistics().kept, 3 * parts);
    EXPECT_GT(keeping.kept->statistics().bytes, 0);
    keeping.kept->drop(nullptr);  // nobody's
    EXPECT_GT(keeping.kept->statistics().bytes, 0);
  }
}

// The controls: what is not the same data under the same weights begins anew.
TEST(KeptPasses, OtherRowsOrOtherWeightsDoNotHit) {
  const TrainBench m(kQwen);
  const auto data = sequences(m.model->facts().vocabulary, 3);
  Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-f32"), 700);
  TrainerOptions options{.accumulate = true, .kept = std::make_shared<KeptPasses>(kPlenty)};
  const KeptPasses::Statistics& statistics = options.kept->statistics();
  Trainer trainer(runtime, m.masters, options);
  const auto changed = [&](const std::function<void(std::vector<TrainSequence>&)>& change) {
    auto other = data;
    change(other);
    return other;
  };
  trainer.score(data);
  EXPECT_EQ(statistics.kept, 1);
  trainer.forward_backward(changed([](auto& d) { d[1].tokens[3] ^= 1; }), {});
  trainer.forward_backward(changed([](auto& d) { d[1].targets[3] ^= 1; }), {});
  trainer.forward_backward(changed([](auto& d) { d.pop_back(); }), {});
  trainer.forward_backward(changed([](auto& d) { std::swap(d[0], d[1]); }), {});
  EXPECT_EQ(statistics.used, 0);
  trainer.forward_backward(changed([](auto& d) { d[1].weights[3] = 7; }), {});  // weights are no part of a forward
  EXPECT_EQ(statistics.used, 1);
  EXPECT_EQ(statistics.bytes, 0);
  trainer.forward_backward(data, {});  // it was used
  EXPECT_EQ(statistics.used, 1);

  trainer.score(data);
  trainer.optim_step({});  // other weights
  EXPECT_EQ(statistics.dropped, 1);
  EXPECT_EQ(statistics.bytes, 0);
  trainer.forward_backward(data, {});
  EXPECT_EQ(statistics.used, 1);
  trainer.score(data);
  trainer.restore(trainer.state().all());
  EXPECT_EQ(statistics.dropped, 2);
  {
    Trainer unloaded(runtime, m.masters, options);
    unloaded.score(data);
    EXPECT_GT(statistics.bytes, 0);
  }
  EXPECT_EQ(statistics.bytes, 0);
}

// Equal rows, at another place of their data: results go by place, so a forward of another split is none of theirs.
TEST(KeptPasses, AnotherSplitDoesNotHit) {
  const TrainBench m(kQwen);
  const auto data = sequences(m.model->facts().vocabulary, 3);
  Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-f32"), 700);
  const auto weights = make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1);
  const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 4});
  TrainerOptions options{.micro_batch = 1, .accumulate = true}, keeping = options;
  keeping.kept = std::make_shared<KeptPasses>(kPlenty);
  const auto base = std::make_shared<FrozenBase>(runtime, weights, options), keeping_base = std::make_shared<FrozenBase>(runtime, weights, keeping);
  AdapterTrainer plain_adapter(base, layout, initial_adapter(*layout, 1)), adapter(keeping_base, layout, initial_adapter(*layout, 1));
  Trainer plain(runtime, m.masters, options), trainer(runtime, m.masters, keeping);
  const auto check = [&](const Manifest& manifest, auto& kept, auto& alone) {
    const std::int64_t used = keeping.kept->statistics().used;
    kept.score(data);
    const std::vector<TrainSequence> last{data[2]}, turned{data[2], data[1], data[0]};
    for (const auto& other : {last, turned}) {
      const auto got = kept.forward_backward(other, {}), want = alone.forward_backward(other, {});
      EXPECT_EQ(row_bits(got.logprobs), row_bits(want.logprobs));
      EXPECT_EQ(got.loss, want.loss);
    }
    EXPECT_EQ(keeping.kept->statistics().used, used + 1);  // the one in the middle, where it was
    kept.optim_step({}), alone.optim_step({});
    EXPECT_EQ(difference(manifest, kept.state().masters(), alone.state().masters()), "");
  };
  check(m.model->manifest(), trainer, plain);
  check(layout->manifest(), adapter, plain_adapter);
}

// Accumulators come with the backward: a forward that may be asked for its gradient has none yet.
TEST(KeptPasses, AForwardOpensNoAccumulators) {
  const TrainBench m(kQwen);
  const auto data = sequences(m.model->facts().vocabulary, 3);
  Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-f32"), 700);
  const auto weights = make_weight_set(runtime.backend, m.model->manifest(), m.masters, runtime.profile, 1);
  const auto layout = std::make_shared<const AdapterLayout>(m.model->manifest(), AdapterSettings{.rank = 4});
  TrainerOptions options{.accumulate = true, .kept = std::make_shared<KeptPasses>(kPlenty)};
  AdapterTrainer adapter(std::make_shared<FrozenBase>(runtime, weights, options), layout, initial_adapter(*layout, 1));
  Trainer trainer(runtime, m.masters, options);
  const auto gradients = [&] { return runtime.backend.device().memory().current(MemoryCategory::gradients); };
  const auto check = [&](auto& one) {
    const std::int64_t before = gradients(), used = options.kept->statistics().used;
    one.score(data);
    EXPECT_EQ(gradients(), before);
    one.forward_backward(data, {});
    EXPECT_GT(gradients(), before);
    EXPECT_EQ(options.kept->statistics().used, used + 1);
    one.optim_step({});
    EXPECT_EQ(gradients(), before);
  };
  check(adapter);
  check(trainer);
}

TEST(KeptPasses, NothingIsKeptDuringAPause) {
  const TrainBench m(kQwen);
  const auto data = sequences(m.model->facts().vocabulary, 2);
  Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-f32"), 700);
  TrainerOptions options{.kept = std::make_shared<KeptPasses>(kPlenty)};
  Trainer trainer(runtime, m.masters, options);
  std::vector<std::vector<float>> paused;
  {
    const KeptPasses::Pause outer(options.kept.get()), none(nullptr);
    { const KeptPasses::Pause inner(options.kept.get()); }
    paused = trainer.score(data);
    EXPECT_EQ(options.kept->statistics().kept, 0);
  }
  const auto kept = trainer.score(data);
  EXPECT_EQ(options.kept->statistics().kept, 1);
  ASSERT_EQ(kept.size(), paused.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    ASSERT_EQ(kept[i].size(), paused[i].size()) << i;
    EXPECT_EQ(std::memcmp(kept[i].data(), paused[i].data(), kept[i].size() * sizeof(float)), 0) << i;
  }
}

TEST(KeptPasses, TheOldestGoWithinTheLimit) {
  const TrainBench m(kQwen);
  const auto data = sequences(m.model->facts().vocabulary, 4);
  Runtime runtime({.threads = 2}, m.model, profile_by_name("cpu-f32"), 700);
  const auto scored = [&](std::int64_t bytes) {
    TrainerOptions options{.accumulate = true, .kept = std::make_shared<KeptPasses>(bytes)};
    Trainer trainer(runtime, m.masters, options);
    for (const std::size_t s : {3, 2, 0}) trainer.score({data[s]});
    EXPECT_LE(options.kept->statistics().bytes, bytes);
    const std::int64_t held = options.kept->statistics().bytes;
    for (const std::size_t s : {0, 2, 3}) trainer.forward_backward({data[s]}, {});
    return std::pair(options.kept->statistics().used.load(), held);
  };
  const auto [all, bytes] = scored(kPlenty);
  EXPECT_EQ(all, 3);
  EXPECT_EQ(scored(bytes).first, 3);
  EXPECT_EQ(scored(bytes - 1).first, 2);  // the first is gone
  EXPECT_EQ(scored(0).first, 0);
  EXPECT_EQ(scored(0).second, 0);
}

}  // namespace
}  // namespace lockstep
