// A teacher of the loss divergence (TrainSequence::teacher, kernels/head/teacher.h): another model over the vocabulary of the one that is trained, of which its
// head and its hidden states are used.
//   sequence.teacher = std::make_shared<const TeacherHead>(teacher_head(runtime, weights));
#pragma once
#include <functional>
#include <span>

#include "base/byte_record.h"
#include "model/adapter.h"
#include "model/runtime.h"

namespace lockstep {

struct TeacherHead {
  std::shared_ptr<Runtime> runtime;          // of the teacher, which the weights need
  std::shared_ptr<const WeightSet> weights;  // in memory that the trainer's device reads
  PackedWeight w;                            // one of them
  bool round_input_bf16 = false;
};
TeacherHead teacher_head(std::shared_ptr<Runtime> runtime, std::shared_ptr<const WeightSet> weights);

// The head as plain values, and the same on the device of another process (trained/led_model.h), with the same bits. While nobody else uses either runtime.
void put_teacher_head(ByteWriter& out, const TeacherHead& head);
TeacherHead taken_teacher_head(ByteReader& in, std::shared_ptr<Runtime> runtime);

// A text, and the adapter of the teacher that reads it; null: the weights alone.
struct TaughtText {
  std::vector<std::int32_t> tokens;
  const AdapterWeights* adapter = nullptr;
};
// The hidden states of all tokens of each text, [tokens, hidden], in forwards of at most kTeacherRows rows, unless a text alone has more; `between` is called
// behind each. Texts of one adapter stand side by side; those of several share forwards, and each has the bits that it has alone. On the runtime's thread.
// Errors: numeric; invalid_argument for a text beyond the context.
inline constexpr std::size_t kTeacherRows = 2048;
std::vector<std::vector<float>> teacher_states(Runtime& runtime, const WeightSet& weights, std::span<const TaughtText> texts,
                                               const std::function<void()>& between = {});

}  // namespace lockstep
