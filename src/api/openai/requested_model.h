// Finds the model and the user that a request's body names, before the body is decoded, to choose the deployment that decodes it. It scans the keys
// of the outermost object and stops when it has both; errors in the body are left to the decoder. Pure functions.
//   const RequestedModel asked = read_requested_model(body, [&](const std::string& model) { return traffic.find(model).has_value(); });
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "api/exchange.h"

namespace lockstep {

struct RequestedModel {
  std::optional<std::string> model;
  std::string user;  // "user", else "safety_identifier", else "prompt_cache_key"
};

// `asks_who`: whether the user matters for a model; if not, reading stops when the model is known.
RequestedModel read_requested_model(std::string_view body, const std::function<bool(const std::string& model)>& asks_who);

// An identity of the requester for TrafficTable::choose, within its API key: the session that its headers name (x-multi-turn-session-id,
// x-session-affinity), else its user; empty: it names neither.
std::string who_asks(const ApiRequest& request, const RequestedModel& asked);

}  // namespace lockstep
