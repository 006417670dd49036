#include "api/api_keys.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace lockstep {
namespace {
constexpr std::size_t kLeastKey = 16, kMostKey = 256, kMostName = 64, kMostKeys = 10000;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMostName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || std::string_view("-_.@").find(c) != std::string_view::npos;
  });
}

constexpr std::string_view kSpaces = " \t\r";

constexpr std::string_view kClass = "class=", kKeep = "keep_forward=";

WorkClass class_named(std::string_view name) {
  for (const WorkClass work : {WorkClass::live, WorkClass::rollouts})
    if (name == work_class_name(work)) return work;
  fail(ErrorCode::invalid_argument, "class is '{}', allowed are live and rollouts", name.substr(0, 32));
}

bool keep_named(std::string_view name) {
  if (name != "true" && name != "false") fail(ErrorCode::invalid_argument, "keep_forward is '{}', allowed are true and false", name.substr(0, 32));
  return name == "true";
}

// The terms on a key's line: "weight=2 streams=8". An unknown word may be a part of a key, so the error does not repeat it.
KeyTerms terms_of(std::string_view text) {
  struct Setting {
    std::string_view name;
    std::int64_t most, value = 0;
  };
  std::optional<WorkClass> work;
  std::optional<bool> keep;
  Setting settings[] = {{"weight", 1000}, {"requests_per_minute", 1'000'000'000}, {"tokens_per_minute", 1'000'000'000'000}, {"streams", 1 << 20}};
  while (true) {
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(kSpaces)));
    if (text.empty()) break;
    const std::string_view word = text.substr(0, text.find_first_of(kSpaces));
    text.remove_prefix(word.size());
    const std::size_t equals = word.find('=');
    if (word.starts_with(kClass)) {
      if (work) fail(ErrorCode::invalid_argument, "class is given twice");
      work = class_named(word.substr(kClass.size()));
      continue;
    }
    if (word.starts_with(kKeep)) {
      if (keep) fail(ErrorCode::invalid_argument, "keep_forward is given twice");
      keep = keep_named(word.substr(kKeep.size()));
      continue;
    }
    const auto setting = std::find_if(std::begin(settings), std::end(settings), [&](const Setting& one) { return word.substr(0, equals) == one.name; });
    if (equals == std::string_view::npos || setting == std::end(settings))
      fail(ErrorCode::invalid_argument,
           "what follows the key is no setting, allowed are weight=N, requests_per_minute=N, tokens_per_minute=N, streams=N, class=rollouts, "
           "and keep_forward=true or false");
    if (setting->value != 0) fail(ErrorCode::invalid_argument, "{} is given twice", setting->name);
    const auto [stop, error] = std::from_chars(word.data() + equals + 1, word.data() + word.size(), setting->value);
    if (error != std::errc() || stop != word.data() + word.size() || setting->value < 1 || setting->value > setting->most)
      fail(ErrorCode::invalid_argument, "{} is '{}', allowed is 1 to {}", setting->name, word.substr(equals + 1, 32), setting->most);
  }
  return {.weight = static_cast<double>(std::max<std::int64_t>(settings[0].value, 1)),
          .requests_per_minute = settings[1].value,
          .tokens_per_minute = settings[2].value,
          .streams = settings[3].value,
          .work = work.value_or(WorkClass::live),
          .keep_forward = keep};
}
}  // namespace

void ApiKeys::add(const std::string& name, std::string_view key, const KeyTerms& terms) {
  const bool printable = std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (key.size() < kLeastKey || key.size() > kMostKey || !printable)
    fail(ErrorCode::invalid_argument, "the api key of '{}' has {} characters, allowed are {} to {} printable ones without spaces", is_name(name) ? name : "?",
         key.size(), kLeastKey, kMostKey);
  add_hash(name, sha256_hex(key), terms);
}

void ApiKeys::add_hash(const std::string& name, std::string_view hex, const KeyTerms& terms) {
  // A text that is no name may be a key in the wrong place, so the error does not repeat it.
  if (!is_name(name))
    fail(ErrorCode::invalid_argument, "the name of an api key has {} characters, allowed are 1 to {} letters, digits, '-', '_', '.' and '@'", name.size(),
         kMostName);
  if (entries_.size() == kMostKeys) fail(ErrorCode::resource_exhausted, "there are more than {} api keys", kMostKeys);
  Entry entry{name, {}, terms};
  std::copy(hex.begin(), hex.end(), entry.hash.begin());
  for (const Entry& other : entries_) {
    if (other.name == name) fail(ErrorCode::already_exists, "there are two api keys of '{}'", name);
    if (other.hash == entry.hash) fail(ErrorCode::already_exists, "'{}' and '{}' have the same api key", other.name, name);
  }
  entries_.push_back(std::move(entry));
}

void ApiKeys::read_file(const std::string& path) {
  const std::string text = lockstep::read_file(path, 4 << 20);
  const std::size_t before = entries_.size();
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(kSpaces)));
    line = line.substr(0, line.find_last_not_of(kSpaces) + 1);
    if (line.empty() || line.front() == '#') continue;
    with_context(fmt::format("reading line {} of {}", number, path), [&] {
      const std::size_t space = line.find_first_of(kSpaces);
      if (space == std::string_view::npos) fail(ErrorCode::invalid_argument, "the line is not `NAME KEY` or `NAME sha256:HEX`");
      const std::string name(line.substr(0, space));
      line = line.substr(line.find_first_not_of(kSpaces, space));
      const std::string_view key = line.substr(0, line.find_first_of(kSpaces));
      const KeyTerms terms = terms_of(line.substr(key.size()));
      if (!key.starts_with("sha256:")) return add(name, key, terms);
      std::string hex(key.substr(7));
      for (char& c : hex) c = c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c;
      if (hex.size() != 64 || hex.find_first_not_of("0123456789abcdef") != std::string::npos)
        fail(ErrorCode::invalid_argument, "what follows sha256: is not 64 hexadecimal digits");
      add_hash(name, hex, terms);
    });
  }
  if (entries_.size() == before) fail(ErrorCode::invalid_argument, "{} holds no api key", path);
}

const std::string* ApiKeys::owner_of(std::string_view key) const {
  const std::string hash = sha256_hex(key.substr(0, kMostKey + 1));
  const std::string* owner = nullptr;
  for (const Entry& entry : entries_)
    if (CRYPTO_memcmp(entry.hash.data(), hash.data(), entry.hash.size()) == 0) owner = &entry.name;
  return owner;
}

std::string_view ApiKeys::hash_of(std::string_view name) const {
  for (const Entry& entry : entries_)
    if (entry.name == name) return {entry.hash.data(), entry.hash.size()};
  return {};
}

std::map<std::string, KeyTerms> ApiKeys::terms() const {
  std::map<std::string, KeyTerms> terms;
  for (const Entry& entry : entries_) terms[entry.name] = entry.terms;
  return terms;
}

const std::string* ApiKeys::owner_of_authorization(std::string_view header) const {
  constexpr std::string_view kScheme = "bearer ";
  if (header.size() <= kScheme.size()) return nullptr;
  for (std::size_t i = 0; i < kScheme.size(); ++i)
    if ((header[i] >= 'A' && header[i] <= 'Z' ? header[i] + 32 : header[i]) != kScheme[i]) return nullptr;
  header.remove_prefix(kScheme.size());
  header.remove_prefix(std::min(header.size(), header.find_first_not_of(' ')));
  return owner_of(header);
}

}  // namespace lockstep
