// A checkpoint whose state stands in a file of each rank: it is the checkpoint of one file, whatever cut wrote it and whatever is read of it; damage is named,
// and a kill at any point leaves this one or the one before.
#include "checkpoint/share_checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>

#include "base/child_process_test_tools.h"
#include "checkpoint/json_file.h"
#include "checkpoint/safetensors_test_tools.h"
#include "checkpoint/state_sum.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

Manifest model_of_shares() {
  Manifest m;
  m.table("embed.weight", 9, 20);
  m.matrix("up.weight", 133, 200);  // of several blocks
  m.vector("norm.weight", 20);
  m.untrained_vector("bias", 5);
  m.matrices("experts", 3, 17, 4, [](std::int64_t e) { return fmt::format("experts.{}.weight", e); });
  return m;
}

// Which rows each rank keeps.
using Cut = std::vector<std::vector<RowsPlace>>;

// Matrices of several ranks are cut along their outputs, at places inside of panels; the rest is the first one's. Each half of the ranks has its half of
// the rows.
Cut cut_of(const Manifest& manifest, std::int64_t shares, std::int64_t replicas) {
  Cut cut(static_cast<std::size_t>(shares * replicas));
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
    const RowsPlace whole = all_rows_of(manifest.parameter(static_cast<ParameterId>(i)), static_cast<ParameterId>(i));
    for (std::int64_t share = 0; share < shares; ++share) {
      RowsPlace part = whole;
      if (whole.outputs > 1) {
        part.corner.output = whole.outputs * share / shares;
        part.outputs = whole.outputs * (share + 1) / shares - part.corner.output;
      } else if (share > 0) {
        continue;
      }
      for (std::int64_t replica = 0; replica < replicas; ++replica) {
        part.first = part.all_rows() * replica / replicas;
        part.rows = part.all_rows() * (replica + 1) / replicas - part.first;
        if (part.size() > 0) cut[static_cast<std::size_t>(replica * shares + share)].push_back(part);
      }
    }
  }
  return cut;
}

class ShareCheckpointTest : public testing::Test {
 protected:
  TrainingCheckpoint state_of(std::int64_t step) const {
    TrainingCheckpoint c{.step = step, .profile_digest = "0123", .config_hash = "4567", .position = {{"epoch", step}}};
    std::uint64_t seed = static_cast<std::uint64_t>(step) * 3;
    for (WeightImages* images : {&c.masters, &c.first_moments, &c.second_moments}) {
      images->resize(manifest_.parameters().size());
      ++seed;
      for (const FileTensor& file : manifest_.files()) {
        if (images != &c.masters && !manifest_.parameter(file.pieces[0].parameter).trained) continue;
        std::vector<float> values(static_cast<std::size_t>(file.size()));
        NamedUniform uniform(seed, file.name);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = uniform(i);
        manifest_.scatter(file, values.data(), *images);
      }
    }
    return c;
  }
  const WeightImages& images(const TrainingCheckpoint& c, StatePart part) const {
    return part == StatePart::master ? c.masters : part == StatePart::first_moment ? c.first_moments : c.second_moments;
  }
  // The rows of a share in its image, cut out of the whole.
  std::vector<float> share_of(const std::vector<float>& whole, const RowsPlace& place) const {
    std::vector<float> image(static_cast<std::size_t>(place.share_size()), 0.0f);
    copy_elements(all_rows_of(manifest_.parameter(place.parameter), place.parameter), 0, whole, place, image);
    return image;
  }
  std::vector<SharePiece> pieces_of(const TrainingCheckpoint& c, const std::vector<RowsPlace>& places) const {
    std::vector<SharePiece> pieces;
    for (const RowsPlace& place : places)
      for (const StatePart part : {StatePart::master, StatePart::first_moment, StatePart::second_moment}) {
        const std::vector<float>& whole = images(c, part)[static_cast<std::size_t>(place.parameter)];
        if (whole.empty()) continue;
        const std::vector<float> image = share_of(whole, place);
        const auto read = [image, place](std::int64_t first, std::int64_t rows) {
          const auto begin = image.begin() + (place.first + first) * place.width();
          return std::vector<float>(begin, begin + rows * place.width());
        };
        pieces.push_back({part, manifest_.parameter(place.parameter), place, read});
      }
    return pieces;
  }
  void save(std::int64_t step, const Cut& cut, int keep_last = 3) const {
    const TrainingCheckpoint c = state_of(step);
    with_context("saving; earlier ones are intact", [&] {
      AtomicFolder folder(path_ / checkpoint_name(step), AtomicFolder::Existing::replace);
      std::vector<ShareFileEnd> ends;
      for (std::size_t rank = 0; rank < cut.size(); ++rank)
        ends.push_back(write_share_file(folder.partial(), static_cast<int>(rank), {"tp=2", step}, pieces_of(c, cut[rank])));
      commit_shares(folder, path_, {.step = step, .profile_digest = "0123", .config_hash = "4567", .position = c.position}, "tp=2", ends, {keep_last});
    });
  }
  fs::path folder_of(std::int64_t step) const { return path_ / checkpoint_name(step); }
  void expect_state(const TrainingCheckpoint& got, std::int64_t step) const {
    const TrainingCheckpoint want = state_of(step);
    EXPECT_EQ(got.step, step);
    EXPECT_EQ(got.masters, want.masters);
    EXPECT_EQ(got.first_moments, want.first_moments);
    EXPECT_EQ(got.second_moments, want.second_moments);
    EXPECT_EQ(got.position, want.position);
  }
  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "checkpoints";
  Manifest manifest_ = model_of_shares();
};

TEST_F(ShareCheckpointTest, WhatAnyCutWroteIsReadWholeAndInAnyOther) {
  const std::vector<Cut> cuts{cut_of(manifest_, 1, 1), cut_of(manifest_, 2, 1), cut_of(manifest_, 1, 3), cut_of(manifest_, 3, 2), cut_of(manifest_, 5, 1)};
  std::string sum;
  for (const Cut& written : cuts) {
    save(4, written);
    expect_state(load_checkpoint(folder_of(4), manifest_), 4);
    const std::string own = read_json_file(folder_of(4) / "state.json").at("state_sum").get<std::string>();
    if (sum.empty()) sum = own;
    EXPECT_EQ(own, sum);  // in every layout
    const TrainingCheckpoint want = state_of(4);
    for (const Cut& read : cuts)
      for (const std::vector<RowsPlace>& rank : read) {
        ShareCheckpoint checkpoint(folder_of(4), manifest_);
        for (const RowsPlace& place : rank)
          for (const StatePart part : {StatePart::master, StatePart::first_moment, StatePart::second_moment}) {
            const std::vector<float>& whole = images(want, part)[static_cast<std::size_t>(place.parameter)];
            EXPECT_EQ(checkpoint.has(part, place.parameter), !whole.empty());
            if (whole.empty()) continue;
            ASSERT_EQ(checkpoint.read(part, place), share_of(whole, place));
          }
      }
  }
  save(5, cuts[1]);
  EXPECT_NE(read_json_file(folder_of(5) / "state.json").at("state_sum").get<std::string>(), sum);  // the control
}

// The sum sees two values that change places, a value in another part, and one bit.
TEST_F(ShareCheckpointTest, TheSumOfAStateTellsStatesApart) {
  const RowsPlace place = all_rows_of(manifest_.parameter(1), 1);
  const Parameter& p = manifest_.parameter(1);
  std::vector<float> values = state_of(1).masters[1];
  const std::uint64_t sum = state_sum(StatePart::master, p, place, values);
  EXPECT_NE(state_sum(StatePart::first_moment, p, place, values), sum);
  std::swap(values[5], values[21]);
  EXPECT_NE(state_sum(StatePart::master, p, place, values), sum);
  std::swap(values[5], values[21]);
  EXPECT_EQ(state_sum(StatePart::master, p, place, values), sum);
  values[7] = -values[7];
  EXPECT_NE(state_sum(StatePart::master, p, place, values), sum);
  EXPECT_EQ(state_sum(StatePart::master, p, place, std::vector<float>(values.size(), 0.0f)), 0u);
}

// What a rank reads is its part and the rest of the blocks at its ends, not the whole.
TEST_F(ShareCheckpointTest, ARankReadsTheBlocksThatItNeeds) {
  Manifest m;
  m.matrix("wide.weight", 2048, 512);
  manifest_ = m;
  save(1, cut_of(manifest_, 1, 2));
  RowsPlace quarter = all_rows_of(manifest_.parameter(0), 0);
  const auto whole = static_cast<std::uint64_t>(quarter.size()) * sizeof(float);
  constexpr std::uint64_t kBlock = kShareBlock * sizeof(float);
  quarter.first = 33;
  quarter.rows = 32;  // of 128 panels
  ShareCheckpoint checkpoint(folder_of(1), manifest_);
  checkpoint.read(StatePart::master, quarter);
  EXPECT_GE(checkpoint.bytes_read(), whole / 4);
  EXPECT_LE(checkpoint.bytes_read(), whole / 4 + 2 * kBlock);
  // Of a matrix that is cut along its inputs every panel has a part that is read, in blocks of 1,024 inputs.
  RowsPlace inputs = all_rows_of(manifest_.parameter(0), 0);
  inputs.corner.input = 128;
  inputs.inputs = 64;
  ShareCheckpoint another(folder_of(1), manifest_);
  EXPECT_EQ(another.read(StatePart::master, inputs), share_of(state_of(1).masters[0], inputs));
  EXPECT_LE(another.bytes_read(), whole);
}

TEST_F(ShareCheckpointTest, OldAndNewOnesStandBesideEachOther) {
  save_checkpoint(path_, manifest_, state_of(1));
  save(2, cut_of(manifest_, 2, 2));
  save_checkpoint(path_, manifest_, state_of(3));
  for (const std::int64_t step : {1, 2, 3}) expect_state(load_checkpoint(folder_of(step), manifest_), step);
  EXPECT_FALSE(read_checkpoint_head(folder_of(1)).in_shares());
  EXPECT_TRUE(read_checkpoint_head(folder_of(2)).in_shares());
  save(4, cut_of(manifest_, 2, 2), 2);
  EXPECT_EQ(checkpoint_steps(path_), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(load_latest_checkpoint(path_, manifest_)->checkpoint.step, 4);
}

TEST_F(ShareCheckpointTest, OneErrorNamesEveryFileThatCannotBeUsed) {
  save(1, cut_of(manifest_, 4, 1));
  fs::path other = folder_.path() / "other";
  std::swap(path_, other);
  save(2, cut_of(manifest_, 4, 1));
  std::swap(path_, other);
  const fs::path one = folder_of(1);
  fs::remove(one / "rank-00.state");
  fs::resize_file(one / "rank-01.state", fs::file_size(one / "rank-01.state") - 1);
  // Of another step, with as many bytes.
  fs::copy_file(other / checkpoint_name(2) / "rank-03.state", one / "rank-03.state", fs::copy_options::overwrite_existing);
  expect_error(ErrorCode::corrupt_file,
               {"of the 4 files of ranks", "3 cannot be used", "rank-00.state is missing", "rank-01.state has", "bytes and not",
                "rank-03.state is damaged, or of another checkpoint"},
               [&] { ShareCheckpoint(one, manifest_); });
  expect_error(ErrorCode::corrupt_file, {"none of the 1 checkpoints", "rank-00.state is missing"}, [&] { load_latest_checkpoint(path_, manifest_); });
}

TEST_F(ShareCheckpointTest, ADamagedBlockIsNamedByWhoReadsIt) {
  save(1, cut_of(manifest_, 1, 2));
  const fs::path file = folder_of(1) / "rank-01.state";
  const std::string whole = read_file(file, 1 << 24);
  // The second half of up.weight is rank 1's.
  const auto reads = [&](std::int64_t half) {
    ShareCheckpoint checkpoint(folder_of(1), manifest_);
    RowsPlace place = all_rows_of(manifest_.parameter(1), 1);
    place.first = half * 4;
    place.rows = 4;
    checkpoint.read(StatePart::master, place);
  };
  for (const std::size_t at : {std::size_t{0}, whole.size() / 3}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_file_atomic(file, damaged);
    expect_error(ErrorCode::corrupt_file, {"rank-01.state", "is damaged: the block of"}, [&] { load_checkpoint(folder_of(1), manifest_); });
    EXPECT_NO_THROW(reads(0));  // of the other rank's file
  }
  for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 50) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    write_file_atomic(file, damaged);
    EXPECT_THROW(load_checkpoint(folder_of(1), manifest_), Error) << at;
    write_file_atomic(file, whole.substr(0, at));
    EXPECT_THROW(load_checkpoint(folder_of(1), manifest_), Error) << at;
  }
  write_file_atomic(file, whole);
  expect_state(load_checkpoint(folder_of(1), manifest_), 1);
}

TEST_F(ShareCheckpointTest, WhatNoFileHasIsAnError) {
  Cut cut = cut_of(manifest_, 1, 2);
  cut[1].erase(cut[1].begin());  // the second half of the embedding
  save(1, cut);
  expect_error(ErrorCode::corrupt_file, {"of the 180 elements of parameter 0 (master)"}, [&] { load_checkpoint(folder_of(1), manifest_); });
}

TEST_F(ShareCheckpointTest, AnotherModelIsRefused) {
  save(1, cut_of(manifest_, 1, 2));
  Manifest other;
  other.table("embed.weight", 9, 20);
  other.matrix("down.weight", 133, 200);
  expect_error(ErrorCode::corrupt_file, {"up.weight", "does not have in this place"}, [&] { load_checkpoint(folder_of(1), other); });
  Manifest smaller;
  smaller.table("embed.weight", 8, 20);
  expect_error(ErrorCode::corrupt_file, {"embed.weight", "another shape"}, [&] { load_checkpoint(folder_of(1), smaller); });
}

TEST_F(ShareCheckpointTest, AFileThatIsNotThereIsNotCommitted) {
  save(1, cut_of(manifest_, 1, 2));
  const TrainingCheckpoint c = state_of(2);
  const auto half = [&] {
    AtomicFolder folder(path_ / checkpoint_name(2), AtomicFolder::Existing::replace);
    std::vector<ShareFileEnd> ends(2, write_share_file(folder.partial(), 0, {"dp=2", 2}, pieces_of(c, cut_of(manifest_, 1, 2)[0])));
    commit_shares(folder, path_, {.step = 2}, "dp=2", ends, {});
  };
  expect_error(ErrorCode::not_found, {"lacks rank-01.state", "a disk that all hosts share"}, half);
  EXPECT_EQ(load_latest_checkpoint(path_, manifest_)->checkpoint.step, 1);
  EXPECT_EQ(checkpoint_steps(path_), std::vector<std::int64_t>{1});
}

TEST_F(ShareCheckpointTest, KilledOrRefusedAtAnyPointLeavesAValidOne) {
  struct Case {
    std::string point;
    int passes;
  };
  // Two ranks' files, state.json and latest pass file.*, in this order.
  const std::vector<Case> cases = {{"checkpoint:write", 2}, {"checkpoint:fsync", 2}, {"checkpoint:rename", 1}, {"file.opened", 4},   {"file.written", 4},
                                   {"file.synced", 4},      {"file.renamed", 4},     {"folder.written", 1},    {"folder.synced", 1}, {"folder.renamed", 1}};
  const Cut cut = cut_of(manifest_, 1, 2);
  std::int64_t step = 1;
  save(step, cut);
  for (const auto& [point, passes] : cases)
    for (int pass = 1; pass <= passes; ++pass)
      for (const char* variable : {"LOCKSTEP_KILL_AT", "LOCKSTEP_FAIL_AT"}) {
        const bool kill = std::string(variable) == "LOCKSTEP_KILL_AT";
        const int status = in_child([&] {
          setenv(variable, fmt::format("{}:{}", point, pass).c_str(), 1);
          save(step + 1, cut);
        });
        EXPECT_TRUE(kill ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 3) << point << " " << pass;
        const std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(path_, manifest_);
        ASSERT_TRUE(loaded);
        EXPECT_TRUE(loaded->notes.empty()) << loaded->notes[0];
        EXPECT_EQ(loaded->checkpoint.step, point == "file.renamed" && pass == 4 ? step + 1 : step) << point << " " << pass;
        expect_state(loaded->checkpoint, loaded->checkpoint.step);
        save(step + 1, cut);  // a leftover is no obstacle, and goes
        ++step;
        for (const auto& entry : fs::directory_iterator(path_)) EXPECT_EQ(entry.path().filename().string().find(".partial"), std::string::npos) << entry.path();
      }
}

TEST_F(ShareCheckpointTest, AFullDiskLeavesTheLastOne) {
  const Cut cut = cut_of(manifest_, 1, 2);
  save(1, cut);
  const int status = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{3000, 3000};
    setrlimit(RLIMIT_FSIZE, &limit);
    save(2, cut);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
  EXPECT_EQ(load_latest_checkpoint(path_, manifest_)->checkpoint.step, 1);
  EXPECT_FALSE(fs::exists(path_ / "step-000002.lockstep.partial"));
}

}  // namespace
}  // namespace lockstep
