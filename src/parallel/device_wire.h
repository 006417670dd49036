// Memory of devices between processes that have a rank each, by a library that reads and writes it where it stands (parallel/nccl_wire.h). It moves and never
// adds; letters, records and what host memory holds go by ProcessMail.
//   wire.join(0, 2, gather, check); wire.exchange(stream, {{mine, 1}}, {{theirs, 1}}, check);
// One thread at a time. `check` is called while it waits, and throws when others have failed or are gone: then what is under way is given up.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "tensor/stream.h"

namespace lockstep {

class DeviceWire {
 public:
  struct Part {
    View view;
    int process;  // where it goes, or comes from
  };
  using Check = std::function<void()>;
  // All-gather of small host records between all processes, by process.
  using Gather = std::function<std::vector<std::string>(const std::string&)>;

  virtual ~DeviceWire() = default;
  // Whether it moves the memory of this stream's device.
  virtual bool takes(const Stream& stream) const = 0;
  // Of all processes together, before the first exchange and after give_up(); nothing happens where they are joined. Errors of all calls: io, with the
  // library's message.
  virtual void join(int process, int processes, const Gather& gather, const Check& check) = 0;
  // Sends and receives all parts; those of a pair of processes arrive in the order of sending, and both know their sizes. Ordered with `stream`: it sends what
  // earlier work wrote, and all is here when the call returns.
  virtual void exchange(Stream& stream, const std::vector<Part>& sends, const std::vector<Part>& receives, const Check& check) = 0;
  // After an error, of every process: what is under way is dropped.
  virtual void give_up() = 0;
};

}  // namespace lockstep
