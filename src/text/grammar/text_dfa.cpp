#include "text/grammar/text_dfa.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <unordered_map>

#include "base/error.h"

namespace lockstep {

namespace {
constexpr std::size_t kProductStep = 4;  // which looks into a tree of pairs
constexpr std::size_t kNfaState = 10;    // made, and freed, with its edges

[[noreturn]] void too_large() { fail(ErrorCode::resource_exhausted, "the text's automaton is larger than the {} states allowed", TextDfa::kMaxStates); }

struct VectorHash {
  std::size_t operator()(const std::vector<std::int32_t>& v) const {
    std::size_t h = v.size();
    for (std::int32_t x : v) h = (h ^ static_cast<std::size_t>(x)) * 0x9e3779b97f4a7c15u + (h >> 29);
    return h;
  }
};

std::vector<char32_t> merged_starts(const std::vector<char32_t>& a, const std::vector<char32_t>& b) {
  std::vector<char32_t> starts;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(starts));
  return starts;
}

std::size_t class_of(const std::vector<char32_t>& starts, char32_t c) {
  return static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), c) - starts.begin()) - 1;
}

// Keeps states that are reached and that lead to an accepting one; the first stays first. Equal neighbouring classes
// melt.
TextDfa prune(const TextDfa& a) {
  const std::size_t n = a.accepts.size(), classes = a.classes();
  std::vector<std::vector<std::int32_t>> from(n);
  for (std::size_t s = 0; s < n; ++s)
    for (std::size_t c = 0; c < classes; ++c)
      if (const std::int32_t t = a.next[s * classes + c]; t >= 0) {
        auto& list = from[static_cast<std::size_t>(t)];
        if (list.empty() || list.back() != static_cast<std::int32_t>(s)) list.push_back(static_cast<std::int32_t>(s));
      }
  std::vector<bool> live(n, false);
  std::vector<std::int32_t> queue;
  for (std::size_t s = 0; s < n; ++s)
    if (a.accepts[s]) live[s] = true, queue.push_back(static_cast<std::int32_t>(s));
  while (!queue.empty()) {
    const auto s = static_cast<std::size_t>(queue.back());
    queue.pop_back();
    for (std::int32_t p : from[s])
      if (!live[static_cast<std::size_t>(p)]) live[static_cast<std::size_t>(p)] = true, queue.push_back(p);
  }
  TextDfa out;
  if (n == 0 || !live[0]) return out;
  std::vector<std::int32_t> place(n, -1), order{0};
  place[0] = 0;
  for (std::size_t i = 0; i < order.size(); ++i)
    for (std::size_t c = 0; c < classes; ++c) {
      const std::int32_t t = a.next[static_cast<std::size_t>(order[i]) * classes + c];
      if (t < 0 || !live[static_cast<std::size_t>(t)] || place[static_cast<std::size_t>(t)] >= 0) continue;
      place[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(order.size());
      order.push_back(t);
    }
  const auto target = [&](std::size_t i, std::size_t c) {
    const std::int32_t t = a.next[static_cast<std::size_t>(order[i]) * classes + c];
    return t < 0 ? -1 : place[static_cast<std::size_t>(t)];
  };
  std::vector<std::size_t> kept{0};
  out.starts = {a.starts[0]};
  for (std::size_t c = 1; c < classes; ++c) {
    bool same = true;
    for (std::size_t i = 0; i < order.size() && same; ++i) same = target(i, c) == target(i, c - 1);
    if (same) continue;
    kept.push_back(c);
    out.starts.push_back(a.starts[c]);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    out.accepts.push_back(a.accepts[static_cast<std::size_t>(order[i])]);
    for (std::size_t c : kept) out.next.push_back(target(i, c));
  }
  return out;
}

// Both at once. A state of `b` may be -1, where nothing more is accepted; `accepts` says what a pair accepts.
TextDfa product(const TextDfa& a, const TextDfa& b, bool keep_dead_b, SchemaWork& work, const std::function<bool(bool, bool)>& accepts) {
  TextDfa out;
  if (a.empty()) return out;
  out.starts = merged_starts(a.starts, b.starts);
  std::vector<std::size_t> class_a, class_b;
  for (char32_t c : out.starts) class_a.push_back(class_of(a.starts, c)), class_b.push_back(class_of(b.starts, c));
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> places;
  std::vector<std::pair<std::int32_t, std::int32_t>> order;
  const auto place = [&](std::int32_t x, std::int32_t y) {
    const auto [it, added] = places.emplace(std::pair{x, y}, static_cast<std::int32_t>(order.size()));
    if (added) order.emplace_back(x, y);
    if (order.size() > 4 * TextDfa::kMaxStates) too_large();
    return it->second;
  };
  place(0, b.empty() ? -1 : 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto [x, y] = order[i];
    out.accepts.push_back(accepts(a.accepts[static_cast<std::size_t>(x)], y >= 0 && b.accepts[static_cast<std::size_t>(y)]));
    work.charge(kProductStep * out.starts.size());
    for (std::size_t c = 0; c < out.starts.size(); ++c) {
      const std::int32_t to_a = a.next[static_cast<std::size_t>(x) * a.classes() + class_a[c]];
      const std::int32_t to_b = y < 0 ? -1 : b.next[static_cast<std::size_t>(y) * b.classes() + class_b[c]];
      out.next.push_back(to_a < 0 || (to_b < 0 && !keep_dead_b) ? -1 : place(to_a, to_b));
    }
  }
  out = prune(out);
  if (out.accepts.size() > TextDfa::kMaxStates) too_large();
  return out;
}
}  // namespace

int TextNfa::add_state() {
  states.emplace_back();
  if (states.size() > 4 * TextDfa::kMaxStates) too_large();
  return static_cast<int>(states.size()) - 1;
}

void TextNfa::connect(int from, int to, CodePointSet set) {
  if (set.empty()) return;
  sets.push_back(std::move(set));
  states[static_cast<std::size_t>(from)].push_back({to, static_cast<int>(sets.size()) - 1});
}

void TextNfa::connect_text(int from, int to, std::u32string_view text) {
  for (char32_t c : text) {
    CodePointSet one;
    one.add(c, c);
    const int next = add_state();
    connect(from, next, std::move(one));
    from = next;
  }
  connect(from, to);
}

bool TextDfa::accepts_text(std::string_view utf8) const {
  if (empty()) return false;
  std::int32_t state = 0;
  for (char32_t c : code_points_of(utf8)) {
    state = next[static_cast<std::size_t>(state) * classes() + class_of(starts, c)];
    if (state < 0) return false;
  }
  return accepts[static_cast<std::size_t>(state)];
}

TextDfa determinise(const TextNfa& nfa, int start, int accept, SchemaWork& work) {
  work.charge(kNfaState * nfa.states.size());
  TextDfa out;
  std::set<char32_t> borders{0};
  for (const CodePointSet& set : nfa.sets)
    for (const CodePointRange& r : set.ranges()) {
      borders.insert(r.low);
      if (r.high < CodePointSet::kLast) borders.insert(r.high + 1);
    }
  out.starts.assign(borders.begin(), borders.end());
  const std::size_t classes = out.classes();
  // Classes of each set, once.
  std::vector<std::vector<std::size_t>> set_classes(nfa.sets.size());
  for (std::size_t i = 0; i < nfa.sets.size(); ++i)
    for (const CodePointRange& r : nfa.sets[i].ranges()) {
      for (std::size_t c = class_of(out.starts, r.low); c < classes && out.starts[c] <= r.high; ++c) set_classes[i].push_back(c);
      work.charge(set_classes[i].size());
    }

  std::unordered_map<std::vector<std::int32_t>, std::int32_t, VectorHash> places;
  std::vector<std::vector<std::int32_t>> order;
  std::vector<std::uint32_t> seen(nfa.states.size(), 0);
  std::uint32_t mark = 0;
  const auto place = [&](std::vector<std::int32_t> members) {
    ++mark;
    for (std::int32_t m : members) seen[static_cast<std::size_t>(m)] = mark;
    std::size_t edges = 0;
    for (std::size_t i = 0; i < members.size(); ++i, ++edges)
      for (const TextNfa::Edge& e : nfa.states[static_cast<std::size_t>(members[i])])
        if (++edges; e.set < 0 && seen[static_cast<std::size_t>(e.to)] != mark) {
          seen[static_cast<std::size_t>(e.to)] = mark;
          members.push_back(e.to);
        }
    work.charge(edges + 2 * members.size());  // which are sorted and hashed, too
    std::sort(members.begin(), members.end());
    const auto [it, added] = places.emplace(members, static_cast<std::int32_t>(order.size()));
    if (added) order.push_back(std::move(members));
    if (order.size() > TextDfa::kMaxStates) too_large();
    return it->second;
  };
  place({start});
  std::vector<std::vector<std::int32_t>> targets(classes);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::vector<std::int32_t> members = order[i];
    out.accepts.push_back(std::binary_search(members.begin(), members.end(), accept));
    for (auto& t : targets) t.clear();
    for (std::int32_t m : members)
      for (const TextNfa::Edge& e : nfa.states[static_cast<std::size_t>(m)])
        if (e.set >= 0)
          for (std::size_t c : set_classes[static_cast<std::size_t>(e.set)]) targets[c].push_back(e.to);
    work.charge(classes + std::accumulate(targets.begin(), targets.end(), std::size_t{0}, [](std::size_t n, const auto& t) { return n + t.size(); }));
    for (std::size_t c = 0; c < classes; ++c) {
      if (c > 0 && targets[c] == targets[c - 1]) {
        out.next.push_back(out.next.back());
        continue;
      }
      std::vector<std::int32_t> unique = targets[c];
      std::sort(unique.begin(), unique.end());
      unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
      out.next.push_back(unique.empty() ? -1 : place(std::move(unique)));
    }
  }
  return prune(out);
}

TextDfa intersect(const TextDfa& a, const TextDfa& b, SchemaWork& work) {
  return product(a, b, false, work, [](bool x, bool y) { return x && y; });
}

TextDfa subtract(const TextDfa& a, const TextDfa& b, SchemaWork& work) {
  return product(a, b, true, work, [](bool x, bool y) { return x && !y; });
}

TextDfa any_text() {
  TextDfa out;
  out.starts = {0};
  out.next = {0};
  out.accepts = {true};
  return out;
}

TextDfa with_length(const TextDfa& a, std::int64_t low, std::int64_t high, SchemaWork& work) {
  // A chain that counts; beyond `low` without a `high` nothing needs counting.
  const bool bounded = high < std::numeric_limits<std::int64_t>::max();
  const std::int64_t last = bounded ? high : low;
  if (low > high) return {};
  if (last >= static_cast<std::int64_t>(TextDfa::kMaxStates)) too_large();
  TextDfa count;
  for (std::int64_t i = 0; i <= last; ++i) {
    count.accepts.push_back(i >= low);
    count.next.push_back(i < last ? static_cast<std::int32_t>(i) + 1 : bounded ? -1 : static_cast<std::int32_t>(i));
  }
  return intersect(a, count, work);
}

TextDfa exact_texts(const std::vector<std::string>& texts, SchemaWork& work) {
  TextNfa nfa;
  const int start = nfa.add_state(), accept = nfa.add_state();
  for (const std::string& text : texts) nfa.connect_text(start, accept, code_points_of(text));
  return determinise(nfa, start, accept, work);
}

}  // namespace lockstep
