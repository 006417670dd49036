// Floors of speed on the shipped model with 2 threads, as ratios of two rates measured side by side in turn: what else the
// machine does hits both. Medians. They are asserted when LOCKSTEP_SPEED=1 (tests/check.d/speed.sh: alone on the machine); without it
// the same code runs once, and only what it computes is looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "base/philox.h"
#include "engine/engine.h"
#include "serving/loading.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

bool asserted() {
  const char* value = std::getenv("LOCKSTEP_SPEED");
  return value && std::string(value) == "1";
}

OpenedModel shipped() { return open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 2}); }

std::vector<std::int32_t> random_tokens(RandomSequence& draws, int count, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary))));
  return tokens;
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Medians {
  double first, second;
};
// Both are run once unmeasured, then in turn.
Medians in_turn(int times, const std::function<void()>& first, const std::function<void()>& second) {
  first();
  second();
  std::vector<double> a, b;
  for (int i = 0; i < times; ++i) {
    a.push_back(seconds_of(first));
    b.push_back(seconds_of(second));
  }
  return {median(a), median(b)};
}

TEST(Speed, PrefillIsThreeTimesDecode) {
  const OpenedModel opened = shipped();
  Runtime& runtime = *opened.runtime;
  Engine engine(runtime, opened.weight_set(), {.prefix_cache = false});
  RandomSequence draws(1, RandomStream::fuzz);
  constexpr int kPrompt = 256, kDecoded = 128;
  const auto prompt = random_tokens(draws, kPrompt, runtime.model->facts().vocabulary);
  const auto start = random_tokens(draws, 4, runtime.model->facts().vocabulary);
  const auto prefill = [&] { ASSERT_EQ(engine.generate({{.prompt = prompt, .sampling = {.max_tokens = 1}}}).at(0).tokens.size(), 1U); };
  const auto decode = [&] { ASSERT_EQ(engine.generate({{.prompt = start, .sampling = {.max_tokens = kDecoded}}}).at(0).tokens.size(), 128U); };
  const Medians seconds = in_turn(asserted() ? 15 : 1, prefill, decode);
  const double prefill_rate = kPrompt / seconds.first, decode_rate = kDecoded / seconds.second;
  std::printf("prefill %.0f tokens/s, decode %.0f tokens/s, ratio %.2f\n", prefill_rate, decode_rate, prefill_rate / decode_rate);
  if (asserted()) {
    EXPECT_GE(prefill_rate, 3 * decode_rate);
  }
}

TEST(Speed, BatchIsHalfAgainAsFastAsMicroBatchOne) {
  const OpenedModel opened = shipped();
  const Model& model = *opened.model;
  Trainer whole(*opened.runtime, opened.masters(), {});
  Trainer single(*opened.runtime, opened.masters(), {.micro_batch = 1});
  RandomSequence draws(2, RandomStream::fuzz);
  std::vector<TrainSequence> batch;
  for (int i = 0; i < 64; ++i)
    batch.push_back(TrainSequence::next_token(random_tokens(draws, 16 + static_cast<int>(draws.below(9)), model.facts().vocabulary)));
  const auto step = [&](Trainer& trainer) {
    trainer.forward_backward(batch, {});
    trainer.optim_step({.learning_rate = 1e-4});
  };
  const Medians seconds = in_turn(
      asserted() ? 9 : 1, [&] { step(whole); }, [&] { step(single); });
  std::printf("a step of 64 sequences: %.4f s whole, %.4f s in micro-batches of 1, ratio %.2f\n", seconds.first, seconds.second,
              seconds.second / seconds.first);
  EXPECT_EQ(whole.state().master_hash(), single.state().master_hash());
  if (asserted()) {
    EXPECT_GE(seconds.second, 1.5 * seconds.first);
  }
}

}  // namespace
}  // namespace lockstep
