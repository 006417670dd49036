// What a sampler's checkpoint has as a snapshot is what a real store gives back: the bits of the compute copy, after few passes however many were saved, and
// after a prune of what nobody holds.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "fleet/sampler_snapshots.h"
#include "jobs/fleet_test_tools.h"
#include "sync/channel.h"
#include "sync/snapshot_check.h"
#include "sync/snapshot_ways.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class StoredSamplers : public testing::TestWithParam<FleetCase> {
 protected:
  ~StoredSamplers() override { fs::remove_all(root_); }
  std::unique_ptr<SamplerSnapshots> opened(std::uint64_t whole_every = 0) {
    const SnapshotTexts texts = {{"config.json", "{\"model_type\":\"tiny\"}\n"}};
    auto publisher = std::make_unique<Publisher>(open_store(place_, true), "chat", texts, trainer_.opened.runtime, trainer_.executor,
                                                 PublisherOptions{.threads = 1, .whole_every = whole_every});
    return std::make_unique<SamplerSnapshots>(std::move(publisher), "tiny", nullptr, root_ / "downloads");
  }
  SavedSnapshot saved(SamplerSnapshots& snapshots, const std::string& name) {
    const SamplerWeights now = trainer_.trainer.weights_for(trainer_.opened.runtime);
    const SavedSnapshot made = snapshots.save(now.weights, now.adapter, name, [&](const std::string& channel, const std::string& id) {
      EXPECT_FALSE(store_->read_channel(channel)) << "it is noted down before it is there";
      noted_[channel] = id;
    });
    snapshots.tidy();
    return made;
  }
  WeightImages images() {
    const SamplerWeights now = trainer_.trainer.weights_for(trainer_.opened.runtime);
    return trainer_.executor
        ->run(WorkClass::training,
              [&] {
                WeightImages images;
                for (const Buffer& buffer : now.adapter ? now.adapter->parameters : now.weights->parameters)
                  images.push_back(trainer_.opened.runtime->backend.stream().read(buffer.view()).get());
                return images;
              })
        .get();
  }
  const Manifest& manifest() {
    const SamplerWeights now = trainer_.trainer.weights_for(trainer_.opened.runtime);
    return now.adapter ? now.adapter->layout->manifest() : trainer_.opened.model->manifest();
  }

  fs::path root_ = fs::path(testing::TempDir()) / fmt::format("lockstep_samplers_{}", ::getpid());
  std::string place_ = (root_ / "store").string();
  std::shared_ptr<Store> store_ = (fs::create_directories(root_), open_store(place_, true));
  FleetTrainer trainer_{GetParam(), (root_ / "another").string()};
  std::map<std::string, std::string> noted_;
};

TEST_P(StoredSamplers, AreReadWithTheirBitsByFewPasses) {
  auto snapshots = opened(4);
  std::vector<SavedSnapshot> all;
  std::vector<WeightImages> then;
  for (int step = 0; step < 12; ++step) {
    if (step == 7) {  // another process, which goes on from the channel's snapshot: nobody knows how long its chain is
      move_channel(*store_, "chat", all.back().id);
      snapshots = opened(4);
    }
    trainer_.step();
    all.push_back(saved(*snapshots, fmt::format("step-{}", step)));
    then.push_back(images());
    EXPECT_EQ(noted_.at(all.back().channel), all.back().id);
    EXPECT_GT(all.back().bytes, 0);
  }
  for (std::size_t step = 0; step < all.size(); ++step) {
    EXPECT_TRUE(snapshots->read(all[step].id, manifest()) == then[step]) << step;
    const auto path = plan_path(*store_, all[step].id, "").ids;
    EXPECT_TRUE(!path.empty() && path.size() <= 4) << "step " << step << ": " << path.size();
    if (step > 0) {
      EXPECT_FALSE(then[step] == then[step - 1]) << "a step is seen";
    }
  }
  EXPECT_TRUE(verify_snapshot(*store_, all.back().id, {}).faults.empty());
}

TEST_P(StoredSamplers, GoOnAfterAPruneOfWhatNobodyHolds) {
  const auto snapshots = opened();
  trainer_.step();
  const SavedSnapshot one = saved(*snapshots, "one");
  const WeightImages then = images();
  trainer_.step();
  const SavedSnapshot two = saved(*snapshots, "two");
  EXPECT_EQ(snapshots->hold(two.id, "two", {}).substr(0, 5), "held-");
  EXPECT_TRUE(prune_store(*store_, {}, false).snapshots.empty());
  for (const std::string& name : store_->channels())
    if (name != "one") snapshots->release(name, two.id);
  EXPECT_EQ(store_->channels(), std::vector<std::string>{"one"});
  EXPECT_EQ(prune_store(*store_, {}, false).snapshots, std::vector<std::string>{two.id});
  trainer_.step();
  const SavedSnapshot three = saved(*snapshots, "two");  // its parent is gone
  EXPECT_EQ(three.channel, "two");
  EXPECT_TRUE(snapshots->read(three.id, manifest()) == images());
  EXPECT_TRUE(snapshots->read(one.id, manifest()) == then);
  // A channel that somebody moved is theirs.
  move_channel(*store_, "one", three.id);
  snapshots->release("one", one.id);
  EXPECT_TRUE(store_->read_channel("one"));
}

TEST_P(StoredSamplers, ThatAreDamagedAreAnErrorThatNamesTheTensor) {
  const auto snapshots = opened();
  const SavedSnapshot one = saved(*snapshots, "one");
  fs::path largest;
  for (const auto& entry : fs::recursive_directory_iterator(place_ + "/objects"))
    if (entry.is_regular_file() && (largest.empty() || entry.file_size() > fs::file_size(largest))) largest = entry.path();
  std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(100);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(100);
  file.put(byte);
  file.close();
  try {
    snapshots->read(one.id, manifest());
    ADD_FAILURE() << "a flipped bit was read";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupt_file);
    EXPECT_NE(std::string(e.what()).find("tensor"), std::string::npos) << e.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, StoredSamplers, testing::Values(kMoe, kDenseModel, kPackedAdapter),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace lockstep
