#include "serving/deployments.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "serving/model_name.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {
constexpr auto kLookAgain = std::chrono::milliseconds(20);

bool has_adapter(const GenerationService* service, const std::string& name) { return service && service->adapters().find(name); }
}  // namespace

Deployments::Deployments(std::shared_ptr<TrafficTable> traffic, ModelDeployment first)
    : traffic_(std::move(traffic)), first_(first.service), deployments_{kept(std::move(first))} {}

Deployments::~Deployments() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  loads_.stop();
  if (idling_.joinable()) idling_.join();
  if (ending_.joinable()) ending_.join();
}

Deployments::Kept Deployments::kept(ModelDeployment&& deployment) {
  const auto one = std::make_shared<One>();
  static_cast<ModelDeployment&>(*one) = std::move(deployment);
  return one;
}

Deployments::Kept Deployments::find(const std::string& name) const {
  for (const Kept& one : deployments_)
    if (one->name == name) return one;
  return nullptr;
}

void Deployments::check_free(const std::string& name) const {
  bool taken = find(name) || traffic_->has(name);
  for (const Kept& one : deployments_) taken = taken || has_adapter(one->service.get(), name);
  if (taken) fail(ErrorCode::already_exists, "there is a model '{}' already", name);
  if (deployments_.size() + leaving_.size() >= kMost)
    fail(ErrorCode::resource_exhausted, "there are {} deployments, {} of which leave when their requests end; allowed are {}",
         deployments_.size() + leaving_.size(), leaving_.size(), kMost);
}

void Deployments::check_name(const std::string& name) const {
  check_plain_name("the name of a deployment", name);
  const std::lock_guard lock(mutex_);
  check_free(name);
}

void Deployments::add(ModelDeployment deployment) {
  check_plain_name("the name of a deployment", deployment.name);
  const std::lock_guard lock(mutex_);
  check_free(deployment.name);
  deployments_.push_back(kept(std::move(deployment)));
}

void Deployments::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const Kept gone = find(name);
  if (!gone) {
    std::vector<std::string> known;
    for (const Kept& one : deployments_) known.push_back(one->name);
    fail(ErrorCode::not_found, "there is no deployment '{}'{}", shown_name(name), did_you_mean(shown_name(name), known));
  }
  if (gone->service == first_) fail(ErrorCode::already_exists, "'{}' is the model that the server was started with, which stays as long as the server", name);
  if (gone->follows != Follows::no) fail(ErrorCode::already_exists, "'{}' follows a channel (--deploy-follow), and stays as long as the server", name);
  traffic_->forget(name);
  std::erase(deployments_, gone);
  if (!gone->service) return;
  leaving_.push_back(gone);
  if (!ending_.joinable()) ending_ = std::thread([this] { end_leaving(); });
  wake_.notify_all();
}

void Deployments::route(const std::string& alias, std::vector<TrafficShare> shares) {
  const std::lock_guard lock(mutex_);
  if (!traffic_->has(alias)) {
    bool taken = find(alias) != nullptr;
    for (const Kept& one : deployments_) taken = taken || has_adapter(one->service.get(), alias);
    if (taken) fail(ErrorCode::already_exists, "there is a model '{}' already, which no alias can be called", alias);
  }
  std::vector<std::string> known;
  for (const Kept& one : deployments_) known.push_back(one->name);
  for (const TrafficShare& one : shares)
    if (!find(one.deployment)) {
      const std::string shown = shown_name(one.deployment);
      fail(ErrorCode::not_found, "the traffic of '{}' names '{}', which is no deployment; known are '{}'{}", shown_name(alias), shown, fmt::join(known, "', '"),
           did_you_mean(shown, known));
    }
  traffic_->set(alias, std::move(shares));
}

void Deployments::restore(TrafficRule rule) {
  bool known = !rule.before.empty();
  {
    const std::lock_guard lock(mutex_);
    for (const TrafficShare& one : rule.before) known = known && find(one.deployment) != nullptr;
  }
  if (known) route(rule.alias, std::move(rule.before));
  route(rule.alias, std::move(rule.shares));
  traffic_->set_gate(rule.alias, std::move(rule.gate));
}

CalledDeployment Deployments::call(const std::string& model, const std::string& who) const {
  const ModelName name = parse_model_name(model);
  const std::lock_guard lock(mutex_);
  if (model.empty()) return {deployments_.front()->name, {}, first_};
  Kept found = find(name.deployment);
  std::string adapter = name.adapter;
  if (!found)
    if (const std::optional<std::string> chosen = traffic_->choose(name.deployment, who)) found = find(*chosen);
  if (!found && name.adapter.empty())
    for (const Kept& one : deployments_)
      if (!found && has_adapter(one->service.get(), model)) found = one, adapter = model;
  if (found) {
    found->used = std::chrono::steady_clock::now();
    return {found->name, adapter, found->service};
  }
  std::vector<std::string> known;
  for (const Kept& one : deployments_) {
    known.push_back(one->name);
    if (one->service)
      for (const std::string& adapter : one->service->adapters().names()) known.push_back(adapter);
  }
  for (const TrafficRule& rule : traffic_->list()) known.push_back(rule.alias);
  const std::string shown = shown_name(model) + (model.size() > 80 ? "..." : "");
  fail(ErrorCode::not_found, "model '{}' is not served here; known {} '{}'{}", shown, known.size() > 1 ? "are" : "is", fmt::join(known, "', '"),
       did_you_mean(shown_name(name.deployment), known));
}

bool Deployments::is_single() const {
  const std::lock_guard lock(mutex_);
  return deployments_.size() == 1 && traffic_->list().empty();
}

std::vector<DeploymentLine> Deployments::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<DeploymentLine> lines;
  for (const Kept& one : deployments_) {
    DeploymentLine line{one->name, one->source, one->created, one->memory.bytes(), one->memory.shared_bytes(), one->service, one->follows};
    line.snapshot = one->service ? one->service->weights().snapshot() : one->snapshot;
    line.fault = one->fault;
    line.is_loading = !one->service && loads_.asked(one->name);
    line.requests = one->requests + (one->service ? one->service->statistics().requests.load() : 0);
    line.generated_tokens = one->generated_tokens + (one->service ? one->service->statistics().generated_tokens.load() : 0);
    line.loads = one->loads;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> Deployments::names() const {
  std::vector<std::string> all;
  for (const DeploymentLine& line : list()) all.push_back(line.name);
  for (const TrafficRule& rule : traffic_->list()) all.push_back(rule.alias);
  return all;
}

std::size_t Deployments::leaving() const {
  const std::lock_guard lock(mutex_);
  return leaving_.size();
}

void Deployments::stop() {
  loads_.stop();
  std::vector<std::shared_ptr<GenerationService>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const Kept& one : deployments_) all.push_back(one->service);
    for (const Kept& one : leaving_) all.push_back(one->service);
  }
  for (const std::shared_ptr<GenerationService>& one : all)
    if (one) one->stop();
}

// One whose service nobody else knows has no request, and none can come: no name leads to it.
void Deployments::end_leaving() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !leaving_.empty(); });
    if (stopping_) return;
    const auto alone = std::find_if(leaving_.begin(), leaving_.end(), [](const Kept& one) { return one.use_count() == 1 && one->service.use_count() == 1; });
    if (alone == leaving_.end()) {
      wake_.wait_for(lock, kLookAgain);
      continue;
    }
    const Kept ended = std::move(*alone);
    leaving_.erase(alone);
    lock.unlock();
    const std::string name = ended->name;
    ended->service.reset();
    ended->memory.clear();
    log_info("a deployment has ended", {{"name", name}});
    lock.lock();
  }
}

std::shared_ptr<Deployments> only_deployment(std::shared_ptr<GenerationService> service) {
  ModelDeployment only;
  only.name = service->model().name();
  only.service = std::move(service);
  return std::make_shared<Deployments>(std::make_shared<TrafficTable>(), std::move(only));
}

}  // namespace lockstep
