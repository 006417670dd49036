#include "fleet/follower.h"

#include "base/error.h"
#include "base/log.h"
#include "base/seconds.h"
#include "sync/downloads.h"
#include "sync/snapshot_ways.h"

namespace lockstep {
namespace {
constexpr std::chrono::milliseconds kRetry(1000);
constexpr double kAskSeconds = 0.5;  // between two looks at the channel while a snapshot is staged

// Thrown out of a staging whose target is not the channel's any more.
struct Superseded {};

// Thrown out of it where a gate stands before what was staged.
struct Refused {
  std::string terms, message;
};

ReplicaRecord first_record(const FollowOptions& options, const std::string& model) {
  ReplicaRecord record;
  record.name = options.replica;
  record.url = options.url;
  record.model = model;
  return record;
}
}  // namespace

Follower::Follower(std::shared_ptr<Store> store, std::string channel, std::shared_ptr<GenerationService> service, std::shared_ptr<Runtime> runtime,
                   std::shared_ptr<Executor> executor, std::shared_ptr<const WeightSet> weights, const FollowOptions& options)
    : store_(std::move(store)),
      channel_(std::move(channel)),
      service_(std::move(service)),
      runtime_(runtime),
      options_(options),
      staging_(std::move(runtime), std::move(executor), options.memory, options.part, service_->options().engine.ranks.size()),
      watch_(store_, channel_),
      reporter_(store_, channel_, first_record(options, service_->model().name())) {
  live_.weights = std::move(weights);
  thread_ = std::thread([this] { work(); });
}

Follower::~Follower() { stop(); }

void Follower::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  stop_gate_.stop();
  if (thread_.joinable()) thread_.join();
  reporter_.leave();
}

FleetState Follower::fleet() const {
  const std::lock_guard lock(watch_mutex_);
  return watch_.look();
}

bool Follower::pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, time, [this] { return stopping_; });
}

bool Follower::superseded(const Channel& channel) const {
  const auto now = read_channel_record(*store_, channel_);
  return now && now->sequence > channel.sequence;
}

void Follower::work() {
  do look();
  while (pause(trying_ != 0 ? kRetry : options_.poll));
}

void Follower::look() {
  Channel channel;
  try {
    const auto now = read_channel_record(*store_, channel_);
    if (!now || now->sequence <= done_) {
      if (trying_ != 0) healed();
      return;
    }
    if (now->sequence == refused_ && options_.gate->terms() == refused_terms_) {
      if (std::exchange(trying_, 0) != 0) reporter_.fail(refused_message_);
      return;
    }
    channel = *now;
    take(channel);
    trying_ = refused_ = 0;
  } catch (const Superseded&) {
    trying_ = 0;
  } catch (const Refused& why) {
    kept_out(channel, why.terms, why.message);
  } catch (const std::exception& e) {
    failed(channel, e.what());
  }
}

// The store is there again, and asks for nothing new.
void Follower::healed() {
  trying_ = 0;
  trying_message_.clear();
  reporter_.enter(done_ > 0 ? ReplicaStage::ready : ReplicaStage::waiting);
}

void Follower::kept_out(const Channel& channel, const std::string& terms, const std::string& message) {
  ++totals_.errors;  // before it is told
  reporter_.fail(message);
  trying_ = 0;
  refused_ = channel.sequence;
  refused_terms_ = terms;
  refused_message_ = message;
  log_warning("a gate keeps the channel's snapshot out", {{"channel", channel_}, {"snapshot", channel.target}, {"reason", message}});
}

void Follower::failed(const Channel& channel, const std::string& message) {
  const std::uint64_t number = std::max<std::uint64_t>(channel.sequence, 1);
  const bool was_told = trying_ == number && trying_message_ == message;
  if (!was_told) ++totals_.errors;
  reporter_.fail(message);
  if (was_told) return;
  trying_ = number;
  trying_message_ = message;
  log_error("this replica cannot take the channel's snapshot; it is tried again", {{"channel", channel_}, {"snapshot", channel.target}, {"reason", message}});
}

void Follower::take(const Channel& channel) {
  const auto began = std::chrono::steady_clock::now();
  struct Offer {  // at the end of it others find what is live then, and nothing of what was staged and not taken
    const FollowOptions& options;
    const LiveWeights& live;
    ~Offer() {
      if (options.part) options.part->offer(live.weights);
    }
  } const offer{options_, live_};
  const bool again = trying_ == channel.sequence;  // it failed before: that stays to be seen until it succeeds
  const auto aim = [&](ReplicaRecord& r) {
    if (r.sequence != channel.sequence) {
      r.seconds = {};
      r.downloaded_bytes = r.full_bytes = r.changed_tensors = 0;
    }
    r.target = channel.target;
    r.sequence = channel.sequence;
  };
  if (again) reporter_.change(aim);
  else reporter_.enter(ReplicaStage::downloading, aim);
  auto asked = began;
  const auto enter = [&](ReplicaStage stage) {
    if (!again) reporter_.enter(stage);
    if (const std::lock_guard lock(mutex_); stopping_) throw Superseded();
    if (seconds_since(asked) < kAskSeconds) return;
    asked = std::chrono::steady_clock::now();
    if (superseded(channel)) throw Superseded();
  };
  enter(ReplicaStage::downloading);
  std::optional<Downloads> near;
  if (store_->is_far()) near.emplace(*store_, options_.downloads, DownloadOptions{});
  const Store& store = near ? static_cast<const Store&>(*near) : *store_;
  const SnapshotChain chain(store, channel.target, {}, "the live weights", plan_path(store, channel.target, reporter_.record().current).ids);
  const auto base = [&] {
    if (base_sha256_.empty() && options_.base_sha256) base_sha256_ = options_.base_sha256();
    return base_sha256_;
  };
  StagedWeights staged = staging_.stage(store, chain, live_, channel.sequence, base, enter);
  const std::uint64_t fetched = near ? near->arrived() : chain.fetched();
  if (near) near->clear();
  totals_.downloaded_bytes += fetched;
  totals_.full_bytes += staged.full_bytes;
  reporter_.change([&](ReplicaRecord& r) {
    r.full_bytes = staged.full_bytes;
    r.downloaded_bytes = fetched;
    r.changed_tensors = staged.changed_tensors;
  });
  bool live = false;
  while (!live) {
    const std::string terms = pass_gate(staged, channel);
    reporter_.enter(ReplicaStage::staged);
    if (channel.transition == "staged") wait_for_others(channel);
    const auto go = [&] { swap(staged, channel, began); };
    if (options_.gate) live = options_.gate->go_live(terms, go);
    else go(), live = true;
  }
}

// What the gate asked, and found good.
std::string Follower::pass_gate(const StagedWeights& staged, const Channel& channel) {
  const std::string terms = options_.gate ? options_.gate->terms() : std::string();
  const bool is_live = staged.changed_tensors == 0 && !staged.next.adapter && !live_.adapter;
  if (terms.empty() || is_live) return terms;
  reporter_.enter(ReplicaStage::verifying);
  std::string why;
  try {
    why = options_.gate->refuses(channel.target, staged.next.weights, staged.next.adapter, stop_gate_.token());
  } catch (const Error& e) {
    if (e.code() != ErrorCode::cancelled) throw;
    throw Superseded();  // it is to stop
  }
  if (!why.empty()) throw Refused{terms, why};
  return terms;
}

void Follower::wait_for_others(const Channel& channel) {
  while (!fleet().all_staged(channel.sequence)) {
    if (superseded(channel) || !pause(options_.poll)) throw Superseded();
  }
}

void Follower::swap(StagedWeights& staged, const Channel& channel, std::chrono::steady_clock::time_point signalled) {
  reporter_.enter(ReplicaStage::swapping);
  const auto began = std::chrono::steady_clock::now();
  service_->weights().swap(
      [&](const OnExecutor& on) -> ServedWeights::Swapped {
        if (!staged.next.weights) staged.next.weights = staging_.write(on, staged, live_);
        return {staged.next.weights, staged.next.adapter};
      },
      {staged.version, channel.target, options_.identity_of ? options_.identity_of(channel.target) : channel.target}, options_.in_flight);
  live_ = std::move(staged.next);
  done_ = channel.sequence;
  totals_.swap_seconds = seconds_since(began);
  totals_.ready_seconds = seconds_since(signalled);
  ++totals_.swaps;
  reporter_.enter(ReplicaStage::ready, [&](ReplicaRecord& r) {
    r.current = channel.target;
    r.current_sequence = channel.sequence;
  });
  log_info("weights swapped", {{"channel", channel_}, {"number", channel.sequence}, {"snapshot", channel.target}});
}

void Follower::append_metrics(PrometheusText& text) const {
  const ReplicaRecord r = record();
  const auto one = [&](std::string_view name, std::string_view type, std::string_view help, double value) {
    text.family(name, type, help);
    text.sample({}, value);
  };
  text.family("lockstep_sync_stage", "gauge", "1 for the stage in which this replica is on the way to the channel's snapshot.");
  for (std::size_t i = 0; i < kReplicaStages; ++i)
    text.sample({{"stage", stage_name(static_cast<ReplicaStage>(i))}}, static_cast<std::size_t>(r.stage) == i ? 1 : 0);
  one("lockstep_sync_current_sequence", "gauge", "Number of the channel that this replica serves.", static_cast<double>(r.current_sequence));
  one("lockstep_sync_target_sequence", "gauge", "Number of the channel that this replica is on the way to.", static_cast<double>(r.sequence));
  one("lockstep_sync_swaps_total", "counter", "Snapshots that went live here.", static_cast<double>(totals_.swaps));
  one("lockstep_sync_errors_total", "counter", "Snapshots that could not be taken; one that is tried again counts once.", static_cast<double>(totals_.errors));
  one("lockstep_sync_downloaded_bytes_total", "counter", "Payload bytes read from the store.", static_cast<double>(totals_.downloaded_bytes));
  one("lockstep_sync_full_bytes_total", "counter", "Bytes of all tensors of the snapshots that these stood for.", static_cast<double>(totals_.full_bytes));
  one("lockstep_sync_swap_seconds", "gauge", "How long the last swap took, its wait for the running step included.", totals_.swap_seconds);
  one("lockstep_sync_ready_seconds", "gauge", "From the last signal that was taken until this replica was ready.", totals_.ready_seconds);
}

}  // namespace lockstep
