// Reads kept sets (base/kept_tokens.h) from a matrix of token ids, as files and protocols write them: one row a token, ids in any order, filled up
// with -1. A row of -1 alone: sampling removed no token there. Pure functions.
//   datum.kept_tokens = kept_rows({3, 17, -1, -1}, 2, {}, vocabulary, "data[0].loss_fn_inputs.kept_tokens");
#pragma once
#include <string>
#include <vector>

#include "base/kept_tokens.h"

namespace lockstep {

// `ids`: [rows, width]. `by_rank`: one number a row, 1: top-k, top-p or min-p cut, 0: a mask alone did; empty: 1 throughout. Errors
// invalid_argument, which begin with `where`: a wrong number of values, an id that is no token, one that a row has twice.
std::vector<KeptTokens> kept_rows(const std::vector<std::int64_t>& ids, std::size_t rows, const std::vector<std::int64_t>& by_rank, std::int64_t vocabulary,
                                  const std::string& where);

}  // namespace lockstep
