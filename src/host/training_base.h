// What every model of a training server starts from, and what they share. Plain values.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_ledger.h"
#include "host/training_records.h"
#include "train/kept_passes.h"
#include "trained/trained_model.h"

namespace lockstep {

struct TrainingBase : TrainedBase {
  // Most clients make one gradient a step. TrainerOptions::kept: of all models' forwards.
  TrainingBase() { options = {.accumulate = true, .mostly_one_call = true, .share_prefixes = true}; }

  std::string name;                  // in answers
  std::vector<std::string> names;    // that clients may call it by, and are told: its own, aliases
  std::vector<std::string> folders;  // that they may call it by, too, where they know them; not told
  std::string folder;
  bool is_called(const std::string& what) const {
    return std::find(names.begin(), names.end(), what) != names.end() || std::find(folders.begin(), folders.end(), what) != folders.end();
  }
  std::shared_ptr<Executor> executor;
  std::shared_ptr<MemoryLedger> ledger;  // what all of it may take; null: a service makes one without a limit
};

}  // namespace lockstep
