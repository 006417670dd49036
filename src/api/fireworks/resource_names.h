// What routes of Fireworks' control plane have in common: names of resources in paths, flags of the query, pages of lists, conflicts. Pure functions.
//   const std::string name = resource_name(request, "deployments", path_segment(request, "deployment"));
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "api/exchange.h"

namespace lockstep {

// A parameter of the path; `without`: a custom verb (":promote" of "c:promote") to remove from its end. Error not_found if it is missing.
std::string path_segment(const ApiRequest& request, std::string_view name, std::string_view without = {});
std::string resource_name(const ApiRequest& request, std::string_view collection, const std::string& id);
// "accounts/A/models/M" -> "M"; another name as it is.
std::string model_label(const std::string& name);
// ?name=true or false; false where it is absent.
bool query_flag(const ApiRequest& request, std::string_view name);
std::vector<std::string> page_query();  // the names of the query that page_of reads
// One page of rows below `field`, by pageSize and pageToken.
nlohmann::ordered_json page_of(const ApiRequest& request, const char* field, const nlohmann::ordered_json& rows);
// The body of a 409, which create calls of the SDK take as "it is there".
nlohmann::ordered_json conflict_json(const std::string& message);

}  // namespace lockstep
