#include "engine/drafts/draft_source.h"
#include "engine/drafts/mtp_source.h"
#include "engine/drafts/ngram_source.h"
#include "engine/drafts/prediction_source.h"
#include "engine/drafts/scripted_source.h"
#include "engine/drafts/sibling_source.h"

namespace lockstep {

// In the order in which they are asked.
std::span<const DraftSourceRow> draft_sources() {
  static constexpr DraftSourceRow kDraftSources[] = {
      {DraftKind::scripted, "scripted", make_scripted_source, true},
      {DraftKind::grammar, "grammar", nullptr},
      {DraftKind::prediction, "prediction", make_prediction_source},
      {DraftKind::siblings, "siblings", make_sibling_source},
      {DraftKind::mtp, "mtp", make_mtp_source},
      {DraftKind::ngram, "ngram", make_ngram_source},
  };
  return kDraftSources;
}

}  // namespace lockstep
