// What the two halves of the parser share: the tokens, the tree in the making, and the depth they are at.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/template_lexer.h"
#include "text/template_syntax.h"

namespace conclave::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  int line() const { return now().line; }
  const Token& take() {
    const Token& token = now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_op(std::string_view op) const { return is(TokenKind::op) && now().text == op; }
  bool is_op_of(std::initializer_list<std::string_view> ops) const {
    for (const std::string_view op : ops) {
      if (is_op(op)) return true;
    }
    return false;
  }
  bool is_word(std::string_view word) const { return is(TokenKind::name) && now().text == word; }
  bool skip_op(std::string_view op) { return is_op(op) && (take(), true); }
  bool skip_word(std::string_view word) { return is_word(word) && (take(), true); }

  void expect_op(std::string_view op);
  void expect_word(std::string_view word);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name();
  [[noreturn]] void unexpected(std::string_view wanted) const;

 private:
  std::vector<Token> tokens_;  // ends with TokenKind::end
  std::size_t at_ = 0;
};

// Counts one level of nesting while it lives.
class Nesting {
 public:
  Nesting(int& depth, int line);
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  int& depth_;
};

class ExprParser {
 public:
  ExprParser(TokenStream& tokens, Tree& tree, int& depth) : tokens_(tokens), tree_(tree), depth_(depth) {}

  // With or without `a if b else c`: a loop's `if` would be taken for one.
  enum class Conditional { yes, no };

  Expr* expression(Conditional conditional = Conditional::yes);
  // One expression, or several with commas between: a tuple.
  Expr* tuple(Conditional conditional = Conditional::yes);
  // What can be assigned to: names, tuples of names and, in a `set`, attributes of namespaces.
  Expr* target(bool with_attributes);
  // `name(args) | name | ...`; the value that goes in is null.
  Expr* filter_chain();
  Expr* postfix(Expr* node);
  Expr* primary();

  // How often the two names were read that stand for a macro's other arguments.
  struct Seen {
    int varargs = 0;
    int kwargs = 0;
  };
  Seen seen() const { return seen_; }

 private:
  Expr* node(ExprKind kind, int line);
  // Fixes the height of a node that has all its parts.
  Expr* done(Expr* node) const;
  Expr* either();
  Expr* both();
  Expr* negation();
  Expr* compare();
  Expr* sum();
  Expr* concat();
  Expr* product();
  Expr* power();
  Expr* unary(bool with_filter);
  Expr* binary(Expr* left, Expr* right, std::string op, int line);
  Expr* filters_and_tests(Expr* value);
  Expr* filter(Expr* value);
  Expr* test(Expr* value);
  Expr* attribute(Expr* of);
  Expr* subscript(Expr* of);
  Expr* slice_or_index();
  Expr* call(Expr* callee);
  void arguments(Expr* of);
  Expr* in_parentheses();
  Expr* list();
  Expr* dict();
  Expr* string();
  Expr* target_part(bool with_attributes);
  bool tuple_ends() const;

  TokenStream& tokens_;
  Tree& tree_;
  int& depth_;
  Seen seen_;
};

}  // namespace conclave::jinja
