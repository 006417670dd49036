#include "parallel/nccl_wire.h"

#include <dlfcn.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "parallel/module_file.h"
#include "parallel/nccl/nccl_module.h"

namespace lockstep {

namespace {
std::size_t bytes_of_part(const View& view) { return static_cast<std::size_t>(view.size()) * view.element_bytes; }

class NcclWire final : public DeviceWire {
 public:
  explicit NcclWire(const LockstepNccl& module) : module_(module) {}
  ~NcclWire() override {
    if (joined_) module_.leave(joined_, 1);
  }
  bool takes(const Stream& stream) const override { return stream.cuda(); }

  void join(int process, int processes, const Gather& gather, const Check& check) override {
    if (joined_) return;
    std::string id(kLockstepNcclIdBytes, '\0');
    if (process == 0 && module_.new_id(id.data()) != 0) refuse();
    id = gather(id).front();
    joined_ = module_.join(id.data(), process, processes);
    if (!joined_) refuse();
    or_give_up([&] { wait_for([this] { return begun(); }, check); });
  }

  void exchange(Stream& stream, const std::vector<Part>& sends, const std::vector<Part>& receives, const Check& check) override {
    if (!joined_) fail(ErrorCode::internal, "GPUs exchange before their processes have joined");
    CudaStream& gpu = *stream.cuda();
    std::vector<Staged> staged;
    std::vector<LockstepNcclMove> moves;
    const auto add = [&](const Part& part, bool receives_it) {
      if (part.view.size() == 0) return;
      const Staged& one = staged.emplace_back(pool_, part.view);
      if (!receives_it) one.fill(gpu);
      moves.push_back({CudaStream::place_of(one.flat), bytes_of_part(part.view), part.process, receives_it ? 1 : 0});
    };
    staged.reserve(sends.size() + receives.size());
    for (const Part& part : sends) add(part, false);
    const std::size_t first_received = staged.size();
    for (const Part& part : receives) add(part, true);
    if (moves.empty()) return;
    or_give_up([&] {
      if (module_.exchange(joined_, moves.data(), moves.size(), gpu.handle()) != 0) refuse();
      wait_for([&] { return begun() && gpu.finished(); }, check);
    });
    for (std::size_t i = first_received; i < staged.size(); ++i) staged[i].empty(gpu);
    gpu.synchronize();
  }

  void give_up() override {
    if (joined_) module_.leave(joined_, 0);
    joined_ = nullptr;
  }

 private:
  // A view as NCCL takes it: without gaps, elsewhere where it has some.
  class Staged {
   public:
    Staged(CudaMemoryPool& pool, const View& view) : flat(view), view_(view) {
      if (view.stride == view.cols || view.rows == 1) return;
      bytes_ = bytes_of_part(view);
      pool_ = &pool;
      block_ = pool.take(bytes_);
      flat.address = reinterpret_cast<std::uint64_t>(block_) | kDeviceTag;
      flat.stride = view.cols;
    }
    Staged(Staged&& other) noexcept : flat(other.flat), view_(other.view_), pool_(other.pool_), block_(other.block_), bytes_(other.bytes_) {
      other.block_ = nullptr;
    }
    Staged& operator=(Staged&&) = delete;
    ~Staged() {
      if (block_) pool_->give(block_, bytes_);
    }
    void fill(CudaStream& gpu) const {
      if (block_) gpu.copy(flat, view_);
    }
    void empty(CudaStream& gpu) const {
      if (block_) gpu.copy(view_, flat);
    }
    View flat;

   private:
    View view_;
    CudaMemoryPool* pool_ = nullptr;
    void* block_ = nullptr;
    std::size_t bytes_ = 0;
  };

  [[noreturn]] void refuse() const { fail(ErrorCode::io, "NCCL says: {}", module_.error()); }
  bool begun() const {
    const int state = module_.state(joined_);
    if (state < 0) refuse();
    return state == 1;
  }
  // What is under way when it fails is given up before memory that it uses goes away.
  template <class F>
  void or_give_up(const F& work) {
    try {
      work();
    } catch (...) {
      give_up();
      throw;
    }
  }
  template <class F>
  static void wait_for(const F& done, const Check& check) {
    for (int turns = 0; !done(); ++turns) {
      check();
      if (turns < 1000) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  const LockstepNccl& module_;
  void* joined_ = nullptr;
  CudaMemoryPool pool_;
};
}  // namespace

std::unique_ptr<DeviceWire> load_nccl_wire() {
  cuda_device();
  const std::string file = module_file("lockstep_nccl.so");
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(ErrorCode::unsupported, "transport is 'nccl', and its module cannot be loaded ({}); it is built where nccl.h and libnccl are, beside a CUDA toolkit",
         dlerror());
  const auto symbol = reinterpret_cast<const LockstepNccl* (*)()>(dlsym(library, kLockstepNcclSymbol));
  const LockstepNccl* module = symbol ? symbol() : nullptr;
  if (!module || module->abi != kLockstepNcclAbi) fail(ErrorCode::unsupported, "'{}' is of another build, allowed is this program's own", file);
  return std::make_unique<NcclWire>(*module);
}

}  // namespace lockstep
