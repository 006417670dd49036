// A model with fewer indexers, whose indexers are trained with everything else frozen: nothing else has moved, the loss falls, and a stopped one goes on to
// the same bits, on any threads.
#include "jobs/index_conversion.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/philox.h"
#include "serving/conversion.h"
#include "serving/loading.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class IndexConversions : public testing::Test {
 protected:
  IndexConversions() {
    fs::create_directories(root_);
    RandomSequence draws(5, RandomStream::fuzz);
    std::ofstream out(root_ / "data.jsonl");
    for (int line = 0; line < 12; ++line) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(20 + 3 * line));
      for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(draws.below(100));
      out << nlohmann::json{{"tokens", tokens}}.dump() << "\n";
    }
  }
  ~IndexConversions() override { fs::remove_all(root_); }
  IndexConversion conversion(const std::string& name) {
    IndexConversion c;
    c.from = (fs::path(LOCKSTEP_SOURCE_DIR) / "models/countdown-glm").string();
    c.to = (root_ / name).string();
    c.pattern = "FSSS";
    c.data = (root_ / "data.jsonl").string();
    c.steps = 6;
    c.batch = 4;
    c.learning_rate = 1e-2;
    c.threads = 1;
    c.quiet = true;
    return c;
  }
  std::vector<nlohmann::json> metrics(const IndexConversion& c) {
    std::ifstream in(training_folder(c.to) / "metrics.jsonl");
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  static OpenedModel opened(const std::string& folder) {
    RuntimeSettings settings;
    settings.model = folder;
    settings.profile = "cpu-f32";
    settings.threads = 1;
    return open_model(settings);
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_index_conversions_" + std::to_string(::getpid()));
};

TEST_F(IndexConversions, TrainTheIndexersAlone) {
  const IndexConversion c = conversion("out");
  const SftSummary summary = convert_and_train(c);
  EXPECT_EQ(summary.steps, 6);
  convert_indexers(c.from, (root_ / "untrained").string(), c.pattern, DType::f32, Overwrite::no);
  const OpenedModel before = opened((root_ / "untrained").string()), after = opened(c.to);
  const WeightImages old = before.masters(), now = after.masters();
  std::int64_t indexers = 0;
  for (std::size_t i = 0; i < old.size(); ++i) {
    const Parameter& p = after.model->manifest().parameters()[i];
    EXPECT_EQ(now[i] == old[i], !p.indexer) << p.name;
    indexers += p.indexer;
  }
  EXPECT_EQ(indexers, 5);  // of one layer
  const std::vector<nlohmann::json> lines = metrics(c);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_LT(lines[5].at("index_loss").get<double>(), 0.9 * lines[0].at("index_loss").get<double>());
  // Of the layers that share, not of the first alone.
  IndexConversion kept = conversion("kept");
  kept.pattern = "FSFS";
  kept.steps = 1;
  convert_and_train(kept);
  EXPECT_NE(metrics(kept)[0].at("index_loss"), lines[0].at("index_loss"));
}

TEST_F(IndexConversions, AStoppedOneGoesOn) {
  const SftSummary whole = convert_and_train(conversion("whole"));
  StopSource source;
  IndexConversion parts = conversion("parts");
  parts.threads = 2;
  parts.dense_steps = 0;
  parts.checkpoint_every = 2;
  parts.stop = source.token();
  parts.on_step = [&source](std::int64_t step) {
    if (step == 3) source.stop();
  };
  EXPECT_TRUE(convert_and_train(parts).interrupted);
  parts.stop = {};
  EXPECT_EQ(convert_and_train(parts).weights_sha256, whole.weights_sha256);
  EXPECT_TRUE(convert_and_train(parts).was_finished);
  EXPECT_EQ(opened(parts.to).reader->weights_sha256(), whole.weights_sha256);
  IndexConversion dense = conversion("dense");
  dense.dense_steps = 3;
  EXPECT_NE(convert_and_train(dense).weights_sha256, whole.weights_sha256);
  // Another pattern is another run.
  parts.pattern = "FSFS";
  try {
    convert_and_train(parts);
    ADD_FAILURE() << "went on with another pattern";
  } catch (const Error& e) {
    EXPECT_NE(e.message().find("pattern"), std::string::npos) << e.message();
  }
}

}  // namespace
}  // namespace lockstep
