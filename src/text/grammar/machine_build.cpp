// MachineBuilder: compiles rules to a machine.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "base/client_work.h"
#include "base/error.h"
#include "text/grammar/machine.h"

namespace lockstep {

namespace {
[[noreturn]] void too_large(std::string_view what, std::size_t most) {
  fail(ErrorCode::resource_exhausted, "the grammar is too large: more than {} {}", most, what);
}
constexpr std::size_t kMaxSteps = 16'000'000;
constexpr std::size_t kCountedAtOnce = 64 << 10, kPlaceBytes = 96;  // of a place: a node of a map and two vectors
}  // namespace

std::size_t Machine::bytes() const {
  return states.capacity() * sizeof(State) + calls.capacity() * sizeof(Call) + tokens.capacity() * sizeof(Token) + rules.capacity() * sizeof(Rule) +
         steps.capacity() * sizeof(Step);
}

// What is built is counted for the client who asked for it, with its copy while vectors grow.
void MachineBuilder::count(std::size_t bytes) {
  if ((counted_ += bytes) < kCountedAtOnce) return;
  ClientWork::check();
  ClientWork::take(std::exchange(counted_, 0));
}

int MachineBuilder::add_rule(bool container) {
  if (rules_.size() >= limits_.rules) too_large("rules", limits_.rules);
  rules_.push_back({container, 0, kNoMaximum, std::vector<std::vector<Edge>>(2)});
  return static_cast<int>(rules_.size()) - 1;
}

void MachineBuilder::set_count(int rule, std::int64_t minimum, std::int64_t maximum) {
  rules_[static_cast<std::size_t>(rule)].minimum = minimum;
  rules_[static_cast<std::size_t>(rule)].maximum = maximum;
}

int MachineBuilder::add_state(int rule) {
  if (++states_ > limits_.states) too_large("states", limits_.states);
  count(2 * sizeof(std::vector<Edge>));
  auto& states = rules_[static_cast<std::size_t>(rule)].states;
  states.emplace_back();
  return static_cast<int>(states.size()) - 1;
}

void MachineBuilder::add(int rule, int from, const Edge& edge) {
  if (++edges_ > limits_.edges) too_large("edges", limits_.edges);
  count(2 * sizeof(Edge));
  rules_[static_cast<std::size_t>(rule)].states[static_cast<std::size_t>(from)].push_back(edge);
}

void MachineBuilder::epsilon(int rule, int from, int to) { add(rule, from, {Edge::Kind::epsilon, 0, 0, 0, to, 0}); }
void MachineBuilder::bytes(int rule, int from, int to, std::uint8_t low, std::uint8_t high, std::uint8_t guards) {
  add(rule, from, {Edge::Kind::bytes, low, high, guards, to, 0});
}
void MachineBuilder::text(int rule, int from, int to, std::string_view bytes_of) {
  if (bytes_of.empty()) return epsilon(rule, from, to);
  for (std::size_t i = 0; i < bytes_of.size(); ++i) {
    const int next = i + 1 == bytes_of.size() ? to : add_state(rule);
    const auto byte = static_cast<std::uint8_t>(bytes_of[i]);
    bytes(rule, from, next, byte, byte);
    from = next;
  }
}
void MachineBuilder::call(int rule, int from, int to, int callee, bool counts) {
  add(rule, from, {Edge::Kind::call, 0, 0, static_cast<std::uint8_t>(counts ? Machine::kCounts : 0), to, callee});
}
void MachineBuilder::token(int rule, int from, int to, std::int32_t id) { add(rule, from, {Edge::Kind::token, 0, 0, 0, to, id}); }

// A rule that is nothing but a call of another is that other.
void MachineBuilder::find_aliases() {
  alias_.assign(rules_.size(), -1);
  for (std::size_t r = 0; r < rules_.size(); ++r) {
    const auto& states = rules_[r].states;
    if (rules_[r].container || states.size() != 2 || states[kStart].size() != 1 || !states[kAccept].empty()) continue;
    const Edge& e = states[kStart][0];
    if (e.kind == Edge::Kind::call && e.to == kAccept && e.guards == 0) alias_[r] = e.other;
  }
}

int MachineBuilder::resolve(int rule) const {
  for (std::size_t hops = 0; alias_[static_cast<std::size_t>(rule)] >= 0; ++hops) {
    rule = alias_[static_cast<std::size_t>(rule)];
    if (hops > rules_.size()) fail(ErrorCode::unsupported, "a $ref leads back to itself before any part of a value is said");
  }
  return rule;
}

void MachineBuilder::choose_classes(Machine& machine) const {
  bool border[257] = {};
  for (const RuleText& rule : rules_)
    for (const auto& edges : rule.states)
      for (const Edge& e : edges)
        if (e.kind == Edge::Kind::bytes) border[e.low] = border[e.high + 1] = true;
  int cls = 0;
  for (int b = 0; b < 256; ++b) {
    if (b > 0 && border[b]) ++cls;
    machine.class_of[b] = static_cast<std::uint8_t>(cls);
  }
  machine.classes = static_cast<std::size_t>(cls) + 1;
}

void MachineBuilder::determinise(int r, Machine& machine) {
  const RuleText& rule = rules_[static_cast<std::size_t>(r)];
  const auto first = static_cast<std::int32_t>(machine.states.size());
  machine.rules[static_cast<std::size_t>(r)].start = first;
  std::vector<std::vector<std::int32_t>> order;
  std::map<std::vector<std::int32_t>, std::int32_t> places;
  std::vector<bool> seen(rule.states.size(), false);
  const auto place = [&](std::vector<std::int32_t> members) {
    for (std::int32_t m : members) seen[static_cast<std::size_t>(m)] = true;
    for (std::size_t i = 0; i < members.size(); ++i)
      for (const Edge& e : rule.states[static_cast<std::size_t>(members[i])])
        if (e.kind == Edge::Kind::epsilon && !seen[static_cast<std::size_t>(e.to)]) {
          seen[static_cast<std::size_t>(e.to)] = true;
          members.push_back(e.to);
        }
    for (std::int32_t m : members) seen[static_cast<std::size_t>(m)] = false;
    std::sort(members.begin(), members.end());
    edges_ += members.size();
    if (edges_ > limits_.edges) too_large("edges", limits_.edges);
    const auto [it, added] = places.emplace(members, first + static_cast<std::int32_t>(order.size()));
    if (added) {
      count(kPlaceBytes + 2 * members.size() * sizeof(std::int32_t));
      order.push_back(std::move(members));
    }
    return it->second;
  };
  place({kStart});
  struct Target {
    std::vector<std::int32_t> members;
    std::uint8_t guards = 0;
  };
  std::vector<Target> targets(machine.classes);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (machine.states.size() >= limits_.states) too_large("states", limits_.states);
    const std::vector<std::int32_t> members = order[i];
    Machine::State state;
    state.rule = r;
    state.accepts = std::binary_search(members.begin(), members.end(), kAccept);
    state.calls = static_cast<std::uint32_t>(machine.calls.size());
    state.tokens = static_cast<std::uint32_t>(machine.tokens.size());
    for (Target& t : targets) t.members.clear(), t.guards = 0;
    std::set<std::tuple<int, std::int32_t, int>> calls;
    std::map<std::int32_t, std::vector<std::int32_t>> tokens;
    for (std::int32_t m : members)
      for (const Edge& e : rule.states[static_cast<std::size_t>(m)]) {
        if (e.kind == Edge::Kind::call) calls.emplace(resolve(e.other), e.to, e.guards);
        if (e.kind == Edge::Kind::token) tokens[e.other].push_back(e.to);
        if (e.kind != Edge::Kind::bytes) continue;
        for (std::size_t c = machine.class_of[e.low]; c <= machine.class_of[e.high]; ++c) {
          targets[c].members.push_back(e.to);
          targets[c].guards |= e.guards;
          ++edges_;
        }
      }
    for (const auto& [callee, to, guards] : calls)
      // The callee's start is known once all rules are placed; until then its number stands there.
      machine.calls.push_back({callee, place({to}), (guards & Machine::kCounts) != 0});
    for (auto& [id, to] : tokens) machine.tokens.push_back({id, place(std::move(to))});
    machine.states.push_back(state);
    count(2 * (sizeof state + machine.classes * sizeof(Machine::Step)));
    for (std::size_t c = 0; c < machine.classes; ++c) {
      Target& t = targets[c];
      Machine::Step step;
      if (!t.members.empty()) {
        std::sort(t.members.begin(), t.members.end());
        t.members.erase(std::unique(t.members.begin(), t.members.end()), t.members.end());
        step = {place(t.members), t.guards};
      }
      machine.steps.push_back(step);
    }
    if (machine.steps.size() > kMaxSteps) too_large("steps", kMaxSteps);
  }
}

// How many containers deep a state must still go at least, and how many bytes: least fixed points, from accepting
// states backwards.
void MachineBuilder::find_ends(Machine& m) const {
  constexpr std::uint32_t kFar = std::uint32_t{1} << 30;
  const std::size_t n = m.states.size() - 1;
  std::vector<std::vector<std::int32_t>> dependents(n);
  const auto depends = [&](std::size_t s, std::int32_t on) {
    auto& list = dependents[static_cast<std::size_t>(on)];
    if (list.empty() || list.back() != static_cast<std::int32_t>(s)) list.push_back(static_cast<std::int32_t>(s));
  };
  for (std::size_t s = 0; s < n; ++s) {
    m.states[s].height = Machine::kDead;
    m.states[s].distance = kFar;
    for (std::size_t c = 0; c < m.classes; ++c)
      if (m.steps[s * m.classes + c].to >= 0) depends(s, m.steps[s * m.classes + c].to);
    for (std::uint32_t c = m.states[s].calls; c < m.states[s + 1].calls; ++c) depends(s, m.calls[c].start), depends(s, m.calls[c].back);
    for (std::uint32_t t = m.states[s].tokens; t < m.states[s + 1].tokens; ++t) depends(s, m.tokens[t].to);
  }
  const auto at = [&](std::int32_t s) -> Machine::State& { return m.states[static_cast<std::size_t>(s)]; };
  // True where one of the two has become less.
  const auto improve = [&](std::int32_t s) {
    Machine::State& state = at(s);
    int height = state.height;
    std::uint32_t distance = state.distance;
    const auto offer = [&](int h, std::uint32_t d) {
      height = std::min(height, h);
      distance = std::min(distance, d);
    };
    for (std::size_t c = 0; c < m.classes; ++c)
      if (const std::int32_t t = m.steps[static_cast<std::size_t>(s) * m.classes + c].to; t >= 0) offer(at(t).height, at(t).distance + 1);
    for (std::uint32_t c = state.calls; c < at(s + 1).calls; ++c) {
      const Machine::State &inside = at(m.calls[c].start), &after = at(m.calls[c].back);
      if (inside.height == Machine::kDead || after.height == Machine::kDead) continue;
      const bool container = m.rules[static_cast<std::size_t>(inside.rule)].container;
      offer(std::max<int>(inside.height + container, after.height), std::min(inside.distance + after.distance, kFar - 1));
    }
    for (std::uint32_t t = state.tokens; t < at(s + 1).tokens; ++t) offer(at(m.tokens[t].to).height, at(m.tokens[t].to).distance + 1);
    const bool better = height < state.height || distance < state.distance;
    state.height = static_cast<std::uint16_t>(height);
    state.distance = distance;
    return better;
  };
  std::deque<std::int32_t> queue;
  for (std::size_t s = 0; s < n; ++s)
    if (m.states[s].accepts) queue.push_back(static_cast<std::int32_t>(s)), m.states[s].height = 0, m.states[s].distance = 0;
  for (std::size_t rounds = 0; !queue.empty(); queue.pop_front()) {
    if (++rounds % 4096 == 0) ClientWork::check();
    for (std::int32_t d : dependents[static_cast<std::size_t>(queue.front())])
      if (improve(d)) queue.push_back(d);
  }
}

// A rule must say a byte before it can come to itself again, and must say one at all.
void MachineBuilder::check_beginnings(const Machine& m) const {
  enum { fresh, open, closed };
  std::vector<int> mark(m.rules.size(), fresh);
  std::vector<bool> called(m.rules.size(), false);  // a rule that nobody calls may be empty: it is the whole text
  for (const Machine::Call& call : m.calls) called[static_cast<std::size_t>(m.states[static_cast<std::size_t>(call.start)].rule)] = true;
  for (std::size_t root = 0; root < m.rules.size(); ++root) {
    if (mark[root] != fresh || m.rules[root].start < 0) continue;
    std::vector<std::pair<std::size_t, std::uint32_t>> path;  // rule, next call of its start
    const auto enter = [&](std::size_t r) {
      mark[r] = open;
      if (called[r] && m.states[static_cast<std::size_t>(m.rules[r].start)].accepts)
        fail(ErrorCode::unsupported, "a part of the grammar may be empty text, supported are parts of at least one byte");
      path.emplace_back(r, m.states[static_cast<std::size_t>(m.rules[r].start)].calls);
    };
    enter(root);
    while (!path.empty()) {
      auto& [r, next] = path.back();
      const auto start = static_cast<std::size_t>(m.rules[r].start);
      if (next == m.states[start + 1].calls) {
        mark[r] = closed;
        path.pop_back();
        continue;
      }
      const auto callee = static_cast<std::size_t>(m.states[static_cast<std::size_t>(m.calls[next++].start)].rule);
      if (mark[callee] == open) fail(ErrorCode::unsupported, "a $ref leads back to itself before any part of a value is said");
      if (mark[callee] == fresh) enter(callee);
    }
  }
}

void MachineBuilder::find_recursion(Machine& m) const {
  const std::size_t n = m.rules.size();
  std::vector<std::set<std::int32_t>> callees(n), callers(n);
  for (std::size_t s = 0; s + 1 < m.states.size(); ++s)
    for (std::uint32_t c = m.states[s].calls; c < m.states[s + 1].calls; ++c) {
      const std::int32_t to = m.states[static_cast<std::size_t>(m.calls[c].start)].rule;
      callees[static_cast<std::size_t>(m.states[s].rule)].insert(to);
      callers[static_cast<std::size_t>(to)].insert(m.states[s].rule);
      m.rules[static_cast<std::size_t>(m.states[s].rule)].calls = true;
    }
  // Rules that call only rules which do not recurse do not recurse: peel them off from the leaves up.
  std::vector<std::size_t> left(n);
  std::vector<std::size_t> queue;
  for (std::size_t r = 0; r < n; ++r) {
    left[r] = callees[r].size();
    m.rules[r].recursive = true;
    if (left[r] == 0) queue.push_back(r);
  }
  while (!queue.empty()) {
    const std::size_t r = queue.back();
    queue.pop_back();
    m.rules[r].recursive = false;
    for (std::int32_t caller : callers[r])
      if (--left[static_cast<std::size_t>(caller)] == 0) queue.push_back(static_cast<std::size_t>(caller));
  }
}

Machine MachineBuilder::build(int start_rule, int depth) {
  find_aliases();
  Machine m;
  m.depth = depth;
  choose_classes(m);
  m.rules.resize(rules_.size());
  // Only what can be reached.
  std::vector<bool> reached(rules_.size(), false);
  std::vector<int> queue{resolve(start_rule)};
  reached[static_cast<std::size_t>(queue[0])] = true;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const RuleText& rule = rules_[static_cast<std::size_t>(queue[i])];
    Machine::Rule& out = m.rules[static_cast<std::size_t>(queue[i])];
    out.minimum = rule.minimum;
    out.maximum = rule.maximum;
    out.container = rule.container;
    determinise(queue[i], m);
    for (const auto& edges : rule.states)
      for (const Edge& e : edges) {
        if (e.kind != Edge::Kind::call) continue;
        const int callee = resolve(e.other);
        if (!reached[static_cast<std::size_t>(callee)]) reached[static_cast<std::size_t>(callee)] = true, queue.push_back(callee);
      }
  }
  for (std::size_t r = 0; r < m.rules.size(); ++r)
    if (!reached[r]) m.rules[r].start = -1;
  for (Machine::Call& call : m.calls) call.start = m.rules[static_cast<std::size_t>(call.start)].start;
  Machine::State end;
  end.calls = static_cast<std::uint32_t>(m.calls.size());
  end.tokens = static_cast<std::uint32_t>(m.tokens.size());
  m.states.push_back(end);
  m.states.shrink_to_fit();
  m.steps.shrink_to_fit();
  m.start = m.rules[static_cast<std::size_t>(queue[0])].start;
  find_ends(m);
  check_beginnings(m);
  find_recursion(m);
  const Machine::State& start = m.states[static_cast<std::size_t>(m.start)];
  if (start.height == Machine::kDead) fail(ErrorCode::invalid_argument, "the schema allows no value at all");
  if (start.height + m.rules[static_cast<std::size_t>(start.rule)].container > depth)
    fail(ErrorCode::invalid_argument, "the schema needs values nested {} deep, allowed are {}", start.height, depth);
  return m;
}

}  // namespace lockstep
