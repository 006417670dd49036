// Parses expressions of a template with jinja2's operator precedence. The class derived from it in parser.cpp parses statements. One parse, one
// thread.
#pragma once
#include "text/template/syntax_tree.h"
#include "text/template/token_stream.h"

namespace lockstep::jinja {

inline ExprPtr make(Expr::Type type, int line) {
  auto expr = std::make_unique<Expr>();
  expr->type = type;
  expr->line = line;
  return expr;
}

class ExpressionParser : protected TokenStream {
 protected:
  explicit ExpressionParser(std::string_view source) : TokenStream(source) {}

  ExprPtr expression(bool with_condition = true);
  ExprPtr primary(bool with_namespace = false);
  ExprPtr tuple(bool simplified, bool with_condition, std::string_view end, bool explicit_parentheses, bool with_namespace);
  ExprPtr tuple(bool with_condition = true) { return tuple(false, with_condition, {}, false, false); }
  ExprPtr filter(ExprPtr node, bool start_inline = false);

 private:
  ExprPtr condition();
  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr compare();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filter_expression(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr subscribed();
  ExprPtr call(ExprPtr node);
  void call_arguments(Expr& node);
  ExprPtr test(ExprPtr node);
};

}  // namespace lockstep::jinja
