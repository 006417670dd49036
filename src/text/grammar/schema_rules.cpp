#include "text/grammar/schema_rules.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"

namespace lockstep {

using nlohmann::ordered_json;

namespace {
constexpr int kStart = MachineBuilder::kStart, kAccept = MachineBuilder::kAccept;
constexpr std::size_t kMaxPrefix = 1000;
std::string bound_key(const std::optional<NumberBound>& bound) { return bound ? fmt::format("{}{}", bound->exclusive ? '!' : '=', bound->value.dump()) : "-"; }
}  // namespace

SchemaRules::SchemaRules(MachineBuilder& builder, JsonText& json, const ordered_json& schema, bool closed_objects, SchemaWork& work)
    : builder_(builder), json_(json), work_(work), reader_(schema, work), closed_objects_(closed_objects) {}

int SchemaRules::compile() {
  const int rule = rule_of({reader_.root()});
  finish();
  return rule;
}

void SchemaRules::finish() {
  while (!open_.empty()) {
    const auto [next, all] = std::move(open_.front());
    open_.pop_front();
    build(next, all);
  }
}

int SchemaRules::rule_of(const Conjunction& all) {
  std::vector<const ordered_json*> key;
  for (const SchemaPart& part : all)
    if (!(part.schema->is_object() && part.schema->empty()) && *part.schema != true) key.push_back(part.schema);
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto [it, added] = rules_.emplace(std::move(key), 0);
  if (added) {
    it->second = builder_.add_rule();
    open_.emplace_back(it->second, all);
  }
  return it->second;
}

void SchemaRules::build(int rule, const Conjunction& all) {
  std::set<int> leaves_of;
  for (const Facts& facts : reader_.alternatives(all)) leaves(facts, leaves_of);
  for (int leaf : leaves_of) builder_.call(rule, kStart, kAccept, leaf);
}

int SchemaRules::literal(const std::string& key, const std::vector<std::string>& texts) {
  return once(key, [&](int rule) {
    for (const std::string& t : texts) builder_.text(rule, kStart, kAccept, t);
  });
}

void SchemaRules::leaves(const Facts& facts, std::set<int>& out) {
  if (facts.values) {
    const int rule = values(facts);
    if (rule >= 0) out.insert(rule);
    return;
  }
  if (facts.types & kNull) out.insert(literal("null", {"null"}));
  if (facts.types & kBoolean) out.insert(literal("boolean", {"true", "false"}));
  if (facts.types & (kInteger | kFraction)) out.insert(number(facts, (facts.types & kFraction) && facts.multiple == 0));
  if (facts.types & kString) out.insert(text(facts));
  if (facts.types & kArray) out.insert(array(facts));
  if (facts.types & kObject) out.insert(object(facts));
}

int SchemaRules::values(const Facts& facts) {
  std::vector<ordered_json> kept;
  for (const ordered_json& v : facts.values->list)
    if (reader_.accepts(facts, v)) kept.push_back(v);
  if (kept.empty()) return -1;
  const int rule = builder_.add_rule();
  for (const ordered_json& v : kept) json_.value(rule, kStart, kAccept, v);
  return rule;
}

int SchemaRules::number(const Facts& facts, bool fractions) {
  return with_context("reading the bounds of " + facts.path, [&] {
    if (fractions) {
      return once(fmt::format("number {} {}", bound_key(facts.low), bound_key(facts.high)),
                  [&](int rule) { json_.bare(rule, kStart, kAccept, number_dfa(facts.low, facts.high, work_)); });
    }
    IntegerRange range;
    range.multiple = std::max<std::int64_t>(facts.multiple, 1);
    // Beyond 64 bits a bound either restricts nothing that is written, or leaves nothing.
    bool nothing = false;
    if (facts.low && !(range.low = integer_from(*facts.low))) nothing |= compare_numbers(facts.low->value, 0) > 0;
    if (facts.high && !(range.high = integer_to(*facts.high))) nothing |= compare_numbers(facts.high->value, 0) < 0;
    const std::string key = fmt::format("integer {} {} {} {}", range.low ? fmt::to_string(*range.low) : "-", range.high ? fmt::to_string(*range.high) : "-",
                                        range.multiple, nothing);
    return once(key, [&](int rule) {
      if (!nothing) json_.bare(rule, kStart, kAccept, integer_dfa(range, work_));
    });
  });
}

int SchemaRules::text(const Facts& facts) {
  if (facts.min_length > facts.max_length) return literal("nothing", {});
  if (facts.texts.empty()) return json_.plain_string(facts.min_length, facts.max_length);
  std::string key = fmt::format("text {} {}", facts.min_length, facts.max_length);
  for (const Facts::Text& t : facts.texts) key += fmt::format(" {} {}:{}", t.keyword, t.text.size(), t.text);
  return with_context("bounding the text of " + facts.path, [&] {
    return once(key, [&](int rule) {
      TextDfa dfa = reader_.text_automaton(facts.texts[0]);
      for (std::size_t i = 1; i < facts.texts.size(); ++i) dfa = intersect(dfa, reader_.text_automaton(facts.texts[i]), work_);
      if (facts.min_length > 0 || facts.max_length < kNoMaximum) dfa = with_length(dfa, facts.min_length, facts.max_length, work_);
      json_.string_of(rule, kStart, kAccept, dfa);
    });
  });
}

// [ item0 , item1 , ... ]: places of prefixItems are states, those beyond are counted.
int SchemaRules::array(const Facts& facts) {
  const int rule = builder_.add_rule(true);
  const auto prefix = static_cast<std::int64_t>(facts.prefix_items());
  if (prefix > static_cast<std::int64_t>(kMaxPrefix))
    fail(ErrorCode::resource_exhausted, "{}/prefixItems has {} schemas, allowed are {}", facts.path, prefix, kMaxPrefix);
  const std::int64_t low = facts.min_items, high = facts.max_items;
  if (low > high) return rule;
  int at = builder_.add_state(rule);  // `done` items have been written
  builder_.text(rule, kStart, at, "[");
  std::int64_t done = 0;
  const auto separated = [&](int from) {
    if (done == 0) return from;
    const int comma = builder_.add_state(rule), next = builder_.add_state(rule);
    builder_.text(rule, from, comma, ",");
    json_.space(rule, comma, next);
    return next;
  };
  for (;; ++done) {
    if (done >= low) builder_.text(rule, at, kAccept, "]");
    if (done >= high || done >= prefix) break;
    const int after = builder_.add_state(rule);
    builder_.call(rule, separated(at), after, rule_of(facts.item(static_cast<std::size_t>(done))));
    at = after;
  }
  if (done >= high) return rule;
  builder_.set_count(rule, std::max<std::int64_t>(0, low - prefix), high == kNoMaximum ? high : high - prefix);
  const int item = rule_of(facts.item(static_cast<std::size_t>(prefix)));
  const int loop = builder_.add_state(rule), comma = builder_.add_state(rule), next = builder_.add_state(rule);
  builder_.call(rule, separated(at), loop, item, true);
  builder_.bytes(rule, loop, kAccept, ']', ']', Machine::kNeedsMinimum);
  builder_.bytes(rule, loop, comma, ',', ',', Machine::kBelowMaximum);
  json_.space(rule, comma, next);
  builder_.call(rule, next, loop, item, true);
  return rule;
}

void SchemaRules::check_counts(const Facts& facts, std::size_t named, bool others) const {
  // What is required is always there and nothing else need be.
  if (facts.min_properties > static_cast<std::int64_t>(facts.required.size()))
    fail(ErrorCode::unsupported, "{}/minProperties is {}, supported is at most the number of required properties ({})", facts.min_properties_path,
         facts.min_properties, facts.required.size());
  if (facts.max_properties < kNoMaximum && (others || static_cast<std::int64_t>(named) > facts.max_properties))
    fail(ErrorCode::unsupported, "{}/maxProperties is {}, supported is at least the number of properties named, with additionalProperties false",
         facts.max_properties_path, facts.max_properties);
}

void SchemaRules::key(int rule, int from, int to, const std::string& name) {
  const int colon = builder_.add_state(rule);
  const int quoted = builder_.add_state(rule);
  json_.quoted(rule, from, quoted, name);
  builder_.text(rule, quoted, colon, ":");
  json_.space(rule, colon, to);
}

SchemaRules::Properties SchemaRules::properties(const Facts& facts) const {
  Properties p;
  p.all = p.names = facts.property_names();
  p.required = {facts.required.begin(), facts.required.end()};
  p.others = facts.other_properties();
  p.open = !reader_.alternatives(p.others).empty() && !(closed_objects_ && p.others.empty() && !p.names.empty());
  std::erase_if(p.names, [&](const std::string& n) { return !p.required.contains(n) && reader_.alternatives(facts.property(n)).empty(); });
  check_counts(facts, p.names.size(), p.open);
  return p;
}

// { "a": 1, "b": 2 }: for each property two places, one where nothing has been written yet and one where a comma comes
// first.
int SchemaRules::object(const Facts& facts) {
  const auto [all_names, names, required, others, open] = properties(facts);
  const int rule = builder_.add_rule(true);
  int fresh = builder_.add_state(rule), after = builder_.add_state(rule);
  builder_.text(rule, kStart, fresh, "{");
  const auto separated = [&](int from) {
    const int comma = builder_.add_state(rule), next = builder_.add_state(rule);
    builder_.text(rule, from, comma, ",");
    json_.space(rule, comma, next);
    return next;
  };
  for (const std::string& name : names) {
    const int next_fresh = builder_.add_state(rule), next_after = builder_.add_state(rule), value = builder_.add_state(rule);
    key(rule, fresh, value, name);
    key(rule, separated(after), value, name);
    builder_.call(rule, value, next_after, rule_of(facts.property(name)));
    if (!required.contains(name)) {
      builder_.epsilon(rule, fresh, next_fresh);
      builder_.epsilon(rule, after, next_after);
    }
    fresh = next_fresh;
    after = next_after;
  }
  builder_.text(rule, fresh, kAccept, "}");
  builder_.text(rule, after, kAccept, "}");
  if (!open) return rule;
  // Any other key, spelled with no escape that need not be, so that it is none of those named.
  const TextDfa keys = all_names.empty() ? any_text() : subtract(any_text(), exact_texts(all_names, work_), work_);
  const int any_key = builder_.add_state(rule), quoted = builder_.add_state(rule), colon = builder_.add_state(rule), value = builder_.add_state(rule);
  builder_.epsilon(rule, fresh, any_key);
  builder_.epsilon(rule, separated(after), any_key);
  json_.string_of(rule, any_key, quoted, keys);
  builder_.text(rule, quoted, colon, ":");
  json_.space(rule, colon, value);
  builder_.call(rule, value, after, rule_of(others));
  return rule;
}

}  // namespace lockstep
