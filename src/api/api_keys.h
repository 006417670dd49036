// API keys and their owners. Keys are stored as SHA-256 only, and a look-up takes the same time whatever the key is: every hash is compared, each in
// constant time. No key is ever logged or returned. ApiKeys is read-only once filled, then any thread; a KeyRing holds the current keys, which may be
// replaced while it is used.
//   ApiKeys keys; keys.add("ann", key); keys.read_file("keys.txt"); if (const std::string* name = keys.owner_of(given)) ...
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fair_shares.h"

namespace lockstep {

// What the key file grants a key, on the key's line. 0: no limit.
struct KeyTerms {
  double weight = 1;  // the key's share of the device relative to other keys
  std::int64_t requests_per_minute = 0, tokens_per_minute = 0;
  std::int64_t streams = 0;          // sequences that are generated at the same time
  WorkClass work = WorkClass::live;  // of its requests to OpenAI's API: live or rollouts
  std::optional<bool> keep_forward;  // whether what its requests compute is kept for training; none: as each route does (docs/kept-forwards.md)
};

class ApiKeys {
 public:
  // Errors: invalid_argument (a name that is not 1 to 64 letters, digits, '-', '_', '.', '@'; a key that is not 16 to 256 printable
  // characters without spaces), already_exists (the name, the key). No message holds a key.
  void add(const std::string& name, std::string_view key, const KeyTerms& terms = {});
  // Reads lines `NAME KEY` or `NAME sha256:HEX`, each with the key's terms behind it: `weight=2 class=rollouts keep_forward=true`. Empty lines
  // and those that begin with '#' are skipped. Errors as add, with the line's number; io; invalid_argument for a file without a key.
  void read_file(const std::string& path);

  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  // The name of the key's owner; null: the key is unknown.
  const std::string* owner_of(std::string_view key) const;
  // The hexadecimal SHA-256 of that owner's key; empty: there is no such owner.
  std::string_view hash_of(std::string_view name) const;
  std::map<std::string, KeyTerms> terms() const;  // by name
  // The same for an Authorization header, "Bearer KEY".
  const std::string* owner_of_authorization(std::string_view header) const;

 private:
  struct Entry {
    std::string name;
    std::array<char, 64> hash;  // hexadecimal
    KeyTerms terms;
  };
  void add_hash(const std::string& name, std::string_view hex, const KeyTerms& terms);
  std::vector<Entry> entries_;
};

// Any thread.
class KeyRing {
 public:
  explicit KeyRing(ApiKeys keys) : keys_(std::make_shared<const ApiKeys>(std::move(keys))) {}
  std::shared_ptr<const ApiKeys> now() const { return keys_.load(); }
  void replace(ApiKeys keys) { keys_.store(std::make_shared<const ApiKeys>(std::move(keys))); }

 private:
  std::atomic<std::shared_ptr<const ApiKeys>> keys_;
};

}  // namespace lockstep
