#include "host/checkpoints.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/bounded_json.h"
#include "base/entropy.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "host/sessions.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

// "tinker://adapters/external_weights/NAME": an adapter of `lockstep serve --adapter NAME=DIR`.
constexpr std::string_view kNamedAdapters = "tinker://adapters/external_weights/";

// What a client's words for a checkpoint say.
struct CheckpointWords {
  std::string name, run, job;  // empty: not said
};
CheckpointWords words_of(const std::string& path) {
  constexpr std::string_view kCrossJob = "cross_job://";
  CheckpointWords words;
  const std::size_t last = path.rfind('/');
  words.name = last == std::string::npos ? path : path.substr(last + 1);
  if (last == std::string::npos) return words;
  if (path.starts_with(kCrossJob)) {
    words.job = path.substr(kCrossJob.size(), last - std::min(last, kCrossJob.size()));
    return words;
  }
  const std::size_t before = last == 0 ? std::string::npos : path.rfind('/', last - 1);
  const std::string owner_of_name = path.substr(before == std::string::npos ? 0 : before + 1, last - (before == std::string::npos ? 0 : before + 1));
  if (owner_of_name.starts_with("run-")) words.run = owner_of_name;
  return words;
}

bool is_expired(const CheckpointRecord& record) { return record.expires && *record.expires < unix_now(); }

[[noreturn]] void fail_absent(const std::string& path) { fail(ErrorCode::not_found, "there is no checkpoint '{}'", path); }
}  // namespace

Checkpoints::Checkpoints(TrainingCommons& commons, Sessions& sessions, const StoredRecords<PromotedModel>& promoted, CheckpointSnapshots& snapshots)
    : commons_(commons), sessions_(sessions), promoted_(promoted), snapshots_(snapshots), state_(std::in_place, commons.limit_of(commons.options.max_numbers)) {
  std::map<std::string, CheckpointRecord> records;
  commons_.store->each("checkpoint", [&](const std::string& path, const std::string& document) { records[path] = checkpoint_record(read_own_json(document)); });
  std::set<std::string> channels;
  for (const auto& [path, record] : records) channels.insert(record.channel);
  snapshots_.release_all_but(channels);
  const auto state = state_.lock();
  state->records = std::move(records);
}

fs::path Checkpoints::folder(const CheckpointRecord& record) const {
  return commons_.options.state / "checkpoints" / folder_of_id(record.model) / record.kind / record.name;
}

std::optional<CheckpointRecord> Checkpoints::named_adapter(const std::string& path) const {
  if (!path.starts_with(kNamedAdapters)) return std::nullopt;
  const std::optional<NamedAdapter> adapter = commons_.generation->adapters().find(path.substr(kNamedAdapters.size()));
  if (!adapter) return std::nullopt;
  CheckpointRecord record;
  record.model = kNamedAdapterModel;
  record.kind = "external_weights";
  record.name = adapter->name;
  record.created = adapter->loaded;
  record.is_public = true;
  const AdapterSettings& settings = adapter->weights->layout->settings();
  record.settings.base_model = commons_.base->name;
  record.settings.rank = settings.rank;
  record.settings.alpha = settings.alpha;
  record.settings.train_attn = settings.attention;
  record.settings.train_mlp = settings.mlp;
  record.settings.train_unembed = settings.unembedding;
  return record;
}

CheckpointRecord Checkpoints::find(const std::string& owner, const std::string& path, const std::string& kind, const std::string& model) {
  remove_expired();
  if (std::optional<CheckpointRecord> named = named_adapter(path)) return *named;
  const auto state = state_.lock();
  std::string wanted = path;
  if (!path.starts_with("tinker://")) {
    const CheckpointWords words = words_of(path);
    const CheckpointRecord* newest = nullptr;
    for (const auto& [key, record] : state->records)
      if (record.owner == owner && !is_expired(record) && record.kind == kind && record.name == words.name &&
          (words.run.empty() || record.run() == words.run) && (words.job.empty() || job_of(record) == words.job) &&
          (!newest || (record.model == model && newest->model != model) || (newest->model != model && record.created > newest->created)))
        newest = &record;
    if (newest) wanted = newest->path();
  }
  const auto found = state->records.find(wanted);
  if (found == state->records.end() || is_expired(found->second) || (found->second.owner != owner && !found->second.is_public)) fail_absent(path);
  return found->second;
}

bool Checkpoints::contains(const std::string& path) const {
  const auto state = state_.lock();
  return state->records.contains(path) || std::any_of(state->begun.begin(), state->begun.end(), [&](const Begun& one) { return one.path == path; });
}

std::shared_ptr<void> Checkpoints::begin(const CheckpointRecord& record, std::int64_t bytes) {
  const auto state = state_.lock();
  const auto at = state->begun.insert(state->begun.end(), Begun{record.path(), record.owner, bytes});
  return {nullptr, [this, at](void*) {
            const auto now = state_.lock();
            now->begun.erase(at);
          }};
}

void Checkpoints::check_room(const std::string& owner, const std::string& path, std::int64_t bytes, std::int64_t metadata) {
  const KeyLimit limit = commons_.limit_of(commons_.options.max_checkpoints);
  const char* const remedy = "delete some, or let them expire";
  std::int64_t all = 0, own = 0, count = 0, own_count = 0;
  promoted_.each([&](const PromotedModel& model) {
    all += model.bytes;
    if (model.owner == owner) own += model.bytes;
  });
  {
    const auto state = state_.lock();
    for (const auto& [key, record] : state->records) {
      if (key == path) continue;
      all += record.bytes, ++count;
      if (record.owner == owner) own += record.bytes, ++own_count;
    }
    for (const Begun& one : state->begun) {
      if (one.path == path) continue;
      all += one.bytes, ++count;
      if (one.owner == owner) own += one.bytes, ++own_count;
    }
  }
  { const auto held = commons_.metadata.hold(owner, metadata); }
  limit.check_room(count, own_count, "checkpoints", remedy);
  std::int64_t most = commons_.options.checkpoint_bytes;
  if (most == 0) {
    std::error_code error;
    const fs::space_info disk = fs::space(commons_.options.state, error);
    most = error ? std::numeric_limits<std::int64_t>::max() / 200 : static_cast<std::int64_t>(disk.capacity / 2);
  }
  commons_.limit_of(most).check_bytes(all, own, bytes, "checkpoints and promoted models", remedy, "--checkpoint-megabytes, --key-share");
}

std::string Checkpoints::job_of(const CheckpointRecord& record) const {
  if (!record.job.empty()) return record.job;
  const std::string job = sessions_.job_of(record.session);
  return job.empty() ? "local" : job;
}

std::vector<CheckpointRecord> Checkpoints::of_job(const std::string& owner, const std::string& job) {
  std::vector<CheckpointRecord> of_owner = all(owner);
  std::erase_if(of_owner, [&](const CheckpointRecord& record) { return job_of(record) != job; });
  return of_owner;
}

std::vector<CheckpointRecord> Checkpoints::all(const std::string& owner, const std::string& model) {
  remove_expired();
  const auto state = state_.lock();
  std::vector<CheckpointRecord> out;
  for (const auto& [path, record] : state->records)
    if (record.owner == owner && !is_expired(record) && (model.empty() || record.model == model)) out.push_back(record);
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.created < b.created; });
  return out;
}

// From a change of the writer's.
void Checkpoints::store(const CheckpointRecord& record) {
  commons_.store->put("checkpoint", record.path(), to_json(record).dump());
  const auto state = state_.lock();
  state->records[record.path()] = record;
}

// From a change of the writer's: nobody puts the checkpoint anew while its files go.
void Checkpoints::forget(const CheckpointRecord& record) {
  commons_.store->remove("checkpoint", record.path());
  {
    const auto state = state_.lock();
    state->records.erase(record.path());
  }
  if (record.snapshot.empty()) remove_files(record);
  else snapshots_.release(record);
}

void Checkpoints::remove_files(const CheckpointRecord& record) const {
  std::error_code error;
  fs::remove_all(folder(record), error);
  if (error) log_warning("a removed checkpoint is still on disk", {{"checkpoint", record.path()}, {"reason", error.message()}});
}

std::optional<CheckpointRecord> Checkpoints::at(const std::string& path) const {
  const auto state = state_.lock();
  const auto found = state->records.find(path);
  return found == state->records.end() ? std::nullopt : std::optional(found->second);
}

void Checkpoints::put(const CheckpointRecord& record) {
  std::optional<CheckpointRecord> before;
  writer_.change([&] {
    before = at(record.path());
    store(record);
    if (before && before->snapshot.empty() && !record.snapshot.empty()) remove_files(*before);
  });
  if (!before || before->snapshot.empty()) return;
  if (!record.snapshot.empty() && before->channel == record.name) take_name(record, *before);
  else snapshots_.release(*before);
}

// Each is held at every moment, so that a kill leaves the old checkpoint or the new one.
void Checkpoints::take_name(const CheckpointRecord& record, const CheckpointRecord& replaced) {
  try {
    snapshots_.release_now(replaced.channel, replaced.snapshot);
    const std::string channel = snapshots_.hold(record);
    bool is_current = false;
    writer_.change([&] {
      std::optional<CheckpointRecord> now = at(record.path());
      if (!now || now->channel != record.channel) return;
      now->channel = channel;
      store(*now);
      is_current = true;
    });
    snapshots_.release(is_current ? record.channel : channel, record.snapshot);
  } catch (const std::exception& e) {  // it keeps the name that was made up
    log_warning("a channel could not be given to the checkpoint that replaced another", {{"checkpoint", record.path()}, {"reason", e.what()}});
  }
}

void Checkpoints::remove(const std::string& owner, const std::string& path) {
  const CheckpointRecord record = find(owner, path);
  if (record.owner != owner) fail_absent(path);
  writer_.change([&] { forget(record); });
}

void Checkpoints::change(const std::string& owner, const std::string& path, const std::function<void(CheckpointRecord&)>& change) {
  const std::string key = find(owner, path).path();
  writer_.change([&] {
    std::optional<CheckpointRecord> record = at(key);
    if (!record || record->owner != owner) fail_absent(path);
    change(*record);
    store(*record);
  });
}

// Nobody sees them any more; while another change waits for the disk they stay there, so that whoever looks does not wait.
void Checkpoints::remove_expired() {
  const auto expired = [&] {
    std::vector<CheckpointRecord> found;
    const auto state = state_.lock();
    for (const auto& [path, record] : state->records)
      if (is_expired(record)) found.push_back(record);
    return found;
  };
  if (expired().empty()) return;
  writer_.try_change([&] {
    for (const CheckpointRecord& record : expired()) forget(record);
  });
}

fs::path Checkpoints::external_folder(const std::string& owner, const std::string& path) {
  const CheckpointRecord record = find(owner, path);
  if (record.kind != "external_weights" || record.model == kNamedAdapterModel)
    fail(ErrorCode::invalid_argument, "the checkpoint {} is none of save_weights_external", record.path());
  return folder(record);
}

std::string Checkpoints::copy(const std::string& owner, const CopyRequest& wanted) {
  check_ttl(wanted.ttl_seconds);
  const CheckpointRecord from = find(owner, wanted.source);
  const std::string copy_scope = owner + " " + wanted.idempotency_key;
  if (from.model == kNamedAdapterModel)
    fail(ErrorCode::invalid_argument, "{} is an adapter of the server, and can be named by all; allowed are checkpoints", from.path());
  CheckpointRecord record = from;
  record.owner = owner;
  record.created = unix_now();
  record.expires = wanted.ttl_seconds ? std::optional(record.created + *wanted.ttl_seconds) : std::nullopt;
  record.is_public = false;
  check_short_text("destination_project_id", wanted.project);
  record.project = wanted.project;
  if (!wanted.session.empty()) {
    sessions_.find(owner, wanted.session);
    record.model = fmt::format("{}:train:{}", wanted.session, wanted.number);
  }
  const std::lock_guard one_at_a_time(copying_);
  {
    const auto state = state_.lock();
    if (const std::string* same = wanted.idempotency_key.empty() ? nullptr : state->copies.find(owner, copy_scope, 0)) return *same;
    if (wanted.session.empty()) record.model = "copy-" + hex64(random_bits());
    else sessions_.check_takes_work(wanted.session);
    if (state->records.contains(record.path())) fail(ErrorCode::already_exists, "the checkpoint {} exists already", record.path());
  }
  check_room(owner, record.path(), from.bytes, record.user_metadata.bytes() + record.settings.user_metadata.bytes());
  if (from.snapshot.empty()) copy_files(from, record);
  else record.channel = snapshots_.hold(record);
  try {
    put(record);
  } catch (const std::exception&) {
    if (!record.snapshot.empty()) snapshots_.release(record);
    throw;
  }
  const auto state = state_.lock();
  if (!wanted.idempotency_key.empty()) state->copies.put(owner, copy_scope, 0, record.path());
  return record.path();
}

void Checkpoints::copy_files(const CheckpointRecord& from, const CheckpointRecord& record) const {
  const fs::path to = folder(record), source = folder(from);
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", to.parent_path().string(), error.message());
  AtomicFolder copied(to, AtomicFolder::Existing::replace);  // links: a file of a checkpoint is never written again
  fs::copy(source, copied.partial(), fs::copy_options::recursive | fs::copy_options::create_hard_links, error);
  if (error) fail(ErrorCode::io, "the checkpoint {} cannot be copied: {}", from.path(), error.message());
  copied.commit();
}

void Checkpoints::store_job(const SessionRecord& session) {
  if (session.job.empty()) return;
  writer_.change([&] {
    std::vector<CheckpointRecord> of_session;
    {
      const auto state = state_.lock();
      for (const auto& [path, checkpoint] : state->records)
        if (checkpoint.session == session.id) of_session.push_back(checkpoint);
    }
    for (CheckpointRecord& checkpoint : of_session) {
      checkpoint.job = session.job;
      store(checkpoint);
    }
  });
}

void Checkpoints::each_metadata(const MetadataRoom::Count& count) const {
  const auto state = state_.lock();
  for (const auto& [path, one] : state->records) count(one.owner, one.user_metadata.bytes() + one.settings.user_metadata.bytes());
}

std::size_t Checkpoints::count() const {
  const auto state = state_.lock();
  return state->records.size();
}

}  // namespace lockstep
