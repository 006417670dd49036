// Routing matrices: the experts of one token as text, which samplers return and training accepts. Base64 (RFC 4648, padded) of the expert ids [sparse
// layers, experts a token], row-major; an id is one byte, or two (little-endian) in a model of more than 256 experts. We write ids ascending within a
// layer, and read them in any order. "": unknown, or left to the trainer's router. Pure functions.
//   routing_matrix(shape, token.experts); experts_of_matrix(shape, text, "data[0].model_input.routing_matrices[3]")
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "model/expert_shape.h"

namespace lockstep {

// `experts` has shape.row() ids, or none: "".
std::string routing_matrix(const ExpertShape& shape, std::span<const std::uint16_t> experts);

// shape.row() numbers, those of a layer ascending; kOwnExperts throughout for "". `where` names the text in errors.
// Errors invalid_argument: no base64, another size, ids that the model has not or that a layer has twice, a model without experts.
std::vector<std::int32_t> experts_of_matrix(const ExpertShape& shape, std::string_view text, const std::string& where);

}  // namespace lockstep
