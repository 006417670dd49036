// Shared by kernel tests: a bench that owns a backend and its buffers, random values, a comparison against a double
// reference, and the check that a kernel gives the same bits on every instruction set, thread count and backend and
// the same hashes under every tile of the traced backend. Tests only.
//   expect_same_everywhere([&](KernelBench& b) { View y = b.zeros(3, 17); b.launch(&KernelTable::add, Add{y, ...}); b.record(y); });
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/comparison_test_tools.h"
#include "base/error.h"
#include "base/philox.h"
#include "kernels/cuda/host_executor.h"
#include "kernels/launch.h"

namespace lockstep {

// A backend, the buffers of one run (kept until it ends), and the bits it recorded.
class KernelBench {
 public:
  explicit KernelBench(const BackendOptions& options = {}) : backend_(options) {}
  Backend& backend() { return backend_; }
  bool traced() { return backend_.device().traced(); }

  View floats(const std::vector<float>& values, std::int64_t rows, std::int64_t cols, DType dtype = DType::f32) {
    return keep(backend_.device().upload(values, rows, cols, MemoryCategory::workspace, dtype));
  }
  View ints(const std::vector<std::int32_t>& values, std::int64_t rows, std::int64_t cols = 1) {
    return keep(backend_.device().upload(values, rows, cols, MemoryCategory::workspace));
  }
  View zeros(std::int64_t rows, std::int64_t cols, DType dtype = DType::f32) {
    return keep(backend_.device().allocate_zero(dtype, rows, cols, MemoryCategory::workspace));
  }
  // An output that the kernel must overwrite whole: every element is 12345.
  View junk(std::int64_t rows, std::int64_t cols) { return floats(std::vector<float>(static_cast<std::size_t>(rows * cols), 12345.0f), rows, cols); }
  template <class Arguments>
  void launch(void (*KernelTable::*kernel)(const Arguments&, ThreadPool&), const Arguments& arguments) {
    backend_.launch(kernel, arguments);
  }
  std::vector<float> read(const View& v) { return backend_.stream().read(v).get(); }
  std::vector<std::int32_t> read_ints(const View& v) { return backend_.stream().read_ints(v).get(); }

  // Takes a view's bits (and on the traced backend its hashes) into what runs are compared by.
  void record(const View& v) {
    if (v.dtype == DType::i32) {
      for (std::int32_t x : read_ints(v)) bits_.push_back(static_cast<std::uint32_t>(x));
      return;
    }
    for (float x : read(v)) bits_.push_back(std::isnan(x) ? 0x7fc00000u : float_bits(x));
    if (!traced()) return;
    const std::vector<std::uint64_t> hashes = backend_.stream().read_hashes(v).get();
    hashes_.insert(hashes_.end(), hashes.begin(), hashes.end());
  }
  const std::vector<std::uint64_t>& bits() const { return bits_; }
  const std::vector<std::uint64_t>& hashes() const { return hashes_; }

 private:
  View keep(Buffer buffer) {
    buffers_.push_back(std::move(buffer));
    return buffers_.back().view();
  }
  Backend backend_;
  std::vector<Buffer> buffers_;  // after the backend: dropped first
  std::vector<std::uint64_t> bits_, hashes_;
};

// n values uniform in [low, high), a function of `seed` alone.
inline std::vector<float> random_floats(std::int64_t n, std::uint64_t seed, double low = -1.0, double high = 1.0) {
  RandomSequence random(seed, RandomStream::fuzz);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = static_cast<float>(low + (high - low) * random.uniform());
  return values;
}
inline std::vector<std::int32_t> random_ints(std::int64_t n, std::uint64_t seed, std::int32_t bound) {
  RandomSequence random(seed, RandomStream::fuzz, 1);
  std::vector<std::int32_t> values(static_cast<std::size_t>(n));
  for (std::int32_t& v : values) v = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(bound)));
  return values;
}
inline std::vector<double> widened(const std::vector<float>& v) { return {v.begin(), v.end()}; }

// max |got - want| <= tolerance * max |want|, no NaN, same count; there may be none.
inline void expect_close(const std::vector<float>& got, const std::vector<double>& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  if (want.empty()) return;
  LargestError error;
  std::size_t at = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    if (error.add(got[i], want[i])) at = i;
  EXPECT_LE(error.absolute(), tolerance * error.scale())
      << what << ": element " << at << " is " << got[at] << ", wanted " << want[at] << ", largest " << error.scale();
}

// Count of different words and the first of them; equal sizes are asserted.
inline void expect_same_words(const std::vector<std::uint64_t>& got, const std::vector<std::uint64_t>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  std::size_t different = 0, first = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != want[i] && different++ == 0) first = i;
  EXPECT_EQ(different, 0u) << what << ": of " << got.size() << " words, first at " << first << ": " << std::hex << (got.empty() ? 0 : got[first]) << " against "
                           << (want.empty() ? 0 : want[first]);
}
inline std::vector<std::uint64_t> words_of(const std::vector<float>& values) {
  std::vector<std::uint64_t> words;
  for (float v : values) words.push_back(float_bits(v));
  return words;
}

// Central differences of f at x, of a scalar function of a vector of doubles.
template <class F>
std::vector<double> finite_difference(const F& f, std::vector<double> x, double step = 1e-5) {
  std::vector<double> gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double keep = x[i];
    x[i] = keep + step;
    const double up = f(x);
    x[i] = keep - step;
    const double down = f(x);
    x[i] = keep;
    gradient[i] = (up - down) / (2 * step);
  }
  return gradient;
}

inline bool has_gpu() {
  static const bool found = [] {
    try {
      cuda_device();
      return true;
    } catch (const Error&) {
      return false;
    }
  }();
  return found;
}

// Runs `run(KernelBench&)` on every instruction set of this machine with 1 and 2 threads, deferred, traced with every tile, and in its
// CUDA form on the host executor, in both orders of blocks and threads, and on a GPU where there is one: the recorded bits must all be equal, and so must
// the hashes of the traced runs.
template <class F>
void expect_same_everywhere(const F& run) {
  KernelBench reference({.kind = BackendKind::cpu, .isa = InstructionSet::scalar, .threads = 1});
  run(reference);
  ASSERT_FALSE(reference.bits().empty()) << "the test recorded nothing";
  const auto compare = [&](BackendKind kind, InstructionSet isa, int threads, const std::string& what) {
    KernelBench bench({.kind = kind, .isa = isa, .threads = threads});
    run(bench);
    expect_same_words(bench.bits(), reference.bits(), "bits of " + what + " against scalar");
    return bench.hashes();
  };
  std::vector<std::uint64_t> hashes;
  for (InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512}) {
    if (!machine_has(isa)) continue;
    const std::string name(instruction_set_name(isa));
    for (int threads : {1, 2}) compare(BackendKind::cpu, isa, threads, name + ", threads " + std::to_string(threads));
    if (isa == widest_instruction_set()) compare(BackendKind::deferred, isa, 2, "deferred " + name);
    const std::vector<std::uint64_t> traced = compare(BackendKind::traced, isa, 1 + static_cast<int>(isa) % 2, "traced " + name);
    if (isa == InstructionSet::scalar) hashes = traced;
    else expect_same_words(traced, hashes, "hashes of " + name + " tiles against scalar tiles");
  }
  for (const cuda_host::HostOrder order : {cuda_host::HostOrder::ascending, cuda_host::HostOrder::descending}) {
    cuda_host::set_host_order(order);
    compare(BackendKind::emulated, InstructionSet::scalar, 1,
            order == cuda_host::HostOrder::ascending ? "CUDA on the host executor" : "the same, blocks and threads in descending order");
  }
  cuda_host::set_host_order(cuda_host::HostOrder::ascending);
  if (has_gpu()) compare(BackendKind::cuda, InstructionSet::scalar, 1, "the GPU");
}

}  // namespace lockstep
