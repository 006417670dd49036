// The host executor provides what GPU threads may rely on, and detects what they may not.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/grid.h"
#include "kernels/kernel_test_tools.h"
#include "numerics/isa/scalar.h"

namespace lockstep::cuda_host {
namespace {

class NoScratch : public CudaScratch {
 public:
  void* take(int, std::size_t) override { fail(ErrorCode::internal, "no scratch here"); }
};

template <class Body>
void run_blocks(std::int64_t blocks, int threads, const Body& body, std::size_t shared_bytes = 0) {
  NoScratch scratch;
  Grid(nullptr, scratch).run(blocks, threads, body, shared_bytes);
}

template <class F>
std::string error_of(const F& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// Every block turns its part of x around, through shared memory.
struct TurnAround {
  static constexpr bool kCooperates = true;
  const int* x;
  int* y;
  bool waits;
  void operator()(const Thread& t) const {
    int* mine = t.shared<int>();
    const std::int64_t at = t.block() * t.count() + t.index();
    mine[t.index()] = x[at];
    if (waits) t.sync();
    y[at] = mine[t.count() - 1 - t.index()];
  }
};

TEST(HostExecutor, ABarrierLetsEveryThreadSeeWhatTheOthersWrote) {
  std::vector<int> x(3 * 96), y(x.size());
  std::iota(x.begin(), x.end(), 1);
  run_blocks(3, 96, TurnAround{x.data(), y.data(), true}, 96 * sizeof(int));
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i / 96 * 96 + 95 - i % 96]) << i;
  // Control: without the barrier the first threads read junk.
  run_blocks(3, 96, TurnAround{x.data(), y.data(), false}, 96 * sizeof(int));
  EXPECT_EQ(y[0], -1);
}

struct GroupSums {
  static constexpr bool kCooperates = true;
  const float* x;
  float* y;
  void operator()(const Thread& t) const {
    const std::int64_t at = t.block() * t.count() + t.index();
    y[at] = tree_sum(t, x[at]);
  }
};

TEST(HostExecutor, TheTreeOfAGroupIsThatOfTheVector) {
  const std::vector<float> x = random_floats(2 * 64, 3, -1e6, 1e6);
  std::vector<float> y(x.size());
  run_blocks(2, 64, GroupSums{x.data(), y.data()});
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(float_bits(y[i]), float_bits(ScalarVec::load(x.data() + i / 16 * 16).tree_sum())) << i;
}

struct LeavesEarly {
  static constexpr bool kCooperates = true;
  void operator()(const Thread& t) const {
    if (t.index() == 5) return;
    t.sync();
  }
};
struct ReadsAnotherGroup {
  static constexpr bool kCooperates = true;
  void operator()(const Thread& t) const { t.from(1, 16); }
};
struct WritesBeyond {
  static constexpr bool kCooperates = false;
  void operator()(const Thread& t) const { t.shared<float>()[t.index()] = 1; }
};
struct WaitsWithoutSayingSo {
  static constexpr bool kCooperates = false;
  void operator()(const Thread& t) const { t.sync(); }
};

TEST(HostExecutor, FindsWhatAGpuWouldHangOrGoWrongWith) {
  EXPECT_NE(error_of([] { run_blocks(1, 32, LeavesEarly{}); }).find("1 of 32 threads have ended and the others wait"), std::string::npos);
  EXPECT_NE(error_of([] { run_blocks(1, 32, ReadsAnotherGroup{}); }).find("a shuffle reads thread 16"), std::string::npos);
  EXPECT_NE(error_of([] { run_blocks(1, 9, WritesBeyond{}, 8 * sizeof(float)); }).find("beyond its 32 bytes"), std::string::npos);
  EXPECT_EQ(error_of([] { run_blocks(1, 8, WritesBeyond{}, 8 * sizeof(float)); }), "no error");
  EXPECT_NE(error_of([] { run_blocks(1, 8, WaitsWithoutSayingSo{}); }).find("without kCooperates"), std::string::npos);
  EXPECT_NE(error_of([] { run_blocks(1, 1025, LeavesEarly{}); }).find("1 to 1024"), std::string::npos);
}

// A body whose result depends on the order of blocks, which both orders together show.
struct LastOneWins {
  static constexpr bool kCooperates = false;
  std::int64_t* winner;
  void operator()(const Thread& t) const { *winner = t.block() * t.count() + t.index(); }
};

TEST(HostExecutor, BlocksAndThreadsCanRunBackwards) {
  std::int64_t winner = -1;
  run_blocks(4, 8, LastOneWins{&winner});
  EXPECT_EQ(winner, 31);
  set_host_order(HostOrder::descending);
  run_blocks(4, 8, LastOneWins{&winner});
  set_host_order(HostOrder::ascending);
  EXPECT_EQ(winner, 0);
}

// With a GPU it can be used; without one every way in gives the reason.
TEST(CudaDevice, IsThereOrRefusedWithTheReason) {
  const auto make = [] { Backend backend({.kind = BackendKind::cuda, .threads = 1}); };
  const std::string reason = error_of([] { cuda_device(); });
  EXPECT_EQ(error_of(make), reason);
  if (reason == "no error") {
    EXPECT_GE(cuda_device().major, 8);
    return;
  }
  EXPECT_NE(reason.find(built_with_cuda() ? "no NVIDIA GPU can be used here" : "this build has no CUDA"), std::string::npos) << reason;
  try {
    cuda_device();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
  }
}

}  // namespace
}  // namespace lockstep::cuda_host
