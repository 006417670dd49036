#include "text/grammar/schema_facts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "base/choice.h"
#include "base/error.h"
#include "text/grammar/formats.h"
#include "text/grammar/pattern.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::ordered_json;

namespace {
constexpr std::size_t kMaxNodes = 50'000, kMaxNesting = 128, kMaxAlternatives = 256, kMaxDisjointDepth = 8, kAbsorbSteps = 500, kAcceptSteps = 50,
                      kKeySteps = 4;  // in steps of an automaton
constexpr std::string_view kRefused[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "patternProperties",
                                         "propertyNames",
                                         "unevaluatedProperties",
                                         "unevaluatedItems",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "additionalItems",
                                         "$dynamicRef",
                                         "$recursiveRef"};

std::string escaped(const std::string& key) {
  std::string out;
  for (char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return utf8_excerpt(out);
}
SchemaPart below(const SchemaPart& part, const std::string& key) { return {&(*part.schema)[key], part.path + "/" + escaped(key)}; }
SchemaPart below(const SchemaPart& part, std::size_t index) { return {&(*part.schema)[index], fmt::format("{}/{}", part.path, index)}; }

std::string excerpt(const ordered_json& value) { return utf8_excerpt(value.dump(-1, ' ', true, ordered_json::error_handler_t::replace)); }

[[noreturn]] void bad(const SchemaPart& part, std::string_view keyword, std::string_view allowed) {
  fail(ErrorCode::invalid_argument, "{}/{} is {}, allowed is {}", part.path, keyword, excerpt((*part.schema)[std::string(keyword)]), allowed);
}

bool has(const SchemaPart& part, const char* keyword) { return part.schema->contains(keyword); }

// Bounds of lengths and counts: JSON Schema wants whole numbers, also as 3.0.
std::int64_t count_of(const SchemaPart& part, const char* keyword) {
  const ordered_json& value = (*part.schema)[keyword];
  if (!value.is_number() || compare_numbers(value, 0) < 0) bad(part, keyword, "a whole number, 0 or more");
  const std::optional<std::int64_t> low = integer_from({value, false}), high = integer_to({value, false});
  if (!high) return kNoMaximum;
  if (!low || *low != *high) bad(part, keyword, "a whole number, 0 or more");
  return *low;
}

unsigned type_bit(const SchemaPart& part, const ordered_json& name) {
  static const std::vector<std::string> names{"null", "boolean", "integer", "number", "string", "array", "object"};
  constexpr unsigned bits[] = {kNull, kBoolean, kInteger, kInteger | kFraction, kString, kArray, kObject};
  if (name.is_string())
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i] == name.get<std::string>()) return bits[i];
  fail(ErrorCode::invalid_argument, "{}/type is {}, {}", part.path, excerpt(name), allowed_are(name.is_string() ? name.get<std::string>() : "", names));
}

unsigned type_of(const ordered_json& value) {
  if (value.is_null()) return kNull;
  if (value.is_boolean()) return kBoolean;
  if (value.is_string()) return kString;
  if (value.is_array()) return kArray;
  if (value.is_object()) return kObject;
  if (!value.is_number()) return 0;
  const auto low = integer_from({value, false}), high = integer_to({value, false});
  if (value.is_number_integer() || (low && high && *low == *high)) return kInteger;
  return !low && std::abs(value.get<double>()) >= 1e17 ? kInteger : kFraction;  // so large a double is whole
}

// What JSON Schema calls equal has the same key: 1 and 1.0, objects in any order.
std::string value_key(const ordered_json& value) {
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) == number && std::abs(number) < 0x1p63) return fmt::format("{}", static_cast<std::int64_t>(number));
    if (std::trunc(number) == number && number > 0 && number < 0x1p64) return fmt::format("{}", static_cast<std::uint64_t>(number));
  }
  if (!value.is_structured()) return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::vector<std::string> parts;
  for (auto it = value.begin(); it != value.end(); ++it) parts.push_back((value.is_object() ? value_key(it.key()) + ":" : "") + value_key(*it));
  if (value.is_object()) std::sort(parts.begin(), parts.end());
  return fmt::format("{}{}]", value.is_object() ? '{' : '[', fmt::join(parts, ","));
}

void restrict_values(Facts& facts, const std::vector<ordered_json>& values) {
  auto kept = std::make_shared<Facts::Values>();
  for (const ordered_json& v : values) {
    std::string key = value_key(v);
    if ((!facts.values || facts.values->keys.contains(key)) && kept->keys.insert(std::move(key)).second) kept->list.push_back(v);
  }
  facts.values = std::move(kept);
}

void tighten(std::optional<NumberBound>& bound, const NumberBound& with, int worse) {
  if (bound) {
    const int order = compare_numbers(with.value, bound->value);
    if (order == worse || (order == 0 && bound->exclusive)) return;
  }
  bound = with;
}
}  // namespace

std::size_t Facts::prefix_items() const {
  std::size_t most = 0;
  for (const SchemaPart& a : arrays)
    if (has(a, "prefixItems")) most = std::max(most, (*a.schema)["prefixItems"].size());
  return most;
}

Conjunction Facts::item(std::size_t index) const {
  Conjunction all;
  for (const SchemaPart& a : arrays) {
    if (has(a, "prefixItems") && index < (*a.schema)["prefixItems"].size()) all.push_back(below(below(a, "prefixItems"), index));
    else if (has(a, "items")) all.push_back(below(a, "items"));
  }
  return all;
}

Conjunction Facts::property(const std::string& name) const {
  Conjunction all;
  for (const SchemaPart& o : objects) {
    if (has(o, "properties") && (*o.schema)["properties"].contains(name)) all.push_back(below(below(o, "properties"), name));
    else if (has(o, "additionalProperties")) all.push_back(below(o, "additionalProperties"));
  }
  return all;
}

Conjunction Facts::other_properties() const {
  Conjunction all;
  for (const SchemaPart& o : objects)
    if (has(o, "additionalProperties")) all.push_back(below(o, "additionalProperties"));
  return all;
}

std::vector<std::string> Facts::property_names() const {
  std::vector<std::string> names;
  std::unordered_set<std::string> seen;
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) names.push_back(name);
  };
  for (const SchemaPart& o : objects)
    if (has(o, "properties"))
      for (auto it = (*o.schema)["properties"].begin(); it != (*o.schema)["properties"].end(); ++it) add(it.key());
  for (const std::string& name : required) add(name);
  return names;
}

void SchemaReader::check_size(const ordered_json& document) {
  std::vector<std::pair<const ordered_json*, std::size_t>> open{{&document, 1}};
  std::size_t nodes = 0;
  while (!open.empty()) {
    const auto [node, depth] = open.back();
    open.pop_back();
    if (++nodes > kMaxNodes) fail(ErrorCode::resource_exhausted, "the schema has more than the {} values allowed", kMaxNodes);
    if (depth > kMaxNesting) fail(ErrorCode::resource_exhausted, "the schema nests deeper than the {} levels allowed", kMaxNesting);
    if (node->is_structured())
      for (const ordered_json& inner : *node) open.emplace_back(&inner, depth + 1);
  }
}

SchemaReader::SchemaReader(const ordered_json& schema, SchemaWork& work) : document_(schema), work_(work) { check_size(schema); }

const TextDfa& SchemaReader::text_automaton(const Facts::Text& text) const {
  const auto it = texts_.find(text.keyword + text.text);
  if (it != texts_.end()) return it->second;
  TextDfa dfa;
  if (text.keyword == "pattern") {
    dfa = with_context("reading " + text.path, [&] { return pattern_dfa(text.text, work_); });
  } else {
    std::optional<TextDfa> format = format_dfa(text.text, work_);
    if (!format)
      fail(ErrorCode::unsupported, "{} is '{}', supported are {}{}", text.path, utf8_excerpt(text.text), fmt::join(format_names(), ", "),
           did_you_mean(text.text, format_names()));
    dfa = std::move(*format);
  }
  return texts_.emplace(text.keyword + text.text, std::move(dfa)).first->second;
}

SchemaPart SchemaReader::resolve(const std::string& reference, const std::string& path) const {
  if (reference != "#" && !reference.starts_with("#/"))
    fail(ErrorCode::unsupported, "{}/$ref is '{}', supported are references within the schema: # and #/...", path, utf8_excerpt(reference));
  SchemaPart part = root();
  std::size_t at = 1;
  while (at < reference.size()) {
    const std::size_t end = std::min(reference.find('/', at + 1), reference.size());
    std::string key;
    for (std::size_t i = at + 1; i < end; ++i) {
      if (reference[i] == '~' && i + 1 < end) key += reference[++i] == '0' ? '~' : '/';
      else if (reference[i] == '%' && i + 2 < end && std::isxdigit(static_cast<unsigned char>(reference[i + 1])) &&
               std::isxdigit(static_cast<unsigned char>(reference[i + 2])))
        key += static_cast<char>(std::stoi(reference.substr(i + 1, 2), nullptr, 16)), i += 2;
      else key += reference[i];
    }
    const bool index = part.schema->is_array() && !key.empty() && key.size() < 7 && key.find_first_not_of("0123456789") == std::string::npos;
    if (part.schema->is_object() && part.schema->contains(key)) part = below(part, key);
    else if (index && std::stoul(key) < part.schema->size()) part = below(part, std::stoul(key));
    else fail(ErrorCode::invalid_argument, "{}/$ref is '{}', which leads nowhere at '{}'", path, utf8_excerpt(reference), utf8_excerpt(key));
    at = end;
  }
  return part;
}

void SchemaReader::absorb_numbers(Facts& facts, const SchemaPart& part) const {
  const auto number = [&](const char* keyword) -> const ordered_json& {
    const ordered_json& value = (*part.schema)[keyword];
    if (!value.is_number()) bad(part, keyword, "a number");
    return value;
  };
  // Draft 4 wrote exclusiveMinimum as a boolean beside minimum.
  const auto flag = [&](const char* keyword) { return has(part, keyword) && (*part.schema)[keyword] == true; };
  if (has(part, "minimum")) tighten(facts.low, {number("minimum"), flag("exclusiveMinimum")}, -1);
  if (has(part, "maximum")) tighten(facts.high, {number("maximum"), flag("exclusiveMaximum")}, 1);
  if (has(part, "exclusiveMinimum") && !(*part.schema)["exclusiveMinimum"].is_boolean()) tighten(facts.low, {number("exclusiveMinimum"), true}, -1);
  if (has(part, "exclusiveMaximum") && !(*part.schema)["exclusiveMaximum"].is_boolean()) tighten(facts.high, {number("exclusiveMaximum"), true}, 1);
  if (!has(part, "multipleOf")) return;
  const ordered_json& multiple = number("multipleOf");
  const std::optional<std::int64_t> low = integer_from({multiple, false}), high = integer_to({multiple, false});
  if (!low || !high || *low != *high || *low < 1 || *low > kMaxMultiple)
    fail(ErrorCode::unsupported, "{}/multipleOf is {}, supported are whole numbers from 1 to {}", part.path, excerpt(multiple), kMaxMultiple);
  facts.multiple = std::lcm(std::max<std::int64_t>(facts.multiple, 1), *low);
  if (facts.multiple > kMaxMultiple)
    fail(ErrorCode::unsupported, "{}/multipleOf makes multiples of {}, supported are at most {}", part.path, facts.multiple, kMaxMultiple);
}

void SchemaReader::absorb_keywords(Flat& flat, const SchemaPart& part) const {
  const ordered_json& schema = *part.schema;
  Facts& facts = flat.facts;
  for (std::string_view keyword : kRefused)
    if (const auto it = schema.find(std::string(keyword)); it != schema.end() && !(it->is_object() && it->empty()))
      fail(ErrorCode::unsupported,
           "{}/{} cannot be guaranteed, supported are type, properties, required, additionalProperties, items, "
           "prefixItems, enum, const, anyOf, "
           "oneOf of disjoint branches, allOf, $ref and bounds of lengths, items and numbers",
           part.path, keyword);
  if (has(part, "type")) {
    unsigned types = 0;
    const ordered_json& type = schema["type"];
    if (type.is_array()) {
      for (const ordered_json& t : type) types |= type_bit(part, t);
    } else {
      types = type_bit(part, type);
    }
    if (has(part, "nullable") && schema["nullable"] == true) types |= kNull;  // OpenAPI 3.0
    facts.types &= types;
  }
  if (has(part, "enum")) {
    if (!schema["enum"].is_array()) bad(part, "enum", "a list of values");
    restrict_values(facts, schema["enum"].get<std::vector<ordered_json>>());
  }
  if (has(part, "const")) restrict_values(facts, {schema["const"]});
  absorb_numbers(facts, part);
  if (has(part, "minLength")) facts.min_length = std::max(facts.min_length, count_of(part, "minLength"));
  if (has(part, "maxLength")) facts.max_length = std::min(facts.max_length, count_of(part, "maxLength"));
  for (const char* keyword : {"pattern", "format"})
    if (has(part, keyword)) {
      if (!schema[keyword].is_string()) bad(part, keyword, "a text");
      facts.texts.push_back({keyword, schema[keyword].get<std::string>(), part.path + "/" + keyword});
    }
  if (has(part, "minItems")) facts.min_items = std::max(facts.min_items, count_of(part, "minItems"));
  if (has(part, "maxItems")) facts.max_items = std::min(facts.max_items, count_of(part, "maxItems"));
  if (has(part, "items") && schema["items"].is_array())
    fail(ErrorCode::unsupported, "{}/items is a list, supported is one schema (prefixItems takes a list)", part.path);
  if (has(part, "prefixItems") && !schema["prefixItems"].is_array()) bad(part, "prefixItems", "a list of schemas");
  if (has(part, "uniqueItems") && schema["uniqueItems"] != false && facts.max_items > 1)
    fail(ErrorCode::unsupported, "{}/uniqueItems cannot be guaranteed, supported is false, or maxItems of at most 1", part.path);
  if (has(part, "items") || has(part, "prefixItems")) facts.arrays.push_back(part);
  if (has(part, "properties") && !schema["properties"].is_object()) bad(part, "properties", "an object of schemas");
  if (has(part, "properties") || has(part, "additionalProperties")) facts.objects.push_back(part);
  if (has(part, "required") && !schema["required"].is_boolean()) {
    if (!schema["required"].is_array()) bad(part, "required", "a list of names");
    std::unordered_set<std::string> seen(facts.required.begin(), facts.required.end());
    for (const ordered_json& name : schema["required"]) {
      if (!name.is_string()) bad(part, "required", "a list of names");
      if (seen.insert(name.get<std::string>()).second) facts.required.push_back(name.get<std::string>());
    }
  }
  if (has(part, "minProperties")) facts.min_properties = std::max(facts.min_properties, count_of(part, "minProperties")), facts.min_properties_path = part.path;
  if (has(part, "maxProperties")) facts.max_properties = std::min(facts.max_properties, count_of(part, "maxProperties")), facts.max_properties_path = part.path;
}

void SchemaReader::absorb(Flat& flat, const SchemaPart& part) const {
  if (flat.impossible) return;
  work_.charge(kAbsorbSteps);
  if (part.schema->is_boolean()) {
    flat.impossible = !part.schema->get<bool>();
    return;
  }
  if (!part.schema->is_object()) fail(ErrorCode::invalid_argument, "{} is {}, allowed is a schema: an object, true or false", part.path, excerpt(*part.schema));
  if (std::find(flat.open.begin(), flat.open.end(), part.schema) != flat.open.end())
    fail(ErrorCode::unsupported, "{} leads back to itself before any part of a value is said", part.path);
  if (std::find(flat.absorbed.begin(), flat.absorbed.end(), part.schema) != flat.absorbed.end()) return;
  flat.absorbed.push_back(part.schema);
  flat.open.push_back(part.schema);
  if (flat.facts.path.empty()) flat.facts.path = part.path;
  absorb_keywords(flat, part);
  if (has(part, "$ref")) {
    const ordered_json& reference = (*part.schema)["$ref"];
    if (!reference.is_string()) bad(part, "$ref", "a text");
    absorb(flat, resolve(reference.get<std::string>(), part.path));
  }
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    if (!has(part, keyword)) continue;
    const SchemaPart list = below(part, std::string(keyword));
    if (!list.schema->is_array() || list.schema->empty()) bad(part, keyword, "a list of at least one schema");
    Group group{{}, std::string_view(keyword) == "oneOf", list.path, flat.open};
    for (std::size_t i = 0; i < list.schema->size(); ++i) {
      if (std::string_view(keyword) == "allOf") absorb(flat, below(list, i));
      else group.branches.push_back(below(list, i));
    }
    if (!group.branches.empty()) flat.groups.push_back(std::move(group));
  }
  flat.open.pop_back();
}

void SchemaReader::expand(Flat flat, std::vector<Facts>& out) const {
  if (flat.impossible) return;
  if (flat.groups.empty()) {
    out.push_back(std::move(flat.facts));
    if (out.size() > kMaxAlternatives) fail(ErrorCode::resource_exhausted, "{} has more than the {} alternatives allowed", out.back().path, kMaxAlternatives);
    return;
  }
  const Group group = std::move(flat.groups.front());
  flat.groups.erase(flat.groups.begin());
  if (group.one_of && group.branches.size() > 1) check_disjoint(flat, group);
  for (const SchemaPart& branch : group.branches) {
    Flat with = flat;
    with.open = group.open;  // a branch that leads back to where it stands says nothing
    absorb(with, branch);
    with.open.clear();
    expand(std::move(with), out);
  }
}

std::vector<Facts> SchemaReader::alternatives(const Conjunction& all) const {
  Flat flat;
  for (const SchemaPart& part : all) absorb(flat, part);
  std::vector<Facts> out;
  expand(std::move(flat), out);
  return out;
}

void SchemaReader::check_disjoint(const Flat& base, const Group& group) const {
  std::vector<std::vector<Facts>> branches;
  for (const SchemaPart& branch : group.branches) {
    Flat with = base;
    with.groups.clear();
    with.open = group.open;
    absorb(with, branch);
    with.open.clear();
    branches.emplace_back();
    expand(std::move(with), branches.back());
  }
  for (std::size_t i = 0; i < branches.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      for (const Facts& a : branches[i])
        for (const Facts& b : branches[j])
          if (!disjoint(a, b, 0))
            fail(ErrorCode::unsupported,
                 "{}: branches {} and {} may both hold, supported is oneOf whose branches differ by type, by enum or "
                 "const, by bounds, or in "
                 "a required property; anyOf takes any",
                 group.path, j, i);
}

bool SchemaReader::disjoint(const Facts& a, const Facts& b, int depth) const {
  if (depth > static_cast<int>(kMaxDisjointDepth)) return false;
  if (a.values && b.values) {
    // The usual way to tell branches apart, and lists may be long.
    const std::set<std::string>&x = a.values->keys, &y = b.values->keys;
    work_.charge(kKeySteps * (x.size() + y.size()));
    bool common = false;
    for (auto i = x.begin(), j = y.begin(); i != x.end() && j != y.end() && !common;) {
      const int order = i->compare(*j);
      common = order == 0;
      if (order <= 0) ++i;
      if (order >= 0) ++j;
    }
    if (!common) return true;
  }
  if (a.values) return std::none_of(a.values->list.begin(), a.values->list.end(), [&](const ordered_json& v) { return accepts(a, v) && accepts(b, v); });
  if (b.values) return disjoint(b, a, depth);
  const unsigned common = a.types & b.types;
  if (common & (kNull | kBoolean)) return false;
  const auto apart = [](const std::optional<NumberBound>& high, const std::optional<NumberBound>& low) {
    if (!high || !low) return false;
    const int order = compare_numbers(high->value, low->value);
    return order < 0 || (order == 0 && (high->exclusive || low->exclusive));
  };
  if ((common & (kInteger | kFraction)) && !apart(a.high, b.low) && !apart(b.high, a.low)) return false;
  if ((common & kString) && a.max_length >= b.min_length && b.max_length >= a.min_length) return false;
  if ((common & kArray) && a.max_items >= b.min_items && b.max_items >= a.min_items) return false;
  if (!(common & kObject)) return true;
  const auto differ = [&](const std::string& name) {
    const std::vector<Facts> in_a = alternatives(a.property(name)), in_b = alternatives(b.property(name));
    for (const Facts& x : in_a)
      for (const Facts& y : in_b)
        if (!disjoint(x, y, depth + 1)) return false;
    return true;
  };
  return std::any_of(a.required.begin(), a.required.end(), differ) || std::any_of(b.required.begin(), b.required.end(), differ);
}

bool SchemaReader::accepts(const Conjunction& all, const ordered_json& value) const {
  const std::vector<Facts> any = alternatives(all);
  return std::any_of(any.begin(), any.end(), [&](const Facts& f) { return accepts(f, value); });
}

bool SchemaReader::accepts(const Facts& f, const ordered_json& value) const {
  work_.charge(kAcceptSteps);
  if (!(type_of(value) & f.types) || (f.values && !f.values->keys.contains(value_key(value)))) return false;
  if (value.is_number()) {
    const auto outside = [&](const NumberBound& bound, int side) {
      const int order = compare_numbers(value, bound.value);
      return order == side || (order == 0 && bound.exclusive);
    };
    if ((f.low && outside(*f.low, -1)) || (f.high && outside(*f.high, 1))) return false;
    if (f.multiple == 0) return true;
    const auto whole = integer_from({value, false});
    return type_of(value) == kInteger && whole && *whole % f.multiple == 0;
  }
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    const auto length = static_cast<std::int64_t>(code_points_of(text).size());
    if (length < f.min_length || length > f.max_length) return false;
    return std::all_of(f.texts.begin(), f.texts.end(), [&](const Facts::Text& t) { return text_automaton(t).accepts_text(text); });
  }
  const auto size = static_cast<std::int64_t>(value.size());
  if (value.is_array()) {
    if (size < f.min_items || size > f.max_items) return false;
    for (std::size_t i = 0; i < value.size(); ++i)
      if (!accepts(f.item(i), value[i])) return false;
  }
  if (value.is_object()) {
    if (size < f.min_properties || size > f.max_properties) return false;
    for (const std::string& name : f.required)
      if (!value.contains(name)) return false;
    for (auto it = value.begin(); it != value.end(); ++it)
      if (!accepts(f.property(it.key()), *it)) return false;
  }
  return true;
}

}  // namespace lockstep
