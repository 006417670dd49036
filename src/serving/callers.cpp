#include "serving/callers.h"

#include "base/entropy.h"
#include "base/hash.h"

namespace lockstep {

Callers::Callers(std::shared_ptr<Executor> executor, bool share_prefixes)
    : executor_(std::move(executor)), share_prefixes_(share_prefixes), salt_(hex64(random_bits()) + hex64(random_bits())) {}

void Callers::set_classes(std::map<std::string, WorkClass> classes) {
  const std::lock_guard lock(mutex_);
  classes_ = std::move(classes);
}

WorkClass Callers::class_of(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto its = classes_.find(name);
  return its == classes_.end() ? WorkClass::live : its->second;
}

void Callers::set_keeping(std::map<std::string, bool> keeping) {
  const std::lock_guard lock(mutex_);
  keeping_ = std::move(keeping);
}

std::optional<bool> Callers::keeps_forward(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto its = keeping_.find(name);
  return its == keeping_.end() ? std::nullopt : std::optional(its->second);
}

std::shared_ptr<ShareAccount> Callers::account(const std::string& name, WorkClass work) const {
  return executor_->account(work, name.empty() ? "anyone" : name);
}

std::uint64_t Callers::prefix_owner(std::string_view name) const {
  if (share_prefixes_) return 0;
  return std::stoull(sha256_hex(salt_ + std::string(name)).substr(0, 16), nullptr, 16);
}

}  // namespace lockstep
