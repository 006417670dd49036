#include "runs/share_prompts.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

std::vector<std::string> share_prompts_names() { return {"auto", "off", "forward", "backward"}; }

std::string to_string(SharePrompts sharing) { return share_prompts_names()[static_cast<std::size_t>(sharing)]; }

SharePrompts share_prompts_by_name(const std::string& name) {
  const std::vector<std::string> names = share_prompts_names();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end()) fail(ErrorCode::invalid_argument, "share_prompts is '{}', allowed are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names));
  return static_cast<SharePrompts>(at - names.begin());
}

}  // namespace lockstep
