#include "launch/host_pool.h"

#include <algorithm>

namespace lockstep {

namespace {
// "b" of "b.cluster", which one side may call it and the other not.
std::string_view short_name(std::string_view host) { return host.substr(0, host.find('.')); }
}  // namespace

HostPool::HostPool(std::vector<Host> hosts, const TakeBackRule& rule) : all_(in_mpirun_order(std::move(hosts))), rule_(rule), states_(all_.size()) {}

std::vector<Host> HostPool::usable() const {
  std::vector<Host> hosts;
  for (std::size_t h = 0; h < all_.size(); ++h)
    if (const int slots = all_[h].slots - states_[h].out; slots > 0) hosts.push_back({all_[h].name, slots});
  return hosts;
}

int HostPool::host_of(int process, const std::string& name) const {
  const auto named = [&](auto same) {
    for (std::size_t h = 0; h < all_.size(); ++h)
      if (states_[h].out < all_[h].slots && same(all_[h].name)) return static_cast<int>(h);
    return -1;
  };
  if (const int exact = named([&](const std::string& own) { return own == name; }); exact >= 0) return exact;
  if (const int alike = named([&](const std::string& own) { return short_name(own) == short_name(name); }); alike >= 0) return alike;
  for (std::size_t h = 0; h < all_.size(); ++h) {
    process -= all_[h].slots - states_[h].out;
    if (process < 0) return static_cast<int>(h);
  }
  return -1;
}

void HostPool::lose(int host, int slots, double now) {
  State& state = states_[static_cast<std::size_t>(host)];
  state.out = std::min(state.out + slots, all_[static_cast<std::size_t>(host)].slots);
  state.answers = false;
  state.wait = state.losses == 0 ? rule_.first_wait : std::min(2 * state.wait, kLongestWait);
  ++state.losses;
  state.ask_at = now + state.wait;
}
void HostPool::lose_slot(int host, double now) { lose(host, 1, now); }
void HostPool::lose_host(int host, double now) { lose(host, all_[static_cast<std::size_t>(host)].slots, now); }

std::vector<int> HostPool::to_ask(double now) const {
  std::vector<int> hosts;
  for (std::size_t h = 0; h < states_.size(); ++h)
    if (const State& s = states_[h]; s.out > 0 && !s.answers && !for_good(s) && now >= s.ask_at) hosts.push_back(static_cast<int>(h));
  return hosts;
}

void HostPool::answered(int host, bool it_does, double now) {
  State& state = states_[static_cast<std::size_t>(host)];
  state.answers = it_does;
  if (!it_does) state.ask_at = now + state.wait;
}

bool HostPool::somebody_waits() const {
  return std::any_of(states_.begin(), states_.end(), [](const State& s) { return s.out > 0 && s.answers; });
}

void HostPool::checkpoint() {
  for (State& state : states_)
    if (state.out == 0 && state.losses > 0) --state.losses;
}

std::vector<std::string> HostPool::take_back() {
  std::vector<std::string> names;
  for (std::size_t h = 0; h < states_.size(); ++h) {
    State& state = states_[h];
    if (state.out == 0 || !state.answers || for_good(state)) continue;
    state.out = 0;
    state.answers = false;
    names.push_back(all_[h].name);
  }
  return names;
}

std::vector<int> HostPool::may_come_back() const {
  std::vector<int> hosts;
  for (std::size_t h = 0; h < states_.size(); ++h)
    if (states_[h].out > 0 && !for_good(states_[h])) hosts.push_back(static_cast<int>(h));
  return hosts;
}

int HostPool::worst() const {
  int worst = -1;
  for (std::size_t h = 0; h < states_.size(); ++h)
    if (states_[h].losses > (worst < 0 ? 0 : losses(worst))) worst = static_cast<int>(h);
  return worst;
}

}  // namespace lockstep
