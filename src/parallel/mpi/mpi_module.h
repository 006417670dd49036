// The interface of the module lockstep_mpi.so (mpi_module.cpp) in plain C. Only the module is linked with Open MPI, and it is loaded on demand
// (mpi_wire.h), so program and wheel run where no MPI is installed. Calls come from one thread at a time.
#pragma once
#include <cstddef>

extern "C" {
struct LockstepMpi {
  int abi;         // kLockstepMpiAbi
  int (*start)();  // 0, or -1
  int (*process)();
  int (*processes)();
  const char* (*host)();
  void* (*send)(int to, const void* data, std::size_t bytes);  // null: refused
  void* (*receive)(int from, void* data, std::size_t bytes);
  int (*done)(void* request);  // 1: done, and the request is gone; 0: not yet; -1: failed, and it is gone
  void (*stop)(int clean);
  const char* (*error)();  // of the newest call that failed
};
}
inline constexpr int kLockstepMpiAbi = 1;
inline constexpr char kLockstepMpiSymbol[] = "lockstep_mpi_module";  // const LockstepMpi* lockstep_mpi_module()
