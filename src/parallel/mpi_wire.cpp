#include "parallel/mpi_wire.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"
#include "parallel/module_file.h"
#include "parallel/mpi/mpi_module.h"

namespace lockstep {

namespace {
class MpiWire final : public Wire {
 public:
  explicit MpiWire(const LockstepMpi& module) : module_(module) {
    if (module_.start() != 0) refuse();
  }
  int process() const override { return module_.process(); }
  int processes() const override { return module_.processes(); }
  std::string host() const override { return module_.host(); }
  Request send(int to, const void* data, std::size_t bytes) override { return begun(module_.send(to, data, bytes)); }
  Request receive(int from, void* data, std::size_t bytes) override { return begun(module_.receive(from, data, bytes)); }
  bool done(Request request) override {
    const int state = module_.done(request);
    if (state < 0) refuse();
    return state == 1;
  }
  void stop(bool clean) override { module_.stop(clean ? 1 : 0); }

 private:
  [[noreturn]] void refuse() const { fail(ErrorCode::io, "Open MPI says: {}", module_.error()); }
  Request begun(void* request) const {
    if (!request) refuse();
    return request;
  }
  const LockstepMpi& module_;
};
}  // namespace

bool started_by_mpi() { return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_RANK"); }

std::unique_ptr<Wire> load_mpi_wire() {
  // The library's own components look for its symbols, so they are everybody's.
  const std::string file = module_file("lockstep_mpi.so");
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    fail(ErrorCode::unsupported, "transport is 'mpi', and its module cannot be loaded ({}); it is built where Open MPI is (libopenmpi-dev)", dlerror());
  const auto symbol = reinterpret_cast<const LockstepMpi* (*)()>(dlsym(library, kLockstepMpiSymbol));
  const LockstepMpi* module = symbol ? symbol() : nullptr;
  if (!module || module->abi != kLockstepMpiAbi) fail(ErrorCode::unsupported, "'{}' is of another build, allowed is this program's own", file);
  return std::make_unique<MpiWire>(*module);
}

}  // namespace lockstep
