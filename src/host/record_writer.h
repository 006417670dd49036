// Serialises changes of a registry's records on disk. A writer waits for the disk here, holding no lock that readers take, so others can list and use
// records meanwhile. When a step of the executor changes a record, it gives way to live steps while it waits. Any thread; a change must not make
// another one.
//   writer.change([&] { store.put("sampler", id, text); publish(record); });  // `publish` takes the lock of readers, for a moment
#pragma once
#include <mutex>

#include "base/give_way.h"

namespace lockstep {

class RecordWriter {
 public:
  // Returns when the change is done; passes its exception on.
  template <class F>
  void change(const F& what) {
    give_way_during([&] {
      const std::lock_guard lock(mutex_);
      what();
    });
  }
  // False, and nothing was done, while another change is under way.
  template <class F>
  bool try_change(const F& what) {
    bool done = false;
    give_way_during([&] {
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock) return;
      what();
      done = true;
    });
    return done;
  }

 private:
  std::mutex mutex_;
};

}  // namespace lockstep
