#include "api/openai/stored_responses.h"

namespace lockstep {

void StoredResponses::drop(Kept& kept, std::list<Entry>::iterator entry) {
  kept.bytes -= entry->response->bytes();
  bytes_ -= entry->response->bytes();
  kept.by_id.erase(entry->id);
  kept.entries.erase(entry);
}

std::size_t StoredResponses::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void StoredResponses::put(const std::string& owner, const std::string& id, StoredResponse response) {
  if (response.bytes() > most_of_key_) return;
  const auto shared = std::make_shared<const StoredResponse>(std::move(response));
  const std::lock_guard lock(mutex_);
  Kept& kept = of_[owner];
  if (const auto old = kept.by_id.find(id); old != kept.by_id.end()) drop(kept, old->second);
  kept.entries.push_front({id, shared});
  kept.by_id[id] = kept.entries.begin();
  kept.bytes += shared->bytes();
  bytes_ += shared->bytes();
  while (kept.entries.size() > kMost || kept.bytes > most_of_key_) drop(kept, std::prev(kept.entries.end()));
  while (bytes_ > most_) {
    Kept& largest = std::max_element(of_.begin(), of_.end(), [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; })->second;
    drop(largest, std::prev(largest.entries.end()));
  }
}

std::shared_ptr<const StoredResponse> StoredResponses::find(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto kept = of_.find(owner);
  if (kept == of_.end()) return nullptr;
  const auto found = kept->second.by_id.find(id);
  if (found == kept->second.by_id.end()) return nullptr;
  kept->second.entries.splice(kept->second.entries.begin(), kept->second.entries, found->second);
  return found->second->response;
}

bool StoredResponses::erase(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto kept = of_.find(owner);
  if (kept == of_.end()) return false;
  const auto found = kept->second.by_id.find(id);
  if (found == kept->second.by_id.end()) return false;
  drop(kept->second, found->second);
  return true;
}

}  // namespace lockstep
