// What a follower computes with after a delta are the bits of a server that loads the whole new folder: of every family, in bf16 and fp32, beside the live
// weights and in their place.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"
#include "checkpoint/model_reader.h"
#include "fleet/publisher.h"
#include "fleet/weight_staging.h"
#include "model/archs/registry.h"
#include "sync/channel.h"
#include "sync/snapshot_pull.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

std::vector<std::string> followed_families() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.model_type);
  return names;
}

// Of every tensor one element in 60 is another number; of every seventh one all are.
WeightImages trained_a_step(const Manifest& manifest, WeightImages images) {
  RandomSequence random(21, RandomStream::fuzz);
  std::size_t number = 0;
  for (const FileTensor& file : manifest.files()) {
    std::vector<float> values(static_cast<std::size_t>(file.size()));
    manifest.gather(file, images, values.data());
    const bool all = number++ % 7 == 3;
    for (float& value : values)
      if (all || random.below(60) == 0) value += 0.125f;
    values.back() -= 0.25f;
    manifest.scatter(file, values.data(), images);
  }
  return images;
}

std::size_t unequal_parameters(Backend& backend, const WeightSet& a, const WeightSet& b) {
  std::size_t unequal = 0;
  for (std::size_t i = 0; i < a.parameters.size(); ++i)
    if (read_bits(backend, a.parameters[i]).words != read_bits(backend, b.parameters[i]).words) ++unequal;
  return unequal;
}

// Some changes with a wrong digest, in turn: of what is there, and of what comes out, which is seen when all is written.
void damaged_changes_leave_the_weights(const std::function<std::shared_ptr<const WeightSet>()>& write, StagedWeights& staged, const LiveWeights& live,
                                       const WeightSet& first, Runtime& runtime) {
  std::set<bool> many;
  for (std::size_t i = 0; i < staged.changes.size(); i += 1 + staged.changes.size() / 8) {
    StagedWeights::Change& change = staged.changes[i];
    for (std::string* digest : {&change.before, &change.after}) {
      const std::string right = std::exchange(*digest, std::string(32, '0'));
      EXPECT_THROW(write(), Error);
      EXPECT_EQ(unequal_parameters(runtime.backend, *live.weights, first), 0) << i;
      *digest = right;
    }
  }
  for (const StagedWeights::Change& change : staged.changes) many.insert(change.many);
  EXPECT_EQ(many.size(), 2);  // some are held as places and bits, some as payloads
}

class FollowedWeights : public testing::TestWithParam<std::string> {
 protected:
  ~FollowedWeights() override { fs::remove_all(root_); }
  fs::path root_ = fs::path(testing::TempDir()) / fmt::format("lockstep_followed_{}", ::getpid());
};

TEST_P(FollowedWeights, HaveTheBitsOfAFolderThatIsLoadedWhole) {
  const std::string config = read_file(LOCKSTEP_SOURCE_DIR "/tests/golden/" + GetParam() + "/ranks.json", std::uint64_t{1} << 20);
  for (const char* profile : {"cpu-bf16w", "cpu-f32"})
    for (const SwapMemory memory : {SwapMemory::spare, SwapMemory::single}) {
      SCOPED_TRACE(fmt::format("{}, {}", profile, memory == SwapMemory::spare ? "spare" : "single"));
      fs::remove_all(root_);
      const auto runtime = std::make_shared<Runtime>(BackendOptions{.threads = 2}, make_model(Json::parse(config)), profile_by_name(profile), 64);
      const auto executor = std::make_shared<Executor>();
      const Manifest& manifest = runtime->model->manifest();
      const WeightImages first = initial_weights(manifest, 7, 0.25);
      const auto set = [&](const WeightImages& images, std::uint64_t version) {
        return make_weight_set(runtime->backend, manifest, images, runtime->profile, version);
      };
      LiveWeights live;
      live.weights = set(first, 1);
      const std::shared_ptr<Store> store = open_store((root_ / "store").string(), true);
      Publisher publisher(store, "chat", {{"config.json", config}}, runtime, executor, {.threads = 1});
      publisher.publish(live.weights);
      const PublishedSnapshot second = publisher.publish(set(trained_a_step(manifest, first), 2));
      EXPECT_GT(second.written.codecs.count("sparse"), 0);

      const SnapshotChain chain(*store, second.written.id, {}, "the live weights");
      const WeightStaging staging(runtime, executor, memory);
      StagedWeights staged = staging.stage(*store, chain, live, 2, {}, [](ReplicaStage) {});
      EXPECT_EQ(staged.changed_tensors, manifest.files().size());
      const auto write = [&] { return run_on(*executor, WorkClass::live, [&](const OnExecutor& on) { return staging.write(on, staged, live); }).get(); };
      if (memory == SwapMemory::spare) {
        EXPECT_EQ(unequal_parameters(runtime->backend, *live.weights, *set(first, 1)), 0);
      } else {
        damaged_changes_leave_the_weights(write, staged, live, *set(first, 1), *runtime);
      }
      const auto now = memory == SwapMemory::spare ? staged.next.weights : write();
      pull_snapshot(*store, second.written.id, root_ / "folder", Overwrite::no, {.threads = 1});
      const auto whole = ModelReader::open(root_ / "folder")->weight_set(runtime->backend, runtime->profile, 2);
      EXPECT_GT(unequal_parameters(runtime->backend, *set(first, 1), *whole), 0);
      EXPECT_EQ(unequal_parameters(runtime->backend, *now, *whole), 0);
      EXPECT_EQ(now->changes.lock(), nullptr);  // nobody shares the model
    }
}
INSTANTIATE_TEST_SUITE_P(Families, FollowedWeights, testing::ValuesIn(followed_families()));

}  // namespace
}  // namespace lockstep
