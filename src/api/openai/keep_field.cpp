#include "api/openai/keep_field.h"

#include "api/json_fields.h"

namespace lockstep {

bool kept_as_asked(const GenerationService& service, const std::string& owner, std::optional<bool> asked, bool otherwise) {
  if (asked.value_or(false))
    if (const std::string why = why_not_kept(service, owner); !why.empty()) fail_field("keep_forward", "is true, and " + why, ErrorCode::unsupported);
  return keeps_forward(service, owner, asked, otherwise);
}

}  // namespace lockstep
