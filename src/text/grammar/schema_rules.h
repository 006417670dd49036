// Compiles schemas to rules of a machine: one rule per conjunction of schemas, so that recursion is a
// rule that calls itself.
//   SchemaRules rules(builder, json, schema, {}, work); int rule = rules.compile();
// Properties come in the order in which the schema names them, then those that only `required`
// names, then others. A keyword that the rules cannot enforce is refused with its path. Used by one thread at a time.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <unordered_set>

#include "text/grammar/json_text.h"
#include "text/grammar/schema_facts.h"

namespace lockstep {

class SchemaRules {
 public:
  // `closed_objects`: where a schema names properties and does not say additionalProperties, there are no others.
  SchemaRules(MachineBuilder& builder, JsonText& json, const nlohmann::ordered_json& schema, bool closed_objects, SchemaWork& work);
  int compile();

  // An object's properties as tags, the texts among them bare: BEFORE_KEY name BEFORE_TEXT text AFTER. Each writes its piece.
  struct Tags {
    using Piece = std::function<void(int rule, int from, int to)>;
    Piece before_key, before_text, before_value, after;
    std::string after_text;   // what ends a value, so that no text may contain it
    bool says_which = false;  // before_text and before_value differ: a value of either kind may be written where both are allowed
  };
  // Writes all properties as tags into a rule, perhaps none. Error unsupported for a schema that tags cannot express.
  void compile_tags(int rule, int from, int to, const Tags& tags);

 private:
  struct Properties {
    std::vector<std::string> all, names;  // all that are named; those that may be there
    std::unordered_set<std::string> required;
    Conjunction others;
    bool open = false;  // others may be there
  };
  Properties properties(const Facts& facts) const;
  int tag_text(const Conjunction& all, bool null, const Tags& tags);
  int tag_value(const Conjunction& all, const Tags& tags);
  void finish();  // writes the rules that are called and not written yet
  int rule_of(const Conjunction& all);
  void build(int rule, const Conjunction& all);
  void leaves(const Facts& facts, std::set<int>& out);
  int values(const Facts& facts);
  int number(const Facts& facts, bool fractions);
  int text(const Facts& facts);
  int array(const Facts& facts);
  int object(const Facts& facts);
  void check_counts(const Facts& facts, std::size_t named, bool others) const;
  void key(int rule, int from, int to, const std::string& name);
  int literal(const std::string& key, const std::vector<std::string>& texts);
  // `make` writes a rule that `key` identifies; the same key returns the same rule.
  template <class F>
  int once(const std::string& key, const F& make);

  MachineBuilder& builder_;
  JsonText& json_;
  SchemaWork& work_;
  SchemaReader reader_;
  bool closed_objects_;
  std::map<std::vector<const nlohmann::ordered_json*>, int> rules_;
  std::map<std::string, int> shared_;
  std::deque<std::pair<int, Conjunction>> open_;
};

template <class F>
int SchemaRules::once(const std::string& key, const F& make) {
  if (const auto it = shared_.find(key); it != shared_.end()) return it->second;
  const int rule = builder_.add_rule();
  shared_.emplace(key, rule);
  make(rule);
  return rule;
}

}  // namespace lockstep
