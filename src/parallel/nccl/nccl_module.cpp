// HAS NOT RUN: written against NCCL's public header (2.18 and later), compiled where that header is, and run on no GPUs yet (docs/cuda.md).
// Bytes between the GPUs of processes by NCCL's send and receive. Communicators do not block (ncclConfig_t::blocking): a process that is lost would leave the
// others inside a call for ever.
#include "parallel/nccl/nccl_module.h"

#include <nccl.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

namespace {

static_assert(kLockstepNcclIdBytes == sizeof(ncclUniqueId));
constexpr auto kLongestLeave = std::chrono::seconds(10);

std::string last_error;

struct Joined {
  ncclComm_t communicator = nullptr;
};

ncclComm_t of(void* joined) { return static_cast<Joined*>(joined)->communicator; }

// Whether the call was made; what it began may still be under way.
bool begun(ncclResult_t result, const char* call, ncclComm_t communicator = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) return true;
  last_error = std::string(call) + ": " + ncclGetErrorString(result);
  if (const char* more = ncclGetLastError(communicator); more && *more) last_error += std::string(" (") + more + ")";
  return false;
}

int new_id(void* id) {
  ncclUniqueId made;
  if (!begun(ncclGetUniqueId(&made), "ncclGetUniqueId")) return -1;
  std::memcpy(id, &made, sizeof(made));
  return 0;
}

void* join(const void* id, int process, int processes) {
  ncclUniqueId told;
  std::memcpy(&told, id, sizeof(told));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  auto* joined = new Joined;
  if (begun(ncclCommInitRankConfig(&joined->communicator, processes, told, process, &config), "ncclCommInitRankConfig")) return joined;
  delete joined;
  return nullptr;
}

int exchange(void* joined, const LockstepNcclMove* moves, std::size_t count, void* stream) {
  const ncclComm_t communicator = of(joined);
  const auto in_order_of = static_cast<cudaStream_t>(stream);
  if (!begun(ncclGroupStart(), "ncclGroupStart", communicator)) return -1;
  bool fine = true;
  for (std::size_t i = 0; i < count && fine; ++i) {
    const LockstepNcclMove& move = moves[i];
    fine = move.receives ? begun(ncclRecv(move.data, move.bytes, ncclUint8, move.process, communicator, in_order_of), "ncclRecv", communicator)
                         : begun(ncclSend(move.data, move.bytes, ncclUint8, move.process, communicator, in_order_of), "ncclSend", communicator);
  }
  const ncclResult_t ended = ncclGroupEnd();  // also of a group that failed: the next one begins anew
  if (!fine) return -1;
  return begun(ended, "ncclGroupEnd", communicator) ? 0 : -1;
}

int state(void* joined) {
  ncclResult_t result = ncclSuccess;
  if (!begun(ncclCommGetAsyncError(of(joined), &result), "ncclCommGetAsyncError", of(joined))) return -1;
  if (!begun(result, "what was begun", of(joined))) return -1;
  return result == ncclInProgress ? 0 : 1;
}

void leave(void* joined, int clean) {
  const ncclComm_t communicator = of(joined);
  bool finished = false;
  if (clean && begun(ncclCommFinalize(communicator), "ncclCommFinalize", communicator)) {
    const auto end = std::chrono::steady_clock::now() + kLongestLeave;
    for (int now = state(joined); now >= 0 && std::chrono::steady_clock::now() < end; now = state(joined)) {
      finished = now == 1;
      if (finished) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (finished) ncclCommDestroy(communicator);
  else ncclCommAbort(communicator);
  delete static_cast<Joined*>(joined);
}

const char* error() { return last_error.c_str(); }

const LockstepNccl module{kLockstepNcclAbi, new_id, join, exchange, state, leave, error};

}  // namespace

extern "C" __attribute__((visibility("default"))) const LockstepNccl* lockstep_nccl_module() { return &module; }
