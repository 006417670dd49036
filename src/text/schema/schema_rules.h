// From what schemas say of a value to rules of a machine: one rule a conjunction of schemas, so that recursion is a
// rule that calls itself. Properties come in the order in which the schema names them, then those that only `required`
// names, then others. A keyword that the rules cannot keep is refused with its path. Used by one thread at a time.
//   SchemaRules rules(builder, json, schema, {}, work); int rule = rules.compile();
#pragma once
#include <deque>
#include <map>
#include <set>

#include "text/schema/json_text.h"
#include "text/schema/schema_facts.h"

namespace lockstep {

class SchemaRules {
 public:
  // `closed_objects`: where a schema names properties and does not say additionalProperties, there are no others.
  SchemaRules(MachineBuilder& builder, JsonText& json, const nlohmann::ordered_json& schema, bool closed_objects, SchemaWork& work);
  int compile();

 private:
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
  // `make` writes a rule whose meaning `key` tells; the same key again is the same rule.
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

}  // namespace lockstep
