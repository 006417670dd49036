#include "host/shared_prompts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "host/batch_loss.h"
#include "host/batch_pieces.h"
#include "train/declared_prompts.h"

namespace lockstep {
namespace {

// Whether a row without an advantage adds nothing: no loss of its own, and no part of another row's ratio or divisor.
bool wants_advantages(const LossOptions& loss) {
  const LossParameters& p = loss.parameters;
  const bool policy = is_policy(loss.kind) && (loss.kind != LossKind::dro || p.zero_advantage_is_nothing);
  const bool more_terms = (p.kl != KlEstimator::none && p.kl_coefficient != 0) || p.entropy_coefficient != 0;
  const bool by_token = loss.ratio_level == RatioLevel::token && loss.correction_level == RatioLevel::token &&
                        (loss.averaging == LossAveraging::sum || loss.averaging == LossAveraging::token_mean);
  return policy && !more_terms && by_token;
}

// Takes the weights of rows in front that have no advantage, but never of the last row.
void weigh_answer_alone(TrainSequence& s, bool by_advantage) {
  for (std::size_t i = 0; by_advantage && i < s.weights.size() && (s.weights[i] == 0 || s.advantages[i] == 0); ++i) s.weights[i] = 0;
  if (unweighted_rows(s) == std::ssize(s.tokens)) s.weights.back() = 1;
}

// `declare` sees weights that are 0 at a prompt's rows alone; afterwards sequences have their own again.
void declare_before_answers(std::vector<TrainSequence>& sequences, bool by_advantage, void (*declare)(std::vector<TrainSequence>&)) {
  std::vector<std::vector<float>> weights;
  bool has_prompt = false;
  for (TrainSequence& s : sequences) {
    weights.push_back(s.weights);
    weigh_answer_alone(s, by_advantage && s.advantages.size() == s.weights.size());
    has_prompt = has_prompt || unweighted_rows(s) > 0;
  }
  if (!has_prompt)
    fail(ErrorCode::invalid_argument,
         "share_prompts is 'backward', and no datum has a prompt: rows in front whose loss_fn_inputs.weights (or mask{}) are 0; allowed is 'forward', or data "
         "with prompts",
         by_advantage ? ", or advantages" : "");
  declare(sequences);
  for (std::size_t d = 0; d < sequences.size(); ++d) {
    TrainSequence& s = sequences[d];
    s.weights = std::move(weights[d]);
    std::fill_n(s.weights.begin(), s.shared_prefix * s.targets_per_row, 0.0f);  // of rows that have no targets any more
  }
}
}  // namespace

bool shares_backward(const LossRequest& loss) {
  const auto option = loss.config.find(kSharePrompts);
  return option != loss.config.end() && text_option(kSharePrompts, option->second, {"forward", "backward"}) == "backward";
}

void share_prompts(const TrainingBatch& batch, const LossOptions& loss, std::vector<TrainSequence>& sequences) {
  if (batch.forward_only) fail(ErrorCode::invalid_argument, "share_prompts is 'backward', and a forward has no backward; allowed is 'forward'");
  declare_before_answers(sequences, wants_advantages(loss), declare_prompts);
}

void share_weighed_prompts(const BatchLoss& loss, std::int64_t max_positions, PreparedBatch& prepared) {
  const std::size_t first = loss.untrained();
  const auto begin = prepared.sequences.begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<TrainSequence> trained(std::make_move_iterator(begin), std::make_move_iterator(prepared.sequences.end()));
  declare_before_answers(trained, false, loss.together() == 2 ? declare_pairs : declare_prompts);
  check_uncut(trained, max_positions, [&](std::size_t place) { return loss.datum(first + place); });
  prepared.declares = std::any_of(trained.begin(), trained.end(), [](const TrainSequence& one) { return one.shared_prefix > 0; });
  std::move(trained.begin(), trained.end(), begin);
}

}  // namespace lockstep
