// Decodes the body of POST /v1/responses into a chat request. What is not supported (hosted tools, background work, conversations, images) is refused
// by name. Any thread.
//   ResponseRequest request = decode_response(body, [&](const std::string& id) { return kept.messages(owner, id); });
#pragma once
#include "api/openai/chat_request.h"

namespace lockstep {

struct ResponseRequest {
  ChatRequest chat;
  Json shown = Json::object();    // the fields of the request that the response repeats
  Json items = Json::array();     // ResponseInput::items
  Json messages = Json::array();  // without the instructions, which hold for this response alone
  bool store = true;
};

// The messages of a talk up to a stored response's end. Throws RequestError where there is none of that id.
using PreviousMessages = std::function<Json(const std::string& id)>;
ResponseRequest decode_response(std::string_view body, const PreviousMessages& previous, SamplingFields defaults = {});

}  // namespace lockstep
