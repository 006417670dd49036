// Shared by the two halves of the parser: the token stream and the nesting limit. parser.cpp has statements,
// parser_expressions.cpp expressions. One parse, one thread.
#pragma once
#include "text/template/lexer.h"
#include "text/template/syntax_tree.h"

namespace lockstep::jinja {

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}
  Body parse();

 private:
  using Names = std::vector<std::string_view>;

  // --- tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token next();
  bool is_op(std::string_view op) const { return current().type == Token::Type::op && current().text == op; }
  bool is_name(std::string_view name) const { return current().type == Token::Type::name && current().text == name; }
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  Token expect(Token::Type type, std::string_view what);
  [[noreturn]] void unexpected(std::string_view wanted) const;
  static std::string describe(const Token& token);
  class Depth {
   public:
    explicit Depth(Parser& parser);
    ~Depth() { --parser_.depth_; }

   private:
    Parser& parser_;
  };
  static ExprPtr make(Expr::Type type, int line) {
    auto expr = std::make_unique<Expr>();
    expr->type = type;
    expr->line = line;
    return expr;
  }
  static StatementPtr make(Statement::Type type, int line) {
    auto statement = std::make_unique<Statement>();
    statement->type = type;
    statement->line = line;
    return statement;
  }

  // --- statements
  Body subparse(const Names& ends);
  Body statements(const Names& ends, bool drop_needle);
  StatementPtr statement();
  StatementPtr parse_for();
  StatementPtr parse_if();
  StatementPtr parse_set();
  StatementPtr parse_macro();
  StatementPtr parse_call_block();
  StatementPtr parse_with();
  void parse_signature(Statement& node);
  ExprPtr assign_target(bool name_only, bool with_namespace, std::string_view end = {});
  static void set_context(Expr& target, Expr::Context context);
  static bool can_assign(const Expr& target);

  // --- expressions
  ExprPtr expression(bool with_condition = true);
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
  ExprPtr primary(bool with_namespace = false);
  ExprPtr tuple(bool simplified, bool with_condition, std::string_view end, bool explicit_parentheses, bool with_namespace);
  ExprPtr tuple(bool with_condition = true) { return tuple(false, with_condition, {}, false, false); }
  ExprPtr list();
  ExprPtr dict();
  ExprPtr postfix(ExprPtr node);
  ExprPtr filter_expression(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr subscribed();
  ExprPtr call(ExprPtr node);
  void call_arguments(Expr& node);
  ExprPtr filter(ExprPtr node, bool start_inline = false);
  ExprPtr test(ExprPtr node);
  // `child` becomes a part of `node`: counts the height of the tree, which every walk over it recurses by.
  static ExprPtr under(Expr& node, ExprPtr child);
  ExprPtr binary(std::string op, ExprPtr left, ExprPtr right, int line);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // for blocks around, in this function: where break and continue may stand
};

}  // namespace lockstep::jinja
