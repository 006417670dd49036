#include "serving/deployment_record.h"

#include <algorithm>
#include <iterator>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file.h"
#include "base/output_path.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {
using RecordJson = nlohmann::ordered_json;
constexpr int kRecordVersion = 1;
constexpr std::size_t kSnapshotDigits = 64;

const std::filesystem::path& claimed(const std::filesystem::path& folder) {
  claim_folder(folder, "record of deployments");
  return folder;
}

RecordJson shares_json(const std::vector<TrafficShare>& shares) {
  RecordJson json = RecordJson::object();
  for (const TrafficShare& one : shares) json[one.deployment] = one.weight;
  return json;
}

// The object's values under these names, in their order: all of them, and no others but `perhaps`.
std::vector<const RecordJson*> members_of(const RecordJson& json, const std::string& where, const std::vector<const char*>& names,
                                          const char* perhaps = nullptr) {
  if (!json.is_object()) fail(ErrorCode::corrupt_file, "{} is no object", where);
  std::vector<const RecordJson*> values;
  for (const char* name : names) {
    const auto found = json.find(name);
    if (found == json.end()) fail(ErrorCode::corrupt_file, "{} has no '{}'", where, name);
    values.push_back(&*found);
  }
  if (json.size() != names.size() + (perhaps && json.contains(perhaps) ? 1 : 0))
    fail(ErrorCode::corrupt_file, "{} has {} fields, allowed are {}", where, json.size(), fmt::join(names, ", "));
  return values;
}

const RecordJson& list_of(const RecordJson& json, const std::string& where, std::size_t most) {
  if (!json.is_array()) fail(ErrorCode::corrupt_file, "{} is no list", where);
  if (json.size() > most) fail(ErrorCode::corrupt_file, "{} has {} entries, allowed are {}", where, json.size(), most);
  return json;
}

std::string text_of(const RecordJson& json, const std::string& where) {
  if (!json.is_string()) fail(ErrorCode::corrupt_file, "{} is no text", where);
  return json.get<std::string>();
}

std::string name_of(const RecordJson& json, const std::string& where) {
  std::string name = text_of(json, where);
  check_plain_name(where, name);
  return name;
}

std::vector<TrafficShare> shares_of(const RecordJson& json, const std::string& where) {
  if (!json.is_object()) fail(ErrorCode::corrupt_file, "{} is no object", where);
  if (json.size() > TrafficTable::kMostShares)
    fail(ErrorCode::corrupt_file, "{} has {} entries, allowed are {}", where, json.size(), TrafficTable::kMostShares);
  std::vector<TrafficShare> shares;
  for (const auto& [name, weight] : json.items()) {
    if (!weight.is_number_integer()) fail(ErrorCode::corrupt_file, "{} has a weight of '{}' that is no whole number", where, shown_name(name));
    shares.push_back({name, weight.get<std::int64_t>()});
  }
  return shares;
}

DeploymentRecord::Made made_of(const RecordJson& json, const std::string& where) {
  const std::vector<const RecordJson*> values = members_of(json, where, {"name", "source", "snapshot"});
  DeploymentRecord::Made made{name_of(*values[0], where + ".name"), text_of(*values[1], where + ".source"), text_of(*values[2], where + ".snapshot")};
  if (made.source.empty() || made.source.size() > DeploymentRecord::kMostSourceBytes)
    fail(ErrorCode::corrupt_file, "{}.source has {} bytes, allowed are 1 to {}", where, made.source.size(), DeploymentRecord::kMostSourceBytes);
  const bool digits = std::all_of(made.snapshot.begin(), made.snapshot.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  if (!made.snapshot.empty() && (!digits || made.snapshot.size() != kSnapshotDigits)) fail(ErrorCode::corrupt_file, "{}.snapshot is no snapshot's id", where);
  return made;
}

DeploymentRecord record_of(const RecordJson& json) {
  const std::vector<const RecordJson*> values = members_of(json, "it", {"version", "deployments", "deleted", "aliases"});
  if (!values[0]->is_number_integer() || values[0]->get<std::int64_t>() != kRecordVersion)
    fail(ErrorCode::corrupt_file, "version is {}, allowed is {}", values[0]->dump().substr(0, 20), kRecordVersion);
  DeploymentRecord record;
  for (const RecordJson& one : list_of(*values[1], "deployments", DeploymentRecord::kMostMade)) {
    record.made.push_back(made_of(one, fmt::format("deployments[{}]", record.made.size())));
    for (std::size_t i = 0; i + 1 < record.made.size(); ++i)
      if (record.made[i].name == record.made.back().name) fail(ErrorCode::corrupt_file, "deployments has '{}' twice", record.made[i].name);
  }
  for (const RecordJson& one : list_of(*values[2], "deleted", DeploymentRecord::kMostDeleted))
    record.deleted.push_back(name_of(one, fmt::format("deleted[{}]", record.deleted.size())));
  TrafficTable table;  // knows what is allowed of shares
  for (const RecordJson& one : list_of(*values[3], "aliases", TrafficTable::kMostAliases)) {
    const std::string where = fmt::format("aliases[{}]", record.aliases.size());
    const std::vector<const RecordJson*> parts = members_of(one, where, {"name", "deployments", "before"}, "gate");
    const std::string name = name_of(*parts[0], where + ".name");
    if (record.aliases.contains(name)) fail(ErrorCode::corrupt_file, "aliases has '{}' twice", name);
    if (parts[1]->is_null()) {
      record.aliases[name] = std::nullopt;
      continue;
    }
    TrafficRule rule{name, shares_of(*parts[1], where + ".deployments"), {}};
    if (!parts[2]->is_null()) rule.before = shares_of(*parts[2], where + ".before");
    if (!rule.before.empty()) table.set(name, rule.before);
    table.set(name, rule.shares);
    if (one.contains("gate")) {
      if (!one["gate"].is_object()) fail(ErrorCode::corrupt_file, "{}.gate is no object", where);
      rule.gate = std::make_shared<const std::string>(one["gate"].dump());
    }
    record.aliases[name] = std::move(rule);
  }
  return record;
}

// The record in the folder; an empty one where there is none.
DeploymentRecord record_in(const std::filesystem::path& file) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, error))) return {};
  const std::string text = read_file(file, DeploymentRecord::kMostBytes);
  try {
    return parse_deployment_record(text);
  } catch (const Error& e) {
    fail(ErrorCode::corrupt_file,
         "'{}' is damaged: {}; put an earlier copy of it there, or delete it: models and aliases are then as the command line says, and what was changed "
         "over HTTP has to be changed again",
         file.string(), e.message());
  }
}
}  // namespace

std::string deployment_record_text(const DeploymentRecord& record) {
  RecordJson made = RecordJson::array(), aliases = RecordJson::array();
  for (const DeploymentRecord::Made& one : record.made) made.push_back({{"name", one.name}, {"source", one.source}, {"snapshot", one.snapshot}});
  for (const auto& [alias, rule] : record.aliases) {
    RecordJson row{{"name", alias}, {"deployments", nullptr}, {"before", nullptr}};
    if (rule) row["deployments"] = shares_json(rule->shares);
    if (rule && !rule->before.empty()) row["before"] = shares_json(rule->before);
    if (rule && rule->gate) row["gate"] = RecordJson::parse(*rule->gate);
    aliases.push_back(std::move(row));
  }
  const RecordJson json{{"version", kRecordVersion}, {"deployments", std::move(made)}, {"deleted", record.deleted}, {"aliases", std::move(aliases)}};
  return json.dump(1, ' ', false, RecordJson::error_handler_t::replace) + "\n";
}

DeploymentRecord parse_deployment_record(std::string_view text) {
  try {
    return record_of(read_json(text, {.depth = 8}));
  } catch (const Error& e) {
    fail(ErrorCode::corrupt_file, "{}", e.message());
  }
}

StoredDeployments::StoredDeployments(const std::filesystem::path& folder) : folder_(claimed(folder)), lock_(folder_), record_(record_in(file())) {}

DeploymentRecord StoredDeployments::record() const {
  const std::lock_guard lock(mutex_);
  return record_;
}

void StoredDeployments::change(const std::function<void(DeploymentRecord&)>& edit) {
  const std::lock_guard lock(mutex_);
  DeploymentRecord next = record_;
  edit(next);
  // Those that are there are no more than a table has; the others give way.
  for (auto one = next.aliases.begin(); one != next.aliases.end() && next.aliases.size() > TrafficTable::kMostAliases;)
    one = one->second ? std::next(one) : next.aliases.erase(one);
  const std::string text = deployment_record_text(next);
  if (text.size() > DeploymentRecord::kMostBytes)
    fail(ErrorCode::resource_exhausted, "the record of deployments has {} bytes, allowed are {}", text.size(), DeploymentRecord::kMostBytes);
  write_file_atomic(file(), text);
  record_ = std::move(next);
}

void StoredDeployments::made(const DeploymentRecord::Made& one) {
  if (one.source.size() > DeploymentRecord::kMostSourceBytes)
    fail(ErrorCode::invalid_argument, "the source of '{}' has {} bytes, allowed are {}", one.name, one.source.size(), DeploymentRecord::kMostSourceBytes);
  change([&](DeploymentRecord& record) { record.made.push_back(one); });
}

void StoredDeployments::deleted(const std::string& name) {
  change([&](DeploymentRecord& record) {
    const bool was_made = std::erase_if(record.made, [&](const DeploymentRecord::Made& one) { return one.name == name; }) > 0;
    std::vector<std::string>& gone = record.deleted;
    if (!was_made && std::find(gone.begin(), gone.end(), name) == gone.end()) {
      if (gone.size() >= DeploymentRecord::kMostDeleted) gone.erase(gone.begin());
      gone.push_back(name);
    }
    // As TrafficTable::forget: another model may get the name.
    for (auto& [alias, rule] : record.aliases)
      if (rule && std::any_of(rule->before.begin(), rule->before.end(), [&](const TrafficShare& one) { return one.deployment == name; })) rule->before.clear();
  });
}

void StoredDeployments::alias(const TrafficRule& rule) {
  change([&](DeploymentRecord& record) { record.aliases[rule.alias] = rule; });
}

void StoredDeployments::alias_deleted(const std::string& alias) {
  change([&](DeploymentRecord& record) { record.aliases[alias] = std::nullopt; });
}

}  // namespace lockstep
