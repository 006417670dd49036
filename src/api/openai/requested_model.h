// Which model a request's body names, and who it says it is for, before the body is decoded: of its outermost object alone, and no more of it is read
// than that takes. What is wrong with a body is for who decodes it. Pure.
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

// `asks_who`: whether the user matters for that model; where it does not, reading may end before it.
RequestedModel read_requested_model(std::string_view body, const std::function<bool(const std::string& model)>& asks_who);

// Whose request it is, for TrafficTable::choose: the session that its headers name (x-multi-turn-session-id, x-session-affinity), else its user, of its
// API key; empty: it says neither.
std::string who_asks(const ApiRequest& request, const RequestedModel& asked);

}  // namespace lockstep
