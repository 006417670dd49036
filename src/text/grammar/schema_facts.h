// Normalises a conjunction of JSON schemas (draft 2020-12) into what it says of a value, keyword by keyword: $ref and allOf are merged in,
// anyOf and oneOf become alternatives.
//   SchemaReader reader(schema, work); for (const Facts& f : reader.alternatives({reader.root()})) ...
// An unsupported keyword that restricts is refused with its path; annotations and unknown keywords restrict nothing, as the standard
// says. Knows no automata beyond those of strings. Used by one thread at a time.
#pragma once
#include <nlohmann/json.hpp>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "text/grammar/machine.h"
#include "text/grammar/numbers.h"

namespace lockstep {

// A place in the schema document: a JSON pointer as a fragment, "#/properties/name".
struct SchemaPart {
  const nlohmann::ordered_json* schema = nullptr;
  std::string path;
};
using Conjunction = std::vector<SchemaPart>;  // all of them hold

enum SchemaType : unsigned {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kFraction = 8,  // numbers that are no integers
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAnyType = 127,
};

struct Facts {
  std::string path;  // of the first schema, for messages
  unsigned types = kAnyType;
  // Of enum and const; each value once. Shared, since alternatives copy facts.
  struct Values {
    std::vector<nlohmann::ordered_json> list;
    std::set<std::string> keys;  // equal values have equal keys
  };
  std::shared_ptr<const Values> values;  // null: any
  std::optional<NumberBound> low, high;
  std::int64_t multiple = 0;  // 0: none is asked for
  std::int64_t min_length = 0, max_length = kNoMaximum;
  struct Text {
    std::string keyword, text, path;  // pattern or format
  };
  std::vector<Text> texts;
  std::int64_t min_items = 0, max_items = kNoMaximum;
  std::vector<SchemaPart> arrays, objects;  // schemas whose keywords of arrays and of objects hold
  std::vector<std::string> required;        // in order, each once
  std::int64_t min_properties = 0, max_properties = kNoMaximum;
  std::string min_properties_path, max_properties_path;

  // What holds of item `index`, of a property, and of properties that no schema names.
  Conjunction item(std::size_t index) const;
  std::size_t prefix_items() const;
  Conjunction property(const std::string& name) const;
  Conjunction other_properties() const;
  std::vector<std::string> property_names() const;  // as the schemas name them, then required ones that none names
};

class SchemaReader {
 public:
  // Both must outlive the reader. invalid_argument, unsupported, resource_exhausted.
  SchemaReader(const nlohmann::ordered_json& schema, SchemaWork& work);
  // What the constructor checks first: resource_exhausted for too many values, or too deep ones.
  static void check_size(const nlohmann::ordered_json& schema);
  SchemaPart root() const { return {&document_, "#"}; }
  // The alternatives of a conjunction: a value holds to it if it holds to one of them. Empty: no value does.
  std::vector<Facts> alternatives(const Conjunction& all) const;
  // Whether a value is valid, decided without an automaton; refuses no schema that alternatives() does not refuse.
  bool accepts(const Conjunction& all, const nlohmann::ordered_json& value) const;
  bool accepts(const Facts& facts, const nlohmann::ordered_json& value) const;
  // The automaton of a pattern or a format, made once.
  const TextDfa& text_automaton(const Facts::Text& text) const;

 private:
  struct Group {
    std::vector<SchemaPart> branches;
    bool one_of = false;
    std::string path;
    std::vector<const nlohmann::ordered_json*> open;  // what it was reached through
  };
  struct Flat {
    Facts facts;
    std::vector<Group> groups;
    std::vector<const nlohmann::ordered_json*> absorbed, open;
    bool impossible = false;
  };
  void absorb(Flat& flat, const SchemaPart& part) const;
  void absorb_keywords(Flat& flat, const SchemaPart& part) const;
  void absorb_numbers(Facts& facts, const SchemaPart& part) const;
  void expand(Flat flat, std::vector<Facts>& out) const;
  void check_disjoint(const Flat& base, const Group& group) const;
  bool disjoint(const Facts& a, const Facts& b, int depth) const;
  SchemaPart resolve(const std::string& reference, const std::string& path) const;

  const nlohmann::ordered_json& document_;
  mutable std::map<std::string, TextDfa> texts_;
  SchemaWork& work_;
};

}  // namespace lockstep
