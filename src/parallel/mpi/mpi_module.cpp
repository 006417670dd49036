// Bytes between processes by Open MPI. Errors are returned, never handled by the library (MPI_ERRORS_RETURN).
#include "parallel/mpi/mpi_module.h"

#define OMPI_SKIP_MPICXX  // the C++ classes, which want a library more
#include <mpi.h>

#include <algorithm>
#include <string>
#include <vector>

namespace {

constexpr int kTag = 1;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;  // of one message: MPI counts with an int

std::string last_error;
std::string host_name;

struct Parts {
  std::vector<MPI_Request> requests;
};

bool good(int code, const char* call) {
  if (code == MPI_SUCCESS) return true;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  last_error = std::string(call) + ": " + std::string(text, static_cast<std::size_t>(length));
  return false;
}

int start() {
  int given = 0, was = 0;
  if (!good(MPI_Initialized(&was), "MPI_Initialized")) return -1;
  if (!was && !good(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &given), "MPI_Init_thread")) return -1;
  if (!was && given < MPI_THREAD_SERIALIZED) {
    last_error = "MPI_Init_thread: calls from several threads in turn (MPI_THREAD_SERIALIZED) are not offered";
    return -1;
  }
  if (!good(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler")) return -1;
  char name[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  if (!good(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name")) return -1;
  host_name.assign(name, static_cast<std::size_t>(length));
  return 0;
}

int process() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int processes() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

const char* host() { return host_name.c_str(); }

// begin(part's address, its bytes, its request) of every part of so many bytes.
template <class F>
void* in_parts(std::size_t bytes, const F& begin) {
  auto* parts = new Parts;
  for (std::size_t at = 0; at < bytes; at += kMostBytes) {
    parts->requests.push_back(MPI_REQUEST_NULL);
    if (begin(at, static_cast<int>(std::min(kMostBytes, bytes - at)), &parts->requests.back())) continue;
    delete parts;
    return nullptr;
  }
  return parts;
}

void* send(int to, const void* data, std::size_t bytes) {
  return in_parts(bytes, [&](std::size_t at, int count, MPI_Request* request) {
    return good(MPI_Isend(static_cast<const char*>(data) + at, count, MPI_BYTE, to, kTag, MPI_COMM_WORLD, request), "MPI_Isend");
  });
}

void* receive(int from, void* data, std::size_t bytes) {
  return in_parts(bytes, [&](std::size_t at, int count, MPI_Request* request) {
    return good(MPI_Irecv(static_cast<char*>(data) + at, count, MPI_BYTE, from, kTag, MPI_COMM_WORLD, request), "MPI_Irecv");
  });
}

int done(void* request) {
  auto* parts = static_cast<Parts*>(request);
  int all = 0;
  const bool fine = good(MPI_Testall(static_cast<int>(parts->requests.size()), parts->requests.data(), &all, MPI_STATUSES_IGNORE), "MPI_Testall");
  if (fine && !all) return 0;
  delete parts;
  return fine ? 1 : -1;
}

void stop(int clean) {
  if (clean) MPI_Finalize();
  else MPI_Abort(MPI_COMM_WORLD, 1);
}

const char* error() { return last_error.c_str(); }

const LockstepMpi module{kLockstepMpiAbi, start, process, processes, host, send, receive, done, stop, error};

}  // namespace

extern "C" __attribute__((visibility("default"))) const LockstepMpi* lockstep_mpi_module() { return &module; }
