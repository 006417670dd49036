// A teacher whose weights are those of a training checkpoint: of a run of all weights, or of a run's adapter, as the run's config.json says. The run may be on
// its way still: which checkpoint it is is settled once.
//   const TeacherCheckpoint of = teacher_checkpoint("runs/sums"); if (of.rank == 0) opened.initial = [=] { return whole_images(of, *opened.model); };
#pragma once
#include <filesystem>
#include <string>

#include "serving/loading.h"

namespace lockstep {

struct TeacherCheckpoint {
  std::filesystem::path folder;  // runs/NAME/checkpoints/step-N
  std::int64_t rank = 0;         // of the run's adapter; 0: all weights
  double alpha = 32;
};

// `path`: a run's folder, of which the newest checkpoint is taken, or the folder of a checkpoint. Errors: not_found, io, corrupt_file.
TeacherCheckpoint teacher_checkpoint(const std::filesystem::path& path);
// The masters of a run of all weights of a model of these shapes; an adapter's over the opened model. Errors: those of load_checkpoint.
WeightImages whole_images(const TeacherCheckpoint& of, const Model& model);
std::shared_ptr<const AdapterWeights> checkpoint_adapter(const TeacherCheckpoint& of, const OpenedModel& opened);

}  // namespace lockstep
