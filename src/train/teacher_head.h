// The head of a teacher, another model over the vocabulary of the one that is trained: what the loss divergence needs of it beside its hidden states
// (TrainSequence::teacher, kernels/head/teacher.h). A plain value, any thread.
//   sequence.teacher = std::make_shared<const TeacherHead>(teacher_head(runtime, weights));
#pragma once
#include "model/runtime.h"

namespace lockstep {

struct TeacherHead {
  std::shared_ptr<const Runtime> runtime;    // of the teacher, which the weights need
  std::shared_ptr<const WeightSet> weights;  // in memory that the trainer's device reads
  PackedWeight w;                            // one of them
  bool round_input_bf16 = false;
};

inline TeacherHead teacher_head(std::shared_ptr<const Runtime> runtime, std::shared_ptr<const WeightSet> weights) {
  const PackedWeight w = packed_weight(runtime->model->manifest(), *weights, runtime->model->facts().head, runtime->profile);
  const bool rounds = runtime->profile.bf16_activations;
  return {std::move(runtime), std::move(weights), w, rounds};
}

}  // namespace lockstep
