// Checks the messages and tools of a chat request field by field, and rewrites them in the form that chat templates expect. Pure functions.
//   const Json messages = chat_messages(value, "messages");
#pragma once
#include "api/json_fields.h"

namespace lockstep {

// Throw RequestError with the field at fault: "messages[2].tool_calls[0].function.name".
Json chat_messages(const Json& value, const std::string& field);
Json chat_tools(const Json& value, const std::string& field);
// 1 to 64 of a-z A-Z 0-9 _ - . as a function's name.
void check_function_name(const std::string& name, const std::string& field);

}  // namespace lockstep
