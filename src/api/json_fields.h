// Reads a JSON object by a table of fields: name, destination, allowed values. An unknown field is refused with "did you mean", a wrong type or value
// with the field's name. null means absent, except for fields of not_null(). Throws RequestError with the field as param. One object, one thread.
//   JsonFields fields; fields.integer("n", &n, 1, 128); fields.boolean("stream", &stream); fields.read(json);
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/errors.h"

namespace lockstep {

using Json = nlohmann::ordered_json;

class JsonFields {
 public:
  using Reader = std::function<void(const Json& value, const std::string& name)>;

  void integer(std::string name, std::int64_t* value, std::int64_t low, std::int64_t high);
  void integer(std::string name, std::optional<std::int64_t>* value, std::int64_t low, std::int64_t high);
  void number(std::string name, float* value, double low, double high);
  void boolean(std::string name, bool* value);
  void boolean(std::string name, std::optional<bool>* value);
  void text(std::string name, std::string* value);
  void choice(std::string name, std::string* value, std::vector<std::string> allowed);
  // Accepts a field that has no effect; it must be in the list of api/harmless_fields.h, which has the reason.
  void harmless(std::string name);
  // The same for these values alone; others are refused.
  void harmless(std::string name, std::vector<Json> values);
  // A known field that is not supported: accepts only values with which it has no effect.
  void only(std::string name, std::vector<Json> harmless);
  void custom(std::string name, Reader reader);
  // Changes the field declared last: null goes to its reader, which refuses it. For numbers that the vendor's client never sends as null.
  void not_null() { rows_.back().reads_null = true; }
  // For callers that read the values themselves and only want unknown names refused: taken() accepts fields of any value; inside() checks the
  // names in an object, each() those in every object of a list, by `inner`. Values of other types are left to the caller.
  void taken(std::initializer_list<const char*> names);
  void inside(std::string name, JsonFields inner);
  void each(std::string name, JsonFields inner);
  void inside_all(std::string name, JsonFields inner);  // the same for each value of an object with any names

  // `prefix` is put before names in errors: "messages[2]." gives "messages[2].content".
  void read(const Json& object, const std::string& prefix = {}) const;

 private:
  struct Row {
    std::string name;
    Reader reader;
    bool reads_null = false;
  };
  std::vector<Row> rows_;
};

[[noreturn]] void fail_field(const std::string& name, const std::string& problem, ErrorCode code = ErrorCode::invalid_argument);
// A value for an error message: scalars in full (cut at 40 characters), "an array of 3", "an object".
std::string describe_json(const Json& value);
std::int64_t json_integer(const Json& value, const std::string& name, std::int64_t low, std::int64_t high);
std::string json_text(const Json& value, const std::string& name);
void require_object(const Json& value, const std::string& name);
// An object from a body. RequestError when it is not JSON, not UTF-8 or no object.
Json parse_object(std::string_view body);
// A text that is JSON itself. RequestError: "messages[1].tool_calls[0].function.arguments is not JSON: fault at byte 3 of 9; allowed is " and `allowed`.
Json json_in_text(std::string_view text, const std::string& name, const char* allowed);

}  // namespace lockstep
