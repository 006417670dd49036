#include "host/waiting_gradients.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "host/training_records.h"

namespace lockstep {
namespace {
void remove_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) log_warning("gradients that are not needed any more are still on disk", {{"folder", folder.filename().string()}, {"reason", error.message()}});
}
}  // namespace

WaitingGradients::WaitingGradients(std::filesystem::path folder, const KeyLimit& bytes) : folder_(std::move(folder)), limit_(bytes) {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
  if (!error) std::filesystem::create_directories(folder_, error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", folder_.string(), error.message());
}

WaitingGradients::~WaitingGradients() { remove_folder(folder_); }

std::filesystem::path WaitingGradients::folder_of(const std::string& model) const { return folder_ / folder_of_id(model); }

void WaitingGradients::claim(const std::string& model, const std::string& owner, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto known = entries_.find(model);
  if (known != entries_.end() && bytes <= known->second.bytes) return;
  std::int64_t all = 0, own = 0;
  for (const auto& [id, entry] : entries_) {
    if (id == model) continue;
    all += entry.bytes;
    if (entry.owner == owner) own += entry.bytes;
  }
  limit_.check_bytes(all, own, bytes, "gradients that no optim_step has taken", "step or unload some of their models", "--gradient-megabytes, --key-share");
  Entry& entry = entries_[model];
  entry.owner = owner;
  entry.bytes = bytes;
}

std::int64_t WaitingGradients::claimed() const {
  const std::lock_guard lock(mutex_);
  std::int64_t all = 0;
  for (const auto& [id, entry] : entries_) all += entry.bytes;
  return all;
}

void WaitingGradients::save(const std::string& model, TrainedModel& trained) {
  TrainedModel::ParkedBatch batch = trained.save_gradients(folder_of(model));
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[model];
  entry.on_disk = true;
  entry.batch = std::move(batch);
}

bool WaitingGradients::has(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(model);
  return found != entries_.end() && found->second.on_disk;
}

void WaitingGradients::load(const std::string& model, TrainedModel& trained) const {
  TrainedModel::ParkedBatch batch;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = entries_.find(model); found != entries_.end()) batch = found->second.batch;
  }
  trained.load_gradients(folder_of(model), batch);
}

void WaitingGradients::remove_files(const std::string& model) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(model);
    if (found == entries_.end() || !std::exchange(found->second.on_disk, false)) return;
    found->second.batch = nullptr;
  }
  remove_folder(folder_of(model));
}

void WaitingGradients::drop(const std::string& model) {
  remove_files(model);
  const std::lock_guard lock(mutex_);
  entries_.erase(model);
}

std::int64_t gradient_file_bytes(const Manifest& manifest, bool accumulators, const std::vector<TrainSequence>& data) {
  constexpr std::int64_t kAccumulator = 24, kGradient = 4, kBlock = 64;  // a block's head, and numbers beside it
  std::int64_t bytes = 1024;
  for (const Parameter& p : manifest.parameters())
    if (p.trained)
      bytes += kBlock + (!accumulators                         ? p.size() * kGradient
                         : p.layout == ParameterLayout::packed ? p.size() * kAccumulator
                                                               : p.table_rows() * ((p.inputs + 15) / 16 * 16) * kAccumulator);
  if (accumulators) return bytes;
  for (const TrainSequence& s : data) {
    for (const KeptTokens& kept : s.kept_tokens) bytes += 3 * kBlock + kGradient * std::ssize(kept.words);
    bytes += 16 * kBlock + kGradient * static_cast<std::int64_t>(s.tokens.size() + s.targets.size() + s.weights.size() + s.advantages.size() +
                                                                 s.old_logprobs.size() + s.proximal_logprobs.size() + s.reference_logprobs.size() +
                                                                 s.clip_low.size() + s.clip_high.size() + s.ratio_mask.size() + s.experts.size());
  }
  return bytes;
}

}  // namespace lockstep
