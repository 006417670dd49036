#include "runs/share_prompts.h"

#include "base/choice.h"

namespace lockstep {

std::vector<std::string> share_prompts_names() { return {"auto", "off", "forward", "backward"}; }

std::string to_string(SharePrompts sharing) { return share_prompts_names()[static_cast<std::size_t>(sharing)]; }

SharePrompts share_prompts_by_name(const std::string& name) { return static_cast<SharePrompts>(check_choice("share_prompts", name, share_prompts_names())); }

}  // namespace lockstep
