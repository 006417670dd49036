// JSON fields of the training protocols: readers of values, and the list of names that a route allows. Others are refused. Any thread.
//   const std::string name = text_field(json, "name", "none"); const JsonFields fields = known_fields({"name"}, {"type"});
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/json_fields.h"
#include "host/training_records.h"

namespace lockstep {

// Readers of optional fields: absent gives the default, another type is an error that names the field. So does null, but for a number: both
// packages leave out what is not set, and write NaN and infinity as null. Of a field that they type as Optional[int], which has neither,
// null is None, and as good as absent: the readers called optional_.
std::string text_field(const TrainingJson& json, const std::string& name, const std::string& standard = {});
std::int64_t integer_field(const TrainingJson& json, const std::string& name, std::int64_t standard);
double number_field(const TrainingJson& json, const std::string& name, double standard);
bool boolean_field(const TrainingJson& json, const std::string& name, bool standard);
std::optional<std::int64_t> optional_integer(const TrainingJson& json, const std::string& name);
std::optional<double> optional_number(const TrainingJson& json, const std::string& name);
TrainingJson object_field(const TrainingJson& json, const std::string& name);  // {} when absent
TrainingJson list_field(const TrainingJson& json, const std::string& name);    // null when absent
// Of a field that is there, by a reader of api/json_fields.h and its like, whose errors are told as those of the readers above.
// `prefix`: before the name in errors ("sampling_params."). read_number: null is read too, and is no number.
using ValueReader = std::function<void(const TrainingJson& value, const std::string& field)>;
void read_value(const TrainingJson& json, const std::string& name, const std::string& prefix, const ValueReader& read);
void read_number(const TrainingJson& json, const std::string& name, const std::string& prefix, const ValueReader& read);
// Errors invalid_argument: "session_id is missing".
std::string required_text(const TrainingJson& json, const std::string& name);
std::int64_t required_integer(const TrainingJson& json, const std::string& name);
std::int64_t model_number(const TrainingJson& json);               // model_seq_id, at least 0
bool is_given(const TrainingJson& json, const std::string& name);  // there, and not null
// Of a chunk of tokens: the fields of other kinds of chunks would be without effect.
void check_text_chunk(const TrainingJson& chunk, const std::string& name);
[[noreturn]] void fail_value(const std::string& name, const std::string& problem);

// The fields of a body, as TrainingCall::json() checks them: `names` and those that are harmless.
JsonFields known_fields(std::initializer_list<const char*> names, std::initializer_list<const char*> harmless = {});

// What of ?name=value a route reads, and what of it is harmless.
std::vector<std::string> known_query(std::initializer_list<const char*> names, std::initializer_list<const char*> harmless = {});

}  // namespace lockstep
