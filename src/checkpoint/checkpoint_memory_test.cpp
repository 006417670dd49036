// Reading a model takes what the plan says. Writing one down when memory is short: it stands in memory a few parameters at a time, and an allocation that
// fails, whichever it is, is one error that leaves the checkpoint before it. Allocations of this program come through here.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/error.h"
#include "checkpoint/json_file.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/reading_memory.h"
#include "checkpoint/safetensors_test_tools.h"
#include "checkpoint/training_checkpoint.h"
#include "model/runtime.h"

namespace {
std::atomic<bool> watched{false};
std::atomic<std::int64_t> live_bytes{0}, most_bytes{0}, allocation_count{0}, refused_at{-1};
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(std::size_t size) {
  const bool refuse = watched && allocation_count.fetch_add(1) == refused_at;
  void* const block = refuse ? nullptr : std::malloc(size > 0 ? size : 1);
  if (!block) throw std::bad_alloc();
  const std::int64_t now = live_bytes += static_cast<std::int64_t>(malloc_usable_size(block));
  if (watched && now > most_bytes) most_bytes = now;
  return block;
}
// Not inlined: the compiler would see free() meet operator new.
__attribute__((noinline)) void operator delete(void* block) noexcept {
  if (block) live_bytes -= static_cast<std::int64_t>(malloc_usable_size(block));
  std::free(block);
}
__attribute__((noinline)) void operator delete(void* block, std::size_t) noexcept { operator delete(block); }

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class Watch {
 public:
  explicit Watch(std::int64_t refuse) {
    allocation_count = 0;
    refused_at = refuse;
    most_bytes = 0;
    begin_ = live_bytes;
    watched = true;
  }
  ~Watch() { watched = false; }
  std::int64_t count() const { return allocation_count; }
  std::int64_t most() const { return most_bytes - begin_; }

 private:
  std::int64_t begin_ = 0;
};

// Forty layers, whose names are not in the order of the manifest; keys and values of a layer are one tensor.
Manifest layered_manifest() {
  Manifest m;
  m.table("embed.weight", 300, 64);
  for (int layer = 0; layer < 40; ++layer) {
    const ParameterId keys = m.add({fmt::format("{} keys", layer), ParameterLayout::packed, 1, 64, 64}),
                      values = m.add({fmt::format("{} values", layer), ParameterLayout::packed, 1, 64, 64});
    m.add_file({fmt::format("layers.{}.kv.weight", layer), {128, 64}, false, {{keys, 0, 0, 64, true}, {values, 0, 64, 64, true}}});
    m.matrices(fmt::format("experts {}", layer), 4, 64, 64, [&](std::int64_t e) { return fmt::format("layers.{}.experts.{}.weight", layer, e); });
  }
  return m;
}

std::vector<float> values_of(const Manifest& manifest, StatePart part, std::size_t i, std::int64_t step) {
  std::vector<float> values(static_cast<std::size_t>(manifest.parameters()[i].size()));
  for (std::size_t k = 0; k < values.size(); ++k)
    values[k] = static_cast<float>(step * 1000 + static_cast<std::int64_t>(i) * 3 + static_cast<int>(part)) + static_cast<float>(k) / 4096;
  return values;
}

class CheckpointMemory : public testing::Test {
 protected:
  CheckpointMemory() { fs::remove_all(folder_); }
  ~CheckpointMemory() override { fs::remove_all(folder_); }
  void save(std::int64_t step) {
    save_checkpoint(folder_, manifest_, {.step = step, .profile_digest = "0123"},
                    {[](StatePart, std::size_t) { return true; }, [&](StatePart part, std::size_t i) { return values_of(manifest_, part, i, step); }},
                    {.keep_last = 1});
  }
  void expect_step(std::int64_t step) {
    const std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(folder_, manifest_);
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->checkpoint.step, step);
    for (std::size_t i = 0; i < manifest_.parameters().size(); ++i) {
      ASSERT_EQ(loaded->checkpoint.masters[i], values_of(manifest_, StatePart::master, i, step)) << i;
      ASSERT_EQ(loaded->checkpoint.second_moments[i], values_of(manifest_, StatePart::second_moment, i, step)) << i;
    }
  }
  const Manifest manifest_ = layered_manifest();
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("lockstep-checkpoint-memory-{}", getpid());
};

TEST_F(CheckpointMemory, AFewParametersStandInMemoryAndThePlanSaysHowMany) {
  const std::int64_t planned = checkpoint_write_bytes(manifest_);
  std::int64_t all = 0;
  for (const Parameter& p : manifest_.parameters()) all += 3 * p.size() * static_cast<std::int64_t>(sizeof(float));
  EXPECT_GT(all, 20 * planned);
  save(1);
  const Watch watch(-1);
  save(2);
  constexpr std::int64_t kNames = std::int64_t{1} << 20;  // of tensors, the header, a file's buffer
  EXPECT_LE(watch.most(), planned + kNames);
  EXPECT_GE(watch.most(), planned);
}

TEST_F(CheckpointMemory, AnyAllocationThatFailsIsOneErrorAndTheCheckpointBeforeStays) {
  save(1);
  std::int64_t count = 0;
  {
    const Watch watch(-1);
    save(1);
    count = watch.count();
  }
  ASSERT_GT(count, 500);
  constexpr int kTimes = 60;
  int refused = 0;
  for (int i = 0; i < kTimes; ++i) {
    SCOPED_TRACE(fmt::format("allocation {} of {}", count * i / kTimes, count));
    bool failed = false;
    try {
      const Watch watch(count * i / kTimes);
      save(2);
    } catch (const std::exception&) {  // bad_alloc, or an Error about it
      failed = true;
    }
    refused += failed;
    if (failed && checkpoint_steps(folder_) == std::vector<std::int64_t>{1}) expect_step(1);
    else expect_step(2);  // it failed after the new one was in place
    save(2);
    expect_step(2);
    fs::remove_all(folder_);
    save(1);
  }
  EXPECT_GT(refused, kTimes * 3 / 4);
}

TEST(ReadingMemory, IsWhatThePlanSays) {
  Json config = read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/gpt_oss/window/config.json");
  config["hidden_size"] = 1024;
  config["intermediate_size"] = 512;
  config["num_hidden_layers"] = 1;
  config["layer_types"] = {"full_attention"};
  const std::shared_ptr<const Model> model = make_model(config);
  const TemporaryFolder folder;
  save_model_folder(folder.path() / "m", *model, initial_weights(model->manifest(), 3, 0.1), {.dtype = DType::bf16});
  const auto reader = ModelReader::open(folder.path() / "m");
  const Profile& profile = profile_by_name("cpu-bf16w");
  Runtime runtime(BackendOptions{.threads = 2}, reader->model(), profile);
  const Watch watch(-1);  // buffers are the pool's, which is not watched
  const auto weights = reader->weight_set(runtime.backend, profile, 0);
  constexpr std::int64_t kNames = std::int64_t{1} << 20, kExpert = std::int64_t{1024} * 512 * 4;
  EXPECT_LE(watch.most(), reading_bytes(model->manifest(), 2) + kNames);
  EXPECT_GE(watch.most(), kExpert);
  EXPECT_LT(reading_bytes(model->manifest(), 1), 2 * kExpert);  // all columns of its tensor, its own and what they become would be four
}

TEST(ReadingMemory, OfMastersIsSomeRowsBesideThem) {
  Json config = read_json_file(fs::path(LOCKSTEP_SOURCE_DIR) / "tests/golden/gpt_oss/window/config.json");
  config["hidden_size"] = 1024;
  config["intermediate_size"] = 512;
  config["vocab_size"] = 8192;
  config["num_hidden_layers"] = 1;
  config["layer_types"] = {"full_attention"};
  const std::shared_ptr<const Model> model = make_model(config);
  const WeightImages images = initial_weights(model->manifest(), 3, 0.1);
  const TemporaryFolder folder;
  save_model_folder(folder.path() / "m", *model, images, {.dtype = DType::f32});
  const auto reader = ModelReader::open(folder.path() / "m");
  std::int64_t masters = 0;
  for (const Parameter& p : model->manifest().parameters()) masters += p.size() * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t planned = masters_reading_bytes(model->manifest());
  constexpr std::int64_t kNames = std::int64_t{1} << 20, kTable = std::int64_t{8192} * 1024 * 4;
  WeightImages read;
  {
    const Watch watch(-1);
    read = reader->masters();
    EXPECT_LE(watch.most(), masters + planned + kNames);
    EXPECT_GE(watch.most(), masters);
  }
  EXPECT_EQ(read, images);
  EXPECT_LT(planned + kNames, kTable / 2);  // a whole tensor would be more
}

}  // namespace
}  // namespace lockstep
#endif
