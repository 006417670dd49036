// Other work between any two kernels of a training step, and long kernels in parts, change no bit of it.
#include <gtest/gtest.h>

#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

// Does something else before every seventh kernel, on the same device; its own kernels are not paused.
class OtherWork final : public PausePoint {
 public:
  OtherWork(std::function<void()> work, std::int64_t longest) : work_(std::move(work)), longest_(longest) {}
  void pause() override {
    if (busy_ || ++kernels_ % 7 != 0) return;
    busy_ = true;
    work_();
    busy_ = false;
    ++times_;
  }
  std::int64_t longest_kernel() const override { return longest_; }
  std::int64_t kernels() const { return kernels_; }
  std::int64_t times() const { return times_; }

 private:
  const std::function<void()> work_;
  const std::int64_t longest_;
  bool busy_ = false;
  std::int64_t kernels_ = 0, times_ = 0;
};

WeightImages two_steps(Runtime& runtime, const TrainBench& bench, const std::vector<TrainSequence>& data, std::shared_ptr<PausePoint> point) {
  Trainer trainer(runtime, bench.masters, {});
  runtime.backend.set_pause_point(point);
  for (int i = 0; i < 2; ++i) {
    trainer.forward_backward(data, {});
    trainer.optim_step({});
  }
  runtime.backend.set_pause_point(nullptr);
  return trainer.state().masters();
}

TEST(PausePoint, OtherWorkBetweenKernelsAndKernelsInPartsChangeNoBit) {
  for (const char* config : {kGlm, kLlama, kQwen}) {
    const TrainBench bench(config);
    std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary);
    data.erase(data.begin() + 1);  // the long one
    for (const char* profile : {"cpu-f32", "cpu-bf16w"}) {
      SCOPED_TRACE(std::string(bench.model->family()) + " " + profile);
      Runtime runtime({.threads = 2}, bench.model, profile_by_name(profile), 600);
      const WeightImages want = two_steps(runtime, bench, data, nullptr);
      Trainer other(runtime, initial_weights(bench.model->manifest(), 2, 0.08), {});
      const std::vector<TrainSequence> short_one{data.front()};
      const auto company = [&] { other.forward_backward(short_one, {}), other.optim_step({}); };
      const auto whole = std::make_shared<OtherWork>(company, 0), parts = std::make_shared<OtherWork>(company, 1);
      EXPECT_EQ(difference(bench.model->manifest(), two_steps(runtime, bench, data, whole), want), "");
      EXPECT_EQ(difference(bench.model->manifest(), two_steps(runtime, bench, data, parts), want), "");
      EXPECT_GT(whole->times(), 20);
      EXPECT_GT(parts->kernels(), whole->kernels());  // they were in parts
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
