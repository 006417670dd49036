// The interface of a message passing library: bytes between processes. Messages of a pair of processes arrive in the order of sending; receiver and
// sender know the size. Calls come from one thread at a time, any thread.
//   Wire::Request sent = wire.send(1, data, 64); while (!wire.done(sent)) {}
// mpi_wire.h implements it over Open MPI; tests implement it in memory.
#pragma once
#include <cstddef>
#include <string>

namespace lockstep {

class Wire {
 public:
  using Request = void*;
  virtual ~Wire() = default;
  virtual int process() const = 0;    // this one: 0 to processes() - 1
  virtual int processes() const = 0;  // 1 or more
  virtual std::string host() const = 0;
  // Both start the transfer and return at once; the caller keeps the bytes in place until done() is true. Errors of all calls: io, with the library's
  // message.
  virtual Request send(int to, const void* data, std::size_t bytes) = 0;
  virtual Request receive(int from, void* data, std::size_t bytes) = 0;
  // Whether the transfer is complete; a complete request is freed and must not be used again.
  virtual bool done(Request request) = 0;
  // The last call. `clean`: every process makes it, and every message was received. Otherwise the other processes are aborted (MPI_Abort).
  virtual void stop(bool clean) = 0;
};

}  // namespace lockstep
