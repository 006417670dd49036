#include "runs/local_critic.h"

#include <gtest/gtest.h>

#include <bit>

#include "model/weights.h"
#include "train/kept_passes.h"

namespace lockstep {
namespace {

const RuntimeSettings kJudged{.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 1};

std::vector<ValueDatum> states() {
  std::vector<ValueDatum> data(3);
  for (std::size_t s = 0; s < data.size(); ++s) {
    for (std::int32_t i = 0; i < 20; ++i) data[s].tokens.push_back(static_cast<std::int32_t>(3 + s) * (i + 1) % 90);
    data[s].weights.assign(20, 1.0f);
    data[s].returns.assign(20, s == 1 ? 1.0f : -0.5f);
    data[s].values.assign(20, 0.0f);
  }
  return data;
}

// Values before and after two steps of an adapter that is the critic, and its weights' hash.
struct Judged {
  std::vector<std::vector<float>> before, after;
  std::string sha256;
};
Judged judged(const OpenedModel& values) {
  LocalCritic critic(values, {.rank = 4, .seed = 5}, {}, std::make_shared<Executor>());
  const std::vector<ValueDatum> data = states();
  Judged got{.before = critic.values(data)};
  for (int step = 0; step < 2; ++step) {
    critic.forward_backward(data, 0);
    critic.optim_step({.learning_rate = 1e-2});
  }
  got.after = critic.values(data);
  got.sha256 = critic.weights_sha256();
  return got;
}

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    for (std::size_t k = 0; k < a[i].size(); ++k)
      if (std::bit_cast<std::uint32_t>(a[i][k]) != std::bit_cast<std::uint32_t>(b[i][k])) return false;
  }
  return true;
}

// A critic's adapter over the policy's own base has the bits of one over a copy of it, and takes only the memory of what the base has not.
TEST(LocalCritic, StandsOverThePolicysBase) {
  for (const std::string profile : {"cpu-f32", "cpu-bf16w", "cpu-int4-base"}) {
    SCOPED_TRACE(profile);
    RuntimeSettings settings = kJudged;
    settings.profile = profile;
    const OpenedModel policy = open_model(settings);
    const auto base = policy.weight_set();
    const OpenedModel alone = open_value_model(settings);
    OpenedModel shared = open_value_model(settings);
    share_weights(shared, policy, base);
    EXPECT_LT(8 * shared.own_weight_bytes(), alone.own_weight_bytes());

    const auto set = shared.weight_set();
    std::int64_t same = 0;
    for (const Buffer& own : set->parameters)
      for (const Buffer& other : base->parameters) same += own.view().address == other.view().address;
    EXPECT_EQ(same, std::ssize(set->parameters) - 1);  // all but the head

    const Judged ours = judged(shared), theirs = judged(alone);
    EXPECT_TRUE(same_bits(ours.before, theirs.before));
    EXPECT_TRUE(same_bits(ours.after, theirs.after));
    EXPECT_EQ(ours.sha256, theirs.sha256);
    EXPECT_FALSE(same_bits(ours.before, ours.after));  // the head began as zeros, and has learned

    // Control: over other weights the values are others.
    WeightImages images = policy.masters();
    for (float& w : images[1]) w *= 1.5f;
    OpenedModel elsewhere = open_value_model(settings);
    share_weights(elsewhere, policy, make_weight_set(policy.runtime->backend, policy.model->manifest(), images, policy.runtime->profile, 0));
    EXPECT_FALSE(same_bits(judged(elsewhere).after, ours.after));
  }
}

// A critic's step: values of the states, then an update towards their returns. Rows: those that its forwards computed, each once a segment of layers.
struct Stepped {
  std::vector<std::vector<float>> values;
  double loss = 0;
  std::string sha256;
  std::int64_t rows = 0;
};
Stepped stepped(std::int64_t rank, const std::shared_ptr<KeptPasses>& kept, bool cut_off) {
  LocalCritic critic(open_value_model(kJudged), {.rank = rank, .seed = 5}, TrainerOptions{.share_prefixes = true, .kept = kept}, std::make_shared<Executor>());
  std::vector<ValueDatum> data = states();
  Stepped got{.values = critic.values(data)};
  if (cut_off) data[1].weights.back() = 0;  // as rl/critic.h has it: nobody knows what that value should have been
  got.loss = critic.forward_backward(data, 0).loss;
  critic.optim_step({.learning_rate = 1e-2});
  got.sha256 = critic.weights_sha256();
  got.rows = work_of(critic.trainer()).segment_rows.made;
  return got;
}

TEST(LocalCritic, TheForwardOfItsValuesIsKeptForTheirGradient) {
  for (const std::int64_t rank : {0, 4}) {
    SCOPED_TRACE(rank);
    const auto kept = kept_by_steps(0, true), of_others = kept_by_steps(0, true);
    const Stepped once = stepped(rank, kept, false), twice = stepped(rank, nullptr, false);
    EXPECT_GT(once.rows, 0);
    EXPECT_EQ(twice.rows, 2 * once.rows);
    EXPECT_EQ(kept->statistics().used, 1);
    EXPECT_TRUE(same_bits(once.values, twice.values));
    EXPECT_EQ(once.loss, twice.loss);
    EXPECT_EQ(once.sha256, twice.sha256);

    // The control: other states are trained than were asked for. What was kept is dropped before their forward.
    const Stepped other = stepped(rank, of_others, true), computed = stepped(rank, nullptr, true);
    EXPECT_EQ(of_others->statistics().used, 0);
    EXPECT_EQ(of_others->statistics().dropped, 1);
    EXPECT_EQ(other.rows, computed.rows);
    EXPECT_EQ(other.sha256, computed.sha256);
    EXPECT_NE(other.sha256, once.sha256);
  }
}

TEST(LocalCritic, OneForwardIsKeptAtATime) {
  const auto kept = kept_by_steps(0, true);
  LocalCritic critic(open_value_model(kJudged), {.seed = 5}, TrainerOptions{.kept = kept}, std::make_shared<Executor>());
  std::vector<ValueDatum> data = states();
  critic.values(data);
  const std::int64_t bytes = kept->statistics().bytes;
  EXPECT_GT(bytes, 0);
  data[0].tokens[0] ^= 1;
  critic.values(data);
  EXPECT_GT(kept->statistics().bytes, 0);
  EXPECT_LE(kept->statistics().bytes, bytes);
  EXPECT_EQ(kept->statistics().dropped, 1);
  EXPECT_FALSE(kept_by_steps(4, true));  // there is to be memory for four sequences
  EXPECT_FALSE(kept_by_steps(0, false));
}

}  // namespace
}  // namespace lockstep
