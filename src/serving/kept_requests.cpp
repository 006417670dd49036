#include "serving/kept_requests.h"

namespace lockstep {

std::string why_not_kept(const GenerationService& service, const std::string& owner) {
  if (!service.options().engine.kept_forwards)
    return "nothing is kept here for a trainer; allowed is false, and true where `lockstep serve --training` has --keep-forward inputs or all, on one rank or "
           "over --ranks that keep them";
  if (service.callers().keeps_forward(owner) == false) return "the key file says keep_forward=false of this key; allowed is false";
  if (owner.empty() && !service.callers().share_prefixes())
    return "this route knows no owner of the request where the server asks for no keys; allowed is false, and true with --api-key-file or --share-prefixes all";
  return {};
}

bool keeps_forward(const GenerationService& service, const std::string& owner, std::optional<bool> asked, bool otherwise) {
  if (!why_not_kept(service, owner).empty()) return false;
  return asked.value_or(service.callers().keeps_forward(owner).value_or(otherwise));
}

}  // namespace lockstep
