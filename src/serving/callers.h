// What a generation service does by API key: on whose account a request's device time is counted (base/fair_shares.h), its class of work (live, or
// rollouts where the key file says so), whose cached prompts it shares, and whether its forwards are kept for training. The key "" is anyone without a key.
// Any thread.
//   request.account = callers.account("ann"); request.prefix_owner = callers.prefix_owner("ann");
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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
  // Replaces what the key file says of kept forwards (docs/kept-forwards.md); a key that is not there says nothing.
  void set_keeping(std::map<std::string, bool> keeping);
  std::optional<bool> keeps_forward(const std::string& name) const;
  // Whether all keys count as one owner of cached prompts and kept forwards.
  bool share_prefixes() const { return share_prefixes_; }
  // Request::prefix_owner. Not to be guessed from the name.
  std::uint64_t prefix_owner(std::string_view name) const;

 private:
  const std::shared_ptr<Executor> executor_;
  const bool share_prefixes_;
  const std::string salt_;
  mutable std::mutex mutex_;
  std::map<std::string, WorkClass> classes_;
  std::map<std::string, bool> keeping_;
};

}  // namespace lockstep
