// Maps OpenAI's service_tier to classes of work (base/fair_shares.h): `flex` is rollouts, any other is live. The class of a key in the key file
// overrides the request's. Any thread.
//   add_service_tier(fields, &tier); const WorkClass work = class_of_tier(tier, service.callers().class_of(key));
//   json["service_tier"] = tier_of_class(work);
#pragma once
#include <string>
#include <string_view>

#include "api/json_fields.h"
#include "base/fair_shares.h"

namespace lockstep {

// auto, default, flex or priority.
void add_service_tier(JsonFields& fields, std::string* tier);
WorkClass class_of_tier(std::string_view tier, WorkClass of_key);
// The service_tier of an answer.
std::string_view tier_of_class(WorkClass work);

}  // namespace lockstep
