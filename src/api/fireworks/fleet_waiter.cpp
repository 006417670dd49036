#include "api/fireworks/fleet_waiter.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/errors.h"
#include "base/log.h"
#include "base/server_paths.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostWaiting = 1024;
}  // namespace

struct FleetWaiter::State {
  struct Waiting {
    FleetDelivery delivery;
    std::shared_ptr<Responder> out;
    std::string transition;
    std::chrono::steady_clock::time_point until;
    Told told = {};
    FleetSignal signal = {};
    bool delivered = false;         // it has a signal
    std::exception_ptr fault = {};  // of taking it in
  };
  std::shared_ptr<FleetPort> fleet;
  std::chrono::milliseconds longest{};  // until a request is answered
  std::mutex mutex;                     // guards all below, and a Waiting until it is delivered
  std::condition_variable wake;
  std::list<std::shared_ptr<Waiting>> waiting;
  std::size_t open = 0;  // requests that wait, those that work() looks at now included
  bool stopping = false;
  std::string failed, failure;  // the name of what could not be taken in, until another load
  std::uint64_t failed_at = 0;  // the fleet's last signal then

  void work();
  FleetProgress progress_of(const FleetSignal& signal) const;
  void deliver(Waiting& one);
  std::uint64_t last_signal() const;
};

namespace {
// The error as clients see it: with the field's name, and without the server's paths.
RequestError load_error(const Error& e) { return {e.code(), "identity", without_server_paths(e.what())}; }
// An error in files that a client asked for: they are damaged, not the server, and asking again does not help.
RequestError delivery_error(const Error& e) {
  if (e.code() != ErrorCode::corrupt_file) return load_error(e);
  return {e.code(), "identity", without_server_paths(e.what()), http_status(ErrorCode::invalid_argument), "corrupt_file"};
}
}  // namespace

// Looks 50 times a second, once for all requests that wait for the same signal.
void FleetWaiter::State::work() {
  constexpr auto kPoll = std::chrono::milliseconds(20);
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [this] { return stopping || !waiting.empty(); });
    std::list<std::shared_ptr<Waiting>> now = std::move(waiting), delivered;
    waiting.clear();
    std::vector<std::pair<std::shared_ptr<Waiting>, std::exception_ptr>> ended;  // that were not delivered, and why
    for (auto one = now.begin(); one != now.end();) {
      const auto here = one++;
      if ((*here)->delivered) delivered.splice(delivered.end(), now, here);
      else if ((*here)->fault || stopping || std::chrono::steady_clock::now() >= (*here)->until) {
        ended.emplace_back(*here, (*here)->fault);
        now.erase(here);
      }
    }
    waiting.splice(waiting.end(), now);
    const bool last = stopping;
    lock.unlock();
    std::map<std::uint64_t, FleetProgress> seen;  // by the signal's number
    std::size_t answered = 0;
    const auto answer = [&](const Waiting& one, const FleetProgress& progress) {
      ++answered;
      if (one.told) one.told(progress);
      nlohmann::ordered_json json{{"identity", one.delivery.identity}, {"ready", progress.ready}};
      if (!progress.error.empty()) json["message"] = without_server_paths(progress.error);
      one.out->send({200, "application/json", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), {}});
    };
    for (auto one = delivered.begin(); one != delivered.end();) {
      const auto [found, fresh] = seen.try_emplace((*one)->signal.sequence);
      if (fresh) found->second = progress_of((*one)->signal);
      if (found->second.ended || last || std::chrono::steady_clock::now() >= (*one)->until) {
        answer(**one, found->second);
        one = delivered.erase(one);
      } else {
        ++one;
      }
    }
    for (const auto& [one, fault] : ended) {
      if (!fault) {
        answer(*one, {});
        continue;
      }
      ++answered;
      try {
        std::rethrow_exception(fault);
      } catch (const Error& e) {
        if (one->told) one->told({.ready = false, .ended = true, .error = e.what()});
        one->out->send(error_response(delivery_error(e)));
      } catch (const std::exception& e) {
        if (one->told) one->told({.ready = false, .ended = true, .error = e.what()});
        one->out->send(error_response(e));
      }
    }
    lock.lock();
    open -= answered;
    waiting.splice(waiting.end(), delivered);
    if (last) return;
    wake.wait_for(lock, kPoll, [this] { return stopping; });
  }
}

FleetProgress FleetWaiter::State::progress_of(const FleetSignal& signal) const {
  try {
    return fleet->progress(signal);
  } catch (const std::exception& e) {  // the store may come back
    log_warning("the fleet cannot be seen", {{"reason", e.what()}});
    return {};
  }
}

std::uint64_t FleetWaiter::State::last_signal() const {
  std::uint64_t last = 0;
  for (const FleetMember& one : fleet->members()) last = std::max(last, one.sequence);
  return last;
}

// If the request was answered meanwhile (`longest`), a fault is shown to those that ask for the replicas.
void FleetWaiter::State::deliver(Waiting& one) {
  FleetSignal signal;
  std::exception_ptr fault;
  std::string message;
  std::uint64_t at = 0;
  try {
    fleet->take_in(one.delivery);
    signal = fleet->load(one.delivery.identity, one.transition);
  } catch (const std::exception& e) {
    fault = std::current_exception();
    message = e.what();
    log_warning("a snapshot could not be taken in", {{"name", one.delivery.identity}, {"reason", message}});
    try {
      at = last_signal();
    } catch (const std::exception&) {  // the store is not there: its next signal ends what is told
    }
  }
  const std::lock_guard lock(mutex);
  one.signal = std::move(signal);
  one.delivered = !fault;
  one.fault = fault;
  failed = fault ? one.delivery.identity : std::string();
  failure = message;
  failed_at = at;
}

FleetWaiter::FleetWaiter(std::shared_ptr<FleetPort> fleet, double seconds) : state_(std::make_shared<State>()) {
  state_->fleet = std::move(fleet);
  state_->longest = std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
  thread_ = std::thread([state = state_] { state->work(); });
}

FleetWaiter::~FleetWaiter() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->wake.notify_all();
  }
  thread_.join();
}

void FleetWaiter::load(const FleetDelivery& delivery, const std::shared_ptr<Responder>& out, const std::string& transition, const Told& told) {
  const auto until = std::chrono::steady_clock::now() + state_->longest;
  const auto one = std::make_shared<State::Waiting>(State::Waiting{delivery, out, transition, until, told});
  const bool delivers = delivery.snapshot.empty() && state_->fleet->has_delivery(delivery.identity);
  if (!delivers) {
    try {
      one->signal = state_->fleet->load(delivery.snapshot.empty() ? delivery.identity : delivery.snapshot, transition);
    } catch (const Error& e) {
      throw load_error(e);
    }
    one->delivered = true;
  }
  const auto too_many = [] { fail(ErrorCode::resource_exhausted, "{} hot loads wait for the fleet, allowed are so many; try again later", kMostWaiting); };
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->open >= kMostWaiting) too_many();
    if (!delivers) state_->failed.clear();
  }
  if (delivers && !deliveries_.post([state = state_, one] { state->deliver(*one); })) too_many();
  const std::lock_guard lock(state_->mutex);
  state_->waiting.push_back(one);
  ++state_->open;
  state_->wake.notify_all();
}

std::vector<FleetMember> FleetWaiter::members() {
  std::vector<FleetMember> members = state_->fleet->members();
  const std::lock_guard lock(state_->mutex);
  if (std::any_of(members.begin(), members.end(), [this](const FleetMember& one) { return one.sequence > state_->failed_at; })) state_->failed.clear();
  if (members.empty() || state_->failed.empty()) return members;
  members.front().stage = "error";
  members.front().target_identity = state_->failed;
  members.front().error = state_->failure;
  return members;
}

}  // namespace lockstep
