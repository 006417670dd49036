// Other work between any two kernels of a training step, and between the parts of long kernels, changes no bit of it.
#include <gtest/gtest.h>

#include "base/give_way.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

// Does something else at every nth moment, on the same device; its own kernels are not paused.
class OtherWork final : public PausePoint {
 public:
  OtherWork(std::function<void()> work, std::int64_t longest, std::int64_t every) : work_(std::move(work)), longest_(longest), every_(every) {}
  void pause() override {
    if (busy_ || ++moments_ % every_ != 0) return;
    busy_ = true;
    work_();
    busy_ = false;
    ++times_;
  }
  std::int64_t longest_kernel() const override { return longest_; }
  std::int64_t moments() const { return moments_; }
  std::int64_t times() const { return times_; }

 private:
  const std::function<void()> work_;
  const std::int64_t longest_, every_;
  bool busy_ = false;
  std::int64_t moments_ = 0, times_ = 0;
};

// `inside`: between the parts of kernels, too.
WeightImages two_steps(Runtime& runtime, const TrainBench& bench, const std::vector<TrainSequence>& data, std::shared_ptr<PausePoint> point,
                       bool inside = false) {
  Trainer trainer(runtime, bench.masters, {});
  runtime.backend.set_pause_point(point);
  thread_pause_point = inside ? point.get() : nullptr;
  for (int i = 0; i < 2; ++i) {
    trainer.forward_backward(data, {});
    trainer.optim_step({});
  }
  thread_pause_point = nullptr;
  runtime.backend.set_pause_point(nullptr);
  return trainer.state().masters();
}

TEST(PausePoint, OtherWorkBetweenKernelsAndKernelsInPartsChangeNoBit) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench bench(config);
    std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary);
    data.erase(data.begin() + 1);  // the long one
    for (const std::string& profile : config == kQwen ? std::vector<std::string>{"cpu-f32", "cpu-bf16w"} : std::vector<std::string>{"cpu-f32"}) {
      SCOPED_TRACE(std::string(bench.model->family()) + " " + profile);
      Runtime runtime({.threads = 2}, bench.model, profile_by_name(profile), 600);
      const WeightImages want = two_steps(runtime, bench, data, nullptr);
      Trainer other(runtime, initial_weights(bench.model->manifest(), 2, 0.08), {});
      const std::vector<TrainSequence> short_one{data.front()};
      const auto company = [&] { other.forward_backward(short_one, {}), other.optim_step({}); };
      const auto whole = std::make_shared<OtherWork>(company, 0, 7), parts = std::make_shared<OtherWork>(company, 1, 7),
                 inside = std::make_shared<OtherWork>(company, 1, 31);
      EXPECT_EQ(difference(bench.model->manifest(), two_steps(runtime, bench, data, whole), want), "");
      EXPECT_EQ(difference(bench.model->manifest(), two_steps(runtime, bench, data, parts), want), "");
      EXPECT_EQ(difference(bench.model->manifest(), two_steps(runtime, bench, data, inside, true), want), "");
      EXPECT_GT(whole->times(), 20);
      EXPECT_GT(inside->times(), 10);
      EXPECT_EQ(parts->moments() > whole->moments(), bench.model->facts().vocabulary > 128);  // the gradient of a head of more than eight panels was in parts
      EXPECT_GT(4 * inside->moments(), 5 * whole->moments());                                 // products, logits and steps were
      // A control: the comparison sees one step more.
      Trainer third(runtime, want, {});
      third.forward_backward(data, {});
      third.optim_step({});
      EXPECT_NE(difference(bench.model->manifest(), third.state().masters(), want), "");
    }
  }
}

}  // namespace
}  // namespace lockstep
