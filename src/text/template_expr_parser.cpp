#include <algorithm>
#include <memory>

#include "base/fail.h"
#include "text/template_parser.h"
#include "text/template_parser_state.h"

namespace conclave::jinja {

Expr* ExprParser::node(ExprKind kind, int line) {
  tree_.exprs.push_back({.kind = kind, .line = line});
  return &tree_.exprs.back();
}

Expr* ExprParser::done(Expr* of) const {
  int height = 0;
  const auto count = [&](const Expr* child) {
    if (child != nullptr) height = std::max(height, child->height);
  };
  for (const Expr* child : of->args) count(child);
  for (const Keyword& keyword : of->keywords) count(keyword.value);
  count(of->star);
  count(of->star_star);
  of->height = height + 1;
  if (of->height > kMaxExprHeight) {
    syntax_error(of->line, fmt::format("an expression of more than {} levels", kMaxExprHeight));
  }
  return of;
}

Expr* ExprParser::expression(Conditional conditional) {
  const Nesting nesting(depth_, tokens_.line());
  Expr* value = either();
  while (conditional == Conditional::yes && tokens_.is_word("if")) {
    Expr* const choice = node(ExprKind::conditional, tokens_.take().line);
    Expr* const condition = either();
    Expr* const otherwise = tokens_.skip_word("else") ? expression() : nullptr;
    choice->args = {condition, value, otherwise};
    value = done(choice);
  }
  return value;
}

Expr* ExprParser::either() {
  Expr* left = both();
  while (tokens_.is_word("or")) {
    Expr* const whole = node(ExprKind::either, tokens_.take().line);
    whole->args = {left, both()};
    left = done(whole);
  }
  return left;
}

Expr* ExprParser::both() {
  Expr* left = negation();
  while (tokens_.is_word("and")) {
    Expr* const whole = node(ExprKind::both, tokens_.take().line);
    whole->args = {left, negation()};
    left = done(whole);
  }
  return left;
}

Expr* ExprParser::negation() {
  if (!tokens_.is_word("not")) return compare();
  const Nesting nesting(depth_, tokens_.line());
  Expr* const whole = node(ExprKind::negation, tokens_.take().line);
  whole->args = {negation()};
  return done(whole);
}

Expr* ExprParser::compare() {
  const int line = tokens_.line();
  Expr* const first = sum();
  Expr* chain = nullptr;
  for (;;) {
    std::string op;
    if (tokens_.is_op_of({"==", "!=", "<", "<=", ">", ">="})) {
      op = tokens_.take().text;
    } else if (tokens_.skip_word("in")) {
      op = "in";
    } else if (tokens_.is_word("not") && tokens_.after().kind == TokenKind::name && tokens_.after().text == "in") {
      tokens_.take();
      tokens_.take();
      op = "not in";
    } else {
      break;
    }
    if (chain == nullptr) {
      chain = node(ExprKind::compare, line);
      chain->args = {first};
    }
    chain->ops.push_back(std::move(op));
    chain->args.push_back(sum());
  }
  return chain == nullptr ? first : done(chain);
}

Expr* ExprParser::binary(Expr* left, Expr* right, std::string op, int line) {
  Expr* const whole = node(ExprKind::binary, line);
  whole->name = std::move(op);
  whole->args = {left, right};
  return done(whole);
}

Expr* ExprParser::sum() {
  Expr* left = concat();
  while (tokens_.is_op_of({"+", "-"})) {
    const Token& op = tokens_.take();
    left = binary(left, concat(), op.text, op.line);
  }
  return left;
}

Expr* ExprParser::concat() {
  const int line = tokens_.line();
  Expr* const first = product();
  if (!tokens_.is_op("~")) return first;
  Expr* const whole = node(ExprKind::concat, line);
  whole->args = {first};
  while (tokens_.skip_op("~")) whole->args.push_back(product());
  return done(whole);
}

Expr* ExprParser::product() {
  Expr* left = power();
  while (tokens_.is_op_of({"*", "/", "//", "%"})) {
    const Token& op = tokens_.take();
    left = binary(left, power(), op.text, op.line);
  }
  return left;
}

Expr* ExprParser::power() {
  Expr* left = unary(true);
  while (tokens_.is_op("**")) {
    const Token& op = tokens_.take();
    left = binary(left, unary(true), op.text, op.line);
  }
  return left;
}

Expr* ExprParser::unary(bool with_filter) {
  Expr* value = nullptr;
  if (tokens_.is_op_of({"-", "+"})) {
    const Nesting nesting(depth_, tokens_.line());
    const Token& op = tokens_.take();
    Expr* const whole = node(ExprKind::unary, op.line);
    whole->name = op.text;
    whole->args = {unary(false)};
    value = done(whole);
  } else {
    value = primary();
  }
  value = postfix(value);
  return with_filter ? filters_and_tests(value) : value;
}

Expr* ExprParser::primary() {
  const Token& token = tokens_.now();
  switch (token.kind) {
    case TokenKind::string:
      return string();
    case TokenKind::integer: {
      Expr* const number = node(ExprKind::integer, tokens_.take().line);
      number->integer = token.integer;
      return number;
    }
    case TokenKind::real: {
      Expr* const number = node(ExprKind::real, tokens_.take().line);
      number->real = token.real;
      return number;
    }
    case TokenKind::name:
      break;
    default:
      if (tokens_.is_op("(")) return in_parentheses();
      if (tokens_.is_op("[")) return list();
      if (tokens_.is_op("{")) return dict();
      tokens_.unexpected("an expression");
  }
  tokens_.take();
  const std::string& word = token.text;
  if (word == "none" || word == "None") return node(ExprKind::none, token.line);
  const bool yes = word == "true" || word == "True";
  if (yes || word == "false" || word == "False") {
    Expr* const constant = node(ExprKind::boolean, token.line);
    constant->integer = yes ? 1 : 0;
    return constant;
  }
  Expr* const name = node(ExprKind::name, token.line);
  name->name = word;
  if (word == "varargs") ++seen_.varargs;
  if (word == "kwargs") ++seen_.kwargs;
  return name;
}

Expr* ExprParser::string() {
  Expr* const literal = node(ExprKind::string, tokens_.line());
  Text text;
  while (tokens_.is(TokenKind::string)) text.append(tokens_.take().text, true);
  literal->text = std::make_shared<const Text>(std::move(text));
  return literal;
}

Expr* ExprParser::in_parentheses() {
  const int line = tokens_.line();
  tokens_.expect_op("(");
  if (tokens_.skip_op(")")) return node(ExprKind::tuple, line);
  Expr* const inside = tuple();
  tokens_.expect_op(")");
  return inside;
}

bool ExprParser::tuple_ends() const {
  return tokens_.is(TokenKind::block_end) || tokens_.is(TokenKind::variable_end) || tokens_.is_op(")") ||
         tokens_.is_word("in") || tokens_.is(TokenKind::end);
}

Expr* ExprParser::tuple(Conditional conditional) {
  const int line = tokens_.line();
  Expr* const first = expression(conditional);
  if (!tokens_.is_op(",")) return first;
  Expr* const whole = node(ExprKind::tuple, line);
  whole->args = {first};
  while (tokens_.skip_op(",") && !tuple_ends()) whole->args.push_back(expression(conditional));
  return done(whole);
}

Expr* ExprParser::list() {
  Expr* const whole = node(ExprKind::list, tokens_.line());
  tokens_.expect_op("[");
  while (!tokens_.is_op("]")) {
    whole->args.push_back(expression());
    if (!tokens_.skip_op(",")) break;
  }
  tokens_.expect_op("]");
  return done(whole);
}

Expr* ExprParser::dict() {
  Expr* const whole = node(ExprKind::dict, tokens_.line());
  tokens_.expect_op("{");
  while (!tokens_.is_op("}")) {
    whole->args.push_back(expression());
    tokens_.expect_op(":");
    whole->args.push_back(expression());
    if (!tokens_.skip_op(",")) break;
  }
  tokens_.expect_op("}");
  return done(whole);
}

Expr* ExprParser::postfix(Expr* value) {
  for (;;) {
    if (tokens_.is_op(".")) {
      value = attribute(value);
    } else if (tokens_.is_op("[")) {
      value = subscript(value);
    } else if (tokens_.is_op("(")) {
      value = call(value);
    } else {
      return value;
    }
  }
}

Expr* ExprParser::attribute(Expr* of) {
  const int line = tokens_.take().line;
  if (tokens_.is(TokenKind::integer)) {  // items.0
    Expr* const index = primary();
    Expr* const whole = node(ExprKind::item, line);
    whole->args = {of, index};
    return done(whole);
  }
  Expr* const whole = node(ExprKind::attribute, line);
  whole->name = tokens_.expect_name();
  whole->args = {of};
  return done(whole);
}

Expr* ExprParser::subscript(Expr* of) {
  Expr* const whole = node(ExprKind::item, tokens_.take().line);
  Expr* index = slice_or_index();
  if (tokens_.is_op(",")) {
    Expr* const key = node(ExprKind::tuple, whole->line);
    key->args = {index};
    while (tokens_.skip_op(",") && !tokens_.is_op("]")) key->args.push_back(expression());
    index = done(key);
  }
  tokens_.expect_op("]");
  whole->args = {of, index};
  return done(whole);
}

Expr* ExprParser::slice_or_index() {
  const int line = tokens_.line();
  const auto bound = [&]() -> Expr* { return tokens_.is_op_of({":", "]", ","}) ? nullptr : expression(); };
  if (tokens_.is_op_of({"]", ","})) tokens_.unexpected("an index");
  Expr* const start = bound();
  if (!tokens_.skip_op(":")) return start;
  Expr* const whole = node(ExprKind::slice, line);
  Expr* const stop = bound();
  Expr* const step = tokens_.skip_op(":") ? bound() : nullptr;
  whole->args = {start, stop, step};
  return done(whole);
}

Expr* ExprParser::call(Expr* callee) {
  Expr* const whole = node(ExprKind::call, tokens_.line());
  whole->args = {callee};
  arguments(whole);
  return done(whole);
}

void ExprParser::arguments(Expr* of) {
  tokens_.expect_op("(");
  while (!tokens_.is_op(")")) {
    const bool after_stars = of->star != nullptr || of->star_star != nullptr;
    if (tokens_.is_op("*") && !after_stars) {
      tokens_.take();
      of->star = expression();
    } else if (tokens_.is_op("**") && of->star_star == nullptr) {
      tokens_.take();
      of->star_star = expression();
    } else if (tokens_.is(TokenKind::name) && tokens_.after().kind == TokenKind::op && tokens_.after().text == "=" &&
               of->star_star == nullptr) {
      std::string name = tokens_.take().text;
      tokens_.take();
      of->keywords.push_back({std::move(name), expression()});
    } else if (!after_stars && of->keywords.empty()) {
      of->args.push_back(expression());
    } else {
      syntax_error(tokens_.line(), "a positional argument after a keyword argument");
    }
    if (!tokens_.skip_op(",")) break;
  }
  tokens_.expect_op(")");
}

Expr* ExprParser::filters_and_tests(Expr* value) {
  for (;;) {
    if (tokens_.is_op("|")) {
      tokens_.take();
      value = filter(value);
    } else if (tokens_.is_word("is")) {
      value = test(value);
    } else if (tokens_.is_op("(")) {
      value = call(value);
    } else {
      return value;
    }
  }
}

Expr* ExprParser::filter(Expr* value) {
  Expr* const whole = node(ExprKind::filter, tokens_.line());
  whole->name = tokens_.expect_name();
  whole->args = {value};
  if (tokens_.is_op("(")) arguments(whole);
  return done(whole);
}

Expr* ExprParser::filter_chain() {
  Expr* value = filter(nullptr);
  while (tokens_.skip_op("|")) value = filter(value);
  return value;
}

Expr* ExprParser::test(Expr* value) {
  Expr* whole = node(ExprKind::test, tokens_.take().line);
  const bool negated = tokens_.skip_word("not");
  whole->name = tokens_.expect_name();
  whole->args = {value};
  const bool takes_argument = tokens_.is(TokenKind::name) || tokens_.is(TokenKind::string) ||
                              tokens_.is(TokenKind::integer) || tokens_.is(TokenKind::real) ||
                              tokens_.is_op_of({"[", "{"});
  if (tokens_.is_op("(")) {
    arguments(whole);
  } else if (takes_argument && !tokens_.is_word("else") && !tokens_.is_word("or") && !tokens_.is_word("and")) {
    if (tokens_.is_word("is")) syntax_error(tokens_.line(), "tests with 'is' cannot be chained");
    const Nesting nesting(depth_, tokens_.line());
    whole->args.push_back(postfix(primary()));
  }
  done(whole);
  if (!negated) return whole;
  Expr* const opposite = node(ExprKind::negation, whole->line);
  opposite->args = {whole};
  return done(opposite);
}

Expr* ExprParser::target_part(bool with_attributes) {
  const Nesting nesting(depth_, tokens_.line());
  if (tokens_.skip_op("(")) {
    Expr* const inside = target(with_attributes);
    tokens_.expect_op(")");
    return inside;
  }
  const int line = tokens_.line();
  if (!tokens_.is(TokenKind::name)) tokens_.unexpected("a name to assign to");
  Expr* const name = primary();
  if (name->kind != ExprKind::name) syntax_error(line, "none, true and false cannot be assigned to");
  if (!with_attributes || !tokens_.is_op(".")) return name;
  tokens_.take();
  Expr* const whole = node(ExprKind::attribute, line);
  whole->name = tokens_.expect_name();
  whole->args = {name};
  return done(whole);
}

Expr* ExprParser::target(bool with_attributes) {
  const int line = tokens_.line();
  Expr* const first = target_part(with_attributes);
  if (!tokens_.is_op(",")) return first;
  Expr* const whole = node(ExprKind::tuple, line);
  whole->args = {first};
  while (tokens_.skip_op(",") && !tuple_ends() && !tokens_.is_op("=")) {
    whole->args.push_back(target_part(with_attributes));
  }
  return done(whole);
}

}  // namespace conclave::jinja
