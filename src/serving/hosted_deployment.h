// Deployments as clients of a hosted service make them: names under which a model is sampled while its weights are replaced (hot load), each with a ledger
// of its loads. Where they are kept is behind a port: in a trainer's database (host/stored_records.h), in a fleet's store (fleet/channel_deployments.h),
// or in this process. Owners do not see each other's. Any thread.
//   deployments->change("ann", "accounts/local/deployments/d", [](Deployment& one) { one.base_model = "m"; });
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// An entry of a deployment's history of hot loads.
struct HotLoad {
  static constexpr const char* kAnyWay = "any";  // a type: each replica takes a way of its own, by deltas or whole
  std::string identity, type;                    // type: CheckpointRecord's, or kAnyWay; empty: unknown
  double began = 0, ended = 0;                   // ended 0: replicas are on their way
  std::string failure;                           // empty: it was loaded
};

// A name under which the snapshots of a model are sampled, one after another (hot load).
struct Deployment {
  std::string owner, name;
  double created = 0;
  std::string base_model, trainer_job, shape, transition_type, description;
  std::int64_t min_replicas = 0, max_replicas = 0;
  std::string identity;              // the client's name of the snapshot that is served; empty: the base
  std::string checkpoint;            // its path; of a trainer
  std::string failed, failure;       // the last identity that could not be loaded, and why
  bool guesses = true;               // false: no speculative decoding (docs/speculation.md)
  std::vector<HotLoad> ledger = {};  // the oldest first
  static constexpr std::size_t kMostHotLoads = 100;

  void add(HotLoad load);  // to the ledger, whose oldest entries go
};

nlohmann::ordered_json to_json(const Deployment& record);
void from_json(const nlohmann::ordered_json& json, Deployment& record);

class HostedDeployments {
 public:
  using Change = std::function<void(Deployment&)>;
  virtual ~HostedDeployments() = default;
  virtual std::optional<Deployment> find(const std::string& owner, const std::string& name) = 0;
  virtual std::vector<Deployment> all(const std::string& owner) = 0;  // the oldest first
  // Changes one, after making it if it is missing, and returns it. If `change` throws, nothing is changed. Errors: resource_exhausted: there are too many;
  // those of where they are kept.
  Deployment change(const std::string& owner, const std::string& name, const Change& change) { return changed(owner, name, change, true).value(); }
  // The same of one that is there, found in the moment of its change; there is none: nothing is made, and nothing returned.
  std::optional<Deployment> change_existing(const std::string& owner, const std::string& name, const Change& change) {
    return changed(owner, name, change, false);
  }
  virtual void remove(const std::string& owner, const std::string& name) = 0;

 protected:
  // `makes`: one that is missing.
  virtual std::optional<Deployment> changed(const std::string& owner, const std::string& name, const Change& change, bool makes) = 0;
};

// What change() makes of one, or of none.
Deployment changed_deployment(std::optional<Deployment> before, const std::string& owner, const std::string& name, const HostedDeployments::Change& change);
void sort_by_age(std::vector<Deployment>& deployments);

inline constexpr std::size_t kMostHostedDeployments = 1000;
// Whether one more may be made, where there are so many; `own`: how many of them are its owner's, asked only where it matters. `key_share`: the part of the
// limit that one owner may have, in percent. Error resource_exhausted; `place` begins its sentence.
void check_deployment_room(std::size_t all, const std::function<std::size_t()>& own, std::int64_t key_share, const std::string& place);

// Those of this process.
class LocalDeployments : public HostedDeployments {
 public:
  // `file`: where they are kept over a restart; empty: nowhere. Error corrupt_file, with what to do about it.
  explicit LocalDeployments(std::filesystem::path file = {}, std::int64_t key_share = 50);
  std::optional<Deployment> find(const std::string& owner, const std::string& name) override;
  std::vector<Deployment> all(const std::string& owner) override;
  void remove(const std::string& owner, const std::string& name) override;

 protected:
  std::optional<Deployment> changed(const std::string& owner, const std::string& name, const Change& change, bool makes) override;

 private:
  using ByName = std::map<std::pair<std::string, std::string>, Deployment>;  // by owner and name
  void keep(ByName changed);
  const std::filesystem::path file_;
  const std::int64_t key_share_;
  std::mutex changes_;  // one at a time; who looks up does not wait for the disk of a change
  std::mutex mutex_;
  ByName deployments_;  // is written under both
};

}  // namespace lockstep
