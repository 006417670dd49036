#include "api/openai/service_tier.h"

namespace lockstep {

void add_service_tier(JsonFields& fields, std::string* tier) { fields.choice("service_tier", tier, {"auto", "default", "flex", "priority"}); }

WorkClass class_of_tier(std::string_view tier, WorkClass of_key) { return tier == "flex" ? WorkClass::rollouts : of_key; }

std::string_view tier_of_class(WorkClass work) { return work == WorkClass::live ? "default" : "flex"; }

}  // namespace lockstep
