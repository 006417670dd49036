// Memory runs out on one rank, at one allocation after another: one error, no rank waits for ever, and either the trainer goes on to
// the bits of an undisturbed one or it says that a checkpoint must be restored.
// Allocations of this program come through here: operator new, and what the pools take of the system.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <thread>

#include "base/error.h"
#include "train/adapter_trainer.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

#if !defined(__SANITIZE_ADDRESS__)
namespace {
enum class Victim { nobody, caller, others };
std::atomic<Victim> victim{Victim::nobody};
std::atomic<std::int64_t> allocations{0}, fails_at{-1};
std::thread::id caller_thread;

bool refuses() {
  const Victim who = victim.load(std::memory_order_acquire);
  if (who == Victim::nobody || (std::this_thread::get_id() == caller_thread) != (who == Victim::caller)) return false;
  return allocations.fetch_add(1) == fails_at.load();
}
}  // namespace

void* operator new(std::size_t size) {
  void* const block = refuses() ? nullptr : std::malloc(size > 0 ? size : 1);
  if (!block) throw std::bad_alloc();
  return block;
}
// Not inlined: the compiler would see free() meet operator new.
__attribute__((noinline)) void operator delete(void* block) noexcept { std::free(block); }
__attribute__((noinline)) void operator delete(void* block, std::size_t) noexcept { std::free(block); }

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  void* block = nullptr;
  return refuses() || posix_memalign(&block, alignment, size) != 0 ? nullptr : block;
}
#if !defined(__SANITIZE_THREAD__)  // ThreadSanitizer starts by mmap, before instrumented code can run
extern "C" void* mmap(void* address, std::size_t size, int protection, int flags, int descriptor, off_t offset) noexcept {
  if (refuses()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
}
#endif

namespace lockstep {
namespace {

// Memory of `who` runs out at allocation number `at` of what follows; counts them.
class OutOfMemory {
 public:
  OutOfMemory(Victim who, std::int64_t at) {
    allocations = 0;
    fails_at = at;
    caller_thread = std::this_thread::get_id();
    victim.store(who, std::memory_order_release);
  }
  ~OutOfMemory() { victim = Victim::nobody; }
  std::int64_t counted() const { return allocations; }
};

struct MemoryCase {
  RankLayout ranks;
  std::string profile = "cpu-f32";
  bool in_pieces = false;
};

std::vector<TrainSequence> short_sequences(std::int64_t vocabulary) {
  std::vector<TrainSequence> data = sequences(vocabulary, 4);
  data.erase(data.begin() + 1);
  return data;
}

class MemoryRunsOut {
 public:
  explicit MemoryRunsOut(const MemoryCase& c)
      : case_(c),
        bench_(kLlama),
        data_(short_sequences(bench_.model->facts().vocabulary)),
        runtime_({.threads = 1}, bench_.model, profile_by_name(c.profile), 600),
        trainer_(runtime_, bench_.masters, {.ranks = c.ranks}),
        start_(trainer_.state().all()) {
    for (const TrainSequence& s : data_)
      for (const float w : s.weights) loss_.normaliser += w;
    step();
    want_ = trainer_.state().all();
  }

  // Every so manieth allocation of one step fails, once.
  void sweep(Victim who, int times) {
    trainer_.restore(start_);
    std::int64_t count = 0;
    {
      const OutOfMemory never(who, -1);
      step();
      count = never.counted();
    }
    ASSERT_GT(count, 50);
    int refused = 0, restored = 0;
    for (int i = 0; i < times; ++i) {
      const std::int64_t at = count * i / times;
      SCOPED_TRACE(fmt::format("{}, {}, allocation {} of {}", case_.ranks.text(), case_.profile, at, count));
      trainer_.restore(start_);
      const bool failed = fails(who, at);
      refused += failed;
      if (!failed) continue;  // the number differs a little from run to run, as threads meet
      if (usable()) {
        if (trainer_.step() == 0) step();  // it is as if it had not begun
      } else {
        ++restored;
        trainer_.restore(start_);
        step();
      }
      expect_undisturbed();
    }
    EXPECT_GT(refused, times * 3 / 4);
    EXPECT_GT(restored, 0);  // both ways out were taken
    EXPECT_LT(restored, refused);
  }

 private:
  void step() {
    if (case_.in_pieces) {
      trainer_.abandon_gradients();  // it is still open when memory ran out between its pieces
      trainer_.begin_batch({.sequences = 3}, loss_);
      trainer_.add({2}, {data_[2]});
      trainer_.add({0, 1}, {data_[0], data_[1]});
      trainer_.finish_batch();
    } else {
      trainer_.forward_backward(data_, loss_);
    }
    trainer_.optim_step({.weight_decay = 0.1});
  }
  // Whether an error came, which must be one that says what it is.
  bool fails(Victim who, std::int64_t at) {
    try {
      const OutOfMemory now(who, at);
      step();
    } catch (const std::bad_alloc&) {
      return true;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::resource_exhausted) << e.what();  // never "another rank failed"
      return true;
    }
    return false;
  }
  bool usable() {
    try {
      trainer_.score({data_[0]});
      return true;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("restore a checkpoint"), std::string::npos) << e.what();
      EXPECT_THROW(trainer_.state().all(), Error);  // nothing of it can be saved
      EXPECT_THROW(trainer_.weights(), Error);
      EXPECT_THROW(trainer_.forward_backward(data_, loss_), Error);
      return false;
    }
  }
  void expect_undisturbed() {
    const TrainerState got = trainer_.state().all();
    const Manifest& manifest = bench_.model->manifest();
    EXPECT_EQ(got.step, 1);
    EXPECT_EQ(difference(manifest, got.masters, want_.masters), "");
    EXPECT_EQ(difference(manifest, got.first_moments, want_.first_moments), "");
    EXPECT_EQ(difference(manifest, got.second_moments, want_.second_moments), "");
  }

  MemoryCase case_;
  TrainBench bench_;
  std::vector<TrainSequence> data_;
  LossOptions loss_;
  Runtime runtime_;
  Trainer trainer_;
  TrainerState start_, want_;
};

TEST(AllocationFailure, OnOneRankIsOneErrorAndTheTrainerGoesOnOrAsksForACheckpoint) {
  for (const MemoryCase& c : {MemoryCase{{1, 2, 1}}, {{2, 1, 1}}, {{1, 2, 1}, "cpu-bf16w", true}, {{2, 1, 1}, "cpu-bf16w"}}) {
    MemoryRunsOut run(c);
    run.sweep(Victim::others, 40);
    run.sweep(Victim::caller, 40);
  }
}

TEST(AllocationFailure, OfASingleRank) {
  MemoryRunsOut run({{1, 1, 1}, "cpu-bf16w", true});
  run.sweep(Victim::caller, 60);
}

TEST(AllocationFailure, OfAnAdapter) {
  const TrainBench bench(kLlama);
  const std::vector<TrainSequence> data = short_sequences(bench.model->facts().vocabulary);
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
  const auto base =
      std::make_shared<FrozenBase>(runtime, make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, runtime.profile, 1), TrainerOptions{});
  const auto layout = std::make_shared<const AdapterLayout>(bench.model->manifest(), AdapterSettings{.rank = 4});
  const auto step = [&](AdapterTrainer& trainer) {
    trainer.forward_backward(data, {});
    trainer.optim_step({.weight_decay = 0.1});
  };
  AdapterTrainer clean(base, layout, initial_adapter(*layout, 1));
  const TrainerState start = clean.state().all();
  std::int64_t count = 0;
  {
    const OutOfMemory never(Victim::caller, -1);
    step(clean);
    count = never.counted();
  }
  const TrainerState want = clean.state().all();
  int refused = 0, restored = 0;
  constexpr int kTimes = 60;
  for (int i = 0; i < kTimes; ++i) {
    SCOPED_TRACE(fmt::format("allocation {} of {}", count * i / kTimes, count));
    AdapterTrainer trainer(base, layout, initial_adapter(*layout, 1));
    try {
      const OutOfMemory now(Victim::caller, count * i / kTimes);
      step(trainer);
    } catch (const std::exception&) {
      ++refused;
    }
    try {
      trainer.state().all();
    } catch (const Error& e) {
      ++restored;
      EXPECT_NE(std::string(e.what()).find("restore a checkpoint"), std::string::npos) << e.what();
      EXPECT_THROW(trainer.forward_backward(data, {}), Error);
      trainer.restore(start);
    }
    if (trainer.step() == 0) {
      trainer.abandon_gradients();
      step(trainer);
    }
    const TrainerState got = trainer.state().all();
    EXPECT_EQ(got.step, 1);
    EXPECT_EQ(difference(layout->manifest(), got.masters, want.masters), "");
    EXPECT_EQ(difference(layout->manifest(), got.first_moments, want.first_moments), "");
    EXPECT_EQ(difference(layout->manifest(), got.second_moments, want.second_moments), "");
  }
  EXPECT_GT(refused, kTimes * 3 / 4);
  EXPECT_GT(restored, 0);
  EXPECT_LT(restored, refused);
}

}  // namespace
}  // namespace lockstep
#endif
