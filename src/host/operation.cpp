#include "host/operation.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "base/error.h"
#include "host/batch_pieces.h"

namespace lockstep {
namespace {
std::int64_t tokens_of(std::span<const TrainSequence> sequences) {
  std::int64_t tokens = 0;
  for (const TrainSequence& one : sequences) tokens += static_cast<std::int64_t>(one.tokens.size());
  return tokens;
}
}  // namespace

// --- any operation

void NumberedOperation::check_lost(const OnExecutor&) const {
  const auto state = model_->state.lock();
  if ((!heals_ || !state->unmade.empty()) && !state->lost.empty()) fail(ErrorCode::io, "{}", state->lost);
}

bool NumberedOperation::run(const OnExecutor& on) {
  if (tools_.resting.gives_way(on, *model_)) return true;
  Futures& futures = tools_.commons.futures;
  Worked worked;
  try {
    check_lost(on);
    worked = work_(on, *model_, request_);
  } catch (const std::exception& e) {
    ++tools_.commons.statistics.failed;
    done(on);
    futures.fail(request_, e);
    return false;
  }
  if (worked.again) return true;
  done(on);
  if (worked.result) futures.resolve(request_, std::move(*worked.result));
  return false;
}

void NumberedOperation::done(const OnExecutor&) {
  const auto state = model_->state.lock();
  state->record.next_sequence = std::max(state->record.next_sequence, sequence_ + 1);
  tools_.commons.statistics.ended(state->activity);
}

// --- forward and forward_backward

bool BatchOperation::may_compute(const OnExecutor& on) const {
  if (told_ || held_) return false;
  if (in_turn(on)) return true;
  if (!may_be_early() || !model_->work.at(on).trained) return false;
  const auto state = model_->state.lock();
  return state->lost.empty() && (begun_ || forward() || !state->record.open_gradients);
}

TrainedModel& BatchOperation::prepare(const OnExecutor& on) {
  if (!prepared_) {
    prepared_ = prepare_batch(batch_, tools_.limits(on, *model_));
    for (TrainingDatum& datum : batch_.data) datum.inputs.clear(), datum.routing_matrices.clear();
  }
  end_ = piece_end(prepared_->sequences, next_, tools_.turn_tokens(on, *model_));
  return tools_.resting.trained(on, *model_);
}

std::int64_t BatchOperation::piece_tokens() const { return tokens_of(std::span(prepared_->sequences).subspan(next_, end_ - next_)); }

TrainedModel& BatchOperation::open_piece(const OnExecutor& on) {
  TrainedModel& trained = prepare(on);
  const std::vector<TrainSequence>& all = prepared_->sequences;
  room_ = tools_.memory.piece(on, *model_, all, next_, end_, !forward() || tools_.commons.base->options.kept->enabled());
  if (!begun_) {
    if (!forward()) {
      if (in_turn(on)) tools_.gradients.undo_stray(on, *model_);
      tools_.gradients.admit(on, *model_, end_ - next_, all);
      trained.begin({.sequences = all.size()}, prepared_->loss);
      if (in_turn(on)) tools_.gradients.mark(on, *model_);
    } else if (evaluates()) {
      evaluated_.emplace(BatchPlan{.sequences = all.size()}, prepared_->loss, IndexTraining{});
    }
    begun_ = true;
    if (!in_turn(on)) model_->work.at(on).early.push_back(std::static_pointer_cast<BatchOperation>(shared_from_this()));
  }
  piece_.assign(all.begin() + static_cast<std::ptrdiff_t>(next_), all.begin() + static_cast<std::ptrdiff_t>(end_));
  places_.clear();
  for (std::size_t s = next_; s < end_; ++s) places_.push_back(s);
  return trained;
}

bool BatchOperation::close_piece(const OnExecutor& on, std::vector<std::vector<float>>&& logprobs) {
  for (std::vector<float>& row : logprobs) result_.logprobs.push_back(std::move(row));
  piece_.clear();
  next_ = end_;
  if (next_ < prepared_->sequences.size()) return true;
  if (!forward()) result_ = model_->work.at(on).trained->finish();
  if (evaluated_) result_ = evaluated_->finish();
  held_ = encode_(training_output(*prepared_, result_));
  if (in_turn(on)) tell(on);
  else ++tools_.commons.statistics.early;
  return false;
}

bool BatchOperation::leave_early(const OnExecutor& on) {
  return std::erase_if(model_->work.at(on).early, [this](const auto& one) { return one.get() == this; }) > 0;
}

// The result that is held, now that its turn has come.
void BatchOperation::tell(const OnExecutor& on) {
  TrainingCommons& commons = tools_.commons;
  if (leave_early(on) && !forward()) tools_.gradients.mark(on, *model_);
  if (!forward()) tools_.gradients.count(on, *model_, result_, prepared_->declares);
  commons.statistics.computed(prepared_->sequences, forward());
  if (commons.options.count_tokens) commons.options.count_tokens(model_->owner, tokens_of(prepared_->sequences));
  Outcome result = std::move(*held_);
  told_ = true;
  batch_ = {};
  prepared_.reset();
  result_ = {};
  evaluated_.reset();
  done(on);
  commons.futures.resolve(request_, std::move(result));
}

bool BatchOperation::reset(const OnExecutor&) {
  const bool had = begun_ && !forward();
  next_ = 0;
  begun_ = false;
  result_ = {};
  evaluated_.reset();
  held_.reset();
  return had;
}

void BatchOperation::failed(const OnExecutor& on, const std::exception& error) {
  piece_.clear();
  room_.leave();
  const auto* own = dynamic_cast<const Error*>(&error);
  if (dynamic_cast<const std::bad_alloc*>(&error) || (own && own->code() == ErrorCode::resource_exhausted)) model_->work.at(on).turn.too_large();
  if (begun_ && !forward()) {
    tools_.gradients.undo_early(on, *model_);
    tools_.gradients.drop(on, *model_);
  }
  if (!in_turn(on)) {  // it fails again in its turn, in the order of the numbers
    do_not_run_early();
    leave_early(on);
    reset(on);
    return;
  }
  ++tools_.commons.statistics.failed;
  told_ = true;
  done(on);
  tools_.commons.futures.fail(request_, error);
}

bool BatchOperation::run(const OnExecutor& on) {
  const bool again = run_piece(on);
  room_.leave();
  if (!again) leave(on);
  return again;
}

bool BatchOperation::run_piece(const OnExecutor& on) {
  using Clock = std::chrono::steady_clock;
  if (held_ && in_turn(on)) {
    if (!forward()) tools_.gradients.undo_stray(on, *model_);
    if (held_) return tell(on), false;  // else it was undone, and is computed now
  }
  if (!may_compute(on)) return false;
  if (tools_.resting.gives_way(on, *model_)) return true;
  try {
    if (in_turn(on)) check_lost(on);
    TrainedModel& trained = open_piece(on);
    if (evaluates()) {
      trained.evaluate(*evaluated_, places_, piece_);
      return close_piece(on, {});
    }
    if (forward()) return close_piece(on, trained.score(piece_));
    const auto before = Clock::now();
    trained.add(places_, piece_);
    const TrainingServiceOptions& options = tools_.commons.options;
    model_->work.at(on).turn.took(piece_tokens(), std::chrono::duration<double>(Clock::now() - before).count(), options.tokens_a_step, options.turn_seconds);
    return close_piece(on, {});
  } catch (const std::exception& e) {
    failed(on, e);
    return false;
  }
}

TrainingQueue::Step::Offer BatchOperation::offer(const OnExecutor& on) {
  // Models on disk come to memory alone: another's place there may be needed for them.
  if (!may_compute(on) || !model_->lost().empty() || !model_->work.at(on).trained) return {};
  try {
    TrainedModel& trained = prepare(on);
    if (evaluates() || prepared_->declares) return {};
    return {trained.shared_pass(forward()), piece_tokens()};
  } catch (const std::exception&) {
    return {};  // run() says what is wrong
  }
}

std::vector<bool> BatchOperation::run_with(const OnExecutor& on, const std::vector<Step*>& others) {
  TrainingStatistics& statistics = tools_.commons.statistics;
  std::vector<BatchOperation*> all{this};  // only batches offer a pass
  for (Step* other : others) all.push_back(static_cast<BatchOperation*>(other));
  std::vector<bool> again(all.size(), false);
  std::vector<SharedPass::Piece> pieces;
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < all.size(); ++i) {
    try {
      pieces.push_back({.model = &all[i]->open_piece(on), .places = &all[i]->places_, .data = &all[i]->piece_});
      which.push_back(i);
    } catch (const std::exception& e) {
      // Others of this pass have the room: it comes alone, when it is the first.
      const auto* own = dynamic_cast<const Error*>(&e);
      if (i > 0 && own && own->code() == ErrorCode::resource_exhausted) again[i] = true;
      else all[i]->failed(on, e);
    }
  }
  try {
    if (!pieces.empty()) pieces[0].model->shared_pass(forward())->run(pieces);
    if (pieces.size() > 1) ++statistics.shared_passes, statistics.shared_pieces += pieces.size();
  } catch (const std::exception& e) {  // nobody's own error, and what has been added is not known
    for (const std::size_t i : which) all[i]->failed(on, e);
    pieces.clear();
  }
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    BatchOperation& one = *all[which[k]];
    try {
      if (pieces[k].failure) throw *pieces[k].failure;
      again[which[k]] = one.close_piece(on, std::move(pieces[k].logprobs));
    } catch (const std::exception& e) {
      one.failed(on, e);
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i]->room_.leave();
    if (!again[i]) all[i]->leave(on);
  }
  return again;
}

}  // namespace lockstep
