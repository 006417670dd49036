#include "train/data.h"

#include <algorithm>

#include "base/error.h"
#include "model/runtime.h"
#include "numerics/packed.h"
#include "train/loss_columns.h"
#include "train/losses.h"
#include "train/micro_batch.h"

namespace lockstep {

TrainSequence TrainSequence::next_token(const std::vector<std::int32_t>& tokens) {
  TrainSequence s;
  if (tokens.size() < 2) fail(ErrorCode::invalid_argument, "a sequence has {} tokens, at least 2 are needed", tokens.size());
  s.tokens.assign(tokens.begin(), tokens.end() - 1);
  s.targets.assign(tokens.begin() + 1, tokens.end());
  s.weights.assign(s.tokens.size(), 1.0f);
  return s;
}

void check_data(const Runtime& runtime, const std::vector<TrainSequence>& data, const LossOptions& loss, bool index_loss, bool declared_allowed) {
  // Over packed weights adapters train; all parameters do not (Trainer).
  if (loss.kind != LossKind::none && !is_packed_format(runtime.profile.weight_bits)) check_trainable(runtime.profile);
  check_loss_options(loss);
  const auto wrong = [](std::size_t s, const std::string& what) { fail(ErrorCode::invalid_argument, "sequence {}: {}", s, what); };
  for (std::size_t s = 0; s < data.size(); ++s) {
    const TrainSequence& d = data[s];
    const std::size_t n = d.tokens.size();
    if (n == 0) wrong(s, "no tokens");
    if (static_cast<std::int64_t>(n) > runtime.max_positions)
      wrong(s, fmt::format("{} tokens, allowed are at most {}", n, runtime.max_positions));
    for (std::size_t i = 0; i < n; ++i)
      if (d.tokens[i] < 0 || d.tokens[i] >= runtime.model->vocabulary)
        wrong(s, fmt::format("token {} is {}, allowed are 0 to {}", i, d.tokens[i], runtime.model->vocabulary - 1));
    check_loss_data(d, s, loss, runtime.model->vocabulary);
  }
  check_declared_prefixes(data);
  if (loss.kind != LossKind::none) loss_normaliser(data, loss);
  const bool declared = std::any_of(data.begin(), data.end(), [](const TrainSequence& d) { return d.shared_prefix > 0; });
  if (declared && loss.kind != LossKind::none && !declared_allowed)
    fail(ErrorCode::invalid_argument, "sequences declare a shared_prefix, which changes bits of gradients; allowed with TrainerOptions::declared_prefixes alone");
  if (declared && index_loss)
    fail(ErrorCode::unsupported, "the index loss is not made over prefixes that are shared in the backward (shared_prefix); allowed is one of the two");
}

}  // namespace lockstep
