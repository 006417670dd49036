#include "fleet/channel_deployments.h"

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace {
constexpr const char* kDeploymentKind = "deployments";
}  // namespace

ChannelDeployments::ChannelDeployments(std::shared_ptr<Store> store, std::string channel, std::int64_t key_share)
    : store_(std::move(store)), channel_(std::move(channel)), key_share_(key_share) {}

// No name of a channel has a '~', so what stands before it is the channel.
std::string ChannelDeployments::record_of(const std::string& owner, const std::string& name) const { return channel_ + "~" + sha256_hex(owner + " " + name); }

std::vector<std::string> ChannelDeployments::records() const {
  std::vector<std::string> own;
  for (const std::string& record : store_->records(kDeploymentKind))
    if (record.starts_with(channel_ + "~")) own.push_back(record);
  return own;
}

std::optional<Deployment> ChannelDeployments::read(const std::string& record) const {
  std::optional<std::string> text;
  try {
    text = store_->read_record(kDeploymentKind, record);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::not_found) throw;  // it was removed in this moment
  }
  if (!text) return std::nullopt;
  try {
    return read_json(*text).get<Deployment>();
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

std::optional<Deployment> ChannelDeployments::find(const std::string& owner, const std::string& name) {
  std::optional<Deployment> found = read(record_of(owner, name));
  if (found && (found->owner != owner || found->name != name)) found.reset();
  return found;
}

std::vector<Deployment> ChannelDeployments::all(const std::string& owner) {
  std::vector<Deployment> own;
  for (const std::string& record : records())
    if (std::optional<Deployment> one = read(record); one && one->owner == owner) own.push_back(std::move(*one));
  sort_by_age(own);
  return own;
}

std::optional<Deployment> ChannelDeployments::changed(const std::string& owner, const std::string& name, const Change& change, bool makes) {
  const std::lock_guard lock(mutex_);
  std::optional<Deployment> before = find(owner, name);
  if (!before && !makes) return std::nullopt;
  if (!before)
    check_deployment_room(
        records().size(), [&] { return all(owner).size(); }, key_share_, fmt::format("channel '{}' of '{}'", channel_, store_->label()));
  Deployment one = changed_deployment(std::move(before), owner, name, change);
  const std::string text = to_json(one).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (text.size() > kMostRecordBytes)
    fail(ErrorCode::invalid_argument, "the deployment takes {} bytes with its ledger, allowed are {}; empty its ledger", text.size(), kMostRecordBytes);
  store_->put_record(kDeploymentKind, record_of(owner, name), text);
  return one;
}

void ChannelDeployments::remove(const std::string& owner, const std::string& name) {
  const std::lock_guard lock(mutex_);
  store_->remove_record(kDeploymentKind, record_of(owner, name));
}

}  // namespace lockstep
