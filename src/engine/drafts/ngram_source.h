// Guesses that the request goes on as it did where it had the same words before: what it copies, edits, counts or repeats.
#pragma once
#include <memory>

#include "engine/drafts/draft_source.h"

namespace lockstep {

std::unique_ptr<DraftSource> make_ngram_source(DraftMaterial& material);

}  // namespace lockstep
