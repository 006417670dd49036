#include "engine/drafts/suffix_automaton.h"

#include <algorithm>

namespace lockstep {

namespace {
// How far up the suffixes of the text a new end is remembered: longer ones tell more, and all of them would be the whole text's length.
constexpr int kRememberedSuffixes = 16;

auto transition_place(const std::vector<std::pair<std::int32_t, std::int32_t>>& all, std::int32_t token) {
  return std::lower_bound(all.begin(), all.end(), token, [](const auto& a, std::int32_t t) { return a.first < t; });
}
}  // namespace

std::int32_t SuffixAutomaton::next(std::int32_t state, std::int32_t token) const {
  if (state == 0) {
    const auto it = root_.find(token);
    return it == root_.end() ? -1 : it->second;
  }
  const auto& all = at(state).next;
  const auto it = transition_place(all, token);
  return it != all.end() && it->first == token ? it->second : -1;
}

void SuffixAutomaton::set_next(std::int32_t state, std::int32_t token, std::int32_t to) {
  if (state == 0) {
    root_[token] = to;
    return;
  }
  auto& all = at(state).next;
  const auto it = transition_place(all, token);
  const auto place = all.begin() + (it - all.cbegin());
  if (it != all.end() && it->first == token) place->second = to;
  else all.insert(place, {token, to});
}

void SuffixAutomaton::append(std::int32_t token) {
  const auto here = static_cast<std::int32_t>(text_.size());
  text_.push_back(token);
  const auto added = static_cast<std::int32_t>(states_.size());
  states_.push_back({.length = at(last_).length + 1, .end = here});
  std::int32_t p = last_;
  for (; p >= 0 && next(p, token) < 0; p = at(p).link) set_next(p, token, added);
  last_ = added;
  if (p < 0) {
    at(added).link = 0;
  } else if (const std::int32_t q = next(p, token); at(q).length == at(p).length + 1) {
    at(added).link = q;
  } else {
    const auto copy = static_cast<std::int32_t>(states_.size());
    states_.push_back(at(q));
    at(copy).length = at(p).length + 1;
    for (; p >= 0 && next(p, token) == q; p = at(p).link) set_next(p, token, copy);
    at(q).link = at(added).link = copy;
  }
  const std::int32_t suffix = at(added).link;
  repeated_ = {suffix, at(suffix).length, at(suffix).end};
  std::int32_t state = suffix;
  for (int i = 0; i < kRememberedSuffixes && state > 0; ++i, state = at(state).link) at(state).end = here;
}

SuffixAutomaton::Match SuffixAutomaton::advance(Match from, std::int32_t token) const {
  std::int32_t to = next(from.state, token);
  while (to < 0 && from.state > 0) {
    from.state = at(from.state).link;
    from.length = at(from.state).length;
    to = next(from.state, token);
  }
  if (to < 0) return {};
  return {to, from.length + 1, at(to).end};
}

}  // namespace lockstep
