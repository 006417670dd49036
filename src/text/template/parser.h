// Tokens to a syntax tree, by jinja2's grammar with the tags break, continue and generation. Tags that reach other
// templates (include, import, from, extends, block) and autoescape are refused by name.
// Knows no values. Pure function.
//   Template parsed = parse_template(source);
#pragma once
#include <string_view>

#include "text/template/syntax_tree.h"

namespace lockstep::jinja {

// invalid_argument or unsupported, with the line.
Template parse_template(std::string_view source);

}  // namespace lockstep::jinja
