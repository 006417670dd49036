#include "train/data.h"

#include <algorithm>

#include "base/error.h"
#include "model/runtime.h"
#include "model/value_head.h"
#include "numerics/low_bit.h"
#include "train/loss_columns.h"
#include "train/losses.h"
#include "train/micro_batch.h"
#include "train/teacher_head.h"

namespace lockstep {

TrainSequence TrainSequence::next_token(const std::vector<std::int32_t>& tokens) {
  TrainSequence s;
  if (tokens.size() < 2) fail(ErrorCode::invalid_argument, "a sequence has {} tokens, at least 2 are needed", tokens.size());
  s.tokens.assign(tokens.begin(), tokens.end() - 1);
  s.targets.assign(tokens.begin() + 1, tokens.end());
  s.weights.assign(s.tokens.size(), 1.0f);
  return s;
}

namespace {
// What is wrong with the given experts; empty: nothing.
std::string experts_fault(const std::vector<std::int32_t>& experts, std::size_t tokens, const ExpertShape& shape) {
  if (experts.empty()) return {};
  const auto row = static_cast<std::size_t>(shape.row());
  if (row == 0) return "experts are given, and the model has none";
  if (experts.size() != tokens * row) return fmt::format("{} numbers of experts, allowed are {} ({} a token)", experts.size(), tokens * row, row);
  for (std::size_t i = 0; i < tokens; ++i) {
    const std::span<const std::int32_t> own(experts.data() + i * row, row);
    if (std::all_of(own.begin(), own.end(), [](std::int32_t e) { return e == kOwnExperts; })) continue;
    if (const std::string fault = shape.fault(own); !fault.empty()) return fmt::format("token {} {}", i, fault);
    for (std::size_t j = 0; j + 1 < row; ++j)
      if ((j + 1) % static_cast<std::size_t>(shape.experts_a_token) != 0 && own[j] > own[j + 1])
        return fmt::format("token {} names expert {} before {}, allowed is ascending", i, own[j], own[j + 1]);
  }
  return {};
}

// What is wrong with the teacher of a sequence; empty: nothing.
std::string teacher_fault(const Runtime& runtime, const TrainSequence& d, const TrainSequence& first, LossKind kind) {
  if (kind != LossKind::divergence) return d.teacher && kind != LossKind::none ? "it has a teacher, which the loss divergence alone learns from" : "";
  if (!d.teacher) return "it has no teacher, which the loss divergence needs";
  if (d.teacher != first.teacher) return "its teacher is not that of sequence 0; allowed is one for all sequences of a call or a piece";
  const Model& model = *runtime.model;
  const PackedWeight& w = d.teacher->w;
  if (w.outputs != model.facts().vocabulary) return fmt::format("its teacher has {} tokens, allowed are the model's {}", w.outputs, model.facts().vocabulary);
  if (w.data.dtype != compute_dtype(model.manifest().parameter(model.facts().head), runtime.profile))
    return "its teacher's head is stored as another profile's; allowed is the model's own profile";
  if (d.targets_per_row != 1) return fmt::format("targets_per_row is {}, and the loss divergence is of rows with 1 target", d.targets_per_row);
  if (d.temperature != 1 || !d.kept_tokens.empty())
    return fmt::format("its temperature is {}, with {} kept sets; a divergence is of the distribution at 1 over all tokens", d.temperature,
                       d.kept_tokens.size());
  if (d.teacher_states.size() != d.tokens.size() * static_cast<std::size_t>(w.inputs))
    return fmt::format("{} numbers of teacher_states, allowed are {} ({} a token)", d.teacher_states.size(),
                       d.tokens.size() * static_cast<std::size_t>(w.inputs), w.inputs);
  return {};
}
}  // namespace

void check_data(const Runtime& runtime, const std::vector<TrainSequence>& data, const LossOptions& loss, bool index_loss, bool declared_allowed) {
  // Over low-bit weights adapters train; full-parameter training is refused (Trainer).
  if (loss.kind != LossKind::none && !is_low_bit_format(runtime.profile.weight_bits)) check_trainable(runtime.profile);
  check_loss_options(loss);
  if (has_value_head(*runtime.model) && (is_policy(loss.kind) || loss.kind == LossKind::divergence))
    fail(ErrorCode::unsupported, "the model has a value head, whose targets have no log-probabilities; allowed are the losses value and cross_entropy (-w v)");
  if (!has_value_head(*runtime.model) && loss.kind == LossKind::value)
    fail(ErrorCode::unsupported, "the loss is value, and the model has no value head (score.weight); allowed are the losses over log-probabilities");
  const auto wrong = [](std::size_t s, const std::string& what) { fail(ErrorCode::invalid_argument, "sequence {}: {}", s, what); };
  for (std::size_t s = 0; s < data.size(); ++s) {
    const TrainSequence& d = data[s];
    const std::size_t n = d.tokens.size();
    if (n == 0) wrong(s, "no tokens");
    if (static_cast<std::int64_t>(n) > runtime.max_positions) wrong(s, fmt::format("{} tokens, allowed are at most {}", n, runtime.max_positions));
    for (std::size_t i = 0; i < n; ++i)
      if (d.tokens[i] < 0 || d.tokens[i] >= runtime.model->facts().vocabulary)
        wrong(s, fmt::format("token {} is {}, allowed are 0 to {}", i, d.tokens[i], runtime.model->facts().vocabulary - 1));
    if (const std::string fault = experts_fault(d.experts, n, runtime.model->facts().expert_shape()); !fault.empty()) wrong(s, fault);
    check_loss_data(d, s, loss, runtime.model->facts().vocabulary);
    if (const std::string fault = teacher_fault(runtime, d, data[0], loss.kind); !fault.empty()) wrong(s, fault);
  }
  check_declared_prefixes(data);
  if (loss.kind != LossKind::none) loss_normaliser(data, loss);
  const bool declared = std::any_of(data.begin(), data.end(), [](const TrainSequence& d) { return d.shared_prefix > 0; });
  if (declared && loss.kind != LossKind::none && !declared_allowed)
    fail(ErrorCode::invalid_argument,
         "sequences declare a shared_prefix, which changes bits of gradients; allowed with TrainerOptions::declared_prefixes alone");
  if (declared && index_loss)
    fail(ErrorCode::unsupported, "the index loss is not made over prefixes that are shared in the backward (shared_prefix); allowed is one of the two");
}

}  // namespace lockstep
