// Compiles the regular expressions of JSON Schema ("pattern"): the regular part of ECMA-262, as both ECMA-262 and Python's
// `re` read it.
//   TextDfa dfa = pattern_dfa("^[a-z]+$", work);   // matches anywhere unless anchored
// Where the two differ (\d \w \s beyond ASCII, what `.` and `$` exclude) the result is what both
// accept. Supported: literals, escapes, classes, groups (also named), alternatives, * + ? {m,n} (also lazy), ^ and $
// anywhere, \d \w \s and their opposites (ASCII only), \uXXXX, \u{X}, \xXX. Refused by name: back references,
// look-around, \b, \p, flags. Thread-safe (pure functions).
#pragma once
#include "text/grammar/text_dfa.h"

namespace lockstep {

// Errors: unsupported (a construct that is not offered), invalid_argument (no regular expression), resource_exhausted
// (size).
TextDfa pattern_dfa(std::string_view pattern, SchemaWork& work);

}  // namespace lockstep
