// Kinds of ranks that find nothing to do in a model: every layout is legal and changes no bit, but then it saves neither time nor memory.
//   for (const std::string& sentence : idle_ranks(layout, *model, 4096)) log_warning(sentence);
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/model.h"
#include "parallel/layout.h"

namespace lockstep {

// A sentence for each; none: all have work. `positions`: of the longest sequence.
std::vector<std::string> idle_ranks(const RankLayout& layout, const Model& model, std::int64_t positions);

}  // namespace lockstep
