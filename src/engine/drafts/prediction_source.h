// Guesses that the answer goes on as a text that the request brought (Request::prediction): at its place in it while it follows, and where it
// left it, from where the end of the answer stands in it again.
#pragma once
#include <memory>

#include "engine/drafts/draft_source.h"

namespace lockstep {

std::unique_ptr<DraftSource> make_prediction_source(DraftMaterial& material);

}  // namespace lockstep
