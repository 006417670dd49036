#include "text/template/expression_parser.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace lockstep::jinja {

using Type = Token::Type;

namespace {
// `child` becomes a part of `node`: counts the height of the tree, which every walk over it recurses by.
ExprPtr under(Expr& node, ExprPtr child) {
  constexpr int kMostHeight = 1000;
  if (!child) return child;
  node.height = std::max(node.height, child->height + 1);
  if (node.height > kMostHeight)
    fail(ErrorCode::resource_exhausted, "chat template line {}: an expression has more than {} operations in a row; that is the limit", node.line, kMostHeight);
  return child;
}

ExprPtr binary(std::string op, ExprPtr left, ExprPtr right, int line) {
  ExprPtr node = make(op == "and" ? Expr::Type::logical_and : op == "or" ? Expr::Type::logical_or : Expr::Type::binary, line);
  node->name = std::move(op);
  node->parts.push_back(under(*node, std::move(left)));
  node->parts.push_back(under(*node, std::move(right)));
  return node;
}
}  // namespace

ExprPtr ExpressionParser::expression(bool with_condition) {
  const Depth depth(*this);
  return with_condition ? condition() : logical_or();
}

ExprPtr ExpressionParser::condition() {
  const Depth depth(*this);
  int line = current().line;
  ExprPtr then = logical_or();
  while (skip_name("if")) {
    ExprPtr test = logical_or();
    ExprPtr node = make(Expr::Type::condition, line);
    node->parts.push_back(under(*node, std::move(test)));
    node->parts.push_back(under(*node, std::move(then)));
    node->parts.push_back(under(*node, skip_name("else") ? condition() : nullptr));
    then = std::move(node);
    line = current().line;
  }
  return then;
}

ExprPtr ExpressionParser::logical_or() {
  int line = current().line;
  ExprPtr left = logical_and();
  while (skip_name("or")) {
    left = binary("or", std::move(left), logical_and(), line);
    line = current().line;
  }
  return left;
}

ExprPtr ExpressionParser::logical_and() {
  int line = current().line;
  ExprPtr left = logical_not();
  while (skip_name("and")) {
    left = binary("and", std::move(left), logical_not(), line);
    line = current().line;
  }
  return left;
}

ExprPtr ExpressionParser::logical_not() {
  if (!is_name("not")) return compare();
  const Depth depth(*this);
  ExprPtr node = make(Expr::Type::logical_not, next().line);
  node->parts.push_back(under(*node, logical_not()));
  return node;
}

ExprPtr ExpressionParser::compare() {
  static const std::set<std::string, std::less<>> symbols = {"==", "!=", "<", "<=", ">", ">="};
  const int line = current().line;
  ExprPtr first = sum();
  ExprPtr node;
  while (true) {
    std::string op;
    if (current().type == Type::op && symbols.count(current().text)) op = next().text;
    else if (skip_name("in")) op = "in";
    else if (is_name("not") && look().type == Type::name && look().text == "in") {
      next();
      next();
      op = "not in";
    } else {
      break;
    }
    if (!node) {
      node = make(Expr::Type::compare, line);
      node->parts.push_back(under(*node, std::move(first)));
    }
    node->operators.push_back(std::move(op));
    node->parts.push_back(under(*node, sum()));
  }
  return node ? std::move(node) : std::move(first);
}

ExprPtr ExpressionParser::sum() {
  int line = current().line;
  ExprPtr left = concat();
  while (is_op("+") || is_op("-")) {
    std::string op = next().text;
    left = binary(std::move(op), std::move(left), concat(), line);
    line = current().line;
  }
  return left;
}

ExprPtr ExpressionParser::concat() {
  const int line = current().line;
  ExprPtr first = product();
  if (!is_op("~")) return first;
  ExprPtr node = make(Expr::Type::concat, line);
  node->parts.push_back(under(*node, std::move(first)));
  while (skip_op("~")) node->parts.push_back(under(*node, product()));
  return node;
}

ExprPtr ExpressionParser::product() {
  int line = current().line;
  ExprPtr left = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    std::string op = next().text;
    left = binary(std::move(op), std::move(left), power(), line);
    line = current().line;
  }
  return left;
}

ExprPtr ExpressionParser::power() {
  int line = current().line;
  ExprPtr left = unary();
  while (skip_op("**")) {
    left = binary("**", std::move(left), unary(), line);
    line = current().line;
  }
  return left;
}

ExprPtr ExpressionParser::unary(bool with_filter) {
  const Depth depth(*this);
  ExprPtr node;
  if (is_op("-") || is_op("+")) {
    const Token sign = next();
    node = make(sign.text == "-" ? Expr::Type::negative : Expr::Type::positive, sign.line);
    node->parts.push_back(under(*node, unary(false)));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filter_expression(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::primary(bool with_namespace) {
  const Token token = current();
  const auto constant = [&](Value value) {
    ExprPtr node = make(Expr::Type::constant, token.line);
    node->constant = std::move(value);
    return node;
  };
  if (token.type == Type::name) {
    next();
    if (token.text == "true" || token.text == "True") return constant(Value::of(true));
    if (token.text == "false" || token.text == "False") return constant(Value::of(false));
    if (token.text == "none" || token.text == "None") return constant(Value::none());
    ExprPtr node = make(Expr::Type::name, token.line);
    if (with_namespace && skip_op(".")) {
      node->type = Expr::Type::namespace_target;
      node->constant = Value::text(expect(Type::name, "a name").text);
    }
    node->name = token.text;
    return node;
  }
  if (token.type == Type::string) {
    std::string text;
    while (current().type == Type::string) text += next().text;
    return constant(Value::text(std::move(text)));
  }
  if (token.type == Type::integer) return next(), constant(Value::of(token.integer));
  if (token.type == Type::real) return next(), constant(Value::of(token.real));
  if (skip_op("(")) {
    ExprPtr node = tuple(false, true, {}, true, false);
    expect_op(")");
    return node;
  }
  if (is_op("[")) return list();
  if (is_op("{")) return dict();
  fail_syntax(token.line, "unexpected '{}'", describe(token));
}

ExprPtr ExpressionParser::tuple(bool simplified, bool with_condition, std::string_view end, bool explicit_parentheses, bool with_namespace) {
  const Depth depth(*this);
  int line = current().line;
  std::vector<ExprPtr> parts;
  bool is_tuple = false;
  while (true) {
    if (!parts.empty()) expect_op(",");
    if (current().type == Type::variable_end || current().type == Type::block_end || is_op(")") || (!end.empty() && is_name(end))) break;
    parts.push_back(simplified ? primary(with_namespace) : expression(with_condition));
    if (!is_op(",")) break;
    is_tuple = true;
    line = current().line;
  }
  if (!is_tuple) {
    if (!parts.empty()) return std::move(parts[0]);
    if (!explicit_parentheses) fail_syntax(current().line, "Expected an expression, got '{}'", describe(current()));
  }
  ExprPtr node = make(Expr::Type::tuple, line);
  for (ExprPtr& part : parts) node->parts.push_back(under(*node, std::move(part)));
  return node;
}

ExprPtr ExpressionParser::list() {
  ExprPtr node = make(Expr::Type::list, next().line);
  while (!is_op("]")) {
    if (!node->parts.empty()) expect_op(",");
    if (is_op("]")) break;
    node->parts.push_back(under(*node, expression()));
  }
  expect_op("]");
  return node;
}

ExprPtr ExpressionParser::dict() {
  ExprPtr node = make(Expr::Type::dict, next().line);
  while (!is_op("}")) {
    if (!node->parts.empty()) expect_op(",");
    if (is_op("}")) break;
    node->parts.push_back(under(*node, expression()));
    expect_op(":");
    node->parts.push_back(under(*node, expression()));
  }
  expect_op("}");
  return node;
}

ExprPtr ExpressionParser::postfix(ExprPtr node) {
  while (true) {
    if (is_op(".") || is_op("[")) node = subscript(std::move(node));
    else if (is_op("(")) node = call(std::move(node));
    else return node;
  }
}

ExprPtr ExpressionParser::filter_expression(ExprPtr node) {
  while (true) {
    if (is_op("|")) node = filter(std::move(node));
    else if (is_name("is")) node = test(std::move(node));
    else if (is_op("(")) node = call(std::move(node));
    else return node;
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr object) {
  const Token token = next();
  if (token.text == ".") {
    const Token attribute = next();
    if (attribute.type == Type::name) {
      ExprPtr node = make(Expr::Type::attribute, token.line);
      node->name = attribute.text;
      node->constant = Value::text(attribute.text);
      node->parts.push_back(under(*node, std::move(object)));
      return node;
    }
    if (attribute.type != Type::integer) fail_syntax(attribute.line, "expected name or number");
    ExprPtr index = make(Expr::Type::constant, attribute.line);
    index->constant = Value::of(attribute.integer);
    ExprPtr node = make(Expr::Type::item, token.line);
    node->parts.push_back(under(*node, std::move(object)));
    node->parts.push_back(under(*node, std::move(index)));
    return node;
  }
  ExprPtr node = make(Expr::Type::item, token.line);
  node->parts.push_back(under(*node, std::move(object)));
  std::vector<ExprPtr> indices;
  while (!is_op("]")) {
    if (!indices.empty()) expect_op(",");
    indices.push_back(subscribed());
  }
  expect_op("]");
  if (indices.size() == 1) {
    node->parts.push_back(under(*node, std::move(indices[0])));
    return node;
  }
  for (const ExprPtr& index : indices)
    if (index->type == Expr::Type::slice) fail_syntax(token.line, "a slice in a tuple of indices");
  ExprPtr index = make(Expr::Type::tuple, token.line);
  for (ExprPtr& part : indices) index->parts.push_back(under(*index, std::move(part)));
  node->parts.push_back(under(*node, std::move(index)));
  return node;
}

ExprPtr ExpressionParser::subscribed() {
  const int line = current().line;
  ExprPtr start, stop, step;
  if (!is_op(":")) {
    start = expression();
    if (!is_op(":")) return start;
  }
  next();
  const auto ends = [&] { return is_op("]") || is_op(","); };
  if (!is_op(":") && !ends()) stop = expression();
  if (skip_op(":") && !ends()) step = expression();
  ExprPtr node = make(Expr::Type::slice, line);
  node->parts.push_back(under(*node, std::move(start)));
  node->parts.push_back(under(*node, std::move(stop)));
  node->parts.push_back(under(*node, std::move(step)));
  return node;
}

ExprPtr ExpressionParser::call(ExprPtr callee) {
  ExprPtr node = make(Expr::Type::call, current().line);
  node->parts.push_back(under(*node, std::move(callee)));
  call_arguments(*node);
  return node;
}

void ExpressionParser::call_arguments(Expr& node) {
  const int line = current().line;
  expect_op("(");
  const auto ensure = [&](bool good) {
    if (!good) fail_syntax(line, "invalid syntax for function call expression");
  };
  std::set<std::string> seen;
  bool comma = false;
  while (!is_op(")")) {
    if (comma) {
      expect_op(",");
      if (is_op(")")) break;
    }
    if (is_op("*")) {
      ensure(!node.star && !node.double_star);
      next();
      node.star = under(node, expression());
    } else if (is_op("**")) {
      ensure(!node.double_star);
      next();
      node.double_star = under(node, expression());
    } else if (current().type == Type::name && look().type == Type::op && look().text == "=") {
      ensure(!node.double_star);
      std::string key = next().text;
      next();
      if (!seen.insert(key).second) fail_syntax(line, "keyword argument repeated: {}", utf8_excerpt(key));
      node.keywords.emplace_back(std::move(key), under(node, expression()));
    } else {
      ensure(!node.star && !node.double_star && node.keywords.empty());
      node.arguments.push_back(under(node, expression()));
    }
    comma = true;
  }
  expect_op(")");
}

ExprPtr ExpressionParser::filter(ExprPtr node, bool start_inline) {
  while (is_op("|") || start_inline) {
    if (!start_inline) next();
    start_inline = false;
    const Token token = expect(Type::name, "a filter's name");
    ExprPtr outer = make(Expr::Type::filter, token.line);
    outer->name = token.text;
    while (skip_op(".")) outer->name += "." + expect(Type::name, "a name").text;
    outer->parts.push_back(under(*outer, std::move(node)));
    if (is_op("(")) call_arguments(*outer);
    node = std::move(outer);
  }
  return node;
}

ExprPtr ExpressionParser::test(ExprPtr subject) {
  const Token token = next();
  const bool negated = skip_name("not");
  ExprPtr node = make(Expr::Type::test, token.line);
  node->name = expect(Type::name, "a test's name").text;
  while (skip_op(".")) node->name += "." + expect(Type::name, "a name").text;
  node->parts.push_back(under(*node, std::move(subject)));
  const auto starts_argument = [&] {
    switch (current().type) {
      case Type::string:
      case Type::integer:
      case Type::real:
        return true;
      case Type::op:
        return is_op("[") || is_op("{");
      case Type::name:
        return !is_name("else") && !is_name("or") && !is_name("and");
      default:
        return false;
    }
  };
  if (is_op("(")) {
    call_arguments(*node);
  } else if (starts_argument()) {
    if (is_name("is")) fail_syntax(current().line, "You cannot chain multiple tests with is");
    const Depth depth(*this);
    node->arguments.push_back(under(*node, postfix(primary())));
  }
  if (!negated) return node;
  ExprPtr outer = make(Expr::Type::logical_not, token.line);
  outer->parts.push_back(under(*outer, std::move(node)));
  return outer;
}

}  // namespace lockstep::jinja
