#include "text/template/parser.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "text/template/expression_parser.h"

namespace lockstep::jinja {

using Type = Token::Type;

namespace {
StatementPtr make_statement(Statement::Type type, int line) {
  auto statement = std::make_unique<Statement>();
  statement->type = type;
  statement->line = line;
  return statement;
}

class StatementParser : ExpressionParser {
 public:
  explicit StatementParser(std::string_view source) : ExpressionParser(source) {}
  Body parse();

 private:
  using Names = std::vector<std::string_view>;

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

  int loops_ = 0;  // for blocks around, in this function: where break and continue may stand
};

void set_context(Expr& target, Expr::Context context) {
  target.context = context;
  for (const ExprPtr& part : target.parts)
    if (part) set_context(*part, context);
}

bool can_assign(const Expr& target) {
  if (target.type == Expr::Type::tuple) return std::all_of(target.parts.begin(), target.parts.end(), [](const ExprPtr& part) { return can_assign(*part); });
  if (target.type == Expr::Type::namespace_target) return true;
  static const std::set<std::string> constants = {"true", "false", "none", "True", "False", "None"};
  return target.type == Expr::Type::name && !constants.count(target.name);
}

Body StatementParser::parse() { return subparse({}); }

Body StatementParser::subparse(const Names& ends) {
  const Depth depth(*this);
  Body body;
  StatementPtr output;
  const auto print = [&]() -> Statement& {
    if (!output) output = make_statement(Statement::Type::output, current().line);
    return *output;
  };
  const auto flush = [&] {
    if (output) body.push_back(std::move(output));
  };
  while (current().type != Type::eof) {
    if (current().type == Type::data) {
      ExprPtr data = make(Expr::Type::constant, current().line);
      data->constant = Value::text(next().text);
      print().expressions.push_back(std::move(data));
    } else if (current().type == Type::variable_begin) {
      Statement& statement = print();
      next();
      statement.expressions.push_back(tuple());
      expect(Type::variable_end, "'}}'");
    } else {
      flush();
      expect(Type::block_begin, "'{%'");
      if (current().type == Type::name && std::find(ends.begin(), ends.end(), current().text) != ends.end()) return body;
      body.push_back(statement());
      expect(Type::block_end, "'%}'");
    }
  }
  flush();
  if (!ends.empty()) fail_syntax(current().line, "unexpected end of template: '{}' is missing", fmt::join(ends, "' or '"));
  return body;
}

Body StatementParser::statements(const Names& ends, bool drop_needle) {
  skip_op(":");
  expect(Type::block_end, "'%}'");
  Body body = subparse(ends);
  if (drop_needle) next();
  return body;
}

StatementPtr StatementParser::statement() {
  if (current().type != Type::name) fail_syntax(current().line, "tag name expected");
  const std::string tag = current().text;
  const int line = current().line;
  if (tag == "for") return parse_for();
  if (tag == "if") return parse_if();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block();
  if (tag == "with") return parse_with();
  next();
  if (tag == "filter") {
    StatementPtr node = make_statement(Statement::Type::filter_block, line);
    node->expression = filter(nullptr, true);
    node->body = statements({"endfilter"}, true);
    return node;
  }
  if (tag == "print") {
    StatementPtr node = make_statement(Statement::Type::output, line);
    while (current().type != Type::block_end) {
      if (!node->expressions.empty()) expect_op(",");
      node->expressions.push_back(expression());
    }
    return node;
  }
  if (tag == "generation") {
    StatementPtr node = make_statement(Statement::Type::generation, line);
    const int loops = std::exchange(loops_, 0);
    node->body = statements({"endgeneration"}, true);
    loops_ = loops;
    return node;
  }
  if (tag == "break" || tag == "continue") {
    if (loops_ == 0) fail_syntax(line, "'{}' outside of a for block", tag);
    return make_statement(tag == "break" ? Statement::Type::break_loop : Statement::Type::continue_loop, line);
  }
  static const std::set<std::string> refused = {"include", "import", "from", "extends", "block", "autoescape"};
  if (refused.count(tag)) fail(ErrorCode::unsupported, "chat template line {}: the tag '{}' is not offered: a chat template stands alone", line, tag);
  fail_syntax(line, "unknown tag '{}'{}", utf8_excerpt(tag),
              did_you_mean(tag, {"for", "if", "set", "macro", "call", "with", "filter", "generation", "break", "continue", "raw", "endfor", "endif"}));
}

StatementPtr StatementParser::parse_for() {
  StatementPtr node = make_statement(Statement::Type::for_loop, next().line);
  node->target = assign_target(false, false, "in");
  expect_name("in");
  node->expression = tuple(false, false, "recursive", false, false);
  if (skip_name("if")) node->filter_test = expression();
  node->recursive = skip_name("recursive");
  ++loops_;
  node->body = statements({"endfor", "else"}, false);
  --loops_;
  if (next().text == "else") {
    // In a recursive loop this is the loop's own function: an outer loop is out of reach.
    const int loops = loops_;
    if (node->recursive) loops_ = 0;
    node->otherwise = statements({"endfor"}, true);
    loops_ = loops;
  }
  return node;
}

StatementPtr StatementParser::parse_if() {
  StatementPtr result = make_statement(Statement::Type::condition, next().line);
  Statement* node = result.get();
  while (true) {
    node->expression = tuple(false);
    node->body = statements({"elif", "else", "endif"}, false);
    const Token end = next();
    if (end.text == "elif") {
      result->elifs.push_back(make_statement(Statement::Type::condition, current().line));
      node = result->elifs.back().get();
      continue;
    }
    if (end.text == "else") result->otherwise = statements({"endif"}, true);
    return result;
  }
}

StatementPtr StatementParser::parse_set() {
  const int line = next().line;
  ExprPtr target = assign_target(false, true);
  if (skip_op("=")) {
    StatementPtr node = make_statement(Statement::Type::set, line);
    node->target = std::move(target);
    node->expression = tuple();
    return node;
  }
  StatementPtr node = make_statement(Statement::Type::set_block, line);
  node->target = std::move(target);
  node->expression = filter(nullptr);
  node->body = statements({"endset"}, true);
  return node;
}

StatementPtr StatementParser::parse_macro() {
  StatementPtr node = make_statement(Statement::Type::macro, next().line);
  node->name = assign_target(true, false)->name;
  parse_signature(*node);
  const int loops = std::exchange(loops_, 0);
  node->body = statements({"endmacro"}, true);
  loops_ = loops;
  return node;
}

StatementPtr StatementParser::parse_call_block() {
  StatementPtr node = make_statement(Statement::Type::call_block, next().line);
  if (is_op("(")) parse_signature(*node);
  node->expression = expression();
  if (node->expression->type != Expr::Type::call) fail_syntax(node->line, "expected call");
  const int loops = std::exchange(loops_, 0);
  node->body = statements({"endcall"}, true);
  loops_ = loops;
  return node;
}

StatementPtr StatementParser::parse_with() {
  StatementPtr node = make_statement(Statement::Type::with, next().line);
  while (current().type != Type::block_end) {
    if (!node->targets.empty()) expect_op(",");
    ExprPtr target = assign_target(false, false);
    set_context(*target, Expr::Context::param);
    node->targets.push_back(std::move(target));
    expect_op("=");
    node->expressions.push_back(expression());
  }
  node->body = statements({"endwith"}, true);
  return node;
}

void StatementParser::parse_signature(Statement& node) {
  expect_op("(");
  std::set<std::string> seen;
  while (!is_op(")")) {
    if (!node.parameters.empty()) expect_op(",");
    ExprPtr parameter = assign_target(true, false);
    set_context(*parameter, Expr::Context::param);
    if (!seen.insert(parameter->name).second) fail_syntax(parameter->line, "duplicate argument '{}'", utf8_excerpt(parameter->name));
    if (skip_op("=")) node.defaults.push_back(expression());
    else if (!node.defaults.empty()) fail_syntax(current().line, "non-default argument follows default argument");
    node.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

ExprPtr StatementParser::assign_target(bool name_only, bool with_namespace, std::string_view end) {
  ExprPtr target;
  if (name_only) {
    const Token token = expect(Type::name, "a name");
    target = make(Expr::Type::name, token.line);
    target->name = token.text;
    target->context = Expr::Context::store;
  } else {
    target = tuple(true, true, end, false, with_namespace);
    set_context(*target, Expr::Context::store);
  }
  if (!can_assign(*target)) fail_syntax(target->line, "can't assign to this expression");
  return target;
}
}  // namespace

Template parse_template(std::string_view source) {
  Template parsed;
  parsed.body = StatementParser(source).parse();
  return parsed;
}

}  // namespace lockstep::jinja
