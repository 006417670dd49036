// Responses that a server stores in memory (`store`, by default true). Each belongs to the API key that made it; no other key can read, continue or
// delete it. Limits: per key kMost responses and kMostBytes, least recently used first; beyond the limit of all keys, the key that holds most loses
// its least recently used. Any thread.
//   StoredResponses kept; kept.put("key", id, {response, items, messages}); kept.find("key", id);
#pragma once
#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep {

struct StoredItem {
  std::string id, json;
};
// As the texts of their JSON; the items of the input each for itself, so that a few are told without all being read.
struct StoredResponse {
  std::string response;
  std::vector<StoredItem> items;
  std::string messages;
  std::size_t bytes() const {
    std::size_t all = response.size() + messages.size();
    for (const StoredItem& one : items) all += sizeof one + one.id.size() + one.json.size();
    return all;
  }
};

class StoredResponses {
 public:
  static constexpr std::size_t kMost = 1000, kMostBytes = std::size_t{32} << 20;  // of each key

  explicit StoredResponses(std::size_t most_bytes = std::size_t{256} << 20) : most_(most_bytes), most_of_key_(std::min(kMostBytes, most_bytes)) {}
  std::size_t most_bytes_of_key() const { return most_of_key_; }
  std::size_t bytes() const;  // of all

  // A response larger than a key's limit is not kept.
  void put(const std::string& owner, const std::string& id, StoredResponse response);
  // The response of that id, which counts as used now; null: `owner` has none.
  std::shared_ptr<const StoredResponse> find(const std::string& owner, const std::string& id);
  bool erase(const std::string& owner, const std::string& id);

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> response;
  };
  struct Kept {
    std::list<Entry> entries;  // the last used first
    std::unordered_map<std::string, std::list<Entry>::iterator> by_id;
    std::size_t bytes = 0;
  };
  void drop(Kept& kept, std::list<Entry>::iterator entry);
  const std::size_t most_, most_of_key_;
  mutable std::mutex mutex_;  // all below
  std::map<std::string, Kept> of_;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep
