// A stream: device work in order. Direct streams run it at once on the caller's thread; deferred ones queue it on another thread, as a GPU would,
// with tagged addresses that the host cannot dereference; on a GPU it is launched at once and runs when the GPU gets there.
// The only way back to the host is read(). One caller thread at a time.
//   Stream stream(BackendKind::cpu); const std::vector<float> values = stream.read(view).get();
#pragma once
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <vector>

#include "numerics/element.h"
#include "tensor/cuda_stream.h"
#include "tensor/view.h"

namespace lockstep {

// Set in every address of a deferred device: not a canonical x86-64 address, so a dereference on the host faults.
inline constexpr std::uint64_t kDeviceTag = std::uint64_t{1} << 63;

// cpu: at once. deferred: queued on another thread. traced: numbers carry the hash of their expression. counting: memory is
// counted and nothing is computed or held; what is read is 0 (for plans: the same code, the same sizes). emulated: the CUDA kernels, run on
// the CPU by the host executor (kernels/cuda/host_executor.h), queued as on deferred. cuda: a GPU.
enum class BackendKind { cpu, deferred, traced, counting, emulated, cuda };
inline std::string_view backend_kind_name(BackendKind kind) {
  constexpr std::string_view names[] = {"cpu", "deferred", "traced", "counting", "emulated", "cuda"};
  return names[static_cast<int>(kind)];
}
inline bool queued(BackendKind kind) { return kind == BackendKind::deferred || kind == BackendKind::emulated; }

class Stream {
 public:
  explicit Stream(BackendKind kind);
  ~Stream();
  // Whether work may still be running when a call returns.
  bool deferred() const { return deferred_ || cuda_; }
  CudaStream* cuda() const { return cuda_.get(); }  // of a GPU, else null

  // Runs the work after all work enqueued before. On a GPU it is called at once, and what it launches is queued. On a deferred stream an exception in
  // it is rethrown by the next synchronize() or read, and later work is dropped.
  void enqueue(std::function<void()> work);
  void synchronize();

  // Copies host values to the view (row-major, size() of them); the host array may be freed at once.
  // float values go to f32 views and, rounded, to bf16 views; on the traced backend they become constants.
  void write(const View& view, const std::vector<float>& values);
  void write(const View& view, const std::vector<std::int32_t>& values);
  void write(const View& view, const std::vector<std::uint8_t>& values);  // u8 views
  // Bytes of one view to another of the same shape and type. `from` may be of another device of this process whose work is done.
  void copy(const View& to, const View& from);
  void fill_zero(const View& view);  // all elements +0; any dtype; bins become empty

  // Values of a view once all earlier work is done. Bits are the device's (bf16 is widened exactly).
  std::future<std::vector<float>> read(const View& view);
  std::future<std::vector<std::int32_t>> read_ints(const View& view);
  std::future<std::vector<std::uint8_t>> read_bytes(const View& view);    // u8 views
  std::future<std::vector<std::uint64_t>> read_hashes(const View& view);  // traced backend only

 private:
  struct Queue;
  bool deferred_, traced_, counting_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<CudaStream> cuda_;
};

}  // namespace lockstep
