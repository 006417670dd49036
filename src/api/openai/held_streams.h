// Streams that may be held (serving/held_completion.h), by the id of their answers, each with its key and the time that it may be held; and POST
// /v1/streams/{id}, which says how one goes on. One that is held longer than it asked for ends. Any thread; a thread of its own watches the time.
//   streams->add(id, key, seconds, held); streams->held(id, 1, 8); ... streams->act(request, responder); ... streams->remove(id);
#pragma once
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "api/exchange.h"
#include "serving/held_completion.h"

namespace lockstep {

class HeldStreams {
 public:
  static constexpr std::int64_t kMostOfAKey = 64;

  HeldStreams() = default;
  ~HeldStreams();
  HeldStreams(const HeldStreams&) = delete;

  // `owner`: its API key's name. Error resource_exhausted: the key has as many as it may.
  void add(const std::string& id, const std::string& owner, double seconds, const std::shared_ptr<HeldCompletion>& completion);
  void remove(const std::string& id);
  // held(): the stream's time runs from now on. resumed(): it no longer runs.
  void held(const std::string& id, std::int64_t number, std::int64_t position);
  void resumed(const std::string& id);
  // Answers POST /v1/streams/{id}. RequestError not_found: this key has no such stream; others with the field at fault.
  void act(const ApiRequest& request, const std::shared_ptr<Responder>& out);

 private:
  using Clock = std::chrono::steady_clock;
  struct Stream {
    std::string owner;
    double seconds = 0;
    std::weak_ptr<HeldCompletion> completion;  // its service has it until it ends
    std::optional<Clock::time_point> until;    // none: it is not held
    std::int64_t number = 0, position = 0;     // of the hold
  };
  void watch();
  std::shared_ptr<HeldCompletion> find(const std::string& id, const std::string& owner) const;

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::map<std::string, Stream> streams_;
  std::map<std::string, std::int64_t> of_key_;  // streams of a key that has some
  bool stopping_ = false;
  std::thread watch_;  // begun with the first hold
};

}  // namespace lockstep
