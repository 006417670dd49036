// The responses that a server keeps (`store`, by default true), until it ends: each belongs to the key that made it, and no other key can read,
// continue or delete it. Of each key the last used are kept: at most kMost, and kMostBytes together. Any thread.
//   StoredResponses kept; kept.put("key", id, {response, items, messages}); kept.find("key", id);
#pragma once
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace lockstep {

// As the texts of their JSON.
struct StoredResponse {
  std::string response, items, messages;
  std::size_t bytes() const { return response.size() + items.size() + messages.size(); }
};

class StoredResponses {
 public:
  static constexpr std::size_t kMost = 1000, kMostBytes = std::size_t{32} << 20;  // of each key

  // One larger than kMostBytes is not kept.
  void put(const std::string& owner, const std::string& id, StoredResponse response);
  // Null: there is none of that id that `owner` made. Found ones count as used.
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
  static void drop(Kept& kept, std::list<Entry>::iterator entry);
  std::mutex mutex_;
  std::map<std::string, Kept> of_;
};

}  // namespace lockstep
