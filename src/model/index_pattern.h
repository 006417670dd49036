// Which layers of a model with sparse attention have an indexer; the others use the selection of the last one before them.
//   const auto fewer = model_with_indexers(*model, layers_of_pattern(*model, "FSSF"), {});
// "FSSF" is config.json's index_topk_pattern: F a layer with an indexer, S one that shares. Pure functions.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace lockstep {

// The layers that have an indexer, ascending; none for a model without.
std::vector<int> indexer_layers(const Model& model);
// `config`, of a model with `layers` layers, changed so that only the layers `indexers` have an indexer ("indexer_types").
Json with_indexers(const Json& config, std::int64_t layers, const std::vector<int>& indexers);
// The same as a model. Error unsupported for a family that has an indexer in every layer.
std::shared_ptr<const Model> model_with_indexers(const Model& model, const std::vector<int>& indexers, const ModelOptions& options);

std::string index_pattern(std::int64_t layers, const std::vector<int>& indexers);
// The layers of a pattern. Errors: unsupported for a model without indexers; invalid_argument for other letters, another number of layers, a first layer
// that shares, or a layer that has no indexer in the model.
std::vector<int> layers_of_pattern(const Model& model, std::string_view pattern);
// Throws unsupported, with the reason why the model has no indexer that layers could share.
[[noreturn]] void refuse_without_indexer(const Model& model);

}  // namespace lockstep
