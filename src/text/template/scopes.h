// Resolves every variable of a parsed template to a slot, by jinja2's scoping rules: `for`, `with`, `set` blocks, `filter`
// blocks and macros have their own scope; `if` has none; a scope copies an outer variable that it assigns when it is entered;
// macros see the variables around them as they are when called. Also checks the names of filters and tests.
//   resolve_scopes(parsed);
// Knows no values. One thread while it runs.
#pragma once
#include "text/template/syntax_tree.h"

namespace lockstep::jinja {

void resolve_scopes(Template& parsed);

}  // namespace lockstep::jinja
