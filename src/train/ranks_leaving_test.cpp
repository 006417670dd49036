// Gradients of data-parallel ranks that leave while the last backward goes on: when they do, and that every bit stays.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/thread_ranks.h"
#include "train/state_test_tools.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

std::string with_number(std::string config, const std::string& name, int value) {
  const std::string key = "\"" + name + "\": ";
  const std::size_t at = config.find(key) + key.size();
  return config.replace(at, config.find(',', at) - at, std::to_string(value));
}

// One of two ranks without the other, which remembers what it exchanged in the group of replicas, and the activations that were there.
class WatchedGroup final : public Communicator {
 public:
  struct Event {
    char what;  // s: started, f: finished, x: in one
    std::int64_t activations;
  };
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void barrier() override {}
  void exchange(Stream&, const std::vector<View>&, const std::vector<View>&) override { note('x'); }
  void start(Stream&, const std::vector<View>&, const std::vector<View>&) override { note('s'); }
  void finish(Stream&) override { note('f'); }
  std::vector<std::string> gather_host(const std::string& mine) override { return {mine, std::string(4096, '\0')}; }

  const MemoryAccounts* memory = nullptr;
  std::vector<Event> events;

 private:
  void note(char what) { events.push_back({what, memory->current(MemoryCategory::activations)}); }
};

class WatchedRanks final : public Ranks {
 public:
  WatchedRanks(WatchedGroup& group, bool meanwhile) : group_(group), meanwhile_(meanwhile) {}
  const RankLayout& layout() const override { return layout_; }
  int local() const override { return 1; }
  RankPlace place(int) const override { return {.layout = layout_, .rank = 0, .world = &group_, .data = &group_}; }
  void run(const std::function<void(int)>& work) override { work(0); }
  bool moves_meanwhile() const override { return meanwhile_; }

 private:
  const RankLayout layout_{.dp = 2};
  WatchedGroup& group_;
  const bool meanwhile_;
};

// The exchanges of a call's gradient: "ssffx".
std::vector<WatchedGroup::Event> events_of_a_call(const TrainBench& bench, bool meanwhile, bool pieces, bool accumulate) {
  Runtime runtime({.kind = BackendKind::counting, .threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
  WatchedGroup group;
  group.memory = &runtime.backend.device().memory();
  const TrainerOptions options{.micro_batch = 1, .accumulate = accumulate, .ranks = {.dp = 2}};
  Trainer trainer(runtime, WeightImages(bench.masters.size()), options,
                  std::make_shared<RankRuntimes>(runtime, options.ranks, std::make_unique<WatchedRanks>(group, meanwhile)));
  const std::vector<TrainSequence> data(4, TrainSequence::next_token(std::vector<std::int32_t>(60)));
  if (!pieces) {
    trainer.forward_backward(data, {});
    return group.events;
  }
  LossOptions loss;
  loss.normaliser = 100;
  trainer.begin_batch({.sequences = 4}, loss);
  trainer.add({0, 1}, {data[0], data[1]});
  EXPECT_TRUE(group.events.empty()) << "before the last piece";
  trainer.add({2, 3}, {data[2], data[3]});
  const std::size_t before_the_end = group.events.size();
  trainer.finish_batch();
  if (meanwhile) {
    EXPECT_EQ(group.events.size(), before_the_end) << "all have left with the last piece";
  }
  return group.events;
}

TEST(LeavingGradients, LeaveASegmentAtATimeDuringTheLastBackward) {
  const TrainBench bench(with_number(kQwen, "num_hidden_layers", 4));
  const Manifest& manifest = bench.model->manifest();
  std::string want;
  for (std::int64_t segment = bench.model->segments(); segment-- > 0;) {
    std::size_t own = 0;
    for (std::size_t i = 0; i < manifest.parameters().size(); ++i)
      own += manifest.parameters()[i].segment == segment && static_cast<ParameterId>(i) != bench.model->facts().head;
    want += std::string(own, 's') + std::string(own, 'f');
  }
  want += "x";  // the head's
  for (const bool pieces : {false, true}) {
    const std::vector<WatchedGroup::Event> events = events_of_a_call(bench, true, pieces, false);
    std::string told;
    for (const WatchedGroup::Event& event : events) told += event.what;
    EXPECT_EQ(told, want);
    ASSERT_FALSE(events.empty());
    EXPECT_GT(events.front().activations, events.back().activations) << "the first gradients leave when the backward has begun";
    const std::vector<WatchedGroup::Event> after = events_of_a_call(bench, false, pieces, false);  // where nothing moves meanwhile, as threads
    told.clear();
    for (const WatchedGroup::Event& event : after) told += event.what;
    EXPECT_EQ(told, std::string(manifest.parameters().size(), 'x'));
    EXPECT_EQ(after.front().activations, after.back().activations);
  }
  EXPECT_TRUE(events_of_a_call(bench, true, false, true).empty()) << "another call may come";
}

struct Way {
  RankLayout layout;
  int processes = 1;
  std::int64_t micro_batch = 0;
  bool pieces = false, checkpoint = false;
};

struct Steps {
  std::vector<std::vector<float>> logprobs;
  TrainerState state;
  double norm = 0;
  CommunicatorCounters traffic;
};

Steps steps_by(const TrainBench& bench, const Way& way, const std::vector<TrainSequence>& data, int count, std::unique_ptr<Ranks> ranks = nullptr) {
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 4096);
  Trainer trainer(runtime, bench.masters, {.micro_batch = way.micro_batch, .checkpoint_activations = way.checkpoint, .ranks = way.layout},
                  std::make_shared<RankRuntimes>(runtime, way.layout, std::move(ranks)));
  LossOptions loss;
  loss.normaliser = 100;
  Steps steps;
  for (int step = 0; step < count; ++step) {
    if (way.pieces) {
      trainer.begin_batch({.sequences = data.size()}, loss);
      for (std::size_t i = data.size(); i-- > 0;) trainer.add({i}, {data[i]});
      steps.logprobs = trainer.finish_batch().logprobs;
    } else {
      steps.logprobs = trainer.forward_backward(data, loss).logprobs;
    }
    steps.norm = trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3}).gradient_norm;
  }
  steps.state = trainer.state().all();
  steps.traffic = trainer.ranks().traffic();
  return steps;
}

void expect_bits_of_one_rank(const TrainBench& bench, const std::vector<TrainSequence>& data, const std::vector<Way>& ways, int count = 2) {
  const Steps want = steps_by(bench, {}, data, count);
  for (const Way& way : ways) {
    SCOPED_TRACE(fmt::format("{}, {} processes, micro-batches of {}{}", way.layout.text(), way.processes, way.micro_batch, way.pieces ? ", in pieces" : ""));
    std::vector<Steps> got(static_cast<std::size_t>(way.processes));
    as_processes(way.processes, [&](ProcessMail& mail) {
      got[static_cast<std::size_t>(mail.process())] = steps_by(bench, way, data, count, std::make_unique<ProcessRanks>(way.layout, mail));
    });
    const CommunicatorCounters alike = steps_by(bench, way, data, count).traffic;  // of threads, whose gradients are joined at the end
    for (const Steps& one : got) {
      EXPECT_EQ(one.logprobs, want.logprobs);
      EXPECT_EQ(one.norm, want.norm);
      expect_same_state(bench.model->manifest(), one.state, want.state);
      EXPECT_EQ(one.traffic.calls, alike.calls);
      EXPECT_EQ(one.traffic.bytes, alike.bytes);
    }
  }
}

// Ranks with one pass more than others, and with none.
TEST(LeavingGradients, ProcessesHaveTheBitsOfOneRank) {
  for (const char* family : {kGlm, kLlama}) {
    const TrainBench bench(with_number(family, "max_position_embeddings", 4096));
    expect_bits_of_one_rank(bench, sequences(bench.model->facts().vocabulary, 5),
                            {{{.dp = 2}, 2, 1},
                             {{.dp = 3}, 2, 1, false, true},
                             {{.dp = 7}, 2},
                             {{.dp = 2}, 2, 0, true},
                             {{.tp = 2, .dp = 2}, 2, 1},
                             {{.dp = 2, .pp = 2}, 2, 1},
                             {{.dp = 3, .pp = 2}, 3, 0, true}});
  }
}

// A number that fails on one rank, whose gradients and those of the other are on the way by then: both are told, and go on after a restore.
TEST(LeavingGradients, AnErrorOfOneRankReleasesTheOthers) {
  constexpr std::int32_t kBroken = 149;  // a token of one sequence alone
  const TrainBench whole(kQwen);
  TrainBench bench(kQwen);
  const std::size_t hidden = static_cast<std::size_t>(bench.model->facts().hidden);
  std::vector<float>& table = bench.masters.front();
  std::fill_n(table.begin() + static_cast<std::ptrdiff_t>(kBroken * hidden), hidden, std::numeric_limits<float>::infinity());
  std::vector<TrainSequence> data;
  for (std::int32_t s = 0; s < 4; ++s) {
    std::vector<std::int32_t> tokens(20, s + 1);
    if (s == 3) tokens[5] = kBroken;
    data.push_back(TrainSequence::next_token(tokens));
  }
  const auto step_of = [&](Trainer& trainer) {
    trainer.forward_backward(data, {});
    trainer.optim_step({});
    return trainer.state().all();
  };
  const auto trainer_of = [](Runtime& runtime, const WeightImages& masters, std::unique_ptr<Ranks> ranks) {
    const RankLayout layout = ranks->layout();
    return std::make_unique<Trainer>(runtime, masters, TrainerOptions{.micro_batch = 1, .ranks = layout},
                                     std::make_shared<RankRuntimes>(runtime, layout, std::move(ranks)));
  };
  Runtime runtime({.threads = 1}, whole.model, profile_by_name("cpu-f32"), 600);
  const std::unique_ptr<Trainer> one = trainer_of(runtime, whole.masters, std::make_unique<ThreadRanks>(RankLayout{}));
  const TrainerState begin = one->state().all(), want = step_of(*one);
  as_processes(2, [&](ProcessMail& mail) {
    Runtime own({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
    const std::unique_ptr<Trainer> trainer = trainer_of(own, bench.masters, std::make_unique<ProcessRanks>(RankLayout{.dp = 2}, mail));
    try {
      trainer->forward_backward(data, {});
      ADD_FAILURE() << "an infinite weight was not seen";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::numeric) << e.what();
    }
    trainer->restore(begin);
    const TrainerState got = step_of(*trainer);
    EXPECT_EQ(difference(bench.model->manifest(), got.masters, want.masters), "");
    EXPECT_EQ(difference(bench.model->manifest(), got.second_moments, want.second_moments), "");
  });
}

// A rank whose last pass is of pieces of a sequence needs the other ranks with pieces of it, one of which has a pass more: it must not wait for that one first.
TEST(LeavingGradients, PiecesOfASequenceWaitForNobody) {
  const TrainBench bench(with_number(with_number(kLlama, "max_position_embeddings", 4096), "num_hidden_layers", 4));
  std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 1);
  for (const int length : {1700, 1600}) {
    RandomSequence draws(static_cast<std::uint64_t>(length), RandomStream::fuzz);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(bench.model->facts().vocabulary)));
    data.push_back(TrainSequence::next_token(tokens));
  }
  expect_bits_of_one_rank(bench, data, {{{.cp = 2}, 2}, {{.dp = 2, .cp = 2}, 2, 1}}, 1);
}

}  // namespace
}  // namespace lockstep
