#include "launch/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "base/ascii.h"
#include "base/error.h"
#include "parallel/layout.h"

namespace lockstep {

namespace {
constexpr std::string_view kBlank = " \t\r";

int slots_of_word(std::string_view host, std::string_view word) {
  int slots = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), slots);
  if (error != std::errc() || end != word.data() + word.size() || slots < 1 || slots > kMostRanks)
    fail(ErrorCode::invalid_argument, "the host '{}' has '{}' slots, allowed are 1 to {}", host.substr(0, 100), word.substr(0, 20), kMostRanks);
  return slots;
}

// A name goes to a remote shell as a word of its command line, so it must not look like an option.
std::string name_of_word(std::string_view word) {
  const bool allowed = !word.empty() && word.size() <= 253 && word[0] != '-' && word[0] != '.' && std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
  });
  if (!allowed)
    fail(ErrorCode::invalid_argument, "'{}' is no host; allowed are letters, digits, '.', '-' and '_', beginning with a letter or a digit, as in a:2,b",
         word.substr(0, 100));
  return std::string(word);
}

// "a", "a:2"
Host host_of_word(std::string_view word) {
  const std::size_t colon = word.find(':');
  Host host{name_of_word(word.substr(0, colon))};
  if (colon != std::string_view::npos) host.slots = slots_of_word(host.name, word.substr(colon + 1));
  return host;
}

void check_together(const std::vector<Host>& hosts) {
  if (hosts.empty()) fail(ErrorCode::invalid_argument, "there is no host; allowed is HOST or HOST:SLOTS, such as a:2,b");
  for (std::size_t i = 0; i < hosts.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (hosts[i].name == hosts[j].name)
        fail(ErrorCode::invalid_argument, "the host '{}' is there twice; allowed is once, with its slots: {}:{}", hosts[i].name, hosts[i].name,
             hosts[i].slots + hosts[j].slots);
  if (const int slots = slots_of(hosts); slots > kMostRanks)
    fail(ErrorCode::invalid_argument, "the hosts have {} slots, allowed are at most {} in all, a rank each", slots, kMostRanks);
}
}  // namespace

std::vector<Host> read_hosts(std::string_view list) {
  std::vector<Host> hosts;
  for (std::size_t at = 0; at <= list.size() && !list.empty();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    hosts.push_back(host_of_word(trimmed(list.substr(at, end - at), kBlank)));
    at = end + 1;
  }
  check_together(hosts);
  return hosts;
}

std::vector<Host> read_hosts_text(std::string_view text, const std::string& label) {
  std::vector<Host> hosts;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    line = trimmed(line.substr(0, line.find('#')), kBlank);
    if (line.empty()) continue;
    with_context(fmt::format("reading '{}', line {}", label, number), [&] {
      const std::size_t blank = line.find_first_of(kBlank);
      Host host = host_of_word(line.substr(0, blank));
      for (std::string_view rest = blank == std::string_view::npos ? std::string_view() : trimmed(line.substr(blank), kBlank); !rest.empty();) {
        const std::size_t next = std::min(rest.find_first_of(kBlank), rest.size());
        const std::string_view word = rest.substr(0, next);
        rest = trimmed(rest.substr(next), kBlank);
        if (word.starts_with("slots=")) host.slots = slots_of_word(host.name, word.substr(6));
        else if (!word.starts_with("max_slots=") && !word.starts_with("max-slots="))
          fail(ErrorCode::invalid_argument, "'{}' is unknown, allowed is HOST slots=N, or HOST:N", word.substr(0, 100));
      }
      hosts.push_back(host);
    });
  }
  with_context(fmt::format("reading '{}'", label), [&] { check_together(hosts); });
  return hosts;
}

bool is_this_machine(std::string_view host) {
  if (host == "localhost" || host.starts_with("127.")) return true;
  char own[256] = {};
  if (::gethostname(own, sizeof(own) - 1) != 0) return false;
  const std::string_view name(own);
  return host == name || host == name.substr(0, name.find('.'));
}

std::vector<Host> in_mpirun_order(std::vector<Host> hosts) {
  std::stable_partition(hosts.begin(), hosts.end(), [](const Host& host) { return is_this_machine(host.name); });
  return hosts;
}

std::string hosts_text(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  return text;
}

int slots_of(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return slots;
}

}  // namespace lockstep
