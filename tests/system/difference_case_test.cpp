// What `train rl` and `train distill` leave of a token whose log-probability in training was another than in sampling: `lockstep parity --case` repeats it as
// long as the kernel is wrong, and says that it cannot be repeated once the kernel is right.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "base/error.h"
#include "checkpoint/difference_case.h"
#include "cli/commands.h"
#include "jobs/distill_job.h"
#include "jobs/job_test_tools.h"
#include "jobs/rl_job.h"
#include "kernels/planted_kernel_test_tools.h"
#include "parity/parity_case.h"
#include "tensor/device_pointer.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

// The head of training tells the neighbour of each log-probability.
void tell_neighbours(const HeadLoss& op, ThreadPool& pool) {
  PlantedKernel<HeadLoss>::right(op, pool);
  for (std::int64_t row = 0; row < op.logprob.rows; ++row) {
    std::uint32_t* const bits = device_pointer<std::uint32_t>(op.logprob.row_range(row, 1));
    for (std::int64_t target = 0; target < op.logprob.cols; ++target) bits[target] ^= 1u;
  }
}

class DifferenceOfARun : public testing::Test {
 protected:
  ~DifferenceOfARun() override { fs::remove_all(root_); }
  // Runs into a difference under the wrong kernel; returns the file that is left.
  fs::path left_by(const std::function<void(RlJob&)>& change) {
    RlJob job;
    settings_of_run(job.run, job.stack.runtime, root_, "r");
    job.rl.steps = 1, job.rl.warmup = 0, job.rl.problems = 2, job.rl.rollouts = 2, job.rl.max_tokens = 6;
    change(job);
    const fs::path file = root_ / "r" / "difference" / "case.json";
    try {
      run_rl(job);
      ADD_FAILURE() << "nothing was found";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("/r/difference/case.json` repeats it"), std::string::npos) << e.what();
    }
    return file;
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_difference_case_" + std::to_string(::getpid()));
};

TEST_F(DifferenceOfARun, IsRepeatedUntilTheKernelIsRight) {
  fs::path file;
  {
    const PlantedKernel<HeadLoss> planted(&KernelTable::head_loss, tell_neighbours);
    file = left_by([](RlJob&) {});
    const CaseReport report = repeat_case(file);
    ASSERT_TRUE(report.finding);
    ASSERT_TRUE(report.recorded.first);
    EXPECT_EQ(report.finding->point.position, report.recorded.first->position);
    EXPECT_EQ(report.finding->point.expected ^ report.finding->point.got, 1u);
    std::int64_t decoded = 0, trained = 0;
    for (const CaseWay& way : report.ways) {
      if (way.way == "sampling, decoded") EXPECT_EQ(way.from_sampler.different, 0) << way.place;
      if (!way.samples) EXPECT_EQ(way.from_trainer.different, 0) << way.way << " on " << way.place;
      decoded += way.way == "sampling, decoded";
      trained += !way.samples;
    }
    EXPECT_GE(decoded, 6);
    EXPECT_EQ(trained, 2 * decoded);
    EXPECT_NE(to_text(report).find("\nREPEATED: position "), std::string::npos) << to_text(report);
    EXPECT_EQ(parity_command({"--case", file.string()}), 1);
  }
  const DifferenceCase one = read_case(file);
  EXPECT_EQ(one.step, 1);
  EXPECT_EQ(one.weights_version, 0u);
  EXPECT_EQ(one.temperature, 1.0f);
  EXPECT_EQ(one.threads, 1);
  EXPECT_EQ(one.model, "weights");
  EXPECT_EQ(one.adapter, "");
  EXPECT_EQ(one.first_different(), 0u);
  for (std::size_t i = 0; i < one.positions.size(); ++i) EXPECT_EQ(one.sampler_bits[i] ^ one.trainer_bits[i], 1u) << i;
  testing::internal::CaptureStdout();
  EXPECT_EQ(parity_command({"--case", file.string(), "--json"}), 0);
  const nlohmann::json said = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(said.at("repeated"), false);
  EXPECT_TRUE(said.at("finding").is_null());
  EXPECT_EQ(said.at("recorded").at("different"), one.positions.size());
  for (const auto& way : said.at("ways")) {
    EXPECT_EQ(way.at("from_sampler").at("different"), 0) << way;
    EXPECT_EQ(way.at("from_trainer").at("first").at("position"), one.positions.front()) << way;
  }
}

// An adapter stands over the model that the run began with; what its tokens were drawn from is in the file, and what sampling kept is read.
TEST_F(DifferenceOfARun, WithAnAdapterCutsAndKeptForwardsIsRepeated) {
  const auto change = [](RlJob& job) {
    job.stack.trained.rank = 4;
    job.rl.temperature = 0.8, job.rl.top_k = 30;
    job.stack.keep_forward.mode = "inputs";
  };
  fs::path file;
  {
    const PlantedKernel<HeadLoss> planted(&KernelTable::head_loss, tell_neighbours);
    file = left_by(change);
    EXPECT_TRUE(repeat_case(file).repeated());
  }
  const DifferenceCase one = read_case(file);
  EXPECT_EQ(one.adapter, "weights");
  EXPECT_TRUE(fs::path(one.model).is_absolute());
  EXPECT_EQ(one.keep_forward, "inputs");
  EXPECT_EQ(one.temperature, 0.8f);
  EXPECT_EQ(one.top_k, 30);
  EXPECT_EQ(one.kept.size(), one.positions.size());
  const CaseReport report = repeat_case(file);
  EXPECT_FALSE(report.repeated());
  EXPECT_TRUE(report.notes.empty()) << report.notes.front();
  bool over_kept = false;
  for (const CaseWay& way : report.ways) {
    EXPECT_EQ(way.from_sampler.different, 0) << way.way << " on " << way.place;
    EXPECT_EQ(way.other_kept_sets, 0) << way.way << " on " << way.place;
    over_kept = over_kept || way.way == "training over kept forwards";
  }
  EXPECT_TRUE(over_kept);
}

// Over the vocabulary a row has all tokens as targets; what is compared is the student's own, at temperature 1 whatever it wrote at.
TEST_F(DifferenceOfARun, OfDistillationIsRepeatedToo) {
  for (const std::string over : {"vocabulary", "sampled"}) {
    DistillJob job;
    settings_of_run(job.run, job.stack.runtime, root_, over);
    job.distill.over = over;
    job.distill.steps = 1, job.distill.prompts = 2, job.distill.max_tokens = 6;
    if (over == "vocabulary") job.distill.temperature = 0.7;
    job.learning_rate = 1e-3;
    job.teachers = {{.name = "itself", .folder = job.stack.runtime.model}};
    job.environment = "countdown";
    const fs::path file = root_ / over / "difference" / "case.json";
    {
      const PlantedKernel<HeadLoss> planted(&KernelTable::head_loss, tell_neighbours);
      try {
        run_distill(job);
        ADD_FAILURE() << "nothing was found";
      } catch (const Error& e) {
        const std::string said = e.what();
        EXPECT_NE(said.find("step 1: token 0 of completion 0 has log-probability "), std::string::npos) << said;
        EXPECT_NE(said.find("/difference/case.json` repeats it"), std::string::npos) << said;
      }
      const CaseReport report = repeat_case(file);
      ASSERT_TRUE(report.finding) << over;
      EXPECT_EQ(report.finding->point.position, report.recorded.first->position) << over;
      EXPECT_EQ(report.finding->point.expected ^ report.finding->point.got, 1u) << over;
    }
    const DifferenceCase one = read_case(file);
    EXPECT_EQ(one.temperature, 1.0f) << over;
    EXPECT_EQ(one.positions.back(), std::ssize(one.tokens) - 1) << over;
    if (over == "sampled") continue;
    const CaseReport report = repeat_case(file);
    EXPECT_FALSE(report.repeated()) << over;
    for (const CaseWay& way : report.ways) EXPECT_EQ(way.from_sampler.different, 0) << over << ": " << way.way << " on " << way.place;
  }
}

}  // namespace
}  // namespace lockstep
