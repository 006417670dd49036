#include "text/template/token_stream.h"

#include "base/error.h"

namespace lockstep::jinja {

using Type = Token::Type;

TokenStream::Depth::Depth(TokenStream& tokens) : tokens_(tokens) {
  constexpr int kMostNesting = 200;
  if (++tokens_.depth_ > kMostNesting) {
    --tokens_.depth_;
    fail(ErrorCode::resource_exhausted, "chat template line {}: tags or parentheses are nested more than {} deep; that is the limit", tokens_.current().line,
         kMostNesting);
  }
}

Token TokenStream::next() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  next();
  return true;
}

bool TokenStream::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  next();
  return true;
}

std::string TokenStream::describe(const Token& token) {
  switch (token.type) {
    case Type::data:
      return "template data / text";
    case Type::block_begin:
      return "begin of statement block";
    case Type::block_end:
      return "end of statement block";
    case Type::variable_begin:
      return "begin of print statement";
    case Type::variable_end:
      return "end of print statement";
    case Type::integer:
      return "integer";
    case Type::real:
      return "float";
    case Type::eof:
      return "end of template";
    default:
      return utf8_excerpt(token.text);
  }
}

void TokenStream::unexpected(std::string_view wanted) const { fail_syntax(current().line, "expected {}, got '{}'", wanted, describe(current())); }

void TokenStream::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(fmt::format("'{}'", op));
}
void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(fmt::format("'{}'", name));
}
Token TokenStream::expect(Type type, std::string_view what) {
  if (current().type != type) unexpected(what);
  return next();
}

}  // namespace lockstep::jinja
