// Aliases: names by which clients reach deployments. An alias has shares of one or more deployments, and remembers the shares it had before, for a
// rollback. Example: "chat" has 95 of v7 and 5 of v8. A client that names itself always reaches the same deployment while that one's share does not
// shrink: for each deployment a number is hashed from both names, and the largest of the weighted numbers wins, so a growing share takes clients from
// the others and moves nobody between these. An alias may have a gate, which later versions must pass (api/openai/channel_gate.h). Knows no service.
// Any thread.
//   TrafficTable traffic; traffic.set("chat", {{"v7", 95}, {"v8", 5}}); traffic.choose("chat", "ann"); traffic.roll_back("chat");
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

struct TrafficShare {
  std::string deployment;
  std::int64_t weight = 1;
  bool operator==(const TrafficShare&) const = default;
};

struct TrafficRule {
  std::string alias;
  std::vector<TrafficShare> shares, before;           // before: those for a rollback; empty: none
  std::shared_ptr<const std::string> gate = nullptr;  // JSON of a request's "gate"; null: none
  std::uint64_t gate_number = 0;                      // of this table, another at each change of a gate
  // Whether it leads to the deployment, or would after a rollback.
  bool may_lead_to(const std::string& deployment) const;
};

class TrafficTable {
 public:
  static constexpr std::size_t kMostAliases = 1024, kMostShares = 16;
  static constexpr std::int64_t kMostWeight = 1'000'000;

  // Setting the present shares has no effect. Errors: invalid_argument (bad name or weight, no share, too many, one twice), resource_exhausted.
  void set(const std::string& alias, std::vector<TrafficShare> shares);
  // Exchanges the present shares with those before. Errors: not_found; unsupported when there are none before.
  TrafficRule roll_back(const std::string& alias);
  // Null removes the gate. Error not_found.
  void set_gate(const std::string& alias, std::shared_ptr<const std::string> gate);
  void remove(const std::string& alias);  // Error not_found
  // The deployment is removed: Error already_exists if an alias has a share of it; earlier shares with it are dropped.
  void forget(const std::string& deployment);

  bool has(std::string_view alias) const;
  // `who` identifies the client; requests with the same one reach the same deployment; empty: random. Nothing: there is no such alias.
  std::optional<std::string> choose(std::string_view alias, std::string_view who) const;
  std::optional<TrafficRule> find(std::string_view alias) const;
  std::vector<TrafficRule> list() const;  // by name

 private:
  std::map<std::string, TrafficRule, std::less<>>::iterator at(const std::string& alias);
  mutable std::mutex mutex_;
  std::map<std::string, TrafficRule, std::less<>> rules_;
  std::uint64_t gates_set_ = 0;
};

// Of shares that are no numbers yet: "v7:95,v8:5", or one name. Error invalid_argument.
std::vector<TrafficShare> parse_shares(std::string_view text);
std::string shares_text(const std::vector<TrafficShare>& shares);

}  // namespace lockstep
