// What a generation service does by API key: on whose account a request's device time is counted (base/fair_shares.h), its class of work (live, or
// rollouts where the key file says so), and whose cached prompts it shares. The key "" is anyone without a key. Any thread.
//   request.account = callers.account("ann"); request.prefix_owner = callers.prefix_owner("ann");
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "serving/executor.h"

namespace lockstep {

class Callers {
 public:
  // `share_prefixes`: all keys share cached prompts.
  Callers(std::shared_ptr<Executor> executor, bool share_prefixes);

  // Replaces the classes of keys.
  void set_classes(std::map<std::string, WorkClass> classes);
  WorkClass class_of(const std::string& name) const;
  // Request::account.
  std::shared_ptr<ShareAccount> account(const std::string& name, WorkClass work) const;
  std::shared_ptr<ShareAccount> account(const std::string& name) const { return account(name, class_of(name)); }
  // Request::prefix_owner. Not to be guessed from the name.
  std::uint64_t prefix_owner(std::string_view name) const;

 private:
  const std::shared_ptr<Executor> executor_;
  const bool share_prefixes_;
  const std::string salt_;
  mutable std::mutex mutex_;
  std::map<std::string, WorkClass> classes_;
};

}  // namespace lockstep
