// The fields of speculative decoding (docs/speculation.md) on every wire that answers with text: OpenAI's `prediction`, and ours, "speculative":
// {"mode": "ngram,grammar", "tokens": 5, "acceptance": "coupled", "draft": [ids]}. No token of an answer depends on them, except under "rejection".
// Any thread.
//   add_draft_fields(fields, &drafts); fields.read(json); order.drafts = drafts;
#pragma once
#include "api/json_fields.h"
#include "serving/draft_order.h"

namespace lockstep {

void add_draft_fields(JsonFields& fields, DraftOrder* drafts);
// Fireworks' `speculation`: a text or token ids that the answer may be.
void add_speculation_field(JsonFields& fields, DraftOrder* drafts);

}  // namespace lockstep
