// What the model's layer of multi-token prediction says (engine/drafts/mtp_steps.h), which is asked for all requests of a step at once, before their
// sources are.
#pragma once
#include <memory>

#include "engine/drafts/draft_source.h"

namespace lockstep {

std::unique_ptr<DraftSource> make_mtp_source(DraftMaterial& material);

}  // namespace lockstep
