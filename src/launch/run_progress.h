// How far a run is, read from its folder (runs/NAME) while others write it: the step of its newest checkpoint, and the last step of metrics.jsonl.
//   RunProgress progress("runs/a"); progress.begin(); ... if (progress.look()) use(progress.step());
// A start drops the steps that its checkpoint does not have; begin() is called before, so that these do not count as its own. One thread.
#pragma once
#include <cstdint>
#include <filesystem>

namespace lockstep {

class RunProgress {
 public:
  explicit RunProgress(std::filesystem::path folder) : folder_(std::move(folder)) {}
  bool begun() const;  // it has a config.json: it is gone on with, or refused
  void begin();        // another start of it
  // Reads again: whether this start has taken a step.
  bool look();
  std::int64_t step() const { return step_; }    // the newest one that this start has taken, or that its checkpoint had
  std::int64_t saved() const { return saved_; }  // 0: there is no checkpoint

 private:
  struct Seen {
    std::uintmax_t file = 0;
    std::int64_t size = -1, changed = 0;  // nanoseconds
    bool operator==(const Seen&) const = default;
  };
  Seen seen() const;
  std::int64_t read_saved() const;
  std::int64_t read_step() const;

  std::filesystem::path folder_;
  Seen before_;
  std::int64_t from_ = 0, step_ = 0, saved_ = 0;
};

}  // namespace lockstep
