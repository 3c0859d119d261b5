#include "text/template_evaluator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/file_text.h"
#include "text/template_builtins.h"
#include "text/template_macro.h"

namespace conclave::jinja {
namespace {

class Evaluator {
 public:
  Evaluator(Runtime& runtime, std::shared_ptr<Scope> globals) : runtime_(runtime), scope_(std::move(globals)) {}

  Text run(const Tree& tree) {
    execute(tree.body);
    return std::move(out_);
  }

 private:
  enum class Flow { normal, leave, next };

  // --- statements

  Flow execute(const Body& body) {
    for (const Stmt* const statement : body) {
      const Flow flow = execute(*statement);
      if (flow != Flow::normal) return flow;
    }
    return Flow::normal;
  }

  Flow execute(const Stmt& s) {
    const Runtime::Level level(runtime_);
    runtime_.line = s.line;
    runtime_.step();
    switch (s.kind) {
      case StmtKind::data:
        put(*s.text);
        break;
      case StmtKind::output:
        put(*to_text(runtime_, value_of(*s.expr)));
        break;
      case StmtKind::branch:
        return branch(s);
      case StmtKind::loop:
        loop(s);
        break;
      case StmtKind::assign:
        assign(*s.target, value_of(*s.expr));
        break;
      case StmtKind::assign_block:
        assign_block(s);
        break;
      case StmtKind::macro:
        scope_->set(s.name, runtime_.macro(&s, scope_));
        break;
      case StmtKind::call_block:
        call_block(s);
        break;
      case StmtKind::filter_block:
        filter_block(s);
        break;
      case StmtKind::with:
        return with(s);
      case StmtKind::scope:
        return in_scope([&] { return execute(s.body); });
      case StmtKind::leave:
        return Flow::leave;
      case StmtKind::next:
        return Flow::next;
    }
    return Flow::normal;
  }

  void put(const Text& text) {
    runtime_.step_bytes(text.size());
    runtime_.check_length(out_.size() + text.size());
    out_.append(text);
  }

  // Runs with a scope of its own inside the present one.
  template <class Act>
  Flow in_scope(Act&& act) {
    return in_scope_of(scope_, std::forward<Act>(act));
  }

  template <class Act>
  Flow in_scope_of(std::shared_ptr<Scope> outer, Act&& act) {
    runtime_.step(8);
    auto inner = std::make_shared<Scope>();
    inner->outer = std::move(outer);
    const std::shared_ptr<Scope> before = std::exchange(scope_, std::move(inner));
    // An error leaves the evaluator for good: there is nothing to put back then.
    const Flow flow = act();
    scope_ = before;
    return flow;
  }

  // What a body prints, as a text.
  template <class Act>
  Text captured(Act&& act) {
    Text before = std::exchange(out_, Text());
    act();
    return std::exchange(out_, std::move(before));
  }

  Flow branch(const Stmt& s) {
    for (const Arm& arm : s.arms) {
      if (arm.condition == nullptr || is_true(value_of(*arm.condition))) return execute(arm.body);
    }
    return Flow::normal;
  }

  void loop(const Stmt& s) {
    std::vector<Value> items = items_of(runtime_, value_of(*s.expr));
    if (s.filter != nullptr) {
      std::vector<Value> kept;
      for (const Value& item : items) {
        in_scope([&] {
          assign(*s.target, item);
          if (is_true(value_of(*s.filter))) kept.push_back(item);
          return Flow::normal;
        });
      }
      items = std::move(kept);
    }
    if (items.empty()) {
      in_scope([&] { return execute(s.other); });
      return;
    }
    Loop& state = *runtime_.loop(std::move(items));
    for (; state.index < state.items.size(); ++state.index) {
      runtime_.step();
      const Flow flow = in_scope([&] {
        scope_->set("loop", &state);
        assign(*s.target, state.items[state.index]);
        return execute(s.body);
      });
      if (flow == Flow::leave) break;
    }
  }

  void assign(const Expr& target, const Value& value) {
    if (target.kind == ExprKind::name) {
      scope_->set(target.name, value);
    } else if (target.kind == ExprKind::attribute) {
      const Value object = value_of(*target.args[0]);
      runtime_.line = target.line;
      if (object.name_space() == nullptr) {
        wrong("'{}' is assigned to a {}, must be a namespace", printable(target.name), type_name(object));
      }
      object.name_space()->attributes.insert_or_assign(target.name, value);
    } else {
      const std::vector<Value> parts = items_of(runtime_, value);
      if (parts.size() != target.args.size()) {
        wrong("{} values for {} names", parts.size(), target.args.size());
      }
      for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.args[i], parts[i]);
    }
  }

  void assign_block(const Stmt& s) {
    const Value text = runtime_.text(captured([&] { in_scope([&] { return execute(s.body); }); }));
    assign(*s.target, s.expr == nullptr ? text : filtered(*s.expr, text));
  }

  void filter_block(const Stmt& s) {
    const Value text = runtime_.text(captured([&] { in_scope([&] { return execute(s.body); }); }));
    put(*to_text(runtime_, filtered(*s.expr, text)));
  }

  Flow with(const Stmt& s) {
    std::vector<Value> values;  // none of the names is seen by another's value
    for (const Assignment& assignment : s.assignments) values.push_back(value_of(*assignment.value));
    return in_scope([&] {
      for (std::size_t i = 0; i < values.size(); ++i) assign(*s.assignments[i].target, values[i]);
      return execute(s.body);
    });
  }

  void call_block(const Stmt& s) {
    Arguments arguments = arguments_of(*s.expr);
    arguments.named.emplace_back("caller", runtime_.macro(&s, scope_));
    const Value callee = value_of(*s.expr->args[0]);
    if (callee.macro() == nullptr) wrong("'call' wants a macro, not a {}", type_name(callee));
    put(*to_text(runtime_, call_macro(*callee.macro(), arguments)));
  }

  // --- expressions

  Value value_of(const Expr& e) {
    const Runtime::Level level(runtime_);
    runtime_.step();
    const Value value = dispatch(e);
    runtime_.line = e.line;  // what the parent does with it is at its line, or one close by
    return value;
  }

  Value dispatch(const Expr& e) {
    switch (e.kind) {
      case ExprKind::none:
        return None{};
      case ExprKind::boolean:
        return e.integer != 0;
      case ExprKind::integer:
        return e.integer;
      case ExprKind::real:
        return e.real;
      case ExprKind::string:
        return e.text;
      case ExprKind::name:
        return name(e);
      case ExprKind::list:
        return runtime_.list(values_of(e.args));
      case ExprKind::tuple:
        return runtime_.tuple(values_of(e.args));
      case ExprKind::dict:
        return dict(e);
      case ExprKind::attribute:
        return attribute(e);
      case ExprKind::item:
        return item(e);
      case ExprKind::slice:
        wrong("a slice stands alone");
      case ExprKind::call:
        return call(e);
      case ExprKind::filter:
        return filter(e);
      case ExprKind::test:
        return test(e);
      case ExprKind::negation:
        return !is_true(value_of(*e.args[0]));
      case ExprKind::both:
        return logic(e, false);
      case ExprKind::either:
        return logic(e, true);
      case ExprKind::unary:
        return unary(e.name, value_of(*e.args[0]));
      case ExprKind::binary:
        return operation(e);
      case ExprKind::concat:
        return concat(e);
      case ExprKind::compare:
        return comparison(e);
      case ExprKind::conditional:
        return choice(e);
    }
    return {};
  }

  std::vector<Value> values_of(const std::vector<Expr*>& exprs) {
    std::vector<Value> values;
    values.reserve(exprs.size());
    for (const Expr* const e : exprs) values.push_back(value_of(*e));
    return values;
  }

  Value name(const Expr& e) {
    if (const Value* const found = scope_->find(e.name)) return *found;
    if (is_global(runtime_, e.name)) return runtime_.bound(Value(), e.name);
    return undefined(fmt::format("'{}' is undefined", printable(e.name)));
  }

  Value dict(const Expr& e) {
    Dict* const result = runtime_.dict();
    for (std::size_t i = 0; i + 1 < e.args.size(); i += 2) {
      const Value key = value_of(*e.args[i]);
      result->set(runtime_, key, value_of(*e.args[i + 1]));
    }
    return result;
  }

  Value attribute(const Expr& e) {
    const Value object = value_of(*e.args[0]);
    runtime_.line = e.line;
    return attribute_of(runtime_, object, e.name);
  }

  Value item(const Expr& e) {
    const Value object = value_of(*e.args[0]);
    const Expr& key = *e.args[1];
    if (key.kind != ExprKind::slice) {
      const Value index = value_of(key);
      runtime_.line = e.line;
      return item_of(runtime_, object, index);
    }
    const auto bound = [&](const Expr* at) { return at == nullptr ? Value(None{}) : value_of(*at); };
    const Value start = bound(key.args[0]);
    const Value stop = bound(key.args[1]);
    const Value step = bound(key.args[2]);
    runtime_.line = e.line;
    return slice_of(runtime_, object, start, stop, step);
  }

  Value operation(const Expr& e) {
    const Value left = value_of(*e.args[0]);
    const Value right = value_of(*e.args[1]);
    runtime_.line = e.line;
    return binary(runtime_, e.name, left, right);
  }

  // `and` and `or` give the operand that decided.
  Value logic(const Expr& e, bool decides) {
    const Value left = value_of(*e.args[0]);
    return is_true(left) == decides ? left : value_of(*e.args[1]);
  }

  Value choice(const Expr& e) {
    if (is_true(value_of(*e.args[0]))) return value_of(*e.args[1]);
    return e.args[2] != nullptr ? value_of(*e.args[2]) : undefined("an 'if' without 'else' has no value");
  }

  Value concat(const Expr& e) {
    Text out;
    for (const Expr* const part : e.args) {
      const TextPtr text = to_text(runtime_, value_of(*part));
      runtime_.check_length(out.size() + text->size());
      out.append(*text);
    }
    return runtime_.text(std::move(out));
  }

  Value comparison(const Expr& e) {
    Value left = value_of(*e.args[0]);
    for (std::size_t i = 0; i < e.ops.size(); ++i) {
      Value right = value_of(*e.args[i + 1]);
      runtime_.line = e.line;
      if (!holds(e.ops[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  bool holds(const std::string& op, const Value& left, const Value& right) {
    if (op == "==") return is_equal(runtime_, left, right);
    if (op == "!=") return !is_equal(runtime_, left, right);
    if (op == "in") return contains(runtime_, right, left);
    if (op == "not in") return !contains(runtime_, right, left);
    const int order = compare(runtime_, left, right);
    if (op == "<") return order < 0;
    if (op == "<=") return order <= 0;
    return op == ">" ? order > 0 : order >= 0;
  }

  Value filter(const Expr& e) { return filtered(e, std::nullopt); }

  // A chain of filters; `in` is what goes into the innermost where it has no value of its own (a filter block).
  Value filtered(const Expr& e, const std::optional<Value>& in) {
    const Runtime::Level level(runtime_);
    const Expr* const inner = e.args[0];
    const Value value = inner == nullptr                        ? *in
                        : in && inner->kind == ExprKind::filter ? filtered(*inner, in)
                                                                : value_of(*inner);
    const Arguments arguments = arguments_of(e);
    runtime_.line = e.line;
    return call_filter(runtime_, e.name, value, arguments);
  }

  Value test(const Expr& e) {
    const Value value = value_of(*e.args[0]);
    const Arguments arguments = arguments_of(e);
    runtime_.line = e.line;
    return call_test(runtime_, e.name, value, arguments);
  }

  Arguments arguments_of(const Expr& e) {
    Arguments arguments;
    for (std::size_t i = 1; i < e.args.size(); ++i) arguments.positional.push_back(value_of(*e.args[i]));
    for (const Keyword& keyword : e.keywords) arguments.named.emplace_back(keyword.name, value_of(*keyword.value));
    if (e.star != nullptr) {
      for (Value& item : items_of(runtime_, value_of(*e.star))) arguments.positional.push_back(std::move(item));
    }
    if (e.star_star != nullptr) {
      const Value more = value_of(*e.star_star);
      if (more.dict() == nullptr) wrong("'**' wants a dict, not a {}", type_name(more));
      for (const auto& [key, value] : more.dict()->items) {
        arguments.named.emplace_back(text_argument("'**'", key).view(), value);
      }
    }
    return arguments;
  }

  Value call(const Expr& e) {
    const Expr& callee = *e.args[0];
    if (callee.kind == ExprKind::attribute) {  // a method: no need to make an object of it first
      const Value self = value_of(*callee.args[0]);
      if (has_method(self, callee.name)) {
        const Arguments arguments = arguments_of(e);
        runtime_.line = e.line;
        return call_method(runtime_, self, callee.name, arguments);
      }
      runtime_.line = callee.line;
      return call_value(e, attribute_of(runtime_, self, callee.name));
    }
    return call_value(e, value_of(callee));
  }

  Value call_value(const Expr& e, const Value& function) {
    const Arguments arguments = arguments_of(e);
    runtime_.line = e.line;
    if (function.is<Undefined>()) fail_undefined(function);
    if (function.macro() != nullptr) return call_macro(*function.macro(), arguments);
    if (function.bound() == nullptr) wrong("a {} cannot be called", type_name(function));
    return call_method(runtime_, function.bound()->self, function.bound()->name, arguments);
  }

  Value call_macro(const Macro& macro, const Arguments& arguments) {
    const Stmt& definition = *macro.definition;
    const int line = runtime_.line;
    Text text = captured([&] {
      in_scope_of(macro.scope, [&] {
        bind_arguments(runtime_, definition, arguments, *scope_, [&](const Expr& e) { return value_of(e); });
        return execute(definition.body);
      });
    });
    runtime_.line = line;
    return runtime_.text(std::move(text));
  }

  Runtime& runtime_;
  std::shared_ptr<Scope> scope_;
  Text out_;
};

}  // namespace

Text evaluate(Runtime& runtime, const Tree& tree, std::shared_ptr<Scope> globals) {
  return Evaluator(runtime, std::move(globals)).run(tree);
}

}  // namespace conclave::jinja
