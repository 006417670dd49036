// A template's tokens for its parser: next token, one token of look-ahead, errors for unexpected tokens, and a limit on the nesting of tags and
// parentheses. One parse, one thread.
//   TokenStream tokens("{% if a %}"); tokens.next(); if (tokens.skip_name("if")) ...;
#pragma once
#include "text/template/lexer.h"

namespace lockstep::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::string_view source) : tokens_(tokenize(source)) {}

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

  // As long as it lives what is parsed is nested one deeper.
  class Depth {
   public:
    explicit Depth(TokenStream& tokens);
    ~Depth() { --tokens_.depth_; }

   private:
    TokenStream& tokens_;
  };

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace lockstep::jinja
