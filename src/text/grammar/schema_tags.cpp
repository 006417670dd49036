// SchemaRules: an object's properties as tags.
#include "base/error.h"
#include "text/grammar/pattern.h"
#include "text/grammar/schema_rules.h"
#include "text/message/argument_types.h"
#include "text/message/call_reader.h"
#include "text/utf8.h"

namespace lockstep {

using nlohmann::ordered_json;

namespace {
constexpr char kTool[] = "f";
constexpr char kOtherKeys[] = "^[A-Za-z_][A-Za-z0-9_.-]{0,63}$";

// The texts that do not contain `word`.
TextDfa without(const TextDfa& texts, const std::string& word, SchemaWork& work) {
  std::string pattern;
  for (const char c : word) {
    if (static_cast<unsigned char>(c) < 0x80) pattern += fmt::format("\\x{:02x}", c);
    else pattern += c;
  }
  return subtract(texts, pattern_dfa(pattern, work), work);
}
}  // namespace

// The rule of a text value and of what ends it.
int SchemaRules::tag_text(const Conjunction& all, bool null, const Tags& tags) {
  std::string key = fmt::format("tag text {}", null);
  const std::vector<Facts> any = reader_.alternatives(all);
  for (const Facts& facts : any) {
    if (facts.values) key += fmt::format(" values of {}", facts.path);
    else if (facts.types & kString) key += fmt::format(" {} {}", facts.min_length, facts.max_length);
    for (const Facts::Text& t : facts.texts) key += fmt::format(" {} {}:{}", t.keyword, t.text.size(), t.text);
  }
  return once(key, [&](int rule) {
    const int written = builder_.add_state(rule);
    for (const Facts& facts : any) {
      if (!(facts.types & kString)) continue;
      TextDfa dfa = any_text();
      if (facts.values) {
        std::vector<std::string> texts;
        for (const ordered_json& value : facts.values->list)
          if (value.is_string() && reader_.accepts(facts, value)) texts.push_back(value.get<std::string>());
        dfa = exact_texts(texts, work_);
      } else {
        for (const Facts::Text& t : facts.texts) dfa = intersect(dfa, reader_.text_automaton(t), work_);
        if (facts.min_length > 0 || facts.max_length < kNoMaximum) dfa = with_length(dfa, facts.min_length, facts.max_length, work_);
      }
      json_.bare(rule, MachineBuilder::kStart, written, without(dfa, tags.after_text, work_));
    }
    if (null) builder_.text(rule, MachineBuilder::kStart, written, "null");
    tags.after(rule, written, MachineBuilder::kAccept);
  });
}

int SchemaRules::tag_value(const Conjunction& all, const Tags& tags) {
  const int rule = builder_.add_rule(), written = builder_.add_state(rule);
  builder_.call(rule, MachineBuilder::kStart, written, rule_of(all));
  tags.after(rule, written, MachineBuilder::kAccept);
  return rule;
}

void SchemaRules::compile_tags(int rule, int from, int to, const Tags& tags) {
  std::vector<Facts> any = reader_.alternatives({reader_.root()});
  std::erase_if(any, [](const Facts& f) { return !(f.types & kObject); });
  if (any.size() != 1 || any[0].values) fail(ErrorCode::unsupported, "# has alternatives, supported in tags is one object");
  const Facts& facts = any[0];
  const Properties p = properties(facts);
  // The parser of the model's output chooses each parameter's type with this class too, so that the grammar allows what the parser will read.
  const ArgumentTypes read(ordered_json::array({{{"name", kTool}, {"parameters", *reader_.root().schema}}}));
  int at = builder_.add_state(rule);
  builder_.epsilon(rule, from, at);
  for (const std::string& name : p.names) {
    if (name_in(name) != name)
      fail(ErrorCode::unsupported, "{} has the property '{}', supported in tags are names without markup", facts.path, utf8_excerpt(name));
    const Conjunction all = facts.property(name);
    const ArgumentTypes::Reading reading = read.reading(kTool, name);
    unsigned types = 0;
    for (const Facts& one : reader_.alternatives(all)) types |= one.types;
    const int key = builder_.add_state(rule), named = builder_.add_state(rule), next = builder_.add_state(rule);
    tags.before_key(rule, at, key);
    builder_.text(rule, key, named, name);
    if (reading.text) {
      const bool null = reading.null && !tags.says_which;
      // A text that spells null would be read as one.
      if (null && !(types & kNull)) fail(ErrorCode::unsupported, "{} says null in one place and not in another", all.empty() ? facts.path : all[0].path);
      const int value = builder_.add_state(rule);
      tags.before_text(rule, named, value);
      builder_.call(rule, value, next, tag_text(all, null, tags));
    }
    if (!reading.text || (tags.says_which && !reading.text_alone)) {
      const int value = builder_.add_state(rule);
      tags.before_value(rule, named, value);
      builder_.call(rule, value, next, tag_value(all, tags));
    }
    if (!p.required.contains(name)) builder_.epsilon(rule, at, next);
    at = next;
  }
  builder_.epsilon(rule, at, to);
  if (p.open) {
    TextDfa keys = pattern_dfa(kOtherKeys, work_);
    if (!p.all.empty()) keys = subtract(keys, exact_texts(p.all, work_), work_);
    const int key = builder_.add_state(rule), named = builder_.add_state(rule), value = builder_.add_state(rule);
    tags.before_key(rule, at, key);
    json_.bare(rule, key, named, keys);
    tags.before_value(rule, named, value);
    builder_.call(rule, value, at, tag_value(p.others, tags));
  }
  finish();
}

}  // namespace lockstep
