// JSON fields of the training protocols: readers of values, and the list of names that a route allows; other names are refused. Any thread.
//   const std::string name = text_field(json, "name", "none"); const JsonFields fields = known_fields({"name"}, {"type"});
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/json_fields.h"
#include "host/training_records.h"

namespace lockstep {

// Readers of optional fields: an absent field gives the default, another type is an error that names the field. null counts as absent except for
// numbers, where it is an error: both packages leave out unset fields and write NaN and infinity as null. For fields that they type as
// Optional null is None, and counts as absent: the readers called optional_.
std::string text_field(const TrainingJson& json, const std::string& name, const std::string& standard = {});
std::int64_t integer_field(const TrainingJson& json, const std::string& name, std::int64_t standard);
double number_field(const TrainingJson& json, const std::string& name, double standard);
bool boolean_field(const TrainingJson& json, const std::string& name, bool standard);
std::optional<std::int64_t> optional_integer(const TrainingJson& json, const std::string& name);
std::optional<double> optional_number(const TrainingJson& json, const std::string& name);
TrainingJson object_field(const TrainingJson& json, const std::string& name);  // {} when absent
TrainingJson list_field(const TrainingJson& json, const std::string& name);    // null when absent
// Call `read`, such as a reader of api/json_fields.h, for a field that is present; its errors get the form of the readers above. `prefix`: put
// before the name in errors ("sampling_params."). read_number also calls it for null, which is no number.
using ValueReader = std::function<void(const TrainingJson& value, const std::string& field)>;
void read_value(const TrainingJson& json, const std::string& name, const std::string& prefix, const ValueReader& read);
void read_number(const TrainingJson& json, const std::string& name, const std::string& prefix, const ValueReader& read);
// Errors invalid_argument: "session_id is missing".
std::string required_text(const TrainingJson& json, const std::string& name);
std::int64_t required_integer(const TrainingJson& json, const std::string& name);
std::int64_t model_number(const TrainingJson& json);               // model_seq_id, at least 0
bool is_given(const TrainingJson& json, const std::string& name);  // there, and not null
// Refuses, in a chunk of tokens, the fields of other kinds of chunks, which would have no effect.
void check_text_chunk(const TrainingJson& chunk, const std::string& name);
[[noreturn]] void fail_value(const std::string& name, const std::string& problem);

// The fields of a body, as TrainingCall::json() checks them: `names` and those that are harmless.
JsonFields known_fields(std::initializer_list<const char*> names, std::initializer_list<const char*> harmless = {});

// The names of ?name=value that a route reads, and those that are accepted without effect.
std::vector<std::string> known_query(std::initializer_list<const char*> names, std::initializer_list<const char*> harmless = {});

}  // namespace lockstep
