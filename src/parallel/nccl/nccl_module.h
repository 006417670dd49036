// The interface of the module lockstep_nccl.so (nccl_module.cpp) in plain C. Only the module is linked with NCCL, and it is loaded on demand (nccl_wire.h),
// so the program runs where there is none. It moves bytes between GPUs and adds nothing: none of NCCL's reductions is called. Calls come from one thread at a
// time, and none waits: state() says when what was begun is done, so that the caller sees in between whether the others are still there.
#pragma once
#include <cstddef>

extern "C" {
struct LockstepNcclMove {
  void* data;  // in this process's GPU, without gaps
  std::size_t bytes;
  int process;
  int receives;  // 0: sends
};
struct LockstepNccl {
  int abi;                  // kLockstepNcclAbi
  int (*new_id)(void* id);  // kLockstepNcclIdBytes bytes, made by one process and told to all; 0, or -1
  // Begins to join those that were told the same id, on the current GPU. Null: refused.
  void* (*join)(const void* id, int process, int processes);
  // Begins all moves at once, in the order of `stream`, a cudaStream_t; 0, or -1.
  int (*exchange)(void* joined, const struct LockstepNcclMove* moves, std::size_t count, void* stream);
  // Of what was begun: 1: it stands in its stream, or all have joined; 0: not yet; -1: it, or another process, failed.
  int (*state)(void* joined);
  void (*leave)(void* joined, int clean);  // the last call. Not clean: what is under way is dropped
  const char* (*error)();                  // of the newest call that failed
};
}
inline constexpr int kLockstepNcclAbi = 1;
inline constexpr std::size_t kLockstepNcclIdBytes = 128;
inline constexpr char kLockstepNcclSymbol[] = "lockstep_nccl_module";  // const LockstepNccl* lockstep_nccl_module()
