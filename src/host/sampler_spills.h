// Writes weights of samplers to disk when too many are in memory, the least recently sampled first. A thread of its own writes them, except when their
// memory is needed at once. Any thread, except functions that take an OnExecutor.
//   spills.spill_soon(); spills.make_room(on);
#pragma once
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "host/spill_turns.h"
#include "host/training_commons.h"

namespace lockstep {

class Samplers;
struct HeldWeights;

class SamplerSpills {
 public:
  SamplerSpills(TrainingCommons& commons, Samplers& samplers) : commons_(commons), samplers_(samplers), turns_(commons.base->executor) {}

  // Spills until those in memory have at most that many bytes.
  void spill(const OnExecutor& on, std::int64_t most_bytes);
  void spill_soon();                     // down to the limit, on a thread of its own
  void make_room(const OnExecutor& on);  // spills at once when twice the limit is in memory, else spill_soon()
  void spill_one(const OnExecutor& on, const std::string& id);
  bool spill_oldest(const OnExecutor& on);  // false: there was none

 private:
  using ReadValues = std::function<std::vector<float>(const std::vector<Buffer>& parameters, std::size_t i)>;
  std::int64_t most_bytes() const { return commons_.intake.closed() ? 0 : commons_.options.sampler_bytes; }
  void spill_beside();
  void write_beside(const std::string& id);
  void write(const std::string& id, const HeldWeights& held, const ReadValues& values);

  TrainingCommons& commons_;
  Samplers& samplers_;
  SpillTurns turns_;
  struct Beside {
    bool wanted = false, running = false;
    std::future<void> thread;
  };
  Guarded<Beside> beside_;  // the last member: its thread uses the others
};

}  // namespace lockstep
