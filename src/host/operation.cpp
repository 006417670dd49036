#include "host/operation.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {
// --- any operation

void TrainingService::Operation::check_lost() const {
  if ((!heals_ || !model_->unmade.empty()) && !model_->lost.empty()) fail(ErrorCode::io, "{}", model_->lost);
}

bool TrainingService::Operation::run() {
  bool again = false;
  try {
    check_lost();
    again = work_(*model_, request_);
  } catch (const std::exception& e) {
    service_.futures_.fail(request_, e);
    ++service_.statistics_.failed;
  }
  if (!again) done();
  return again;
}

void TrainingService::Operation::done() {
  const std::lock_guard lock(service_.mutex_);
  model_->record.next_sequence = std::max(model_->record.next_sequence, sequence_ + 1);
  service_.statistics_.ended(model_->activity);
}

// --- forward and forward_backward

bool TrainingService::BatchOperation::may_compute() const {
  if (told_ || held_) return false;
  if (in_turn()) return true;
  return may_be_early() && model_->lost.empty() && model_->trained && (begun_ || forward() || !model_->record.open_gradients);
}

TrainedModel& TrainingService::BatchOperation::prepare() {
  if (!prepared_) {
    prepared_ = prepare_batch(batch_, batch_limits(*service_.base_->opened.runtime));
    for (TrainingDatum& datum : batch_.data) datum.inputs.clear(), datum.routing_matrices.clear();
  }
  end_ = piece_end(prepared_->sequences, next_, service_.turn_tokens(*model_));
  return service_.trained(*model_);
}

std::int64_t TrainingService::BatchOperation::piece_tokens() const {
  std::int64_t tokens = 0;
  for (std::size_t s = next_; s < end_; ++s) tokens += static_cast<std::int64_t>(prepared_->sequences[s].tokens.size());
  return tokens;
}

TrainedModel& TrainingService::BatchOperation::open_piece() {
  TrainedModel& trained = prepare();
  const std::vector<TrainSequence>& all = prepared_->sequences;
  room_ = service_.admit_piece(*model_, all, next_, end_, !forward() || service_.base_->kept->enabled());
  if (!begun_) {
    if (!forward() || !in_turn()) service_.check_held(*model_);
    if (!forward()) {
      if (in_turn()) service_.undo_stray(*model_);
      service_.admit_gradient(*model_, end_ - next_, all.size());
      trained.begin(all.size(), prepared_->loss);
      if (in_turn()) service_.mark_gradients(*model_);
    } else if (evaluates()) {
      evaluated_.emplace(BatchPlan{.sequences = all.size()}, prepared_->loss, IndexTraining{});
    }
    begun_ = true;
    if (!in_turn()) model_->early.push_back(std::static_pointer_cast<BatchOperation>(shared_from_this()));
  }
  piece_.assign(all.begin() + static_cast<std::ptrdiff_t>(next_), all.begin() + static_cast<std::ptrdiff_t>(end_));
  places_.clear();
  for (std::size_t s = next_; s < end_; ++s) places_.push_back(s);
  return trained;
}

bool TrainingService::BatchOperation::close_piece(std::vector<std::vector<float>>&& logprobs) {
  for (std::vector<float>& row : logprobs) result_.logprobs.push_back(std::move(row));
  piece_.clear();
  next_ = end_;
  if (next_ < prepared_->sequences.size()) return true;
  if (!forward()) result_ = model_->trained->finish();
  if (evaluated_) result_ = evaluated_->finish();
  held_ = encode_(training_output(*prepared_, result_));
  if (in_turn()) tell();
  else ++service_.statistics_.early;
  return false;
}

// The result that is held, now that its turn has come.
void TrainingService::BatchOperation::tell() {
  if (std::erase_if(model_->early, [this](const auto& one) { return one.get() == this; }) > 0 && !forward()) service_.mark_gradients(*model_);
  if (!forward()) {
    model_->gradient_tokens += result_.gradient_tokens;
    model_->gradient_sequences += result_.gradient_sequences;
  }
  service_.statistics_.computed(prepared_->sequences, forward());
  service_.futures_.resolve(request_, std::move(*held_));
  told_ = true;
  batch_ = {};
  prepared_.reset();
  result_ = {};
  evaluated_.reset();
  done();
}

bool TrainingService::BatchOperation::reset() {
  const bool had = begun_ && !forward();
  next_ = 0;
  begun_ = false;
  result_ = {};
  evaluated_.reset();
  held_.reset();
  return had;
}

void TrainingService::BatchOperation::failed(const std::exception& error) {
  piece_.clear();
  room_.leave();
  const auto* own = dynamic_cast<const Error*>(&error);
  if (dynamic_cast<const std::bad_alloc*>(&error) || (own && own->code() == ErrorCode::resource_exhausted)) model_->turn.too_large();
  if (begun_ && !forward()) {
    service_.undo_early(*model_);
    service_.drop_gradients(*model_);
  }
  if (!in_turn()) {  // it fails again in its turn, in the order of the numbers
    do_not_run_early();
    std::erase_if(model_->early, [this](const auto& one) { return one.get() == this; });
    reset();
    return;
  }
  service_.futures_.fail(request_, error);
  ++service_.statistics_.failed;
  told_ = true;
  done();
}

bool TrainingService::BatchOperation::run() {
  const bool again = run_piece();
  room_.leave();
  if (!again) leave();
  return again;
}

bool TrainingService::BatchOperation::run_piece() {
  if (held_ && in_turn()) {
    if (!forward()) service_.undo_stray(*model_);
    if (held_) return tell(), false;  // else it was undone, and is computed now
  }
  if (!may_compute()) return false;
  try {
    if (in_turn()) check_lost();
    TrainedModel& trained = open_piece();
    if (evaluates()) {
      trained.evaluate(*evaluated_, places_, piece_);
      return close_piece({});
    }
    if (forward()) return close_piece(trained.score(piece_));
    const auto before = Clock::now();
    trained.add(places_, piece_);
    model_->turn.took(piece_tokens(), std::chrono::duration<double>(Clock::now() - before).count(), service_.options_.tokens_a_step, service_.options_.turn_seconds);
    return close_piece({});
  } catch (const std::exception& e) {
    failed(e);
    return false;
  }
}

TrainingQueue::Step::Offer TrainingService::BatchOperation::offer() {
  // Models on disk come to memory alone: another's place there may be needed for them.
  if (!may_compute() || !model_->lost.empty() || !model_->trained) return {};
  try {
    TrainedModel& trained = prepare();
    if (evaluates()) return {};
    const void* pass = trained.company(forward());
    return {pass, piece_tokens()};
  } catch (const std::exception&) {
    return {};  // run() says what is wrong
  }
}

std::vector<bool> TrainingService::BatchOperation::run_with(const std::vector<Step*>& others) {
  std::vector<BatchOperation*> all{this};  // only batches offer a pass
  for (Step* other : others) all.push_back(static_cast<BatchOperation*>(other));
  std::vector<bool> again(all.size(), false);
  std::vector<TrainedModel::Piece> pieces;
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < all.size(); ++i) {
    try {
      pieces.push_back({.model = &all[i]->open_piece(), .places = &all[i]->places_, .data = &all[i]->piece_});
      which.push_back(i);
    } catch (const std::exception& e) {
      all[i]->failed(e);
    }
  }
  try {
    if (!pieces.empty()) pieces[0].model->run_together(pieces, forward());
    if (pieces.size() > 1) ++service_.statistics_.shared_passes, service_.statistics_.shared_pieces += pieces.size();
  } catch (const std::exception& e) {  // nobody's own error, and what has been added is not known
    for (const std::size_t i : which) all[i]->failed(e);
    pieces.clear();
  }
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    BatchOperation& one = *all[which[k]];
    try {
      if (pieces[k].failure) throw *pieces[k].failure;
      again[which[k]] = one.close_piece(std::move(pieces[k].logprobs));
    } catch (const std::exception& e) {
      one.failed(e);
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i]->room_.leave();
    if (!again[i]) all[i]->leave();
  }
  return again;
}

}  // namespace lockstep
