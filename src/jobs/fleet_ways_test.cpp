// A follower's log-probabilities are the trainer's, bit for bit, after 1, 5 and 50 steps, whichever way the weights came: step by step, by all deltas of the
// chain, by the skip deltas that a mirror made, by a squashed delta, and by a full snapshot. Of a model with experts and a dense one, in bf16 and by an adapter
// over a base in 4 bits, alone and over two ranks. A weight that is one unit in the last place away is seen.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "jobs/fleet_test_tools.h"
#include "sync/channel.h"
#include "sync/mirror.h"
#include "sync/snapshot_ways.h"
#include "sync/snapshot_write.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class FleetWays : public testing::TestWithParam<FleetCase> {
 protected:
  ~FleetWays() override { fs::remove_all(root_); }
  fs::path root_ = fs::path(testing::TempDir()) / fmt::format("lockstep_ways_{}", ::getpid());
  std::string store_ = (root_ / "store").string();
};
class FleetBits : public FleetWays {};
constexpr auto fleet_case_name = [](const auto& one) { return std::string(one.param.name); };

// A snapshot like the channel's, but for one unit in the last place of one weight. Its id.
std::string push_one_ulp_away(const std::string& place) {
  const auto store = open_store(place);
  const std::string id = find_snapshot(*store, "chat");
  const SnapshotChain chain(*store, id);
  PushedTensors tensors;
  std::size_t changed = 0;
  for (const SnapshotTensor& t : chain.manifest().tensors) {
    if (t.shape.name.find("lm_head") != std::string::npos) changed = tensors.tensors.size();
    tensors.tensors.push_back(t.shape);
  }
  tensors.read = [&](std::size_t i) {
    std::string bytes = chain.tensor(chain.manifest().tensors[i]);
    // Of fp32 (an adapter's) 65536 of them: one alone is lost in the sum. In the row of a token that the text has.
    const TensorShape& shape = tensors.tensors[i];
    const std::size_t row = 5 * bytes.size() / static_cast<std::size_t>(shape.shape[0]), at = row + (shape.type == SafetensorsType::f32 ? 2 : 0);
    if (i == changed) bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  std::vector<std::pair<std::string, std::string>> files;
  for (const SnapshotFile& file : chain.manifest().files) files.emplace_back(file.name, read_snapshot_file(*store, id, file));
  const auto written = [&](const Written& now) { move_channel(*store, "chat", now.id); };
  return push_tensors(*store, tensors, files, {.parent = id, .threads = 1, .written = written}).id;
}

TEST_P(FleetBits, AFollowerHasTheTrainersLogProbabilities) {
  FleetTrainer trainer(GetParam(), store_);
  const FleetReplicaUnderTest spare(GetParam(), store_, "spare"), single(GetParam(), store_, "single", {.memory = SwapMemory::single});
  std::vector<const FleetReplicaUnderTest*> replicas = {&spare, &single};
  std::vector<std::unique_ptr<FleetReplicaUnderTest>> shared;
  for (const SwapMemory memory : {SwapMemory::spare, SwapMemory::single})
    shared.push_back(std::make_unique<FleetReplicaUnderTest>(GetParam(), store_, memory == SwapMemory::spare ? "tp2" : "tp2-single",
                                                             FollowOptions{.memory = memory}, 7, "tp=2"));
  for (const auto& replica : shared) replicas.push_back(replica.get());
  const PublishedSnapshot first = trainer.publish();
  EXPECT_EQ(first.written.codecs.at("full"), static_cast<std::int64_t>(first.written.codecs.size() == 1 ? first.written.codecs.begin()->second : -1));
  std::uint64_t deltas = 0;
  for (int step = 1; step <= 50; ++step) {
    trainer.step();
    const PublishedSnapshot now = trainer.publish();
    EXPECT_LT(now.written.payload_bytes, now.written.full_bytes) << "step " << step;
    deltas += now.written.payload_bytes;
    if (step != 1 && step != 5 && step != 50) continue;
    const std::vector<float> own = trainer.scores();
    for (const FleetReplicaUnderTest* replica : replicas) {
      ASSERT_TRUE(replica->reaches(now.sequence)) << replica->follower->record().error;
      EXPECT_EQ(different_scores(replica->scores(), own), 0) << "step " << step;
      EXPECT_EQ(replica->follower->record().current, now.written.id);
    }
  }
  EXPECT_GT(deltas, 0);
  EXPECT_LT(deltas, 40 * first.written.full_bytes);  // of 50 steps
  // The control.
  const std::vector<float> own = trainer.scores(FleetTrainer::other_text());
  EXPECT_EQ(different_scores(spare.scores(FleetTrainer::other_text()), own), 0);
  push_one_ulp_away(store_);
  const std::uint64_t last = read_channel_record(*open_store(store_), "chat")->sequence;
  ASSERT_TRUE(spare.reaches(last)) << spare.follower->record().error;
  const std::vector<float> other = spare.scores(FleetTrainer::other_text());
  EXPECT_GT(different_scores(other, own), 0);
  for (const FleetReplicaUnderTest* replica : replicas) {
    ASSERT_TRUE(replica->reaches(last)) << replica->follower->record().error;
    EXPECT_EQ(different_scores(replica->scores(FleetTrainer::other_text()), other), 0);
  }
}
INSTANTIATE_TEST_SUITE_P(All, FleetBits, testing::Values(kMoe, kDenseModel, kPackedAdapter, kPackedDense), fleet_case_name);

// What a replica scores that has `from` (empty: weights that are none of the chain's) and goes over to `to`; alone, and over two ranks with its weights changed
// in place, which must be equal. Of which codecs and how many snapshots the way is, the store alone says.
std::vector<float> scores_after(const FleetCase& one, const std::string& store, const std::string& channel, const std::string& from, const std::string& to) {
  std::vector<float> alone;
  for (const bool ranks : {false, true}) {
    const std::string name = channel + (ranks ? "-tp2" : "");
    const bool other_weights = from.empty() && one.rank == 0;
    const FleetReplicaUnderTest replica(one, store, "r", {.memory = ranks ? SwapMemory::single : SwapMemory::spare}, other_weights ? 99 : 7,
                                        ranks ? "tp=2" : "", name);
    const auto go = [&](const std::string& id) {
      EXPECT_TRUE(replica.reaches(move_channel(*open_store(store, true), name, id).sequence)) << name << ": " << replica.follower->record().error;
      EXPECT_EQ(replica.follower->record().current, id);
      return replica.scores(FleetTrainer::other_text());
    };
    if (!from.empty()) go(from);
    const std::vector<float> scores = go(to);
    if (!ranks) alone = scores;
    else EXPECT_EQ(different_scores(scores, alone), 0) << name;
  }
  return alone;
}

// Leaves of a store what is needed to go one way, so that there is no other.
void keep_manifests(const fs::path& store, const std::vector<std::string>& ids) {
  for (const auto& file : fs::directory_iterator(store / "manifests"))
    if (std::find(ids.begin(), ids.end(), file.path().stem().string()) == ids.end()) fs::remove(file.path());
}

TEST_P(FleetWays, ByDeltasSkipsSquashedAndFullOnesItHasTheTrainersLogProbabilities) {
  FleetTrainer trainer(GetParam(), store_);
  std::vector<std::string> ids = {trainer.publish().written.id};  // of the chain
  std::map<std::size_t, std::size_t> depth;                       // of a step
  std::map<std::size_t, std::vector<float>> own;
  for (std::size_t step = 1; step <= 50; ++step) {
    trainer.step();
    if (step > 5 && step % 5 != 0) continue;  // FleetBits has a snapshot a step
    depth[step] = ids.size();
    ids.push_back(trainer.publish().written.id);
    if (step == 1 || step == 5 || step == 50) own[step] = trainer.scores(FleetTrainer::other_text());
  }
  depth[51] = ids.size();
  ids.push_back(push_one_ulp_away(store_));
  EXPECT_GT(different_scores(own.at(1), own.at(5)), 0);
  EXPECT_GT(different_scores(own.at(5), own.at(50)), 0);
  const fs::path mirrored = root_ / "mirrored";
  const std::shared_ptr<Store> store = open_store(store_), mirror = open_store(mirrored.string(), true);
  const MirrorReport report = mirror_channel(*store, *mirror, "chat", {.threads = 1});

  for (const std::size_t step : {1, 5, 50, 51}) {
    SCOPED_TRACE(fmt::format("step {}", step));
    std::map<std::string, std::vector<float>> found;
    const std::string &first = ids.front(), &now = ids[depth.at(step)];
    found["delta"] = scores_after(GetParam(), store_, fmt::format("delta-{}", step), first, now);

    const std::vector<std::string> path = plan_path(*mirror, now, first).ids;
    const auto is_skip = [&](const std::string& id) { return std::find(report.skips.begin(), report.skips.end(), id) != report.skips.end(); };
    EXPECT_EQ(std::any_of(path.begin(), path.end(), is_skip), step > 1);
    EXPECT_LE(static_cast<double>(path.size()), 2 * std::log2(static_cast<double>(depth.at(step))) + 1);
    const fs::path region = root_ / fmt::format("region-{}", step);
    fs::copy(mirrored, region, fs::copy_options::recursive);
    std::vector<std::string> kept = path;
    kept.insert(kept.end(), {first, now});
    keep_manifests(region, kept);
    found["skip"] = scores_after(GetParam(), region.string(), "skip", first, now);

    const std::string squashed = squash_snapshots(*store, first, now, {.threads = 1}).id, full = squash_snapshots(*store, "", now, {.threads = 1}).id;
    EXPECT_EQ(load_snapshot(*store, squashed).manifest.parent, first);
    EXPECT_EQ(load_snapshot(*store, full).manifest.parent, "");
    found["squash"] = scores_after(GetParam(), store_, fmt::format("squash-{}", step), first, squashed);
    found["full"] = scores_after(GetParam(), store_, fmt::format("full-{}", step), "", full);

    for (const auto& [way, scores] : found) {
      if (step <= 50) EXPECT_EQ(different_scores(scores, own.at(step)), 0) << way;
      else EXPECT_GT(different_scores(scores, own.at(50)), 0) << way;  // the control
      EXPECT_EQ(different_scores(scores, found.at("delta")), 0) << way;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, FleetWays, testing::Values(kMoe, kDenseModel, kPackedAdapter, kPackedDense), fleet_case_name);

}  // namespace
}  // namespace lockstep
