#include "host/model_lanes.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace lockstep {
namespace {
// When a model that is at work is looked at again.
constexpr double kLookAgainSeconds = 0.05;

// What metrics call the pieces of an operation that is no plain batch.
const char* kind_of_piece(const std::string& operation) {
  if (operation == "optim_step") return "optim_step";
  if (operation.starts_with("save")) return "save";
  if (operation.starts_with("load")) return "load";
  if (operation == "forward_backward") return "custom_loss";
  return "operation";
}
}  // namespace

ModelLanes::~ModelLanes() { commons_.deadlines->forget(this); }

std::string ModelLanes::submit(const std::string& owner, const std::string& id, std::int64_t sequence, const SentOperation& sent, NumberedOperation::Work work,
                               bool heals) {
  return place(owner, id, sequence, sent, [&](const std::shared_ptr<HostedModel>& model, const std::string& request) {
    return std::make_shared<NumberedOperation>(tools_, model, request, sequence, std::move(work), heals, kind_of_piece(sent.kind()));
  });
}

std::string ModelLanes::place(const std::string& owner, const std::string& id, std::int64_t sequence, const SentOperation& sent, const MakeOperation& make) {
  const std::shared_ptr<HostedModel> model = models_.at(owner, id);
  std::string request;
  {
    const Intake::Entry entry = commons_.intake.enter();
    const auto state = model->state.lock();
    if (!state->unmade.empty()) fail(ErrorCode::not_found, "{}", state->unmade);  // since it was found
    if (const std::optional<std::string> seen = commons_.numbers.find(owner, id, sequence)) {
      const std::size_t end = seen->find('\n');
      if (const std::string difference = sent.difference(std::string_view(*seen).substr(end + 1)); !difference.empty())
        fail(ErrorCode::invalid_argument, "seq_id {} of model '{}' was {}; each operation has a number of its own", sequence, id, difference);
      return seen->substr(0, end);
    }
    auto& waiting = state->waiting;
    if (const auto same = waiting.find(sequence); same != waiting.end()) return same->second->request();
    entry.check("; try again when it is back");
    if (sequence < 1) fail(ErrorCode::invalid_argument, "seq_id is {}, allowed is 1 and up", sequence);
    sessions_.check_takes_work(model->session);
    if (static_cast<std::int64_t>(waiting.size()) >= commons_.options.max_pending)
      fail(ErrorCode::resource_exhausted, "model '{}' has {} operations waiting, allowed are {}", id, waiting.size(), commons_.options.max_pending);
    models_.acknowledge(*model, *state, sequence);
    request = commons_.futures.create(owner, id);
    commons_.numbers.put(owner, id, sequence, request + "\n" + sent.line());
    state->record.used = unix_now();
    sessions_.hear(owner, model->session);
    if (state->lost.empty() && sequence < state->next) {
      commons_.futures.fail(request,
                            Error(ErrorCode::io, fmt::format("seq_id {} of model '{}' was used before, or was skipped since it did not come; {} is the "
                                                             "first that is free",
                                                             sequence, id, state->next)));
      return request;
    }
    std::shared_ptr<NumberedOperation> operation = make(model, request);
    commons_.statistics.arrived(state->activity);
    if (!state->lost.empty()) {
      state->next = std::max(state->next, sequence + 1);  // numbers before it went down with the server
      commons_.queue->submit(id, owner, std::move(operation));
      return request;
    }
    if (!operation->may_run_early()) {
      for (auto later = waiting.upper_bound(sequence); later != waiting.end(); ++later) later->second->do_not_run_early();
    } else if (sequence > state->next &&
               std::all_of(waiting.begin(), waiting.lower_bound(sequence), [](const auto& before) { return before.second->may_run_early(); })) {
      operation->enter_early();
      commons_.queue->submit(id, owner, operation);
    }
    waiting[sequence] = std::move(operation);
    run_ready(model, *state);
  }
  return request;
}

void ModelLanes::run_ready(const std::shared_ptr<HostedModel>& model, ModelState& state) {
  auto& waiting = state.waiting;
  const std::int64_t before = state.next;
  for (auto first = waiting.begin(); first != waiting.end() && first->first == state.next; first = waiting.begin()) {
    std::shared_ptr<NumberedOperation> operation = std::move(first->second);
    waiting.erase(first);
    ++state.next;
    if (!operation->may_run_early() && !waiting.empty()) {
      // It may change what later numbers have been computed with.
      for (const auto& [number, later] : waiting) later->do_not_run_early();
      commons_.queue->submit(model->id, model->owner, [this, model](const OnExecutor& on) { return tools_.gradients.undo_early(on, *model), false; });
    }
    commons_.queue->submit(model->id, model->owner, std::move(operation));
  }
  // Since the number whose turn it is now is missing, whatever else has come meanwhile.
  if (waiting.empty()) state.gap_since = 0;
  else if (state.gap_since == 0 || state.next != before) state.gap_since = unix_now();
  if (!waiting.empty() && !std::exchange(state.gap_watched, true)) watch_gap(model, commons_.options.gap_seconds);
}

void ModelLanes::forget_waiting(const OnExecutor& on, HostedModel& model, const std::string& why) {
  std::map<std::int64_t, std::shared_ptr<NumberedOperation>> waiting;
  {
    const auto state = model.state.lock();
    waiting.swap(state->waiting);
    state->gap_since = 0;
  }
  for (const auto& [number, operation] : waiting)
    if (!why.empty()) commons_.futures.fail(operation->request(), Error(ErrorCode::cancelled, why));
  model.work.at(on).early.clear();
}

std::string ModelLanes::missing_before(const std::string& owner, const std::string& request) const {
  const std::string id = commons_.futures.scope_of(request, owner);
  const std::shared_ptr<HostedModel> model = models_.any(id);
  if (!model) return "";
  const auto state = model->state.lock();
  for (const auto& [sequence, operation] : state->waiting)
    if (operation->request() == request)
      return fmt::format("seq_id {} of model '{}' waits for seq_id {}, which has not come; it counts as skipped {} seconds after it was missed", sequence, id,
                         state->next, commons_.options.gap_seconds);
  return "";
}

void ModelLanes::watch_gap(const std::shared_ptr<HostedModel>& model, double seconds) {
  commons_.deadlines->add(this, deadline_in(seconds), [this, watched = std::weak_ptr(model)] {
    try {
      if (const std::shared_ptr<HostedModel> still = watched.lock()) look_for_gap(still);
    } catch (const std::exception& e) {
      log_error("operations that wait for a missing number could not go on", {{"reason", e.what()}});
    }
  });
}

// A number that was refused before we could see it, or was never sent, would hold up its model for ever.
void ModelLanes::look_for_gap(const std::shared_ptr<HostedModel>& model) {
  const Intake::Entry entry = commons_.intake.enter();
  if (!entry.is_open()) return;
  const auto held = model->state.try_lock();
  if (!held) return watch_gap(model, kLookAgainSeconds);
  ModelState& state = **held;
  state.gap_watched = false;
  if (state.waiting.empty()) return;
  if (const double left = state.gap_since + commons_.options.gap_seconds - unix_now(); left > 0) {
    state.gap_watched = true;
    return watch_gap(model, left);
  }
  log_warning("an operation never came; its model goes on without it", {{"model", model->id}, {"seq_id", state.next}});
  state.next = state.waiting.begin()->first;
  run_ready(model, state);
}

std::string ModelLanes::refuse(const std::string& owner, const std::string& model, std::int64_t sequence, const Error& error) {
  return submit(owner, model, sequence, SentOperation("an operation that could not be read").add(error.what()),
                [error](const OnExecutor&, HostedModel&, const std::string&) -> NumberedOperation::Worked { throw error; });
}

}  // namespace lockstep
