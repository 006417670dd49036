#include "train/open_batch.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "train/losses.h"

namespace lockstep {

OpenBatch::OpenBatch(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index)
    : plan_(plan), loss_(loss), index_(index), arrived_(plan.sequences), metrics_(loss) {
  if (plan.sequences == 0) fail(ErrorCode::invalid_argument, "sequences is 0: a batch has at least 1");
  if (loss.averaging == LossAveraging::sum && loss.normaliser == 0) loss_.normaliser = 1;
  if (!(loss_.normaliser > 0) || !std::isfinite(loss_.normaliser))
    fail(ErrorCode::invalid_argument,
         "normaliser is {}: a batch that arrives in pieces must know it before the first one; allowed are numbers above 0 (the sum of all weights)",
         loss.normaliser);
  if (index.index_loss && plan.rows <= 0)
    fail(ErrorCode::invalid_argument, "rows is {}: an index loss is a mean over all rows of the batch, which must be known before the first one", plan.rows);
  result_.logprobs.resize(plan.sequences);
  result_.entropies.resize(plan.sequences);
  result_.losses.resize(plan.sequences);
  if (has_marks(loss.kind)) result_.marks.resize(plan.sequences);
}

void OpenBatch::check(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) const {
  if (places.size() != piece.size()) fail(ErrorCode::invalid_argument, "{} sequences have {} places; allowed are equal numbers", piece.size(), places.size());
  std::set<std::size_t> seen;
  std::int64_t rows = result_.rows;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= arrived_.size()) fail(ErrorCode::invalid_argument, "place {} of a sequence, allowed are 0 to {}", places[i], arrived_.size() - 1);
    if (arrived_[places[i]] || !seen.insert(places[i]).second) fail(ErrorCode::invalid_argument, "sequence {} of the batch arrives a second time", places[i]);
    rows += static_cast<std::int64_t>(piece[i].tokens.size());
    if (piece[i].shared_prefix > 0 && groups_.contains(piece[i].prefix_group))
      fail(ErrorCode::invalid_argument, "prefix_group {} came in an earlier piece; allowed is a declared group in one piece, since its prompt is computed once",
           piece[i].prefix_group);
  }
  if (index_.index_loss && rows > plan_.rows) fail(ErrorCode::invalid_argument, "the batch has {} rows so far, {} were planned", rows, plan_.rows);
}

void OpenBatch::put(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece, ForwardBackwardResult&& result, const RowSums& sums) {
  metrics_.add(piece, result);
  for (const TrainSequence& d : piece)
    if (d.shared_prefix > 0) groups_.insert(d.prefix_group);
  for (std::size_t i = 0; i < places.size(); ++i) {
    arrived_[places[i]] = true;
    result_.logprobs[places[i]] = std::move(result.logprobs[i]);
    result_.entropies[places[i]] = std::move(result.entropies[i]);
    if (!result.losses.empty()) result_.losses[places[i]] = std::move(result.losses[i]);
    if (!result.marks.empty()) result_.marks[places[i]] = std::move(result.marks[i]);
  }
  result_.rows += result.rows;
  result_.scored += result.scored;
  result_.gradient_tokens += result.gradient_tokens;
  result_.gradient_sequences += result.gradient_sequences;
  sums_.append(sums);
}

void OpenBatch::check_complete() const {
  std::string missing;
  std::size_t count = 0;
  for (std::size_t i = 0; i < arrived_.size(); ++i)
    if (!arrived_[i] && ++count <= 8) missing += fmt::format("{}{}", count > 1 ? ", " : "", i);
  if (count > 0)
    fail(ErrorCode::invalid_argument, "{} of {} sequences of the batch have not arrived: {}{}", count, arrived_.size(), missing, count > 8 ? ", ..." : "");
  if (index_.index_loss && result_.rows != plan_.rows)
    fail(ErrorCode::invalid_argument, "the batch has {} rows, {} were planned, and the index loss was divided by that", result_.rows, plan_.rows);
}

ForwardBackwardResult OpenBatch::finish() {
  total_losses(sums_, index_.index_loss ? static_cast<double>(plan_.rows) : 0.0, result_);
  result_.metrics = metrics_.metrics(result_);
  return std::move(result_);
}

}  // namespace lockstep
