// Cuts a template's source into tokens as jinja2's lexer does with trim_blocks and lstrip_blocks: text, {{ }}, {% %},
// comments, raw blocks, white space control, and inside tags names, numbers, strings and operators.
// Knows no grammar. Pure function.
//   std::vector<Token> tokens = tokenize("Hi {{ name }}");
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/template/value.h"

namespace lockstep::jinja {

struct Token {
  enum class Type { data, block_begin, block_end, variable_begin, variable_end, name, string, integer, real, op, eof };
  Type type;
  int line;
  std::string text;  // of data, a name, a string (its value), an operator
  Integer integer = 0;
  double real = 0;
};

// Ends in an eof token. invalid_argument names the line.
std::vector<Token> tokenize(std::string_view source);

template <class... A>
[[noreturn]] void fail_syntax(int line, fmt::format_string<A...> format, A&&... args) {
  fail(ErrorCode::invalid_argument, "chat template line {}: {}", line, fmt::format(format, std::forward<A>(args)...));
}

}  // namespace lockstep::jinja
