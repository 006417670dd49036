// Value heads: a model whose head has one output, a number for each row, instead of the vocabulary. Any family gets one when config.json names a
// class "...ForSequenceClassification" with one label, as transformers does: `score.weight` [1, hidden], and `score.bias` [1] where "score_bias" is
// true. Such a model has no likelihoods, so it is trained and scored, never sampled. Pure functions.
//   if (has_value_head(*model)) ...; auto critic = make_model(value_config(config));
#pragma once
#include "model/model.h"

namespace lockstep {

// Whether config.json says that the head is one. Errors: unsupported for several labels.
bool is_value_config(const Json& config);
// The same model with a value head, as transformers' class would say it.
Json value_config(const Json& config);

bool has_value_head(const Model& model);
// The value head's bias; -1: none.
ParameterId value_bias(const Model& model);
// Error unsupported, for what samples or needs likelihoods: `what` says what is not possible.
void refuse_value_head(const Model& model, const std::string& what);

}  // namespace lockstep
