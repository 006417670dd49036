// Converts the items of a Responses request's `input`, and those of an earlier answer that come back in it, to the messages that chat templates
// expect: a function call joins the assistant message before it, its output is a message of role tool, reasoning precedes what it led to. Plain
// values; one object, one thread.
//   ResponseInput input(messages_of_the_previous_response); input.read(json, "input"); input.messages(); input.take_items();
#pragma once
#include "api/json_fields.h"

namespace lockstep {

class ResponseInput {
 public:
  explicit ResponseInput(Json messages = Json::array()) : messages_(std::move(messages)) {}
  // A text (a message of the user) or an array of items. Throws RequestError with the item's field: "input[2].content[0].text".
  void read(Json value, const std::string& field);
  const Json& messages() const { return messages_; }
  // The items that read() got, as GET /v1/responses/{id}/input_items lists them: each with id and type, content as parts. Call it once.
  Json take_items() { return std::move(items_); }

 private:
  void item(Json&& value, const std::string& field);
  void message(Json&& value, const std::string& field);
  void reasoning(Json&& value, const std::string& field);
  void function_call(Json&& value, const std::string& field);
  void function_output(Json&& value, const std::string& field);
  Json& open_assistant();
  void list(Json item, std::string_view id_prefix);
  Json messages_, items_ = Json::array();
  bool answering_ = false;  // the last message is an assistant's and may get more items
};

}  // namespace lockstep
