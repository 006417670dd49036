#include "checkpoint/training_checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>

#include "base/child_process_test_tools.h"
#include "base/file.h"
#include "checkpoint/json_file.h"
#include "checkpoint/safetensors_test_tools.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

Manifest small_manifest() {
  Manifest m;
  m.table("embed.weight", 9, 20);
  m.matrix("up.weight", 33, 20);
  m.vector("norm.weight", 20);
  m.untrained_vector("bias", 5);
  const ParameterId keys = m.add({"kv (keys)", ParameterLayout::packed, 2, 7, 3}), values = m.add({"kv (values)", ParameterLayout::packed, 2, 4, 7});
  m.add_file({"kv.weight", {14, 7}, false, {{keys, 0, 0, 3, true}, {values, 0, 3, 4, false}, {keys, 1, 7, 3, true}, {values, 1, 10, 4, false}}});
  m.matrices("experts", 3, 17, 4, [](std::int64_t e) { return fmt::format("experts.{}.weight", e); });
  return m;
}

TrainingCheckpoint make_checkpoint(const Manifest& manifest, std::int64_t step) {
  TrainingCheckpoint c;
  c.step = step;
  c.profile_digest = "0123";
  c.config_hash = "4567";
  c.position = {{"epoch", step / 10}, {"rng", {1, 2, 3}}};
  std::uint64_t seed = static_cast<std::uint64_t>(step) * 3;
  for (WeightImages* images : {&c.masters, &c.first_moments, &c.second_moments}) {
    images->resize(manifest.parameters().size());
    ++seed;
    for (const FileTensor& file : manifest.files()) {
      if (images != &c.masters && !manifest.parameter(file.pieces[0].parameter).trained) continue;
      std::vector<float> values(static_cast<std::size_t>(file.size()));
      NamedUniform uniform(seed, file.name);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = uniform(i);
      manifest.scatter(file, values.data(), *images);
    }
  }
  return c;
}

void expect_equal(const TrainingCheckpoint& a, const TrainingCheckpoint& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.masters, b.masters);
  EXPECT_EQ(a.first_moments, b.first_moments);
  EXPECT_EQ(a.second_moments, b.second_moments);
  EXPECT_EQ(a.profile_digest, b.profile_digest);
  EXPECT_EQ(a.config_hash, b.config_hash);
  EXPECT_EQ(a.position, b.position);
}

class TrainingCheckpointTest : public testing::Test {
 protected:
  void save(std::int64_t step, int keep_last = 3) { save_checkpoint(path_, manifest_, make_checkpoint(manifest_, step), {.keep_last = keep_last}); }
  LoadedCheckpoint load() {
    std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(path_, manifest_);
    if (!loaded) throw std::runtime_error("no checkpoint");
    expect_equal(loaded->checkpoint, make_checkpoint(manifest_, loaded->checkpoint.step));
    return std::move(*loaded);
  }
  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "checkpoints";
  Manifest manifest_ = small_manifest();
};

TEST_F(TrainingCheckpointTest, RoundTrip) {
  EXPECT_FALSE(load_latest_checkpoint(path_, manifest_));
  save(7);
  const LoadedCheckpoint loaded = load();
  EXPECT_EQ(loaded.checkpoint.step, 7);
  EXPECT_EQ(loaded.folder.filename(), "step-000007");
  EXPECT_TRUE(loaded.notes.empty());
  EXPECT_EQ(read_file(path_ / "latest", 100), "step-000007\n");
}

TEST_F(TrainingCheckpointTest, KeepsTheLastFew) {
  for (const std::int64_t step : {1, 2, 3, 4, 5}) save(step, 2);
  EXPECT_EQ(checkpoint_steps(path_), (std::vector<std::int64_t>{4, 5}));
  save(6, 0);
  save(7, 0);
  EXPECT_EQ(checkpoint_steps(path_), (std::vector<std::int64_t>{4, 5, 6, 7}));
  save(5, 0);  // back from 4: 6 and 7 are another future
  EXPECT_EQ(checkpoint_steps(path_), (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(load().checkpoint.step, 5);
  save(1000000, 1);
  EXPECT_EQ(load().folder.filename(), "step-1000000");
}

TEST_F(TrainingCheckpointTest, LatestIsTheOneToGoOnFrom) {
  for (const std::int64_t step : {1, 2, 3}) save(step);
  write_file_atomic(path_ / "latest", "step-000002\n");
  EXPECT_EQ(load().checkpoint.step, 2);
  for (const char* text : {"step-000009\n", "", "../x", "\xff"}) {
    write_file_atomic(path_ / "latest", text);
    const LoadedCheckpoint loaded = load();
    EXPECT_EQ(loaded.checkpoint.step, 3);
    ASSERT_EQ(loaded.notes.size(), 1u);
    EXPECT_NE(loaded.notes[0].find("latest"), std::string::npos);
  }
  fs::remove(path_ / "latest");
  EXPECT_EQ(load().checkpoint.step, 3);
}

TEST_F(TrainingCheckpointTest, ACorruptOneIsPassedOverWithANote) {
  for (const std::int64_t step : {1, 2, 3}) save(step);
  const fs::path state = path_ / "step-000003" / "state.safetensors";
  std::string bytes = read_file(state, 1 << 20);
  bytes.back() ^= 1;
  write_file_atomic(state, bytes);
  const LoadedCheckpoint second = load();
  EXPECT_EQ(second.checkpoint.step, 2);
  ASSERT_EQ(second.notes.size(), 1u);
  EXPECT_NE(second.notes[0].find("step-000003"), std::string::npos);
  EXPECT_NE(second.notes[0].find("SHA-256"), std::string::npos);

  Json json = read_json_file(path_ / "step-000002" / "state.json");
  json["step"] = 5;
  write_file_atomic(path_ / "step-000002" / "state.json", json_text(json));
  EXPECT_EQ(load().checkpoint.step, 1);
  fs::remove(path_ / "step-000001" / "state.json");
  expect_error(ErrorCode::corrupt_file, {"none of the 3 checkpoints"}, [&] { load(); });
}

TEST_F(TrainingCheckpointTest, EveryTruncationOfEitherFileIsAnError) {
  save(1);
  for (const char* name : {"state.json", "state.safetensors"}) {
    const fs::path file = path_ / "step-000001" / name;
    const std::string whole = read_file(file, 1 << 20);
    const std::size_t ends = whole.size() - (whole.ends_with('\n') ? 1 : 0);  // the last line's end may go
    for (std::size_t length = 0; length < ends; length += 1 + length / 16) {
      write_file_atomic(file, whole.substr(0, length));
      EXPECT_THROW(load_checkpoint(path_ / "step-000001", manifest_), Error) << name << " " << length;
    }
    write_file_atomic(file, whole);
  }
  EXPECT_EQ(load().checkpoint.step, 1);
}

TEST_F(TrainingCheckpointTest, AnotherModelIsRefused) {
  save(1);
  Manifest other = small_manifest();
  other.vector("more.weight", 3);
  expect_error(ErrorCode::corrupt_file, {"master.more.weight"}, [&] { load_checkpoint(path_ / "step-000001", other); });
  save_checkpoint(path_, other, make_checkpoint(other, 2));
  expect_error(ErrorCode::corrupt_file, {"more.weight", "does not know"}, [&] { load_checkpoint(path_ / "step-000002", manifest_); });
}

TEST_F(TrainingCheckpointTest, KilledOrRefusedAtAnyPointLeavesAValidOne) {
  // Of the points in base/file.h: file.* is passed by state.safetensors, state.json and latest, in this order.
  struct Case {
    std::string point;
    int passes;
  };
  const std::vector<Case> cases = {{"checkpoint:write", 1}, {"checkpoint:fsync", 1}, {"checkpoint:rename", 1}, {"file.opened", 3},   {"file.written", 3},
                                   {"file.synced", 3},      {"file.renamed", 3},     {"folder.written", 1},    {"folder.synced", 1}, {"folder.renamed", 1}};
  std::int64_t step = 1;
  save(step);
  for (const auto& [point, passes] : cases)
    for (int pass = 1; pass <= passes; ++pass)
      for (const char* variable : {"LOCKSTEP_KILL_AT", "LOCKSTEP_FAIL_AT"}) {
        const bool kill = std::string(variable) == "LOCKSTEP_KILL_AT";
        const int status = in_child([&] {
          setenv(variable, fmt::format("{}:{}", point, pass).c_str(), 1);
          save(step + 1);
        });
        EXPECT_TRUE(kill ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 3) << point << " " << pass;
        const LoadedCheckpoint loaded = load();
        EXPECT_TRUE(loaded.notes.empty()) << loaded.notes[0];
        const bool published = point == "file.renamed" && pass == 3;
        EXPECT_EQ(loaded.checkpoint.step, published ? step + 1 : step) << point << " " << pass;
        save(step + 1);  // a leftover is no obstacle, and goes
        ++step;
        for (const auto& entry : fs::directory_iterator(path_)) EXPECT_EQ(entry.path().filename().string().find(".partial"), std::string::npos) << entry.path();
      }
}

// A full disk, as far as a test may make one: no file may grow beyond 3000 bytes.
TEST_F(TrainingCheckpointTest, AFullDiskLeavesTheLastOne) {
  save(1);
  std::string message;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const int status = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{3000, 3000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save(2);
    } catch (const Error& e) {
      if (write(pipe_ends[1], e.what(), std::min<std::size_t>(std::string(e.what()).size(), 1000)) < 0) _exit(9);
      throw;
    }
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
  char text[1001] = {};
  ASSERT_GT(read(pipe_ends[0], text, 1000), 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  EXPECT_NE(std::string(text).find("earlier ones are intact"), std::string::npos) << text;
  EXPECT_EQ(load().checkpoint.step, 1);
  EXPECT_EQ(checkpoint_steps(path_), std::vector<std::int64_t>{1});
  EXPECT_FALSE(fs::exists(path_ / "step-000002.lockstep.partial"));
}

// About the state of the shipped model: 8 MB. The time includes fsync; the floor is for a machine that is busy.
TEST_F(TrainingCheckpointTest, SavesFast) {
  Manifest m;
  for (int i = 0; i < 20; ++i) m.matrix(fmt::format("w{}.weight", i), 256, 132);
  const TrainingCheckpoint checkpoint = make_checkpoint(m, 1);
  const auto begin = std::chrono::steady_clock::now();
  save_checkpoint(path_, m, checkpoint);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("milliseconds", static_cast<int>(seconds * 1000));
  EXPECT_LT(seconds, 5);
}

}  // namespace
}  // namespace lockstep
