#include "host/checkpoint_snapshots.h"

#include <map>
#include <type_traits>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/give_way.h"
#include "base/log.h"

namespace lockstep {
namespace {
constexpr const char* kHeld = "held";  // documents of the training store: the snapshot that a channel holds, by the channel's name
}

CheckpointSnapshots::CheckpointSnapshots(TrainingCommons& commons) : commons_(commons), port_(commons.options.snapshots) {
  if (port_) thread_ = std::thread([this] { run(); });
}

CheckpointSnapshots::~CheckpointSnapshots() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

SnapshotPort& CheckpointSnapshots::port() const {
  if (!port_)
    fail(ErrorCode::invalid_argument, "it is a snapshot of the store that this server published to, and it was started without; start it with --publish");
  return *port_;
}

void CheckpointSnapshots::post(std::function<void()> work, std::size_t most) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= most) fail(ErrorCode::resource_exhausted, "{} saves wait for the store, allowed are so many; try again later", waiting_.size());
    waiting_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void CheckpointSnapshots::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    work();
    work = {};
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void CheckpointSnapshots::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_ && waiting_.empty(); });
}

template <class F>
auto CheckpointSnapshots::noting(const F& made) {
  std::map<std::string, std::string> noted;  // snapshots by channel
  const auto release_but = [&](const std::string& held) {
    for (const auto& [channel, id] : noted)
      if (channel != held) release(channel, id);
  };
  try {
    const auto result = made([&](const std::string& channel, const std::string& id) {
      commons_.store->put(kHeld, channel, TrainingJson{{"snapshot", id}}.dump());
      noted[channel] = id;
    });
    if constexpr (std::is_same_v<std::decay_t<decltype(result)>, SavedSnapshot>) release_but(result.channel);
    else release_but(result);
    return result;
  } catch (const std::exception&) {
    release_but({});
    throw;
  }
}

void CheckpointSnapshots::save(const SamplerWeights& weights, const std::string& name, Done done) {
  SnapshotPort& to = port();
  post(
      [this, &to, weights, name, done = std::move(done)] {
        SavedSnapshot saved;
        try {
          saved = noting([&](const SnapshotPort::Note& note) { return to.save(weights.weights, weights.adapter, name, note); });
        } catch (const std::exception&) {
          return done(nullptr, std::current_exception());
        }
        done(&saved, nullptr);
        try {
          to.tidy();
        } catch (const std::exception& e) {
          log_warning("a snapshot has no ways for who reads it from nothing", {{"snapshot", saved.id}, {"reason", e.what()}});
        }
      },
      kMostWaiting);
}

std::string CheckpointSnapshots::hold(const CheckpointRecord& copied) {
  return noting([&](const SnapshotPort::Note& note) { return port().hold(copied.snapshot, copied.name, note); });
}

void CheckpointSnapshots::release(const std::string& channel, const std::string& snapshot) {
  if (channel.empty() || !port_) return;
  post(
      [this, channel, snapshot] {
        try {
          release_now(channel, snapshot);
        } catch (const std::exception& e) {  // the next start tries it again
          log_warning("a channel of a checkpoint that is gone could not be removed", {{"channel", channel}, {"snapshot", snapshot}, {"reason", e.what()}});
        }
      },
      SIZE_MAX);
}

void CheckpointSnapshots::release_now(const std::string& channel, const std::string& snapshot) {
  port().release(channel, snapshot);
  commons_.store->remove(kHeld, channel);
}

void CheckpointSnapshots::release_all_but(const std::set<std::string>& channels) {
  if (!port_) return;
  commons_.store->each(kHeld, [&](const std::string& channel, const std::string& document) {
    if (!channels.contains(channel)) release(channel, read_own_json(document).value("snapshot", ""));
  });
}

WeightImages CheckpointSnapshots::read(const CheckpointRecord& from, const Manifest& manifest) const {
  return with_context(fmt::format("reading the checkpoint {}", from.path()), [&] {
    const SnapshotPort& store = port();
    WeightImages images;
    give_way_during([&] { images = store.read(from.snapshot, manifest); });
    return images;
  });
}

}  // namespace lockstep
