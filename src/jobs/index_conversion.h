// `lockstep index-share convert --data`: writes a model with fewer indexers (serving/conversion.h), then trains those that are left by the loss over all
// layers that use their selection, everything else frozen, as a run beside the folder.
//   IndexConversion c; c.from = "models/countdown-glm", c.to = "out", c.pattern = "FSSS", c.data = "my.jsonl"; convert_and_train(c);
// The same call resumes a stopped conversion, to the same bits. Knows no command line. One thread.
#pragma once
#include "jobs/sft_job.h"

namespace lockstep {

struct IndexConversion {
  std::string from, to, pattern, dtype = "f32";
  Overwrite overwrite = Overwrite::no;
  std::string data;  // as SftJob's
  ChatReading reading;
  std::int64_t steps = 1000, batch = 0 /* 0: as many as sft would take */, dense_steps = 0 /* first ones, in which rows attend to all keys */;
  std::int64_t threads = 0, checkpoint_every = 100;
  double learning_rate = 1e-3;
  std::uint64_t seed = 0;
  bool quiet = false;
  StopToken stop = {};
  std::function<void()> on_start = {};
  std::function<void(std::int64_t step)> on_step = {};
  std::function<void(const std::string&)> say = {};
};

// The run's folder: beside `to`.
std::filesystem::path training_folder(const std::string& to);

// Errors: those of convert_indexers and run_sft_job; invalid_argument if a resumed run had other settings.
SftSummary convert_and_train(const IndexConversion& conversion);

}  // namespace lockstep
