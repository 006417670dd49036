// Words of which a value must be one, and what is said of a value that is none of them. Any thread.
//   check_choice("critic", "ful", {"none", "full"});  // Error "critic is 'ful', allowed are none, full; did you mean 'full'?"
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lockstep {

// How a sentence ends about a value that is none of `words`: "allowed are A, B, C", and what did_you_mean adds.
std::string allowed_are(std::string_view got, const std::vector<std::string>& words);

// Error "NAME is 'GOT', allowed are A, B, C; did you mean 'B'?".
[[noreturn, gnu::cold]] void fail_choice(std::string_view name, std::string_view got, const std::vector<std::string>& words,
                                         ErrorCode code = ErrorCode::invalid_argument);

// The place of `got` among `words`; fail_choice where it has none.
std::size_t check_choice(std::string_view name, std::string_view got, const std::vector<std::string>& words, ErrorCode code = ErrorCode::invalid_argument);

}  // namespace lockstep
