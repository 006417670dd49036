#include "host/open_gradients.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "host/operation.h"

namespace lockstep {
namespace {
KeyLimit gradient_limit(const TrainingCommons& commons) {
  std::int64_t most = commons.options.gradient_bytes;
  if (most == 0) {
    std::error_code error;
    const std::filesystem::space_info disk = std::filesystem::space(commons.options.state, error);
    most = error ? std::numeric_limits<std::int64_t>::max() / 400 : static_cast<std::int64_t>(disk.capacity / 4);
  }
  return commons.limit_of(most);
}
}  // namespace

OpenGradients::OpenGradients(TrainingCommons& commons, Models& models, MemoryRoom& memory)
    : commons_(commons), models_(models), memory_(memory), waiting_(commons.options.state / "gradients", gradient_limit(commons)) {}

void OpenGradients::admit(const OnExecutor& on, HostedModel& model, std::size_t piece, const std::vector<TrainSequence>& all) {
  ModelWork& work = model.work.at(on);
  const bool accumulators = work.trained->accumulates(piece, all.size());
  // A file a rank, none of which is larger than that of one rank alone.
  waiting_.claim(model.id, model.owner, gradient_file_bytes(work.trained->manifest(), accumulators, all) * commons_.base->options.ranks.size());
  if (!memory_.limited()) return;
  const ModelMemory& memory = memory_.figures(on, model.settings());
  const std::int64_t bytes = accumulators ? memory.accumulators : memory.alone;
  if (bytes <= work.gradient_room.bytes()) return;
  if (work.gradient_room.bytes() == 0) work.gradient_room = commons_.base->ledger->claim("gradients", model.owner, 0, "gradients");
  try {
    memory_.grow(on, work.gradient_room, bytes, fmt::format("the gradient of model '{}'", model.id));
  } catch (...) {
    if (!work.trained->unfinished().gradients) forget(on, model);  // the room that was claimed for it
    throw;
  }
}

void OpenGradients::mark(const OnExecutor&, HostedModel& model) {
  const auto state = model.state.lock();
  if (!std::exchange(state->record.open_gradients, true)) models_.note_gradients(model, true);
}

void OpenGradients::check_complete(const OnExecutor& on, HostedModel& model) {
  {
    const auto state = model.state.lock();
    if (!std::exchange(state->gradients_gone, false)) return;  // else its client is told
  }
  drop(on, model);
  fail(ErrorCode::io,
       "the server was started again before an optim_step took the gradients of earlier forward_backward calls of model '{}', and they are gone; what was "
       "added since is dropped too, so that no step is made of a part: send the forward_backward calls of this step again",
       model.id);
}

void OpenGradients::count(const OnExecutor& on, HostedModel& model, const ForwardBackwardResult& result, bool declares) {
  ModelWork& work = model.work.at(on);
  work.gradient_tokens += result.gradient_tokens;
  work.gradient_sequences += result.gradient_sequences;
  work.gradient_declares = work.gradient_declares || declares;
}

void OpenGradients::undo_early(const OnExecutor& on, HostedModel& model) {
  ModelWork& work = model.work.at(on);
  bool gradients = false;
  for (const auto& operation : work.early) gradients = operation->reset(on) || gradients;
  commons_.statistics.undone += work.early.size();
  work.early.clear();
  if (gradients) drop(on, model);
}

void OpenGradients::undo_stray(const OnExecutor& on, HostedModel& model) {
  std::int64_t next = 0;
  {
    const auto state = model.state.lock();
    next = state->next;
  }
  const auto& early = model.work.at(on).early;
  if (std::any_of(early.begin(), early.end(), [&](const auto& one) { return one->stray(on, next); })) undo_early(on, model);
}

void OpenGradients::drop(const OnExecutor& on, HostedModel& model) {
  if (TrainedModel* trained = model.work.at(on).trained.get()) trained->drop();
  forget(on, model);
}

void OpenGradients::forget(const OnExecutor& on, HostedModel& model) {
  ModelWork& work = model.work.at(on);
  work.gradient_tokens = work.gradient_sequences = 0;
  work.gradient_declares = false;
  work.gradient_room.release();
  work.waiting_bytes = 0;
  waiting_.drop(model.id);
  const auto state = model.state.lock();
  state->record.open_gradients = false;
  if (!state->gradients_gone) models_.note_gradients(model, false);  // else it stays until a step was refused for it
}

void OpenGradients::save(const OnExecutor& on, HostedModel& model) {
  ModelWork& work = model.work.at(on);
  // A batch that has begun before its turn is begun again: nothing else counts beside it, and what comes next may not wait for it.
  if (work.trained->unfinished().batch && !work.early.empty() && !model.has_open_gradients()) undo_early(on, model);
  if (!work.trained->unfinished().gradients) return;
  waiting_.save(model.id, *work.trained);
  work.waiting_bytes = work.gradient_room.bytes();
  ++commons_.statistics.gradients_saved;
}

void OpenGradients::read(const OnExecutor& on, HostedModel& model, TrainedModel& fresh) {
  if (!waiting_.has(model.id)) return;
  try {
    waiting_.load(model.id, fresh);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt_file && e.code() != ErrorCode::not_found) throw;
    const auto state = model.state.lock();
    state->lost =
        fmt::format("the gradients of model '{}', which waited on disk, cannot be read: {}; load_state of a checkpoint goes on from there", model.id, e.what());
    throw;
  }
  waiting_.remove_files(model.id);
  ++commons_.statistics.gradients_read;
}

}  // namespace lockstep
